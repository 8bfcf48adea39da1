package ruleset

import (
	"net/netip"
	"time"
)

// Family is an address family. Each has a table of its own.
type Family uint8

// The families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Families has both families.
var Families = []Family{IPv4, IPv6}

// FamilyOf returns the family of an address.
func FamilyOf(address netip.Addr) Family {
	if address.Is4() {
		return IPv4
	}
	return IPv6
}

// Name returns the family's name in the API.
func (f Family) Name() string {
	if f == IPv6 {
		return "IPv6"
	}
	return "IPv4"
}

// Protocol is a transport protocol by its number in IP headers.
type Protocol uint8

// The protocols of Services.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

var protocols = []Protocol{TCP, UDP, SCTP}

// TableName is the name of the table of either family.
const TableName = "vicinity"

// Field is a part of the key or of the data of a set.
type Field uint8

// The fields. Each begins at a multiple of four bytes.
const (
	FieldAddress  Field = iota + 1 // 4 or 16 bytes, as the family has it
	FieldProtocol                  // 1 byte
	FieldPort                      // 2 bytes, in network order
	FieldSlot                      // 4 bytes, in the machine's order
)

// Set is a set of the kernel, or a map.
type Set struct {
	Name     string
	Key      []Field
	Data     []Field // the values of a map, unless they are verdicts
	Verdicts bool    // it is a map to verdicts
	Dynamic  bool    // packets add elements, which have a timeout, by Remember
	// Size bounds the elements that packets add. Zero stands for the kernel's default, MostAffinityClients.
	Size int
}

// Element is one element of a set, in the kernel's bytes.
type Element struct {
	Key, Data string
	Verdict   Verdict // the value in a map to verdicts
}

// Verdict is the verdict on a packet. The zero value is none.
type Verdict struct {
	Kind  VerdictKind
	Chain string // of a goto
}

// VerdictKind is a kind of verdict.
type VerdictKind uint8

// The kinds of verdicts.
const (
	VerdictDrop VerdictKind = iota + 1
	VerdictGoto
	VerdictReturn
)

// Chain is a chain with all its rules.
type Chain struct {
	Name  string
	Base  *Base // nil for a chain that others lead to
	Rules []Rule
}

// Base is the hook of a base chain.
type Base struct {
	NAT      bool // of type nat, otherwise of type filter
	Hook     Hook
	Priority int
}

// Hook is a hook of the kernel, by its number there.
type Hook uint8

// The hooks.
const (
	Prerouting Hook = iota
	Input
	Forward
	Output
	Postrouting
)

// ChangeKind is the kind of a change.
type ChangeKind uint8

// The kinds of changes.
const (
	AddTable    ChangeKind = iota + 1
	DeleteTable            // with all that it holds, whether it exists or not
	AddSet
	DeleteSet
	AddChain // with its rules
	DeleteChain
	ReplaceRules   // the base of the chain stays
	AddElements    // to change data, delete the element and add it in one transaction
	DeleteElements // by keys alone
)

// Change is one change. Its kind decides which fields count. Changes share the values of their fields, which must not
// change.
type Change struct {
	Kind     ChangeKind
	Set      *Set
	Chain    *Chain
	Elements []Element
}

// Transaction is a list of changes that the kernel makes atomically.
type Transaction struct {
	Family  Family
	Changes []Change
}

// Empty reports whether there is nothing to do.
func (t Transaction) Empty() bool { return len(t.Changes) == 0 }

// Listing is a listing of one family's table in the kernel.
type Listing struct {
	Family  Family
	Exists  bool
	Flagged bool // the table has flags, such as dormant, which this package never sets
	Unread  bool // the table is unknown and must be replaced
	Chains  []ListedChain
	Sets    []ListedSet
}

// ListedChain is a chain in the kernel.
type ListedChain struct {
	Name        string
	Base        *Base
	ForeignBase bool // the base has a type or policy that no chain of this package has
	// Fingerprints are the fingerprints of its rules, empty for a foreign rule. See Chain.Fingerprints.
	Fingerprints []string
}

// ListedSet is a set in the kernel.
type ListedSet struct {
	Name        string
	Fingerprint string           // see Set.Fingerprint
	Elements    []Element        // of sets that packets do not add to
	Remembered  []netip.AddrPort // the distinct targets in a map that packets add to
}

// Interference reports whether another program has changed the table.
type Interference uint8

// Another program has changed no table, perhaps this table, or certainly this table.
const (
	NoInterference Interference = iota
	PossibleInterference
	Interfered
)

// Front is an address that clients connect to.
type Front struct {
	Address  netip.Addr
	Protocol Protocol
	Port     uint16
}

// ServicePort describes the rules of one family for one port of a Service. Its lists must not change after it is staged.
type ServicePort struct {
	// Name is "namespace/name:port", and unique in a table.
	Name string
	// Rank decides which port gets a front that several ports claim: the lowest rank, then the lowest name.
	Rank   string
	Fronts []FrontEnd // each once
	// Cluster has the endpoints for traffic that may go anywhere. An endpoint that is listed twice gets twice the traffic.
	Cluster []netip.AddrPort
	// Weights has the weights of Cluster's endpoints, from 1 to MostWeight, nil if all are equal.
	Weights []uint32
	// Local has the endpoints for traffic that must stay on the node.
	Local []netip.AddrPort
	// Affinity is how long a client stays with its endpoint, zero if it does not.
	Affinity time.Duration
	Known    Known
}

// MostWeight is the greatest weight that an endpoint may have.
const MostWeight = 1000

// Known has the endpoints of a port that new connections do not use. It decides which connections may continue: a connection
// ends when its endpoint is known to have ended, whatever policies and plans say about new connections.
type Known struct {
	Serving []netip.AddrPort // endpoints that serve, perhaps in no pool
	Silent  []netip.AddrPort // endpoints that exist and do not serve
	// Drained has endpoints whose connections end, even if they serve. Those in a pool do not count, and none does while the
	// pools are empty.
	Drained []netip.AddrPort
	// View names the part of all endpoints that the node sees, empty for all. Others may exist.
	View string
	// Fleeting has the endpoints of the pools and of Serving that may leave the View and still serve.
	Fleeting []netip.AddrPort
}

// FrontEnd is a front with its treatment.
type FrontEnd struct {
	Front
	Pool Pool
	// ClusterIP means that the rules refuse other ports of the address, and masquerade by Config.
	ClusterIP bool
	NodePort  bool // the cluster assigned the port to one ServicePort
	// Masquerade masquerades all traffic, except local traffic of PoolSplit.
	Masquerade bool
	Empty      Refusal        // for new connections without an endpoint
	Sources    []netip.Prefix // the allowed sources, nil for all
}

// Pool is the set of endpoints for the traffic of a front.
type Pool uint8

// The pools.
const (
	// PoolCluster is ServicePort.Cluster.
	PoolCluster Pool = iota
	// PoolLocal is ServicePort.Local.
	PoolLocal
	// PoolSplit is ServicePort.Cluster for pods and for the node, whose traffic is masqueraded, and ServicePort.Local for
	// other clients, which keep their source address.
	PoolSplit
)

// Refusal is the treatment of a connection without an endpoint.
type Refusal uint8

// The refusals.
const (
	Reject Refusal = iota
	Drop
	DropOutside // rejects connections of pods and of the node, and drops others
	Ignore      // another proxy may serve the front
)

// Stale identifies tracked connections of a front that must end.
type Stale struct {
	Front Front
	// Target is the ended endpoint. It is the front itself for connections that were not translated for lack of an
	// endpoint.
	Target netip.AddrPort
	// Drained says that the endpoint serves, so that the ends of its connections do not notice.
	Drained bool
}

// Forget requests the deletion of clients from a map that packets add to.
type Forget struct {
	Set string // the map, which may be deleted meanwhile
	// Keep has the targets whose clients stay, sorted, each once. Other clients are deleted.
	Keep []netip.AddrPort
}

// Commit is the result of Table.Commit.
type Commit struct {
	Transaction Transaction
	// Stale and Forget are due after the kernel has taken the transaction. If it refused, the Commit after Adopt has them
	// again. A later Commit repeats them for packets that were on their way.
	Stale  []Stale
	Forget []Forget
}

// Dispute is a front that two ServicePorts claim.
type Dispute struct {
	Front         Front
	Winner, Loser string // names of ServicePorts
}
