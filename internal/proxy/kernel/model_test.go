package kernel_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// TestModel makes random changes and compares, after each, what the kernel holds with what
// the table says that it should, while packets and connections come all the time to fronts
// that keep losing and getting endpoints. Every one of them must be translated.
func TestModel(t *testing.T) {
	steps, burst := 300, 50
	switch {
	case testing.Short():
		steps = 50
	case os.Getenv("E2E_SOAK") != "":
		steps, burst = 25_000, 500
	}
	inWorlds(t, func(t *testing.T, w *world, table *ruleset.Table) {
		m := &model{world: w, t: t, table: table, config: w.config(), ports: make(map[string]ruleset.ServicePort)}
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		m.random = rand.New(rand.NewPCG(seed, 0))
		m.moveLive()
		m.commit()
		traffic := newTraffic(t, w, m.packets(), m.connections())
		deadline := time.Now().Add(patience)
		for step := 0; step < steps || traffic.connections.Load() < leastConnections && time.Now().Before(deadline); step++ {
			traffic.send(burst)
			m.step()
			if m.check(); t.Failed() {
				t.Fatalf("after step %d", step)
			}
			if step%50 == 49 {
				m.restart()
			}
			if step%150 == 149 {
				m.compareWithFresh()
			}
		}
		m.compareWithFresh()
		traffic.stop(t)
	})
}

// model is what the kernel should hold.
type model struct {
	*world
	t       *testing.T
	random  *rand.Rand
	table   *ruleset.Table
	config  ruleset.Config
	ports   map[string]ruleset.ServicePort
	hairpin []netip.Addr
	// live says how many endpoints the fronts with traffic have.
	live int
}

// packets is the front that packets come to, of UDP, and connections the one that
// connections come to.
func (m *model) packets() ruleset.FrontEnd {
	f := m.front(200, 53)
	f.Protocol = ruleset.UDP
	return f
}

func (m *model) connections() ruleset.FrontEnd { return m.front(200, 80) }

// sink is the n-th address that takes packets and answers none.
func (a addresses) sink(n int) netip.Addr {
	if a.family == ruleset.IPv6 {
		return netip.MustParseAddr(fmt.Sprintf("fd00:200::%x", n))
	}
	return netip.MustParseAddr(fmt.Sprintf("10.200.0.%d", n))
}

// moveLive gives the fronts with traffic another number of endpoints, and others.
func (m *model) moveLive() {
	m.live = 1 + m.random.IntN(listeners)
	packets := ruleset.ServicePort{Name: "live/packets:", Fronts: []ruleset.FrontEnd{m.packets()}}
	connections := ruleset.ServicePort{Name: "live/connections:", Fronts: []ruleset.FrontEnd{m.connections()}}
	for _, n := range m.random.Perm(listeners)[:m.live] {
		packets.Cluster = append(packets.Cluster, netip.AddrPortFrom(m.sink(1+n), 53))
		connections.Cluster = append(connections.Cluster, m.endpoint(1+n))
	}
	m.set(packets)
	m.set(connections)
}

func (m *model) set(p ruleset.ServicePort) {
	if err := m.table.Set(p); err != nil {
		m.t.Fatal(err)
	}
	m.ports[p.Name] = p
}

// step makes some changes at once.
func (m *model) step() {
	for range 1 + m.random.IntN(4) {
		name := fmt.Sprintf("some/service-%d:http", m.random.IntN(20))
		switch m.random.IntN(12) {
		case 0, 1, 2:
			m.table.Remove(name)
			delete(m.ports, name)
		case 3:
			m.hairpin = nil
			for n := range listeners {
				if m.random.IntN(2) == 0 {
					m.hairpin = append(m.hairpin, m.endpoint(1+n).Addr())
				}
			}
			m.table.SetHairpin(m.hairpin)
		case 4:
			m.config.MasqueradeAll = m.random.IntN(4) == 0
			m.table.Configure(m.config)
		case 5, 6, 7:
			m.moveLive()
		default:
			m.set(m.somePort(name))
		}
	}
	m.commit()
}

// somePort is a port of a Service, whose fronts others may have too.
func (m *model) somePort(name string) ruleset.ServicePort {
	r := m.random
	p := ruleset.ServicePort{Name: name, Rank: strconv.Itoa(r.IntN(3))}
	affinities := []time.Duration{0, 0, time.Hour, 3 * time.Hour}
	p.Affinity = affinities[r.IntN(len(affinities))]
	some := func() []netip.AddrPort {
		var some []netip.AddrPort
		for range r.IntN(8) {
			some = append(some, netip.AddrPortFrom(m.sink(1+r.IntN(30)), uint16(8080+r.IntN(2))))
		}
		return some
	}
	p.Cluster, p.Local = some(), some()
	protocols := []ruleset.Protocol{ruleset.TCP, ruleset.UDP, ruleset.SCTP}
	for n := range 1 + r.IntN(3) {
		f := ruleset.FrontEnd{
			Front:      ruleset.Front{Address: m.service(1 + r.IntN(30)), Protocol: protocols[r.IntN(3)], Port: uint16(80 + n)},
			Pool:       ruleset.Pool(r.IntN(3)),
			ClusterIP:  r.IntN(2) == 0,
			Masquerade: r.IntN(2) == 0,
			Empty:      ruleset.Refusal(r.IntN(2)),
		}
		if r.IntN(4) == 0 {
			f.Sources = []netip.Prefix{netip.PrefixFrom(m.stranger, 8+r.IntN(20)), m.pods}
		}
		p.Fronts = append(p.Fronts, f)
	}
	return p
}

// commit has the kernel do what is staged and due.
func (m *model) commit() {
	m.t.Helper()
	done := m.table.Commit(time.Now())
	if !done.Transaction.Empty() {
		apply(m.t, m.conn, done.Transaction)
		m.table.Written(time.Now())
	}
	began := time.Now()
	if err := m.conn.Forget(m.family, done.Forget); err != nil {
		m.t.Fatal(err)
	}
	for _, f := range done.Forget {
		m.table.Forgotten(f.Set, began)
	}
}

// check compares what the kernel holds with what it should hold.
func (m *model) check() {
	m.t.Helper()
	listing, err := m.conn.Read(m.family)
	if err != nil {
		m.t.Fatal(err)
	}
	if !m.table.Holds(listing) {
		m.t.Errorf("the kernel does not hold just what it should:\n%s", strings.Join(m.table.Differences(listing), "\n"))
	}
}

// restart begins with another table that is told what the kernel holds.
func (m *model) restart() {
	m.t.Helper()
	listing, err := m.conn.Read(m.family)
	if err != nil {
		m.t.Fatal(err)
	}
	m.table = m.fresh()
	m.table.Adopt(listing)
	m.commit()
	m.check()
}

// fresh is a table of the same ServicePorts, with nothing committed.
func (m *model) fresh() *ruleset.Table {
	table := ruleset.NewTable(m.config)
	for _, name := range slices.Sorted(maps.Keys(m.ports)) {
		if err := table.Set(m.ports[name]); err != nil {
			m.t.Fatal(err)
		}
	}
	table.SetHairpin(m.hairpin)
	return table
}

// compareWithFresh waits until nothing lingers in the kernel and compares what it holds
// with what a table holds that knows nothing of the past. One that is told what the kernel
// holds has nothing to do.
func (m *model) compareWithFresh() {
	m.t.Helper()
	waitFor(m.t, "nothing lingers", func() bool {
		m.commit()
		_, due := m.table.Due()
		return !due
	})
	listing, err := m.conn.Read(m.family)
	if err != nil {
		m.t.Fatal(err)
	}
	fresh := m.fresh()
	fresh.Commit(time.Now())
	if found := fresh.Differences(listing); len(found) > 0 {
		m.t.Fatalf("the kernel does not hold what is new:\n%s", strings.Join(found, "\n"))
	}
	adopting := m.fresh()
	adopting.Adopt(listing)
	if left := adopting.Commit(time.Now()).Transaction; !left.Empty() {
		m.t.Fatalf("what is right is not adopted: %v", left)
	}
}

// traffic is packets that come to a front from a client and from the node itself, and
// connections that come to another.
type traffic struct {
	world       *world
	bursts      []chan int
	running     sync.WaitGroup
	connections atomic.Int64
	failed      atomic.Pointer[error]
}

// watch are rules that count packets of new connections to a front before they are
// translated and after it. What is not translated is dropped between the two.
const watch = `
table FAMILY watch {
	counter came { }
	counter went { }
	chain before-prerouting {
		type filter hook prerouting priority -150
		ct state new FAMILY daddr FRONT udp dport 53 counter name came
	}
	chain after-prerouting {
		type filter hook prerouting priority -95
		ct state new ct status dnat ct original FAMILY daddr FRONT meta l4proto udp counter name went
	}
	chain before-output {
		type filter hook output priority -150
		ct state new FAMILY daddr FRONT udp dport 53 counter name came
	}
	chain after-output {
		type filter hook output priority -95
		ct state new ct status dnat ct original FAMILY daddr FRONT meta l4proto udp counter name went
	}
}`

func newTraffic(t testing.TB, w *world, packets, connections ruleset.FrontEnd) *traffic {
	t.Helper()
	sinks := netip.PrefixFrom(w.sink(0), w.sink(0).BitLen()-8)
	err := w.node.Do(func() error {
		// The ports that packets come from are used again soon.
		if err := setSysctl("net/netfilter/nf_conntrack_udp_timeout", "1"); err != nil {
			return err
		}
		// The client takes what is not for it, and passes nothing on.
		return route("client", sinks, w.stranger)
	})
	if err != nil {
		t.Fatal(err)
	}
	w.node.nft(t, strings.NewReplacer("FAMILY", w.family.String(), "FRONT", packets.Address.String()).Replace(watch))

	tr := &traffic{world: w}
	tr.onBursts("sending packets", func(many int) error {
		return w.client.Do(func() error { return sendPackets(to(packets), many) })
	})
	tr.onBursts("sending packets from the node", func(many int) error {
		return w.node.Do(func() error { return sendPackets(to(packets), many) })
	})
	tr.onBursts("connecting", func(many int) error {
		for range many / packetsPerConnection {
			if _, err := w.client.connect(w.pod, to(connections), patience); err != nil {
				return err
			}
			tr.connections.Add(1)
		}
		return nil
	})
	return tr
}

// leastPackets and leastConnections are how much traffic shows something.
const leastPackets, leastConnections = 100, 10

// packetsPerConnection is how many packets come for each connection.
const packetsPerConnection = 25

// onBursts does something for each burst of packets.
func (tr *traffic) onBursts(doing string, do func(packets int) error) {
	bursts := make(chan int, 1)
	tr.bursts = append(tr.bursts, bursts)
	tr.running.Go(func() {
		for packets := range bursts {
			if err := do(packets); err != nil {
				err = fmt.Errorf("%s: %w", doing, err)
				tr.failed.CompareAndSwap(nil, &err)
			}
		}
	})
}

// send has so many packets come from each side, and some connections, beside what the
// caller does meanwhile.
func (tr *traffic) send(packets int) {
	for _, bursts := range tr.bursts {
		select {
		case bursts <- packets:
		default: // some are still to come
		}
	}
}

// sendPackets sends packets, each from a port of its own, so that it begins a connection, by
// sockets in the namespace of this thread.
func sendPackets(to netip.AddrPort, many int) error {
	domain := unix.AF_INET6
	var address unix.Sockaddr = &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	if to.Addr().Is4() {
		domain, address = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	for range many {
		fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if err := errors.Join(unix.Sendto(fd, []byte("?"), 0, address), unix.Close(fd)); err != nil {
			return err
		}
	}
	return nil
}

var counted = regexp.MustCompile(`packets (\d+)`)

// stop ends the traffic and compares what came with what was translated.
func (tr *traffic) stop(t *testing.T) {
	t.Helper()
	for _, bursts := range tr.bursts {
		close(bursts)
	}
	tr.running.Wait()
	if err := tr.failed.Load(); err != nil {
		t.Error(*err)
	}
	packets := func(counter string) int {
		list := tr.world.node.nft(t, "list", "counter", tr.world.family.String(), "watch", counter)
		n, err := strconv.Atoi(counted.FindStringSubmatch(list)[1])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	came, went := packets("came"), packets("went")
	t.Logf("%d packets, %d connections", came, tr.connections.Load())
	if came != went {
		t.Errorf("of %d packets %d were not translated", came, came-went)
	}
	if came < leastPackets || tr.connections.Load() < leastConnections {
		t.Error("there was too little traffic to show anything")
	}
}
