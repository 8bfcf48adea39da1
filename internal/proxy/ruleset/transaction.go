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

// Protocol is the number of a transport protocol, as IP headers have it.
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

// The fields. In keys and data each begins at a multiple of four bytes.
const (
	FieldAddress  Field = iota + 1 // 4 or 16 bytes, as the family has it
	FieldProtocol                  // 1 byte
	FieldPort                      // 2 bytes, in network order
	FieldSlot                      // 4 bytes, in the machine's order
)

// Set is a set of the kernel, or a map.
type Set struct {
	Name string
	Key  []Field
	// Data are the fields of a map's values, nil if they are verdicts or if it is a
	// set.
	Data []Field
	// Verdicts says that it is a map to verdicts.
	Verdicts bool
	// Dynamic says that packets add elements, which have a timeout, by Remember.
	Dynamic bool
	// Size is how many elements packets may add, MostAffinityClients if zero, which is the
	// kernel's own bound. Sets that are not dynamic have no bound.
	Size int
}

// Element is one element of a set. Key and Data are the bytes that the kernel
// compares and loads, so elements of different times can be compared as they are.
type Element struct {
	Key, Data string
	// Verdict is the value in a map to verdicts.
	Verdict Verdict
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
	Name string
	// Base is where packets enter, nil for a chain that others lead to.
	Base  *Base
	Rules []Rule
}

// Base is what makes a chain one that packets enter.
type Base struct {
	NAT      bool // of type nat, else of type filter
	Hook     Hook
	Priority int
}

// Hook is where on their way packets enter a chain.
type Hook uint8

// The hooks, with the numbers that the kernel gives them.
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
	AddTable ChangeKind = iota + 1
	// DeleteTable deletes the table with all it holds, whether it is there or not.
	DeleteTable
	AddSet
	DeleteSet
	AddChain // with its rules
	DeleteChain
	// ReplaceRules gives a chain other rules. Its base stays.
	ReplaceRules
	// AddElements adds elements whose keys are not there. The data of an element cannot be
	// changed: it is deleted and added in one transaction.
	AddElements
	// DeleteElements deletes elements by their keys, which are all that they have.
	DeleteElements
)

// Change is a change of one thing. Which fields have a meaning follows from its kind. What
// they point to may be shared by changes and must stay as it is.
type Change struct {
	Kind     ChangeKind
	Set      *Set
	Chain    *Chain
	Elements []Element
}

// Transaction is what the kernel is to do at once, in order, or not at all.
type Transaction struct {
	Family  Family
	Changes []Change
}

// Empty reports whether there is nothing to do.
func (t Transaction) Empty() bool { return len(t.Changes) == 0 }

// Listing is what the kernel holds of one family's table.
type Listing struct {
	Family Family
	// Exists is false if there is no table.
	Exists bool
	// Flagged says that the table has flags, as none of this package has. One that is
	// dormant does nothing.
	Flagged bool
	// Unread says that it is not known what there is, and that all is made anew.
	Unread bool
	Chains []ListedChain
	Sets   []ListedSet
}

// ListedChain is a chain that the kernel holds.
type ListedChain struct {
	Name string
	// Base is where packets enter, nil for a chain that others lead to.
	Base *Base
	// ForeignBase says that the base has a type or a policy that no chain of this package
	// has.
	ForeignBase bool
	// Fingerprints are what its rules carry, in order: Chain.Fingerprints if the chain is
	// as this package made it. A rule of somebody else has an empty one.
	Fingerprints []string
}

// ListedSet is a set that the kernel holds.
type ListedSet struct {
	Name string
	// Fingerprint is what the set carries: Set.Fingerprint if it is as this package made
	// it.
	Fingerprint string
	// Elements are left out of sets that packets add to.
	Elements []Element
	// Remembered are the targets that clients have in a map that packets add to, each once.
	Remembered []netip.AddrPort
}

// Interference is what is known of changes that somebody else has made.
type Interference uint8

// What is known: that there was none of this table, that somebody has changed something and
// maybe this table, and that it is this table.
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

// ServicePort is what the rules of one family are to do for one port of a Service. Nobody
// changes its lists once it is staged in a table.
type ServicePort struct {
	// Name is that of the Service, with its namespace, and of the port:
	// "namespace/name:port". It is unique in a table.
	Name string
	// Rank decides who has a front that several want: the lowest, and of the same rank
	// the lowest name.
	Rank string
	// Fronts are the addresses of the port, each once.
	Fronts []FrontEnd
	// Cluster are the endpoints for traffic that may go anywhere, in any order. An
	// endpoint that is here several times takes as many times the traffic.
	Cluster []netip.AddrPort
	// Weights are those of Cluster's endpoints, in its order: each takes traffic in
	// proportion to its own. They are from 1 to MostWeight, and nil if all are alike.
	Weights []uint32
	// Local are those of traffic that must stay on the node.
	Local []netip.AddrPort
	// Affinity is how long a client stays with its endpoint, zero if it does not.
	Affinity time.Duration
	// Known decides which connections may go on.
	Known Known
}

// MostWeight is the greatest weight that an endpoint may have.
const MostWeight = 1000

// Known is what is known of the endpoints of a port beside those that new connections go
// to. Where they go is a matter of policies and plans, which must not end what was begun:
// a connection ends when its endpoint is known to have ended.
type Known struct {
	// Serving are endpoints that serve and may be in no pool.
	Serving []netip.AddrPort
	// Silent are those that are there and do not serve.
	Silent []netip.AddrPort
	// View tells which of all endpoints the node is shown, empty if it is shown all. Of
	// one that it is not shown it does not know whether it is there.
	View string
	// Fleeting are those of the pools and of Serving that may go out of the View and
	// serve on.
	Fleeting []netip.AddrPort
}

// FrontEnd is a front with its treatment.
type FrontEnd struct {
	Front
	// Pool is what its traffic goes to.
	Pool Pool
	// ClusterIP says that it is one that the rules refuse other ports of, and
	// masquerade by what Config says of addresses of Services.
	ClusterIP bool
	// NodePort says that it is a port that the cluster has given to one ServicePort, at an
	// address of the node.
	NodePort bool
	// Masquerade says that all its traffic gets the node's address as its source,
	// but for what a pool Split keeps.
	Masquerade bool
	// Empty is what becomes of new connections that no endpoint is for.
	Empty Refusal
	// Sources are those that may connect, nil if all may.
	Sources []netip.Prefix
}

// Pool is what the traffic of a front end goes to.
type Pool uint8

// The pools.
const (
	// PoolCluster is ServicePort.Cluster.
	PoolCluster Pool = iota
	// PoolLocal is ServicePort.Local.
	PoolLocal
	// PoolSplit is ServicePort.Cluster for pods of the cluster, and for the node itself,
	// whose traffic is masqueraded, and ServicePort.Local for all else, which keeps its
	// source address.
	PoolSplit
)

// Refusal is what becomes of a connection that no endpoint is for.
type Refusal uint8

// The refusals.
const (
	Reject Refusal = iota
	Drop
	// DropOutside drops connections, but rejects those of pods of the cluster and of the
	// node itself.
	DropOutside
	// Ignore leaves connections to whoever else serves the front.
	Ignore
)

// Stale is what tracked connections to a front no longer may use.
type Stale struct {
	Front Front
	// Target is where they go: the endpoint that ended; or the address and port of the
	// front itself, for connections that were not translated because no endpoint took
	// them, while one does now.
	Target netip.AddrPort
}

// Forget is a map that packets add to, some of whose elements must go.
type Forget struct {
	// Set is the map's name. It may be gone by the time the elements are looked at.
	Set string
	// Keep are the targets that remembered clients may go on using, sorted, each once.
	// Elements with any other go.
	Keep []netip.AddrPort
}

// Commit is what a Table wants done.
type Commit struct {
	Transaction Transaction
	// Stale and Forget are to be seen to when the kernel has taken the transaction, and
	// not if it has not: the Commit after Adopt has them again. So has the one that deletes
	// what lingered, for the sake of packets that were on their way.
	Stale  []Stale
	Forget []Forget
}

// Dispute is a front that two want.
type Dispute struct {
	Front         Front
	Winner, Loser string // names of ServicePorts
}
