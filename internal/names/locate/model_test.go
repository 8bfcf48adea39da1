package locate

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// model does what Index does by a search through all its input.
type model struct {
	nodes map[string]modelNode
	pods  map[string]modelPod
	turn  int
}

type modelNode struct {
	Node
	turn int
}

type modelPod struct {
	Pod
	turn int // when it took its addresses
}

func (m *model) lookup(addr netip.Addr) (Location, bool) {
	addr = addr.Unmap()
	type found struct {
		Location
		rank []int64 // the greatest counts
	}
	var all []found
	for name, n := range m.nodes {
		at := Location{Node: name, Labels: n.Labels, Source: NodeAddress}
		if slices.Contains(n.Addresses, addr) {
			all = append(all, found{at, []int64{2, 0, n.Created.Unix(), int64(n.turn)}})
		}
		at.Source = PodRange
		for _, prefix := range n.PodRanges {
			if prefix.Contains(addr) {
				all = append(all, found{at, []int64{0, int64(prefix.Bits()), n.Created.Unix(), int64(n.turn)}})
			}
		}
	}
	for _, p := range m.pods {
		if slices.Contains(p.IPs, addr) && (p.Node != "" || len(p.Labels) > 0) {
			labels := p.Labels
			if n, known := m.nodes[p.Node]; known {
				labels = n.Labels
			}
			all = append(all, found{Location{Node: p.Node, Labels: labels, Source: PodLocator}, []int64{1, 0, p.Created.Unix(), int64(p.turn)}})
		}
	}
	if len(all) == 0 {
		return Location{}, false
	}
	return slices.MaxFunc(all, func(a, b found) int { return slices.Compare(a.rank, b.rank) }).Location, true
}

func (m *model) setNode(name string, n Node) {
	m.turn++
	at := m.turn
	if old, ok := m.nodes[name]; ok && slices.Equal(old.Addresses, n.Addresses) && slices.Equal(old.PodRanges, n.PodRanges) && old.Created.Equal(n.Created) {
		at = old.turn
	}
	m.nodes[name] = modelNode{n, at}
}

func (m *model) deleteNode(name string) { delete(m.nodes, name) }

func (m *model) setPod(name string, p Pod) {
	m.turn++
	at := m.turn
	located := p.Node != "" || len(p.Labels) > 0
	if old, ok := m.pods[name]; ok && slices.Equal(old.IPs, p.IPs) && old.Created.Equal(p.Created) {
		at = old.turn
	}
	if located && len(p.IPs) > 0 {
		m.pods[name] = modelPod{p, at}
	} else {
		delete(m.pods, name)
	}
}

// few draws from a few addresses, so that pods and nodes meet.
var few = rapid.Custom(func(t *rapid.T) netip.Addr {
	n := byte(rapid.IntRange(0, 7).Draw(t, "host"))
	if rapid.Bool().Draw(t, "IPv4") {
		return netip.AddrFrom4([4]byte{10, 0, n & 1, n})
	}
	return netip.AddrFrom16([16]byte{0xfd, 7: n & 1, 15: n})
})

var fewPrefixes = rapid.Custom(func(t *rapid.T) netip.Prefix {
	addr := few.Draw(t, "address")
	lengths := []int{0, 16, 23, 24, 30, 32}
	if addr.Is6() {
		lengths = []int{0, 8, 63, 64, 65, 127, 128}
	}
	return netip.PrefixFrom(addr, rapid.SampledFrom(lengths).Draw(t, "length")).Masked()
})

func TestIndexMatchesModel(t *testing.T) { rapid.Check(t, agrees) }

func agrees(t *rapid.T) {
	x := New()
	m := &model{nodes: make(map[string]modelNode), pods: make(map[string]modelPod)}
	labels := rapid.SampledFrom([]map[string]string{nil, zone("a"), zone("b")})
	created := rapid.Custom(func(t *rapid.T) time.Time { return time.Unix(rapid.Int64Range(0, 2).Draw(t, "created"), 0) })
	node := rapid.SampledFrom([]string{"n1", "n2", "n3"})
	pod := rapid.SampledFrom([]string{"p1", "p2", "p3", "p4"})
	t.Repeat(map[string]func(*rapid.T){
		"set a node": func(t *rapid.T) {
			name := node.Draw(t, "node")
			n := Node{
				Addresses: rapid.SliceOfNDistinct(few, 0, 3, rapid.ID).Draw(t, "addresses"),
				PodRanges: rapid.SliceOfN(fewPrefixes, 0, 3).Draw(t, "ranges"),
				Labels:    labels.Draw(t, "labels"),
				Created:   created.Draw(t, "created"),
			}
			x.SetNode(name, n)
			m.setNode(name, n)
		},
		"relabel a node": func(t *rapid.T) {
			name := node.Draw(t, "node")
			if n, ok := m.nodes[name]; ok {
				n.Labels = labels.Draw(t, "labels")
				x.SetNode(name, n.Node)
				m.setNode(name, n.Node)
			}
		},
		"delete a node": func(t *rapid.T) {
			name := node.Draw(t, "node")
			x.DeleteNode(name)
			m.deleteNode(name)
		},
		"set a pod": func(t *rapid.T) {
			name := pod.Draw(t, "pod")
			p := Pod{
				IPs:     rapid.SliceOfNDistinct(few, 0, 3, rapid.ID).Draw(t, "addresses"),
				Node:    rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(t, "node"),
				Labels:  labels.Draw(t, "labels"),
				Created: created.Draw(t, "created"),
			}
			x.SetPod("default", name, p)
			m.setPod(name, p)
		},
		"relabel a pod": func(t *rapid.T) {
			name := pod.Draw(t, "pod")
			if p, ok := m.pods[name]; ok {
				p.Node, p.Labels = node.Draw(t, "node"), labels.Draw(t, "labels")
				x.SetPod("default", name, p.Pod)
				m.setPod(name, p.Pod)
			}
		},
		"delete a pod": func(t *rapid.T) {
			name := pod.Draw(t, "pod")
			x.DeletePod("default", name)
			delete(m.pods, name)
		},
		"": func(t *rapid.T) {
			check := func(addr netip.Addr) {
				got, ok := x.Lookup(addr)
				want, wanted := m.lookup(addr)
				if ok != wanted || got.Node != want.Node || got.Source != want.Source || !maps.Equal(got.Labels, want.Labels) {
					t.Fatalf("%v is at %+v, %t; want %+v, %t", addr, got, ok, want, wanted)
				}
			}
			for n := range byte(8) {
				v4 := netip.AddrFrom4([4]byte{10, 0, n & 1, n})
				check(v4)
				check(netip.AddrFrom16(v4.As16()))
				check(netip.AddrFrom16([16]byte{0xfd, 7: n & 1, 15: n}))
			}
		},
	})
	// An index whose nodes and pods are deleted is empty.
	for name := range m.nodes {
		x.DeleteNode(name)
	}
	for name := range m.pods {
		x.DeletePod("default", name)
	}
	if len(x.claims)+len(x.nodes)+len(x.pods)+len(x.copied)+len(x.lengths4)+len(x.lengths6) > 0 {
		t.Fatalf("remaining: claims %v, %d nodes, %d pods, %d copies of labels, lengths %v and %v", x.claims, len(x.nodes), len(x.pods), len(x.copied), x.lengths4, x.lengths6)
	}
}
