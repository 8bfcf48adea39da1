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
	w.client.Must(t, func() error {
		// Without this setting, binding an IPv6 address that no link has fails.
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
	w.node.Must(t, func() error { return route("client", w.strangers, w.stranger) })
}

// numberedStranger is the n-th address of strangers.
func (a addresses) numberedStranger(n int) netip.Addr {
	bytes := a.strangers.Addr().AsSlice()
	end := bytes[len(bytes)-4:]
	binary.BigEndian.PutUint32(end, binary.BigEndian.Uint32(end)+uint32(n))
	address, _ := netip.AddrFromSlice(bytes)
	return address
}

// sendAll sends a packet from each of n strangers and waits for no answer.
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

// remembered returns the number of clients in a map, and whether one is among them.
func (w *world) remembered(t testing.TB, clients string, one netip.Addr) (number int, there bool) {
	t.Helper()
	list := w.node.nft(t, "list", "map", w.family.String(), "vicinity", clients)
	return strings.Count(list, " expires "), strings.Contains(list, " "+one.String()+" timeout ") || strings.Contains(list, "\t"+one.String()+" timeout ")
}

// fill makes each front remember n strangers. Each front has its own map.
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

// A full map takes no more clients: later ones are served without affinity until others leave. Earlier ones keep their
// endpoints.
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
					s, err := w.client.send(from, to(front), answerTimeout)
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
					t.Error("a late client stays with its endpoint")
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
					t.Errorf("%d clients are remembered, want %d; the late one is: %t", number, most, there)
				}

				// A packet from a port of before would follow its connection, and ask no rule.
				if err := w.node.Do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) }); err != nil {
					t.Fatal(err)
				}
				w.node.nft(t, "delete", "element", w.family.String(), "vicinity", clients, "{ "+w.numberedStranger(0).String()+" }")
				answers(late) // may go to any endpoint again
				if got := served(); got != 1 {
					t.Errorf("with room, the client is led to %d endpoints, want 1", got)
				}
			})
		}
	}
}
