package kernel_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// admitStrangers gives the client all addresses of strangers.
func (w *world) admitStrangers(t testing.TB) {
	t.Helper()
	err := w.client.Do(func() error {
		// An address of IPv6 that no link has may be bound to only by leave of this.
		if err := setSysctl("net/ipv6/ip_nonlocal_bind", "1"); err != nil {
			return err
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{
			LinkIndex: lo.Attrs().Index, Dst: ipNet(w.strangers), Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST,
		})
	})
	if err == nil {
		err = w.node.Do(func() error { return route("client", w.strangers, w.stranger) })
	}
	if err != nil {
		t.Fatal(err)
	}
}

// numberedStranger is the n-th address of strangers.
func (a addresses) numberedStranger(n int) netip.Addr {
	bytes := a.strangers.Addr().AsSlice()
	end := bytes[len(bytes)-4:]
	binary.BigEndian.PutUint32(end, binary.BigEndian.Uint32(end)+uint32(n))
	address, _ := netip.AddrFromSlice(bytes)
	return address
}

// sendAll sends a packet from each of so many strangers, and waits for no answer.
func (w *world) sendAll(t testing.TB, to netip.AddrPort, strangers int) {
	t.Helper()
	err := w.client.Do(func() error {
		for n := range strangers {
			d := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(w.numberedStranger(n), 0))}
			conn, err := d.Dial("udp", to.String())
			if err != nil {
				return err
			}
			_, err = conn.Write([]byte("?"))
			if closeErr := conn.Close(); err == nil {
				err = closeErr
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// remembered is how many clients a map has, and whether it has one.
func (w *world) remembered(t testing.TB, clients string, one netip.Addr) (number int, there bool) {
	t.Helper()
	list := w.node.nft(t, "list", "map", w.family.String(), "vicinity", clients)
	return strings.Count(list, " expires "), strings.Contains(list, " "+one.String()+" timeout ") || strings.Contains(list, "\t"+one.String()+" timeout ")
}

// fill has so many strangers remembered at each front, each of which has a map of its own.
func (w *world) fill(t testing.TB, strangers int, fronts ...ruleset.FrontEnd) {
	t.Helper()
	// A busy machine drops some packets.
	for range 10 {
		for _, front := range fronts {
			w.sendAll(t, to(front), strangers)
		}
		if !slices.ContainsFunc(affinityMaps(t, w), func(clients string) bool {
			number, _ := w.remembered(t, clients, w.stranger)
			return number < strangers
		}) {
			return
		}
	}
	t.Fatal("the maps do not become full")
}

// A map of clients takes no more of them than it is for: those that come later are served,
// without affinity, until there is room again. Those that came before stay with their endpoints.
func TestFullMapOfClients(t *testing.T) {
	sizes := []int{3}
	if os.Getenv("E2E_SOAK") != "" {
		sizes = append(sizes, ruleset.MostAffinityClients) // which takes many packets
	}
	for _, most := range sizes {
		for _, a := range worlds {
			t.Run(fmt.Sprintf("%d clients, family %s", most, a.family), func(t *testing.T) {
				w := newWorld(t, a)
				w.serve(t)
				w.admitStrangers(t)
				config := a.config()
				config.MaxAffinityClients = most
				front := w.front(1, 80)
				front.Protocol = ruleset.UDP
				endpoints := w.all(1, 2, 3, 4, 5, 6)
				stage(t, w.conn, ruleset.NewTable(config), ruleset.ServicePort{
					Name: "a/b:", Fronts: []ruleset.FrontEnd{front}, Cluster: endpoints, Affinity: time.Hour,
				})
				clients := affinityMap(t, w)
				late := w.numberedStranger(most)
				w.fill(t, most, front)

				answers := func(from netip.Addr) netip.AddrPort {
					t.Helper()
					s, err := w.client.send(from, to(front), patience)
					if err != nil {
						t.Fatalf("from %s: %v", from, err)
					}
					return s.endpoint
				}
				served := func() int {
					t.Helper()
					var all []netip.AddrPort
					// That all go to one by chance is as likely as one in a trillion trillions.
					for range 32 {
						all = append(all, answers(late))
					}
					slices.SortFunc(all, netip.AddrPort.Compare)
					return len(slices.Compact(all))
				}
				if served() == 1 {
					t.Error("a client that came too late stays with its endpoint")
				}
				for _, early := range []int{0, most / 2, most - 1} {
					first := answers(w.numberedStranger(early))
					for range 10 {
						if now := answers(w.numberedStranger(early)); now != first {
							t.Fatalf("client %d was led to %s and then to %s", early, first, now)
						}
					}
				}
				if number, there := w.remembered(t, clients, late); number != most || there {
					t.Errorf("%d clients are remembered, want %d; the one that came too late is: %t", number, most, there)
				}

				// A packet from a port of before would follow its connection, and ask no rule.
				if err := w.node.Do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) }); err != nil {
					t.Fatal(err)
				}
				w.node.nft(t, "delete", "element", w.family.String(), "vicinity", clients, "{ "+w.numberedStranger(0).String()+" }")
				answers(late) // which may go anywhere once more
				if got := served(); got != 1 {
					t.Errorf("with room for it the client is led to %d endpoints, want 1", got)
				}
			})
		}
	}
}

// A proxy that remembers another number of clients than the one before takes over the rules of
// that: connections go on, clients are drawn once more, and the maps of before go.
func TestMapsOfAnotherSizeAreAdopted(t *testing.T) {
	inWorlds(t, func(t *testing.T, w *world, table *ruleset.Table) {
		front := w.front(1, 80)
		front.Protocol = ruleset.UDP
		p := ruleset.ServicePort{Name: "a/b:", Fronts: []ruleset.FrontEnd{front}, Cluster: w.all(1, 2, 3, 4, 5, 6), Affinity: time.Hour}
		stage(t, w.conn, table, p)
		conn, err := w.client.dial(net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(w.pod, 0))}, "udp", to(front))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var first netip.AddrPort
		goesOn := func(when string) {
			t.Helper()
			if _, err := conn.Write([]byte("?")); err != nil {
				t.Fatal(err)
			}
			s, err := ask(conn, patience)
			if err != nil {
				t.Fatal(err)
			}
			if first.IsValid() && s.endpoint != first {
				t.Errorf("%s a connection goes to %s, and began at %s", when, s.endpoint, first)
			}
			first = s.endpoint
		}
		goesOn("at first")
		// Each packet is from a port of its own: one from a port of before would follow its connection,
		// and ask no rule.
		port := uint16(1024)
		sent := func() (seen, error) {
			port++
			return w.client.sendFrom(netip.AddrPortFrom(w.pod, port), to(front), patience)
		}
		for _, clients := range []int{1000, 2, ruleset.MostAffinityClients} {
			config := w.config()
			config.MaxAffinityClients = clients
			listing, err := w.conn.Read(w.family)
			if err != nil {
				t.Fatal(err)
			}
			table := ruleset.NewTable(config)
			table.Adopt(listing)
			before := affinityMap(t, w)
			stage(t, w.conn, table, p)
			goesOn(fmt.Sprintf("with %d clients", clients))
			drawn, err := sent()
			if err != nil {
				t.Fatal(err)
			}
			for range 10 {
				if s, err := sent(); err != nil || s.endpoint != drawn.endpoint {
					t.Errorf("with %d clients one is led to %s, %v, and was to %s", clients, s.endpoint, err, drawn.endpoint)
				}
			}
			for due, more := table.Due(); more; due, more = table.Due() {
				commit(t, w.conn, table, due)
			}
			if after := affinityMaps(t, w); len(after) != 1 || after[0] == before {
				t.Errorf("with %d clients there are the maps %v, and was %s", clients, after, before)
			}
			list := w.node.nft(t, "list", "map", w.family.String(), "vicinity", affinityMap(t, w))
			if want := fmt.Sprintf("size %d\n", clients); !strings.Contains(list, want) {
				t.Errorf("the map is not of %s:\n%s", want, list)
			}
			wantTable(t, w.conn, w.family, table)
		}
	})
}

// settledMemory is how many bytes the kernel has in slabs that it cannot do without, once that
// does not change any more: what is deleted goes some time later. All else that runs on the
// machine changes it, too.
func settledMemory(b *testing.B) int {
	b.Helper()
	before := unreclaimable(b)
	for range 20 {
		time.Sleep(200 * time.Millisecond)
		now := unreclaimable(b)
		if max(now-before, before-now) < 64<<10 {
			return now
		}
		before = now
	}
	return before
}

func unreclaimable(b *testing.B) int {
	b.Helper()
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nSUnreclaim:")
	var kib int
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		b.Fatal(err)
	}
	return kib << 10
}

// BenchmarkRememberedClients is what maps of clients take of the kernel's memory: empty, and
// full. It says something on a machine where nothing else runs.
func BenchmarkRememberedClients(b *testing.B) {
	const maps = 8
	for _, a := range worlds {
		for _, most := range []int{1000, 10_000, ruleset.MostAffinityClients} {
			b.Run(fmt.Sprintf("family=%s/clients=%d", a.family, most), func(b *testing.B) {
				empty, full := 0, 0
				for b.Loop() {
					w := newWorld(b, a)
					w.admitStrangers(b)
					// Connections that are not let through take no memory.
					w.node.nft(b, "add table inet stop; add chain inet stop prerouting { type filter hook prerouting priority 0; policy drop; }; add rule inet stop prerouting meta l4proto != udp accept")
					config := a.config()
					config.MaxAffinityClients = most
					table := ruleset.NewTable(config)
					stage(b, w.conn, table)
					before := settledMemory(b)
					var fronts []ruleset.FrontEnd
					for n := range maps {
						front := w.front(1, uint16(80+n))
						front.Protocol = ruleset.UDP
						fronts = append(fronts, front)
						if err := table.Set(ruleset.ServicePort{
							Name: fmt.Sprintf("a/b:%d", n), Fronts: fronts[n:], Cluster: w.all(1), Affinity: time.Hour,
						}); err != nil {
							b.Fatal(err)
						}
					}
					stage(b, w.conn, table)
					made := settledMemory(b)
					w.fill(b, most, fronts...)
					empty += made - before
					full += settledMemory(b) - before
				}
				b.ReportMetric(float64(empty)/float64(b.N*maps), "bytes/empty-map")
				b.ReportMetric(float64(full)/float64(b.N*maps*most), "bytes/client")
				b.ReportMetric(float64(full)/float64(b.N*maps*1<<20), "MiB/full-map")
			})
		}
	}
}
