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
	Data     []Field // of a map's values, unless they are verdicts
	Verdicts bool    // it is a map to verdicts
	Dynamic  bool    // packets add elements, which have a timeout, by Remember
	// Size is how many elements packets may add. Zero stands for the kernel's own bound,
	// MostAffinityClients.
	Size int
}

// Element is one element of a set, in the bytes that the kernel compares and loads.
type Element struct {
	Key, Data string
	Verdict   Verdict // the value in a map to verdicts
}

// Verdict is what becomes of a packet. Its zero value is none.
type Verdict struct {
	Kind  VerdictKind
	Chain string // of a jump or goto
}

// VerdictKind is a kind of verdict.
type VerdictKind uint8

// The kinds of verdicts.
const (
	VerdictDrop VerdictKind = iota + 1
	VerdictJump
	VerdictGoto
	VerdictReturn
)

// Chain is a chain with all its rules.
type Chain struct {
	Name  string
	Base  *Base // nil for a chain that others lead to
	Rules []Rule
}

// Base is where packets enter a chain.
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

// ChangeKind is what a change does.
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

// Change is a change of one thing. Its kind decides which fields count. Changes share what their
// fields point to, so nothing may change that.
type Change struct {
	Kind     ChangeKind
	Set      *Set
	Chain    *Chain
	Elements []Element
}

// Transaction is a list of changes that the kernel makes all at once, or not at all.
type Transaction struct {
	Family  Family
	Changes []Change
}

// Empty reports whether there is nothing to do.
func (t Transaction) Empty() bool { return len(t.Changes) == 0 }

// Listing is what the kernel holds of one family's table.
type Listing struct {
	Family  Family
	Exists  bool
	Flagged bool // the table has flags, such as dormant, which this package never sets
	Unread  bool // nothing is known, so everything is made anew
	Chains  []ListedChain
	Sets    []ListedSet
}

// ListedChain is a chain that the kernel holds.
type ListedChain struct {
	Name        string
	Base        *Base
	ForeignBase bool // the base has a type or policy that no chain of this package has
	// Fingerprints are those of its rules: Chain.Fingerprints if this package made the chain. A
	// foreign rule has an empty one.
	Fingerprints []string
}

// ListedSet is a set that the kernel holds.
type ListedSet struct {
	Name        string
	Fingerprint string           // Set.Fingerprint if this package made the set
	Elements    []Element        // of sets that packets do not add to
	Remembered  []netip.AddrPort // the targets of clients in a map that packets add to, each once
}

// Interference says whether somebody else has changed the table.
type Interference uint8

// Somebody else has changed nothing, maybe this table, or certainly this table.
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

// ServicePort is what the rules of one family do for one port of a Service. Its lists must not
// change once it is staged in a table.
type ServicePort struct {
	// Name is "namespace/name:port", and unique in a table.
	Name string
	// Rank decides who gets a front that several ports want: the lowest rank, then the lowest name.
	Rank   string
	Fronts []FrontEnd // each once
	// Cluster are the endpoints for traffic that may go anywhere. An endpoint that is listed
	// twice takes twice the traffic.
	Cluster []netip.AddrPort
	// Weights are those of Cluster's endpoints, from 1 to MostWeight, nil if all are alike.
	Weights []uint32
	// Local are the endpoints for traffic that must stay on the node.
	Local []netip.AddrPort
	// Affinity is how long a client stays with its endpoint, zero if it does not.
	Affinity time.Duration
	Known    Known
}

// MostWeight is the greatest weight that an endpoint may have.
const MostWeight = 1000

// Known are the endpoints of a port that new connections do not use. It decides which connections
// may go on: a connection ends when its endpoint is known to have ended, whatever policies and
// plans say of new ones.
type Known struct {
	Serving []netip.AddrPort // they serve, and may be in no pool
	Silent  []netip.AddrPort // they exist and do not serve
	// View names the part of all endpoints that the node sees, empty for all. The node does not
	// know whether others exist.
	View string
	// Fleeting are endpoints of the pools and of Serving that may leave the View and still serve.
	Fleeting []netip.AddrPort
}

// FrontEnd is a front with its treatment.
type FrontEnd struct {
	Front
	Pool Pool
	// ClusterIP says that the rules refuse other ports of the address, and masquerade as Config
	// says for Services.
	ClusterIP bool
	NodePort  bool // the cluster has given the port to one ServicePort
	// Masquerade gives all traffic the node's address as its source, except what PoolSplit keeps.
	Masquerade bool
	Empty      Refusal        // of new connections without an endpoint
	Sources    []netip.Prefix // those that may connect, nil for all
}

// Pool is what the traffic of a front end goes to.
type Pool uint8

// The pools.
const (
	// PoolCluster is ServicePort.Cluster.
	PoolCluster Pool = iota
	// PoolLocal is ServicePort.Local.
	PoolLocal
	// PoolSplit is ServicePort.Cluster for pods and for the node, whose traffic is masqueraded,
	// and ServicePort.Local for all others, which keep their source address.
	PoolSplit
)

// Refusal is what becomes of a connection without an endpoint.
type Refusal uint8

// The refusals.
const (
	Reject Refusal = iota
	Drop
	DropOutside // it rejects connections of pods and of the node, and drops others
	Ignore      // another proxy may serve the front
)

// Stale are the tracked connections of a front that must end.
type Stale struct {
	Front Front
	// Target is the endpoint that ended. It is the front itself for connections that were not
	// translated because there was no endpoint then.
	Target netip.AddrPort
}

// Forget asks to delete clients from a map that packets add to.
type Forget struct {
	Set string // the map, which may be gone meanwhile
	// Keep are the targets whose clients stay, sorted, each once. All other clients are deleted.
	Keep []netip.AddrPort
}

// Commit is what a Table asks for.
type Commit struct {
	Transaction Transaction
	// Stale and Forget follow once the kernel has taken the transaction. If it refused, the Commit
	// after Adopt has them again. A later Commit repeats them for packets that were on their way.
	Stale  []Stale
	Forget []Forget
}

// Dispute is a front that two ServicePorts want.
type Dispute struct {
	Front         Front
	Winner, Loser string // names of ServicePorts
}
