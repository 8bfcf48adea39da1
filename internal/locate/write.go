package locate

import (
	"maps"
	"math"
	"sync/atomic"
	"time"
	"unique"
)

// node is what the index keeps of a node.
type node struct {
	labels map[string]string
	claims *claim
	// own and pods are the places of its addresses and of its ranges.
	own, pods *place
}

// place is where claims are that share a location. Readers see a change of it for all of them.
type place struct {
	location atomic.Pointer[Location]
	// copied are the labels that the PodLocators here have. They count while the node is not known.
	copied map[string]string
	// next is another place of PodLocators that name the same node, and pods how many there are here.
	next *place
	pods int
}

func (p *place) set(name string, labels map[string]string, source Source) {
	p.location.Store(&Location{Node: name, Labels: labels, Source: source})
}

type podName struct {
	namespace unique.Handle[string]
	name      string
}

// hash is FNV-1a of "namespace/name".
func (n podName) hash() uint64 {
	h := uint64(14695981039346656037)
	for _, part := range [...]string{n.namespace.Value(), "/", n.name} {
		for i := range len(part) {
			h = (h ^ uint64(part[i])) * 1099511628211
		}
	}
	return h
}

// pod is what the index keeps of a pod, with the claim of its first address. It fills 80 bytes.
type pod struct {
	first claim
	podName
	next *pod
}

// podTable has the pods by name, in chains. Writers alone use it.
type podTable struct {
	chains []*pod // a power of two
	count  int
}

func newPodTable(size int) podTable { return podTable{chains: make([]*pod, size)} }

// at is where the pod is linked, or where one with that name would be.
func (t *podTable) at(n podName) **pod {
	at := &t.chains[n.hash()&uint64(len(t.chains)-1)]
	for *at != nil && (*at).podName != n {
		at = &(*at).next
	}
	return at
}

// put links a pod in the place of the one that had its name.
func (t *podTable) put(p *pod) {
	at := t.at(p.podName)
	if old := *at; old != nil {
		p.next = old.next
	} else {
		t.count++
	}
	*at = p
	if t.count <= maxPodLoad*len(t.chains) {
		return
	}
	double := newPodTable(2 * len(t.chains))
	double.count = t.count
	for _, p := range t.chains {
		for p != nil {
			next := p.next
			p.next = nil
			*double.at(p.podName) = p
			p = next
		}
	}
	*t = double
}

func (t *podTable) remove(at **pod) {
	*at = (*at).next
	t.count--
}

func (x *Index) setNode(name string, n Node) {
	keys := make([]key, 0, len(n.Addresses)+len(n.PodRanges))
	for _, addr := range n.Addresses {
		if addr.IsValid() {
			keys = append(keys, keyOf(addr))
		}
	}
	own := len(keys)
	for _, prefix := range n.PodRanges {
		if prefix.IsValid() {
			keys = append(keys, rangeOf(prefix))
		}
	}
	source := func(i int) Source {
		if i < own {
			return NodeAddress
		}
		return PodRange
	}

	old := x.nodes[name]
	if old != nil && matches(old.claims, keys, source, seconds(n.Created)) {
		if !maps.Equal(old.labels, n.Labels) {
			old.relabel(name, n.Labels)
			x.relocate(name, old)
		}
		return
	}
	fresh := &node{own: &place{}, pods: &place{}}
	fresh.relabel(name, n.Labels)
	for i := len(keys) - 1; i >= 0; i-- {
		c := &claim{}
		c.fill(keys[i], source(i), seconds(n.Created))
		c.place.Store(fresh.own)
		if i >= own {
			c.place.Store(fresh.pods)
		}
		c.sibling, fresh.claims = fresh.claims, c
	}
	x.insertAll(fresh.claims)
	if old != nil {
		x.removeAll(old.claims)
	}
	x.nodes[name] = fresh
	x.relocate(name, fresh)
}

// relabel gives a node other labels, and its places.
func (n *node) relabel(name string, labels map[string]string) {
	n.labels = labels
	n.own.set(name, labels, NodeAddress)
	n.pods.set(name, labels, PodRange)
}

// relocate gives the labels of a node to the PodLocators that name it.
func (x *Index) relocate(name string, n *node) {
	for p := x.hosts[name]; p != nil; p = p.next {
		p.set(name, n.labels, PodLocator)
	}
}

func (x *Index) setPod(name podName, p Pod) {
	if p.Node == "" && len(p.Labels) == 0 {
		x.deletePod(name)
		return
	}
	keys := make([]key, 0, len(p.IPs))
	for _, addr := range p.IPs {
		if addr.IsValid() {
			keys = append(keys, keyOf(addr))
		}
	}
	if len(keys) == 0 {
		x.deletePod(name)
		return
	}
	created := seconds(p.Created)
	source := func(int) Source { return PodLocator }

	old := *x.pods.at(name)
	at := x.enter(p.Node, p.Labels)
	if old != nil {
		x.leave(&old.first)
	}
	if old != nil && matches(&old.first, keys, source, created) {
		for c := &old.first; c != nil; c = c.sibling {
			c.place.Store(at)
		}
		return
	}
	fresh := &pod{podName: name}
	c := &fresh.first
	for i, k := range keys {
		if i > 0 {
			c.sibling = &claim{}
			c = c.sibling
		}
		c.fill(k, PodLocator, created)
		c.place.Store(at)
	}
	x.pods.put(fresh)
	x.insertAll(&fresh.first)
	if old != nil {
		x.removeAll(&old.first)
	}
}

func (x *Index) deletePod(name podName) {
	at := x.pods.at(name)
	if p := *at; p != nil {
		x.pods.remove(at)
		x.leave(&p.first)
		x.removeAll(&p.first)
	}
}

// enter counts a pod on a node, and returns its place: that of the one set before it if that has the
// same labels. While the node is known its labels count for all of them.
func (x *Index) enter(name string, labels map[string]string) *place {
	n := x.nodes[name]
	if n != nil && maps.Equal(n.labels, labels) {
		labels = n.labels // kept once
	}
	first := x.hosts[name]
	if first != nil && maps.Equal(first.copied, labels) {
		first.pods++
		return first
	}
	p := &place{copied: labels, next: first, pods: 1}
	if n != nil {
		labels = n.labels
	}
	p.set(name, labels, PodLocator)
	x.hosts[name] = p
	return p
}

// leave takes a pod with that claim off its node.
func (x *Index) leave(c *claim) {
	p := c.place.Load()
	if p.pods--; p.pods > 0 {
		return
	}
	name := p.location.Load().Node
	first := x.hosts[name]
	switch {
	case first != p: // PodLocators of one node differ while a change is written to them only
		for first.next != p {
			first = first.next
		}
		first.next = p.next
	case p.next != nil:
		x.hosts[name] = p.next
	default:
		delete(x.hosts, name)
	}
}

// insertAll lets a node or a pod claim what it has, and the table grow.
func (x *Index) insertAll(c *claim) {
	for ; c != nil; c = c.sibling {
		x.count(c, 1)
		t := x.table.Load()
		t.insert(c)
		if x.claims > maxLoad*len(t.heads) {
			t = t.doubled()
			x.table.Store(t)
			t.cut()
		}
	}
}

func (x *Index) removeAll(c *claim) {
	for ; c != nil; c = c.sibling {
		x.table.Load().remove(c)
		x.count(c, -1)
	}
}

// count notes that a claim comes or has gone. Readers see the length of a range before the
// first range that has it.
func (x *Index) count(c *claim, by int) {
	x.claims += by
	if c.source == PodRange && x.lengths.count(c.prefix(), int32(by)) {
		t := *x.table.Load()
		t.of4, t.of6 = inUse(&x.lengths.of4), inUse(&x.lengths.of6)
		x.table.Store(&t)
	}
}

func (c *claim) fill(k key, source Source, created uint32) {
	c.high, c.low, c.bits, c.source, c.created = k.high, k.low, k.bits, source, created
}

// matches reports whether claims are for these prefixes, in this order.
func matches(c *claim, keys []key, source func(int) Source, created uint32) bool {
	for i, k := range keys {
		if c == nil || !c.is(k) || c.source != source(i) || c.created != created {
			return false
		}
		c = c.sibling
	}
	return c == nil
}

func seconds(t time.Time) uint32 {
	return uint32(min(max(t.Unix(), 0), math.MaxUint32))
}
