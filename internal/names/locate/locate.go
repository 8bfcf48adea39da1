// Package locate finds the node of a client by its address, and the labels of the node. The first source with the address
// counts:
//
//   - a node's own addresses, which its pods on the host network share,
//   - the PodLocator of a pod,
//   - the pod ranges of nodes, the longest prefix first.
//
// internal/names/location reads the objects. The package does not decide what is near a client.
package locate

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"
	"unique"
)

// Location is the location of a client. It is empty if the client's node is unknown.
type Location struct {
	Node string
	// Labels has the labels of the node, as far as the source has them. Callers share them and must not change them.
	Labels map[string]string
	Source Source
}

// Source is the source of a location.
type Source uint8

// The sources. If two have an address, the first counts.
const (
	NodeAddress Source = iota + 1
	PodLocator
	PodRange
)

// String returns the word for the source in metrics, documents and the output of vicinity explain.
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

// Node locates clients by a node.
type Node struct {
	// Addresses has the node's own addresses, including those of its tunnels.
	Addresses []netip.Addr
	PodRanges []netip.Prefix
	// Labels is not copied: the caller must not change it afterwards.
	Labels map[string]string
	// Created decides between two nodes with one address: the newer counts.
	Created time.Time
}

// Pod locates clients by a PodLocator. Without node and labels it locates none.
type Pod struct {
	IPs  []netip.Addr
	Node string
	// Labels counts only while the node is unknown: a PodLocator has a copy of the node's labels, which may be out of date.
	// Labels is not copied: the caller must not change it afterwards.
	Labels map[string]string
	// Created decides between two pods with one address: the newer counts and, within the same second, the one that got
	// its addresses last. The other counts again when the first is deleted.
	Created time.Time
}

// Index finds locations. Any goroutine may call its methods.
type Index struct {
	mu    sync.RWMutex
	nodes map[string]*entry
	pods  map[podName]*entry
	// copied has the labels in PodLocators by node, which may be unknown.
	copied map[string]*copiedLabels
	// claims has the claims for each prefix. The first counts. An address is a prefix of full length.
	claims map[netip.Prefix][]claim
	// lengths4 and lengths6 have the prefix lengths of each family, the longest first.
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

// copiedLabels is the shared copy of a node's labels in PodLocators.
type copiedLabels struct {
	labels map[string]string
	pods   int
}

// claim means that a prefix belongs to an entry.
type claim struct {
	*entry
	source Source
}

// length counts the claims for prefixes of one length.
type length struct{ bits, claims int }

// New returns an empty index.
func New() *Index {
	return &Index{
		nodes: map[string]*entry{}, pods: map[podName]*entry{}, copied: map[string]*copiedLabels{}, claims: map[netip.Prefix][]claim{},
	}
}

// Lookup finds the client with an address. It accepts IPv4 addresses mapped into IPv6, and ignores the zone of an address.
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

// SetNode adds or replaces a node.
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

// DeleteNode deletes a node. PodLocators on it use their own labels again.
func (x *Index) DeleteNode(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.remove(x.nodes[name])
	delete(x.nodes, name)
}

// SetPod adds or replaces the PodLocator of a pod. A pod that keeps its addresses keeps its place among others with the same
// addresses.
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

// DeletePod deletes the PodLocator of a pod.
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

// locationOf returns the location of a claim. The labels of a known node win over those of a PodLocator.
func (x *Index) locationOf(c claim) Location {
	at := Location{Node: c.node, Labels: c.labels, Source: c.source}
	if n := x.nodes[c.node]; n != nil {
		at.Labels = n.labels
	}
	return at
}

// share returns the shared copy of equal labels for a node. The caller must call unshare later.
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

// unshare drops the labels of a node with its last PodLocator.
func (x *Index) unshare(node string) {
	c := x.copied[node]
	if c.pods--; c.pods == 0 {
		delete(x.copied, node)
	}
}

// replace replaces an entry, which may be nil, and returns the current one. If the claims do not change, the old entry stays
// and keeps its place among others.
func (x *Index) replace(old, fresh *entry) *entry {
	if old != nil && old.created == fresh.created && slices.Equal(old.addresses, fresh.addresses) && slices.Equal(old.ranges, fresh.ranges) {
		old.node, old.labels = fresh.node, fresh.labels
		return old
	}
	fresh.eachClaim(x.insert)
	x.remove(old)
	return fresh
}

// remove removes the claims of an entry, which may be nil.
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

// insert adds a claim before the claims that it precedes.
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

// count adds to the number of claims for the length of a prefix.
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

// hosts returns the valid addresses of a list, without zones and not mapped into IPv6.
func hosts(addrs []netip.Addr) []netip.Addr {
	kept := make([]netip.Addr, 0, len(addrs))
	for _, addr := range addrs {
		if addr.IsValid() {
			kept = append(kept, addr.Unmap().WithZone(""))
		}
	}
	return kept
}

// unmapped returns the IPv4 prefix if all addresses of a prefix are mapped into IPv6.
func unmapped(prefix netip.Prefix) netip.Prefix {
	if prefix.Addr().Is4In6() && prefix.Bits() >= 96 {
		return netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	return prefix
}
