package locate

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"unsafe"
)

const benchPods, benchNodes = 100_000, 5000

func benchAddr(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}

func benchLabels(node int) map[string]string {
	return map[string]string{
		"topology.kubernetes.io/region": "eu", "topology.kubernetes.io/zone": fmt.Sprint("zone-", node%6),
		"kubernetes.io/hostname": fmt.Sprint("node-", node),
	}
}

// benchNodeLabels are those of a node, of which PodLocators have a part.
func benchNodeLabels(node int) map[string]string {
	labels := benchLabels(node)
	for _, key := range []string{"kubernetes.io/os", "kubernetes.io/arch", "node.kubernetes.io/instance-type", "example.com/pool"} {
		labels[key] = "x"
	}
	return labels
}

func benchNames() []string {
	names := make([]string, benchPods)
	for i := range names {
		names[i] = fmt.Sprintf("deployment-7f9c6d5b4-%05d", i)
	}
	return names
}

func benchIndex(names []string, dual bool) *Index {
	x := New()
	for n := range benchNodes {
		x.SetNode(fmt.Sprint("node-", n), Node{
			Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 168, byte(n >> 8), byte(n)})},
			PodRanges: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(n >> 8), byte(n), 0}), 24)},
			Labels:    benchNodeLabels(n),
		})
	}
	for i, name := range names {
		ips := []netip.Addr{benchAddr(i)}
		if dual {
			ips = append(ips, netip.AddrFrom16([16]byte{0xfd, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)}))
		}
		x.SetPod("default", name, Pod{IPs: ips, Node: fmt.Sprint("node-", i%benchNodes), Labels: benchLabels(i % benchNodes)})
	}
	return x
}

func BenchmarkLookup(b *testing.B) {
	x := benchIndex(benchNames(), false)
	for _, by := range []struct {
		name string
		addr func(i int) netip.Addr
	}{
		{"pod", func(i int) netip.Addr { return benchAddr(i * 7919 % benchPods) }},
		{"node", func(i int) netip.Addr {
			n := i % benchNodes
			return netip.AddrFrom4([4]byte{192, 168, byte(n >> 8), byte(n)})
		}},
		{"range", func(i int) netip.Addr {
			n := i % benchNodes
			return netip.AddrFrom4([4]byte{11, byte(n >> 8), byte(n), byte(i)})
		}},
		{"unknown", func(i int) netip.Addr { return netip.AddrFrom4([4]byte{12, byte(i >> 16), byte(i >> 8), byte(i)}) }},
	} {
		b.Run(by.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, ok := x.Lookup(by.addr(i)); ok == (by.name == "unknown") {
					b.Fatal("found is", ok)
				}
			}
		})
	}
}

func BenchmarkSetPod(b *testing.B) {
	names := benchNames()
	x := benchIndex(names, false)
	b.Run("unchanged", func(b *testing.B) {
		labels := benchLabels(7)
		b.ReportAllocs()
		for b.Loop() {
			x.SetPod("default", names[7], Pod{IPs: []netip.Addr{benchAddr(7)}, Node: "node-7", Labels: labels})
		}
	})
	b.Run("churn", func(b *testing.B) {
		labels := benchLabels(7)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			name := names[i%benchPods]
			x.DeletePod("default", name)
			x.SetPod("default", name, Pod{IPs: []netip.Addr{benchAddr(i % benchPods)}, Node: "node-7", Labels: labels})
		}
	})
}

// BenchmarkMemory reports what a pod takes beyond its strings.
func BenchmarkMemory(b *testing.B) {
	for _, families := range []int{1, 2} {
		b.Run(fmt.Sprintf("families=%d", families), func(b *testing.B) {
			for b.Loop() {
				names := benchNames()
				used := func() int64 {
					runtime.GC()
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					return int64(m.HeapAlloc)
				}
				before := used()
				nodes := benchIndex(nil, false)
				between := used()
				pods := benchIndex(names, families == 2)
				after := used()
				b.ReportMetric(float64((after-between)-(between-before))/benchPods, "B/pod")
				runtime.KeepAlive(nodes)
				runtime.KeepAlive(pods)
				runtime.KeepAlive(names)
			}
		})
	}
}

func TestSizes(t *testing.T) {
	if got := unsafe.Sizeof(claim{}); got != 48 {
		t.Errorf("a claim takes %d bytes, want 48", got)
	}
	if got := unsafe.Sizeof(pod{}); got != 80 {
		t.Errorf("a pod takes %d bytes, want 80", got)
	}
}

func TestLookupTakesNoMemory(t *testing.T) {
	x := New()
	x.SetNode("n1", Node{Addresses: addrs("192.0.2.1"), PodRanges: prefixes("10.0.0.0/24", "fd00::/64")})
	x.SetPod("default", "p", Pod{IPs: addrs("10.1.0.1"), Node: "n1"})
	for _, addr := range addrs("192.0.2.1", "10.0.0.1", "::ffff:10.1.0.1", "fd00::1", "fd01::1") {
		if got := testing.AllocsPerRun(100, func() { x.Lookup(addr) }); got != 0 {
			t.Errorf("looking %v up allocates %v times", addr, got)
		}
	}
}
