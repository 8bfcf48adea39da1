// Package locate says where the client with an address is: on which node, and with which
// labels. It takes the first of these that knows the address:
//
//   - a node's own addresses, which its pods on the host network share,
//   - the PodLocator of a pod,
//   - the pod ranges of nodes, the longest prefix first.
//
// It does not read objects: internal/names/location turns a Node or a PodLocator into what the
// index takes. It does not judge what is near a client either.
package locate

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"
	"unique"
)

// Location is where a client is. A client whose node is not known has no location.
type Location struct {
	Node string
	// Labels are those of the node as far as the source has them. All who look up the same
	// location share them: they are read only.
	Labels map[string]string
	Source Source
}

// Source says how a client was located.
type Source uint8

// The sources. Of two that know an address the first counts.
const (
	NodeAddress Source = iota + 1
	PodLocator
	PodRange
)

// String is the word for the source in metrics, in documents and in the output of vicinity explain.
func (s Source) String() string {
	switch s {
	case NodeAddress:
		return "node"
	case PodLocator:
		return "locator"
	case PodRange:
		return "range"
	}
	return "unknown"
}

// Node is what locates by a node.
type Node struct {
	// Addresses are the node's own, those of its tunnels included.
	Addresses []netip.Addr
	PodRanges []netip.Prefix
	// Labels are kept, not copied: the caller must not change them any more.
	Labels map[string]string
	// Created tells which of two nodes with one address counts: the newer.
	Created time.Time
}

// Pod is what locates by a PodLocator. One without node and labels locates nothing.
type Pod struct {
	IPs  []netip.Addr
	Node string
	// Labels count while no node of the name is known: a PodLocator has a copy of the node's labels,
	// which is written some time after they change. They are kept, not copied: the caller must not
	// change them any more.
	Labels map[string]string
	// Created tells which of two pods with one address counts: the newer, and of two created
	// in the same second the one that took its addresses last. The other counts again once
	// the first is deleted.
	Created time.Time
}

// Index finds locations. All its methods may be called at any time by any goroutine.
type Index struct {
	mu    sync.RWMutex
	nodes map[string]*entry
	pods  map[podName]*entry
	// copied has the copies of labels in PodLocators by the name of their node, which may be unknown.
	copied map[string]*copiedLabels
	// claims are those for each prefix, the one that counts first. An address is a prefix of full length.
	claims map[netip.Prefix][]claim
	// lengths4 and lengths6 are the lengths of the prefixes of each family, the longest first.
	lengths4, lengths6 []length
}

type podName struct {
	namespace unique.Handle[string]
	name      string
}

// entry is a node or a pod.
type entry struct {
	source    Source // of its addresses
	node      string
	labels    map[string]string
	addresses []netip.Addr
	ranges    []netip.Prefix
	created   int64 // in seconds since 1970
}

// copiedLabels are what PodLocators say of the labels of one node. They have equal copies, of which one is kept.
type copiedLabels struct {
	labels map[string]string
	pods   int
}

// claim says that a prefix belongs to an entry.
type claim struct {
	*entry
	source Source
}

// length counts the claims for prefixes of so many bits.
type length struct{ bits, claims int }

// New returns an index that knows nothing.
func New() *Index {
	return &Index{
		nodes: map[string]*entry{}, pods: map[podName]*entry{}, copied: map[string]*copiedLabels{}, claims: map[netip.Prefix][]claim{},
	}
}

// Lookup finds the client with an address, of either family. An IPv4 address may come mapped
// into IPv6; a zone of the address is ignored.
func (x *Index) Lookup(addr netip.Addr) (Location, bool) {
	addr = addr.Unmap().WithZone("")
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, l := range *x.lengthsOf(addr) {
		prefix, _ := addr.Prefix(l.bits)
		if found := x.claims[prefix]; len(found) > 0 {
			return x.locationOf(found[0]), true
		}
	}
	return Location{}, false
}

// SetNode adds a node, or replaces what is known of it.
func (x *Index) SetNode(name string, n Node) {
	x.mu.Lock()
	defer x.mu.Unlock()
	fresh := &entry{source: NodeAddress, node: name, labels: n.Labels, addresses: hosts(n.Addresses), created: n.Created.Unix()}
	for _, prefix := range n.PodRanges {
		if prefix.IsValid() {
			fresh.ranges = append(fresh.ranges, unmapped(prefix).Masked())
		}
	}
	x.nodes[name] = x.replace(x.nodes[name], fresh)
}

// DeleteNode forgets a node. PodLocators that name it have their own labels again.
func (x *Index) DeleteNode(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.remove(x.nodes[name])
	delete(x.nodes, name)
}

// SetPod adds the PodLocator of a pod, or replaces what is known of it. A pod that keeps its
// addresses keeps its place among those that have the same.
func (x *Index) SetPod(namespace, name string, p Pod) {
	x.mu.Lock()
	defer x.mu.Unlock()
	key := podName{unique.Make(namespace), name}
	fresh := &entry{source: PodLocator, node: p.Node, addresses: hosts(p.IPs), created: p.Created.Unix()}
	if p.Node == "" && len(p.Labels) == 0 || len(fresh.addresses) == 0 {
		x.removePod(key)
		return
	}
	fresh.labels = x.share(p.Node, p.Labels)
	old := x.pods[key]
	if old != nil {
		x.unshare(old.node)
	}
	x.pods[key] = x.replace(old, fresh)
}

// DeletePod forgets the PodLocator of a pod.
func (x *Index) DeletePod(namespace, name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.removePod(podName{unique.Make(namespace), name})
}

func (x *Index) removePod(key podName) {
	if old := x.pods[key]; old != nil {
		x.unshare(old.node)
		x.remove(old)
		delete(x.pods, key)
	}
}

// locationOf is where a claim is. The labels of a known node count before those of a PodLocator.
func (x *Index) locationOf(c claim) Location {
	at := Location{Node: c.node, Labels: c.labels, Source: c.source}
	if n := x.nodes[c.node]; n != nil {
		at.Labels = n.labels
	}
	return at
}

// share returns the labels that another PodLocator of the node has, if they are equal. The caller owes an unshare.
func (x *Index) share(node string, labels map[string]string) map[string]string {
	c := x.copied[node]
	if c == nil {
		c = &copiedLabels{}
		x.copied[node] = c
	}
	c.pods++
	if !maps.Equal(c.labels, labels) {
		c.labels = labels
	}
	return c.labels
}

// unshare forgets the labels of a node with its last PodLocator.
func (x *Index) unshare(node string) {
	c := x.copied[node]
	if c.pods--; c.pods == 0 {
		delete(x.copied, node)
	}
}

// replace puts an entry in the place of another, which may be nil, and returns the one that is known then. An
// entry whose claims stay keeps its place among others.
func (x *Index) replace(old, fresh *entry) *entry {
	if old != nil && old.created == fresh.created && slices.Equal(old.addresses, fresh.addresses) && slices.Equal(old.ranges, fresh.ranges) {
		old.node, old.labels = fresh.node, fresh.labels
		return old
	}
	fresh.eachClaim(x.insert)
	x.remove(old)
	return fresh
}

// remove takes the claims of an entry away, which may be nil.
func (x *Index) remove(e *entry) {
	if e != nil {
		e.eachClaim(x.drop)
	}
}

// eachClaim calls a function with each prefix of the entry.
func (e *entry) eachClaim(do func(netip.Prefix, claim)) {
	for _, addr := range e.addresses {
		do(netip.PrefixFrom(addr, addr.BitLen()), claim{e, e.source})
	}
	for _, prefix := range e.ranges {
		do(prefix, claim{e, PodRange})
	}
}

// insert adds a claim before those that count less.
func (x *Index) insert(prefix netip.Prefix, c claim) {
	all := x.claims[prefix]
	at := slices.IndexFunc(all, func(other claim) bool {
		return other.source > c.source || other.source == c.source && other.created <= c.created
	})
	if at < 0 {
		at = len(all)
	}
	x.claims[prefix] = slices.Insert(all, at, c)
	x.count(prefix, 1)
}

// drop removes a claim.
func (x *Index) drop(prefix netip.Prefix, c claim) {
	all := x.claims[prefix]
	at := slices.Index(all, c)
	if len(all) == 1 {
		delete(x.claims, prefix)
	} else {
		x.claims[prefix] = slices.Delete(all, at, at+1)
	}
	x.count(prefix, -1)
}

// count counts a claim that came or went by the length of its prefix.
func (x *Index) count(prefix netip.Prefix, by int) {
	lengths := x.lengthsOf(prefix.Addr())
	at, found := slices.BinarySearchFunc(*lengths, prefix.Bits(), func(l length, bits int) int { return bits - l.bits })
	if !found {
		*lengths = slices.Insert(*lengths, at, length{bits: prefix.Bits()})
	}
	if (*lengths)[at].claims += by; (*lengths)[at].claims == 0 {
		*lengths = slices.Delete(*lengths, at, at+1)
	}
}

func (x *Index) lengthsOf(addr netip.Addr) *[]length {
	if addr.Is4() {
		return &x.lengths4
	}
	return &x.lengths6
}

// hosts are the valid addresses of a list, without zones and not mapped into IPv6.
func hosts(addrs []netip.Addr) []netip.Addr {
	kept := make([]netip.Addr, 0, len(addrs))
	for _, addr := range addrs {
		if addr.IsValid() {
			kept = append(kept, addr.Unmap().WithZone(""))
		}
	}
	return kept
}

// unmapped is a prefix of IPv4 if all its addresses are mapped into IPv6.
func unmapped(prefix netip.Prefix) netip.Prefix {
	if prefix.Addr().Is4In6() && prefix.Bits() >= 96 {
		return netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	return prefix
}
