package vicinity

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/test"
	"github.com/miekg/dns"

	"vicinity.dev/vicinity/internal/names/locate"
	"vicinity.dev/vicinity/internal/topology"
)

// discard takes an answer and drops it.
type discard struct{ test.ResponseWriter }

func (discard) WriteMsg(*dns.Msg) error { return nil }

// answering is a plugin below that has its answer ready, so that a benchmark measures no other.
func answering(m *dns.Msg) plugin.Handler {
	return plugin.HandlerFunc(func(_ context.Context, w dns.ResponseWriter, _ *dns.Msg) (int, error) {
		return m.Rcode, w.WriteMsg(m)
	})
}

// locatePods adds n pods on the node a1 to the index.
func (w *world) locatePods(n int) {
	labels := map[string]string{topology.Hostname: "a1", topology.Zone: "a"}
	for i := range n {
		address := netip.AddrFrom4([4]byte{11, byte(i >> 16), byte(i >> 8), byte(i)})
		w.cluster.clients.SetPod("shop", fmt.Sprint("pod-", i), locate.Pod{IPs: []netip.Addr{address}, Node: "a1", Labels: labels})
	}
}

// The plugin's cost for a query without and with filtering, for one of 100,000 pods.
func BenchmarkServe(b *testing.B) {
	var endpoints []string
	for i := range 100 {
		endpoints = append(endpoints, fmt.Sprintf("%d@%s", i+1, []string{"a1", "b1", "c1", "a2"}[i%4]))
	}
	w := newWorld(b)
	w.locatePods(100_000)
	w.headless("plain", "", strings.Join(endpoints[:10], " "))
	w.cluster.deleteGroup("shop", "plain", "plain0")
	w.headless("near", topology.Zone+",*", strings.Join(endpoints[:10], " "))
	w.headless("crowd", topology.Zone+",*", strings.Join(endpoints, " "))
	backend := w.Next
	for _, query := range []struct {
		name, question string
		qtype          uint16
	}{
		{"missing", "www.example.com.shop.svc.cluster.local.", dns.TypeA},
		{"headless", "plain.shop.svc.cluster.local.", dns.TypeA},
		{"headlessSRV", "_http._tcp.plain.shop.svc.cluster.local.", dns.TypeSRV},
		{"filtered", "near.shop.svc.cluster.local.", dns.TypeA},
		{"filteredSRV", "_http._tcp.near.shop.svc.cluster.local.", dns.TypeSRV},
		{"filtered100", "crowd.shop.svc.cluster.local.", dns.TypeA},
	} {
		b.Run(query.name, func(b *testing.B) {
			asked := new(dns.Msg)
			asked.SetQuestion(query.question, query.qtype)
			w.Next = answering(ask(b, backend, "11.0.1.7", asked))
			client := &discard{test.ResponseWriter{RemoteIP: "11.0.1.7"}}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := w.ServeDNS(b.Context(), client, asked); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
