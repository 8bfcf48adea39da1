package locate

import (
	"fmt"
	"net/netip"
	"testing"
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

// benchNodeLabels has the labels of a node. PodLocators have some of them.
func benchNodeLabels(node int) map[string]string {
	labels := benchLabels(node)
	for _, key := range []string{"kubernetes.io/os", "kubernetes.io/arch", "node.kubernetes.io/instance-type", "example.com/pool"} {
		labels[key] = "x"
	}
	return labels
}

func benchIndex() *Index {
	x := New()
	for n := range benchNodes {
		x.SetNode(fmt.Sprint("node-", n), Node{
			Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 168, byte(n >> 8), byte(n)})},
			PodRanges: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(n >> 8), byte(n), 0}), 24)},
			Labels:    benchNodeLabels(n),
		})
	}
	for i := range benchPods {
		x.SetPod("default", fmt.Sprintf("deployment-7f9c6d5b4-%05d", i), Pod{
			IPs: []netip.Addr{benchAddr(i)}, Node: fmt.Sprint("node-", i%benchNodes), Labels: benchLabels(i % benchNodes),
		})
	}
	return x
}

func BenchmarkLookup(b *testing.B) {
	x := benchIndex()
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
