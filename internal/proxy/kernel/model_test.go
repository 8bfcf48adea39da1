package kernel_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// After each random change, the kernel has the rules of the table. Meanwhile a client and the node open connections to
// a front whose endpoints change each time. All their packets must be translated.
func TestModel(t *testing.T) {
	const steps, leastPackets = 50, 100
	inWorlds(t, func(t *testing.T, w *world, table *ruleset.Table) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		m := &model{
			world: w, t: t, random: rand.New(rand.NewPCG(seed, 0)), table: table, config: w.config(),
			ports: map[string]ruleset.ServicePort{}, live: w.front(200, 53),
		}
		m.live.Protocol = ruleset.UDP
		m.moveLive()
		commit(t, w.conn, table, time.Now())
		w.node.nft(t, strings.NewReplacer("FAMILY", w.family.String(), "FRONT", m.live.Address.String()).Replace(watch))
		for step := range steps {
			m.step()
			if step == steps/2 {
				m.restart()
			}
			wantTable(t, w.conn, w.family, m.table)
		}
		waitFor(t, "nothing lingers", func() bool {
			due, lingers := m.table.Due()
			if lingers && !time.Now().Before(due) {
				m.commit()
			}
			return !lingers
		})
		wantTable(t, w.conn, w.family, m.table)
		arrived, translated := m.counted("arrived"), m.counted("translated")
		t.Logf("%d packets", arrived)
		if arrived != translated {
			t.Errorf("of %d packets %d were not translated", arrived, arrived-translated)
		}
		if arrived < leastPackets {
			t.Error("too few packets: this test shows nothing")
		}
	})
}

// watch has rules that count the packets of new connections to a front before their translation, and translated
// packets.
const watch = `
table FAMILY watch {
	counter arrived { }
	counter translated { }
	chain before-prerouting {
		type filter hook prerouting priority -150
		ct state new FAMILY daddr FRONT udp dport 53 counter name arrived
	}
	chain after-prerouting {
		type filter hook prerouting priority -95
		ct state new ct status dnat ct original FAMILY daddr FRONT meta l4proto udp counter name translated
	}
	chain before-output {
		type filter hook output priority -150
		ct state new FAMILY daddr FRONT udp dport 53 counter name arrived
	}
	chain after-output {
		type filter hook output priority -95
		ct state new ct status dnat ct original FAMILY daddr FRONT meta l4proto udp counter name translated
	}
}`

// model makes random changes of a table.
type model struct {
	*world
	t      *testing.T
	random *rand.Rand
	table  *ruleset.Table
	config ruleset.Config
	ports  map[string]ruleset.ServicePort
	// live is the front that packets come to.
	live ruleset.FrontEnd
}

func (m *model) set(p ruleset.ServicePort) {
	m.table.Set(p)
	m.ports[p.Name] = p
}

// moveLive gives the front with packets another number of endpoints, and others.
func (m *model) moveLive() {
	p := ruleset.ServicePort{Name: "live/packets:", Fronts: []ruleset.FrontEnd{m.live}}
	for _, n := range m.random.Perm(listeners)[:1+m.random.IntN(listeners)] {
		p.Cluster = append(p.Cluster, m.endpoint(1+n))
	}
	m.set(p)
}

// step makes some changes at once.
func (m *model) step() {
	m.t.Helper()
	m.moveLive()
	for range m.random.IntN(4) {
		name := fmt.Sprintf("some/service-%d:http", m.random.IntN(20))
		switch m.random.IntN(8) {
		case 0, 1, 2:
			m.table.Remove(name)
			delete(m.ports, name)
		case 3:
			m.config.MasqueradeAll = !m.config.MasqueradeAll
			m.table.Configure(m.config)
		default:
			m.set(m.somePort(name))
		}
	}
	m.commit()
}

// somePort is a port of a Service, whose fronts others may have too.
func (m *model) somePort(name string) ruleset.ServicePort {
	r := m.random
	p := ruleset.ServicePort{Name: name, Rank: strconv.Itoa(r.IntN(3)), Affinity: time.Duration(r.IntN(3)) * time.Hour}
	for range r.IntN(8) {
		p.Cluster = append(p.Cluster, m.endpoint(1+r.IntN(30)))
		p.Local = append(p.Local, m.endpoint(1+r.IntN(30)))
	}
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

// commit applies what is staged and due to the kernel while packets arrive.
func (m *model) commit() {
	m.t.Helper()
	done := make(chan struct{})
	var coming sync.WaitGroup
	for _, from := range []*namespace{m.client, m.node} {
		coming.Go(func() {
			if err := from.Do(func() error { return sendPackets(to(m.live), done) }); err != nil {
				m.t.Error(err)
			}
		})
	}
	defer coming.Wait()
	defer close(done)
	made := commit(m.t, m.conn, m.table, time.Now())
	m.table.Written(time.Now())
	began := time.Now()
	if err := m.conn.Forget(m.family, made.Forget); err != nil {
		m.t.Fatal(err)
	}
	for _, f := range made.Forget {
		m.table.Forgotten(f.Set, began)
	}
}

// sendPackets sends packets until done is closed, each from a new port, so that it begins a connection.
func sendPackets(at netip.AddrPort, done <-chan struct{}) error {
	const most = 200
	for range most {
		conn, err := net.Dial("udp", at.String())
		if err != nil {
			return err
		}
		_, err = conn.Write([]byte("?"))
		if err := errors.Join(err, conn.Close()); err != nil {
			return err
		}
		select {
		case <-done:
			return nil
		default:
		}
	}
	return nil
}

// restart continues with another table, which adopts the kernel's rules.
func (m *model) restart() {
	m.t.Helper()
	m.table = ruleset.NewTable(m.config)
	for _, name := range slices.Sorted(maps.Keys(m.ports)) {
		m.set(m.ports[name])
	}
	listing, err := m.conn.Read(m.family)
	if err != nil {
		m.t.Fatal(err)
	}
	m.table.Adopt(listing)
	m.commit()
}

// counted returns the packets of a counter.
func (m *model) counted(counter string) (packets int) {
	m.t.Helper()
	list := m.node.nft(m.t, "list", "counter", m.family.String(), "watch", counter)
	_, number, _ := strings.Cut(list, "packets ")
	if _, err := fmt.Sscan(number, &packets); err != nil {
		m.t.Fatalf("%v: %s", err, list)
	}
	return packets
}
