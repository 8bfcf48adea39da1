package kernel_test

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"vicinity.dev/vicinity/internal/proxy/kernel"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// front is a front end for TCP that anybody may use.
func (a addresses) front(n int, port uint16) ruleset.FrontEnd {
	return ruleset.FrontEnd{Front: ruleset.Front{Address: a.service(n), Protocol: ruleset.TCP, Port: port}, ClusterIP: true}
}

// all are all endpoints that listen.
func (a addresses) all(ns ...int) []netip.AddrPort {
	var all []netip.AddrPort
	for _, n := range ns {
		all = append(all, a.endpoint(n))
	}
	return all
}

// stage stages ServicePorts and has the kernel do all that is staged.
func stage(t testing.TB, c *kernel.Conn, table *ruleset.Table, all ...ruleset.ServicePort) ruleset.Commit {
	t.Helper()
	for _, p := range all {
		if err := table.Set(p); err != nil {
			t.Fatal(err)
		}
	}
	return commit(t, c, table, time.Now())
}

// inWorlds runs a test with either family.
func inWorlds(t *testing.T, f func(*testing.T, *world, *ruleset.Table)) {
	for _, a := range worlds {
		t.Run(fmt.Sprint("family ", a.family), func(t *testing.T) {
			w := newWorld(t, a)
			w.serve(t)
			f(t, w, ruleset.NewTable(a.config()))
		})
	}
}

// to is where to connect to a front.
func to(f ruleset.FrontEnd) netip.AddrPort { return netip.AddrPortFrom(f.Address, f.Port) }

// reach connects often, and wants all endpoints to answer and no other, and to see the
// connection come from an address.
func reach(t *testing.T, connect func() (seen, error), from netip.Addr, endpoints []netip.AddrPort) {
	t.Helper()
	got := make(map[netip.AddrPort]bool)
	for i := 0; i < 20 || len(got) < len(endpoints); i++ {
		s, err := connect()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(endpoints, s.endpoint) {
			t.Fatalf("%s answered, want one of %s", s.endpoint, endpoints)
		}
		if s.from.Addr() != from {
			t.Fatalf("the connection came from %s, want %s", s.from.Addr(), from)
		}
		if got[s.endpoint] = true; i > 1000 {
			t.Fatalf("only %v answered in %d connections, want %s", got, i, endpoints)
		}
	}
}

func TestConnections(t *testing.T) {
	inWorlds(t, func(t *testing.T, w *world, table *ruleset.Table) {
		cluster, local := w.all(1, 2, 3), w.all(2)
		clusterIP := w.front(1, 80)
		udp := w.front(1, 80)
		udp.Protocol = ruleset.UDP
		loadBalancer := w.front(2, 80)
		loadBalancer.ClusterIP, loadBalancer.Masquerade = false, true
		nodePort := loadBalancer
		nodePort.Address, nodePort.Port = w.outer, 30080
		split := w.front(3, 80)
		split.ClusterIP, split.Pool, split.Masquerade = false, ruleset.PoolSplit, true
		internal := w.front(4, 80)
		internal.Pool = ruleset.PoolLocal
		stage(t, w.conn, table, ruleset.ServicePort{
			Name: "a/b:tcp", Fronts: []ruleset.FrontEnd{clusterIP, loadBalancer, nodePort, split, internal},
			Cluster: cluster, Local: local,
		}, ruleset.ServicePort{
			Name: "a/b:udp", Fronts: []ruleset.FrontEnd{udp}, Cluster: cluster,
		})
		tcp := func(n *namespace, from netip.Addr, f ruleset.FrontEnd) func() (seen, error) {
			return func() (seen, error) { return n.connect(from, to(f), patience) }
		}
		packet := func(n *namespace, from netip.Addr) func() (seen, error) {
			return func() (seen, error) { return n.send(from, to(udp), patience) }
		}
		nobody := netip.Addr{}
		for _, test := range []struct {
			name      string
			connect   func() (seen, error)
			from      netip.Addr
			endpoints []netip.AddrPort
		}{
			{"a pod, by TCP", tcp(w.client, w.pod, clusterIP), w.pod, cluster},
			{"a pod, by UDP", packet(w.client, w.pod), w.pod, cluster},
			{"a stranger, by TCP", tcp(w.client, w.stranger, clusterIP), w.inner, cluster},
			{"a stranger, by UDP", packet(w.client, w.stranger), w.inner, cluster},
			{"the node, by TCP", tcp(w.node, nobody, clusterIP), w.inner, cluster},
			{"the node, by UDP", packet(w.node, nobody), w.inner, cluster},
			{"a stranger to a load balancer", tcp(w.client, w.stranger, loadBalancer), w.inner, cluster},
			{"a pod to a load balancer", tcp(w.client, w.pod, loadBalancer), w.inner, cluster},
			{"a stranger to a node port", tcp(w.client, w.stranger, nodePort), w.inner, cluster},
			{"the node to its own port", tcp(w.node, nobody, nodePort), w.inner, cluster},
			{"a stranger to a front that is split", tcp(w.client, w.stranger, split), w.stranger, local},
			{"a pod to a front that is split", tcp(w.client, w.pod, split), w.pod, cluster},
			{"the node to a front that is split", tcp(w.node, nobody, split), w.inner, cluster},
			{"a pod to endpoints on the node", tcp(w.client, w.pod, internal), w.pod, local},
		} {
			t.Run(test.name, func(t *testing.T) { reach(t, test.connect, test.from, test.endpoints) })
		}
	})
}

func TestHairpin(t *testing.T) {
	inWorlds(t, func(t *testing.T, w *world, table *ruleset.Table) {
		front, own := w.front(1, 80), w.endpoint(1)
		table.SetHairpin([]netip.Addr{own.Addr()})
		stage(t, w.conn, table, ruleset.ServicePort{
			Name: "a/b:", Fronts: []ruleset.FrontEnd{front}, Cluster: []netip.AddrPort{own},
		})
		reach(t, func() (seen, error) { return w.endpoints.connect(own.Addr(), to(front), patience) }, w.inner, []netip.AddrPort{own})
	})
}

func TestAffinity(t *testing.T) {
	inWorlds(t, func(t *testing.T, w *world, table *ruleset.Table) {
		front := w.front(1, 80)
		p := ruleset.ServicePort{
			Name: "a/b:", Fronts: []ruleset.FrontEnd{front}, Cluster: w.all(1, 2, 3, 4, 5, 6), Affinity: time.Hour,
		}
		stage(t, w.conn, table, p)
		answers := func(from netip.Addr) netip.AddrPort {
			t.Helper()
			s, err := w.client.connect(from, to(front), patience)
			if err != nil {
				t.Fatal(err)
			}
			return s.endpoint
		}
		first := answers(w.stranger)
		for range 30 {
			if now := answers(w.stranger); now != first {
				t.Fatalf("%s answered, and %s before", now, first)
			}
		}
		// Each client has its own.
		reach(t, func() (seen, error) {
			if err := w.conn.Forget(w.family, []ruleset.Forget{{Set: affinityMap(t, w)}}); err != nil {
				return seen{}, err
			}
			return w.client.connect(w.pod, to(front), patience)
		}, w.pod, p.Cluster)

		// A client whose endpoint goes is forgotten, others are not.
		pod := answers(w.pod)
		first = answers(w.stranger)
		for pod == first {
			if err := w.conn.Forget(w.family, []ruleset.Forget{{Set: affinityMap(t, w)}}); err != nil {
				t.Fatal(err)
			}
			pod, first = answers(w.pod), answers(w.stranger)
		}
		p.Cluster = slices.DeleteFunc(slices.Clone(p.Cluster), func(a netip.AddrPort) bool { return a == first })
		done := stage(t, w.conn, table, p)
		if len(done.Forget) == 0 {
			t.Fatal("nothing is to be forgotten")
		}
		if err := w.conn.Forget(w.family, done.Forget); err != nil {
			t.Fatal(err)
		}
		if now := answers(w.stranger); now == first {
			t.Errorf("%s answered, which is no endpoint any more", now)
		}
		for range 10 {
			if now := answers(w.pod); now != pod {
				t.Fatalf("%s answered, and %s before", now, pod)
			}
		}

		// A map that is gone has nothing to forget.
		if err := w.conn.Forget(w.family, []ruleset.Forget{{Set: "affinity-gone"}}); err != nil {
			t.Error(err)
		}
	})
}

// The client of an endpoint that went is led elsewhere from the transaction on in which that
// goes, and stays there, before anything is done to have it forgotten.
func TestClientsAreNotLedToWhatWent(t *testing.T) {
	inWorlds(t, func(t *testing.T, w *world, table *ruleset.Table) {
		front := w.front(1, 80)
		p := ruleset.ServicePort{Name: "a/b:", Fronts: []ruleset.FrontEnd{front}, Cluster: w.all(1, 2, 3, 4, 5, 6), Affinity: time.Hour}
		stage(t, w.conn, table, p)
		answers := func() netip.AddrPort {
			t.Helper()
			s, err := w.client.connect(w.stranger, to(front), patience)
			if err != nil {
				t.Fatal(err)
			}
			return s.endpoint
		}
		for len(p.Cluster) > 1 {
			gone := answers()
			p.Cluster = slices.DeleteFunc(slices.Clone(p.Cluster), func(a netip.AddrPort) bool { return a == gone })
			stage(t, w.conn, table, p)
			first := answers()
			if first == gone {
				t.Fatalf("%s answered, which is no endpoint any more", gone)
			}
			for range 5 {
				if now := answers(); now != first {
					t.Fatalf("%s answered, and %s before", now, first)
				}
			}
		}
		// Nothing is left to forget, so that the rules are as they were.
		at := time.Now()
		table.Forgotten(affinityMap(t, w), at.Add(time.Hour))
		commit(t, w.conn, table, at)
		wantTable(t, w.conn, w.family, table)
	})
}

// Connections are shared in proportion to the weights of endpoints.
func TestWeightsShareConnections(t *testing.T) {
	inWorlds(t, func(t *testing.T, w *world, table *ruleset.Table) {
		front := w.front(1, 80)
		front.Protocol = ruleset.UDP
		weights := []uint32{1000, 500, 500, 100, 1000, 100}
		stage(t, w.conn, table, ruleset.ServicePort{
			Name: "a/b:", Fronts: []ruleset.FrontEnd{front}, Cluster: w.all(1, 2, 3, 4, 5, 6), Weights: weights,
		})
		const packets = 4000
		counts := make(map[netip.AddrPort]float64)
		for range packets {
			s, err := w.client.send(w.pod, to(front), patience)
			if err != nil {
				t.Fatal(err)
			}
			counts[s.endpoint]++
		}
		total := 0.0
		for _, weight := range weights {
			total += float64(weight)
		}
		for i, endpoint := range w.all(1, 2, 3, 4, 5, 6) {
			share := float64(weights[i]) / total
			// Six standard deviations: less than one run in a hundred million is off by more.
			allowed := 6 * math.Sqrt(packets*share*(1-share))
			if off := counts[endpoint] - packets*share; math.Abs(off) > allowed {
				t.Errorf("%s with weight %d has %.0f of %d packets, want %.0f", endpoint, weights[i], counts[endpoint], packets, packets*share)
			}
		}
	})
}

// affinityMap is the name of the only map that packets add to.
func affinityMap(t testing.TB, w *world) string {
	t.Helper()
	if all := affinityMaps(t, w); len(all) > 0 {
		return all[0]
	}
	t.Fatal("there is no map of clients")
	return ""
}

// affinityMaps are the names of all maps that packets add to.
func affinityMaps(t testing.TB, w *world) []string {
	t.Helper()
	shape, err := w.conn.Shape(w.family)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, set := range shape.Sets {
		if strings.HasPrefix(set.Name, "affinity-") {
			all = append(all, set.Name)
		}
	}
	return all
}

func TestAffinityEndsWithItsTimeout(t *testing.T) {
	inWorlds(t, func(t *testing.T, w *world, table *ruleset.Table) {
		front := w.front(1, 80)
		stage(t, w.conn, table, ruleset.ServicePort{
			Name: "a/b:", Fronts: []ruleset.FrontEnd{front}, Cluster: w.all(1, 2, 3, 4, 5, 6, 7, 8), Affinity: 20 * time.Millisecond,
		})
		got := make(map[netip.AddrPort]bool)
		for deadline := time.Now().Add(patience); len(got) < 2; {
			s, err := w.client.connect(w.stranger, to(front), patience)
			if err != nil {
				t.Fatal(err)
			}
			if got[s.endpoint] = true; time.Now().After(deadline) {
				t.Fatalf("only %v has answered in %s", got, patience)
			}
			waitFor(t, "the client is forgotten", func() bool {
				return !strings.Contains(w.node.nft(t, "list", "map", w.family.String(), "vicinity", affinityMap(t, w)), "elements")
			})
		}
	})
}

// waitFor waits for a condition.
func waitFor(t testing.TB, what string, done func() bool) {
	t.Helper()
	look, late := time.NewTicker(time.Millisecond), time.After(patience)
	defer look.Stop()
	for !done() {
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("not in %s: %s", patience, what)
		}
	}
}

func TestRefusedConnections(t *testing.T) {
	inWorlds(t, func(t *testing.T, w *world, table *ruleset.Table) {
		empty, emptyUDP, dropped := w.front(1, 80), w.front(1, 80), w.front(2, 80)
		emptyUDP.Protocol = ruleset.UDP
		dropped.Empty = ruleset.Drop
		nodePort := empty
		nodePort.Address, nodePort.Port, nodePort.ClusterIP = w.outer, 30080, false
		outside := w.front(5, 80)
		outside.Pool, outside.Empty = ruleset.PoolSplit, ruleset.DropOutside
		guarded, open := w.front(3, 80), w.front(4, 80)
		guarded.Sources = []netip.Prefix{netip.PrefixFrom(w.stranger, w.stranger.BitLen())}
		stage(t, w.conn, table,
			ruleset.ServicePort{Name: "a/empty:tcp", Fronts: []ruleset.FrontEnd{empty, nodePort, dropped, outside}},
			ruleset.ServicePort{Name: "a/empty:udp", Fronts: []ruleset.FrontEnd{emptyUDP}},
			ruleset.ServicePort{Name: "a/b:", Fronts: []ruleset.FrontEnd{guarded, open}, Cluster: w.all(1, 2)},
		)
		unused := w.front(4, 81)
		nobody := netip.Addr{}
		for name, connect := range map[string]func() (seen, error){
			"a client":                    func() (seen, error) { return w.client.connect(w.pod, to(empty), patience) },
			"the node":                    func() (seen, error) { return w.node.connect(nobody, to(empty), patience) },
			"a client, by UDP":            func() (seen, error) { return w.client.send(w.pod, to(empty), patience) },
			"a client of a node port":     func() (seen, error) { return w.client.connect(w.stranger, to(nodePort), patience) },
			"a pod, by a local policy":    func() (seen, error) { return w.client.connect(w.pod, to(outside), patience) },
			"the node, by a local policy": func() (seen, error) { return w.node.connect(nobody, to(outside), patience) },
			"a client of an unused port":  func() (seen, error) { return w.client.connect(w.pod, to(unused), patience) },
			"the node to an unused port":  func() (seen, error) { return w.node.connect(nobody, to(unused), patience) },
		} {
			t.Run("refused/"+name, func(t *testing.T) {
				if s, err := connect(); !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("%v answered, %v, want %v", s, err, syscall.ECONNREFUSED)
				}
			})
		}
		// The kernel tells a process on the node before it tells it what the answer was.
		if s, err := w.node.send(nobody, to(empty), patience); !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%v answered the node by UDP, %v, want %v", s, err, syscall.EPERM)
		}
		const briefly = 300 * time.Millisecond
		for name, connect := range map[string]func() (seen, error){
			"no endpoints":   func() (seen, error) { return w.client.connect(w.pod, to(dropped), briefly) },
			"from outside":   func() (seen, error) { return w.client.connect(w.stranger, to(outside), briefly) },
			"a wrong source": func() (seen, error) { return w.client.connect(w.pod, to(guarded), briefly) },
		} {
			t.Run("dropped/"+name, func(t *testing.T) {
				var timeout net.Error
				if s, err := connect(); !errors.As(err, &timeout) || !timeout.Timeout() {
					t.Errorf("%v answered, %v, want nothing in time", s, err)
				}
			})
		}
		reach(t, func() (seen, error) { return w.client.connect(w.stranger, to(guarded), patience) }, w.inner, w.all(1, 2))
		reach(t, func() (seen, error) { return w.client.connect(w.pod, to(open), patience) }, w.pod, w.all(1, 2))

		// Endpoints that come take what was refused.
		stage(t, w.conn, table, ruleset.ServicePort{Name: "a/empty:tcp", Fronts: []ruleset.FrontEnd{empty}, Cluster: w.all(3)})
		reach(t, func() (seen, error) { return w.client.connect(w.pod, to(empty), patience) }, w.pod, w.all(3))
	})
}

// Of the range that cluster IPs are from, new connections to an address that no Service has
// are dropped, as kube-proxy does it. Without the rules the route would lead them to somebody
// who answers there.
func TestServiceRanges(t *testing.T) {
	inWorlds(t, func(t *testing.T, w *world, table *ruleset.Table) {
		allocated, unallocated := w.front(1, 80), netip.AddrPortFrom(w.service(0xc8), 8080)
		kept := netip.AddrPortFrom(w.service(0xc9), 8080)
		bits := 24
		if w.family == ruleset.IPv6 {
			bits = 120
		}
		services, err := w.service(1).Prefix(bits)
		if err != nil {
			t.Fatal(err)
		}
		outside := netip.AddrPortFrom(w.service(0xff).Next(), 8080)
		for _, at := range []netip.AddrPort{unallocated, kept, outside} {
			addAddresses(t, w.endpoints, "eth0", []netip.Prefix{netip.PrefixFrom(at.Addr(), at.Addr().BitLen())})
			w.serveAt(t, at)
		}
		nobody := netip.Addr{}
		clients := []struct {
			name     string
			from     *namespace
			as, seen netip.Addr
		}{
			{"a pod", w.client, w.pod, w.pod},
			{"a stranger", w.client, w.stranger, w.stranger},
			{"the node", w.node, nobody, w.inner},
		}
		answered := func(when string, at netip.AddrPort) {
			t.Helper()
			for _, c := range clients {
				for protocol, connect := range map[string]func(netip.Addr, netip.AddrPort, time.Duration) (seen, error){"TCP": c.from.connect, "UDP": c.from.send} {
					if s, err := connect(c.as, at, patience); err != nil || s.endpoint != at || s.from.Addr() != c.seen {
						t.Errorf("%s: %s by %s to %s: %v answered, %v", when, c.name, protocol, at, s, err)
					}
				}
			}
		}
		dropped := func(when string, at netip.AddrPort) {
			t.Helper()
			const briefly = 200 * time.Millisecond
			for _, c := range clients {
				for protocol, connect := range map[string]func(netip.Addr, netip.AddrPort, time.Duration) (seen, error){"TCP": c.from.connect, "UDP": c.from.send} {
					s, err := connect(c.as, at, briefly)
					var timeout net.Error
					if errors.As(err, &timeout) && timeout.Timeout() {
						continue
					}
					// The kernel tells a program on the node that its packet of UDP was dropped.
					if protocol != "UDP" || c.from != w.node || !errors.Is(err, syscall.EPERM) {
						t.Errorf("%s: %s by %s to %s: %v answered, %v, want nothing in time", when, c.name, protocol, at, s, err)
					}
				}
			}
		}

		stage(t, w.conn, table, ruleset.ServicePort{Name: "a/b:", Fronts: []ruleset.FrontEnd{allocated}, Cluster: w.all(1, 2)})
		answered("without a range", unallocated)
		answered("without a range", outside)
		conn, err := w.client.dial(net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(w.pod, 0))}, "udp", kept)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		goesOn := func(when string) {
			t.Helper()
			if _, err := conn.Write([]byte("?")); err != nil {
				t.Fatal(err)
			}
			if s, err := ask(conn, patience); err != nil || s.endpoint != kept {
				t.Errorf("%s: a connection of before: %v answered, %v", when, s, err)
			}
		}
		goesOn("without a range")

		config := w.config()
		config.ServiceRanges = []netip.Prefix{services}
		table.Configure(config)
		stage(t, w.conn, table)
		dropped("with the range", unallocated)
		answered("with the range", outside)
		goesOn("with the range")
		reach(t, func() (seen, error) { return w.client.connect(w.pod, to(allocated), patience) }, w.pod, w.all(1, 2))
		reach(t, func() (seen, error) { return w.node.connect(nobody, to(allocated), patience) }, w.inner, w.all(1, 2))
		unused := netip.AddrPortFrom(allocated.Address, 81)
		if s, err := w.client.connect(w.pod, unused, patience); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("another port of a Service: %v answered, %v, want %v", s, err, syscall.ECONNREFUSED)
		}

		// A Service takes the address, and gives it back.
		front := allocated
		front.Address, front.Port = unallocated.Addr(), unallocated.Port()
		stage(t, w.conn, table, ruleset.ServicePort{Name: "a/new:", Fronts: []ruleset.FrontEnd{front}, Cluster: w.all(3)})
		reach(t, func() (seen, error) { return w.client.connect(w.pod, unallocated, patience) }, w.pod, w.all(3))
		table.Remove("a/new:")
		stage(t, w.conn, table)
		dropped("after the Service", unallocated)

		config.ServiceRanges = nil
		table.Configure(config)
		stage(t, w.conn, table)
		answered("without the range again", unallocated)
	})
}
