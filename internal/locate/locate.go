// Package locate says where the client with an address is: on which node, and with which
// labels. It takes the first of these that knows the address:
//
//   - a node's own addresses, which its pods on the host network share,
//   - the PodLocator of a pod,
//   - the pod ranges of nodes, the longest prefix first.
//
// It does not read objects: internal/location turns a Node or a PodLocator into what the
// index takes. It does not judge what is near a client either.
//
// Lookups take no lock and no memory, and go on while the index is changed: readers follow
// chains that one writer at a time relinks, and the garbage collector keeps what a reader
// still holds.
package locate

import (
	"net/netip"
	"sync"
	"sync/atomic"
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

// The sources, the one that is asked first before the others.
const (
	NodeAddress Source = iota + 1
	PodLocator
	PodRange
)

// String is the word for the source in metrics, in documents and in what vicinity explain tells.
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
	// Labels count if no node of the name is known when the pod is set: a PodLocator has a copy of the
	// node's, which is written some time after they change. They are kept, not copied: the caller must
	// not change them any more.
	Labels map[string]string
	// Created tells which of two pods with one address counts: the newer, and of two created
	// in the same second the one that took its addresses last. The other counts again once
	// the first is deleted.
	Created time.Time
}

// Index finds locations. All its methods may be called at any time by any goroutine.
type Index struct {
	table atomic.Pointer[table]

	writing sync.Mutex // for all below, and for changes of the table
	nodes   map[string]*node
	hosts   map[string]*place // the first ones of PodLocators, by the node that those name
	pods    podTable
	lengths lengths
	claims  int
}

// New returns an index that knows nothing.
func New() *Index {
	x := &Index{nodes: make(map[string]*node), hosts: make(map[string]*place), pods: newPodTable(minBuckets)}
	x.table.Store(newTable(minBuckets))
	return x
}

// Lookup finds the client with an address, of either family. An IPv4 address may come mapped
// into IPv6; a zone of the address is ignored.
func (x *Index) Lookup(addr netip.Addr) (Location, bool) {
	if !addr.IsValid() {
		return Location{}, false
	}
	k := keyOf(addr)
	for {
		t := x.table.Load()
		c := t.find(k)
		// The chains of a table that has been replaced may have been cut: look again.
		if x.table.Load() != t {
			continue
		}
		if c == nil {
			return Location{}, false
		}
		return *c.place.Load().location.Load(), true
	}
}

// SetNode puts a node in, or puts what is known of it right.
func (x *Index) SetNode(name string, n Node) {
	x.writing.Lock()
	defer x.writing.Unlock()
	x.setNode(name, n)
}

// DeleteNode forgets a node. PodLocators that name it have their own labels again.
func (x *Index) DeleteNode(name string) {
	x.writing.Lock()
	defer x.writing.Unlock()
	if n := x.nodes[name]; n != nil {
		x.removeAll(n.claims)
		delete(x.nodes, name)
		for p := x.hosts[name]; p != nil; p = p.next {
			p.set(name, p.copied, PodLocator)
		}
	}
}

// SetPod puts the PodLocator of a pod in, or puts what is known of it right. A pod that keeps
// its addresses keeps its place among those that have the same.
func (x *Index) SetPod(namespace, name string, p Pod) {
	x.writing.Lock()
	defer x.writing.Unlock()
	x.setPod(podName{unique.Make(namespace), name}, p)
}

// DeletePod forgets the PodLocator of a pod.
func (x *Index) DeletePod(namespace, name string) {
	x.writing.Lock()
	defer x.writing.Unlock()
	x.deletePod(podName{unique.Make(namespace), name})
}
