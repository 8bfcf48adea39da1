package ruleset

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// model is a naive proxy: it looks at all ServicePorts for each packet.
type model struct {
	config  Config
	ports   map[string]ServicePort
	hairpin []netip.Addr
}

// winner is the ServicePort that has a front.
func (m *model) winner(front Front) (ServicePort, FrontEnd, bool) {
	var found ServicePort
	var end FrontEnd
	ok := false
	for _, name := range slices.Sorted(maps.Keys(m.ports)) {
		sp := m.ports[name]
		for _, e := range sp.Fronts {
			if e.Front == front {
				claimed := [3]bool{e.ClusterIP, e.NodePort && !e.ClusterIP, true}
				has := [3]bool{end.ClusterIP, end.NodePort && !end.ClusterIP, true}
				of, given := slices.Index(claimed[:], true), slices.Index(has[:], true)
				if !ok || of < given || of == given && sp.Rank < found.Rank {
					found, end, ok = sp, e, true
				}
				break
			}
		}
	}
	return found, end, ok
}

func (m *model) clusterIP(address netip.Addr) bool {
	for _, sp := range m.ports {
		for _, end := range sp.Fronts {
			if end.Address == address && end.ClusterIP {
				if winner, winning, _ := m.winner(end.Front); winner.Name == sp.Name && winning.ClusterIP {
					return true
				}
			}
		}
	}
	return false
}

func within(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// fromPod reports whether a packet is known to be a pod's.
func (m *model) fromPod(p packet) bool {
	if m.config.PodInterfaces.Name != "" {
		return m.config.PodInterfaces.hold(p.in)
	}
	return within(m.config.ClusterCIDRs, p.source)
}

// pool are the targets for a packet, as often as they are drawn.
func (m *model) pool(p packet) []netip.AddrPort {
	sp, end, ok := m.winner(p.front)
	local := end.Pool == PoolLocal || end.Pool == PoolSplit && !p.fromNode && !m.fromPod(p)
	switch {
	case !ok:
		return nil
	case local:
		return sp.Local
	case sp.Weights == nil:
		return sp.Cluster
	}
	var all []netip.AddrPort
	for i, target := range sp.Cluster {
		all = append(all, slices.Repeat([]netip.AddrPort{target}, int(sp.Weights[i]))...)
	}
	return all
}

// outcomes returns the possible outcomes of a packet with their probabilities.
func (m *model) outcomes(p packet) map[outcome]float64 {
	_, end, ok := m.winner(p.front)
	refusal := outcome{end: rejected}
	if p.front.Protocol == TCP {
		refusal.end = reset
	}
	if !ok {
		switch {
		case p.toNode:
		case m.clusterIP(p.front.Address):
			return certain(refusal)
		case within(m.config.ServiceRanges, p.front.Address):
			return certain(outcome{end: dropped})
		}
		return certain(outcome{target: p.front.own()})
	}
	if end.Sources != nil && !within(end.Sources, p.source) {
		return certain(outcome{end: dropped})
	}
	pool := m.pool(p)
	if len(pool) == 0 {
		switch {
		case end.Empty == Drop, end.Empty == DropOutside && !p.fromNode && !m.fromPod(p):
			refusal.end = dropped
		case end.Empty == Ignore && !m.clusterIP(p.front.Address) && !p.toNode && within(m.config.ServiceRanges, p.front.Address):
			refusal = outcome{end: dropped}
		case end.Empty == Ignore && (!m.clusterIP(p.front.Address) || p.toNode):
			refusal = outcome{target: p.front.own()}
		}
		return certain(refusal)
	}
	masquerade := end.Masquerade
	switch {
	case end.Pool == PoolSplit:
		masquerade = p.fromNode
	case end.ClusterIP:
		masquerade = masquerade || m.config.MasqueradeAll ||
			(m.config.PodInterfaces.Name != "" || len(m.config.ClusterCIDRs) > 0) && !m.fromPod(p)
	}
	outcomes := make(map[outcome]float64)
	for _, target := range pool {
		hairpin := target.Addr() == p.source && slices.Contains(m.hairpin, p.source)
		outcomes[outcome{target: target, masquerade: masquerade || hairpin}] += 1 / float64(len(pool))
	}
	return outcomes
}

func certain(f outcome) map[outcome]float64 { return map[outcome]float64{f: 1} }

// fresh is a table of the same that never was different.
func (m *model) fresh() *Table {
	table := NewTable(m.config)
	for _, name := range slices.Sorted(maps.Keys(m.ports)) {
		table.Set(m.ports[name])
	}
	table.SetHairpin(m.hairpin)
	table.Commit(time.Time{})
	return table
}

// world has the addresses from which those of a model are drawn.
type world struct {
	family   Family
	fronts   []Front
	targets  []netip.AddrPort
	cidrs    []netip.Prefix
	ranges   []netip.Prefix // of Services
	clients  []packet       // without fronts
	prefixes []netip.Prefix
}

func newWorld(family Family) *world {
	w := &world{family: family}
	address := func(four, six string) netip.Addr {
		if family == IPv6 {
			return netip.MustParseAddr(six)
		}
		return netip.MustParseAddr(four)
	}
	for i := 1; i <= 3; i++ {
		for _, port := range []uint16{53, 80} {
			for _, protocol := range []Protocol{TCP, UDP} {
				w.fronts = append(w.fronts, Front{
					Address: address(fmt.Sprintf("10.96.0.%d", i), fmt.Sprintf("fd96::%d", i)), Protocol: protocol, Port: port,
				})
			}
		}
	}
	pod := address("10.1.0.1", "fd01::1")
	for i := range 6 {
		w.targets = append(w.targets, netip.AddrPortFrom(pod, 8080))
		if i%2 == 0 {
			w.targets = append(w.targets, netip.AddrPortFrom(pod, 9090))
		}
		pod = pod.Next()
	}
	w.cidrs = []netip.Prefix{netip.PrefixFrom(address("10.1.0.0", "fd01::"), 16), netip.PrefixFrom(address("10.2.0.0", "fd02::"), 16)}
	w.ranges = []netip.Prefix{netip.PrefixFrom(address("10.96.0.0", "fd96::"), 16)}
	outside, node := address("192.0.2.1", "2001:db8::1"), address("172.18.0.2", "fd18::2")
	w.clients = []packet{
		{source: w.targets[0].Addr(), in: "pod0"},
		{source: w.targets[4].Addr(), in: "pod4"},
		{source: outside, in: "eth0"},
		{source: outside, in: "eth0", toNode: true},
		{source: node, fromNode: true},
	}
	for _, c := range w.clients {
		w.prefixes = append(w.prefixes, netip.PrefixFrom(c.source, 24).Masked())
	}
	return w
}

func (w *world) config() *rapid.Generator[Config] {
	return rapid.Custom(func(t *rapid.T) Config {
		return Config{
			Family:         w.family,
			MasqueradeMark: rapid.SampledFrom([]uint32{0x2000, 0x8000}).Draw(t, "mark"),
			MasqueradeAll:  rapid.Bool().Draw(t, "all"),
			ClusterCIDRs:   rapid.SampledFrom([][]netip.Prefix{nil, w.cidrs[:1], w.cidrs}).Draw(t, "CIDRs"),
			ServiceRanges:  rapid.SampledFrom([][]netip.Prefix{nil, nil, w.ranges}).Draw(t, "ranges"),
			PodInterfaces:  rapid.SampledFrom([]Interfaces{{}, {}, {Name: "pod0"}, {Name: "pod", Prefix: true}}).Draw(t, "interfaces"),

			MaxAffinityClients: rapid.SampledFrom([]int{0, 0, 1000, 2000}).Draw(t, "clients"),
		}
	})
}

func (w *world) servicePort() *rapid.Generator[ServicePort] {
	targets := rapid.SliceOfN(rapid.SampledFrom(w.targets), 0, 5)
	return rapid.Custom(func(t *rapid.T) ServicePort {
		sp := ServicePort{
			Name:     rapid.SampledFrom([]string{"a/x:", "a/x:http", "b/y:dns", "b/z:", "c/z:"}).Draw(t, "name"),
			Rank:     rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "rank"),
			Cluster:  targets.Draw(t, "cluster"),
			Local:    targets.Draw(t, "local"),
			Affinity: rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour}).Draw(t, "affinity"),
			Known: Known{
				Serving: targets.Draw(t, "serving"), Silent: targets.Draw(t, "silent"),
				View: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "view"), Fleeting: targets.Draw(t, "fleeting"),
			},
		}
		if rapid.IntRange(0, 2).Draw(t, "weighted") == 0 {
			n := len(sp.Cluster)
			sp.Weights = rapid.SliceOfN(rapid.SampledFrom([]uint32{1, 2, 3, 4, 7}), n, n).Draw(t, "weights")
		}
		for _, front := range rapid.SliceOfNDistinct(rapid.SampledFrom(w.fronts), 0, 3, rapid.ID[Front]).Draw(t, "fronts") {
			end := FrontEnd{
				Front:      front,
				Pool:       rapid.SampledFrom([]Pool{PoolCluster, PoolLocal, PoolSplit}).Draw(t, "pool"),
				ClusterIP:  rapid.Bool().Draw(t, "cluster IP"),
				NodePort:   rapid.Bool().Draw(t, "node port"),
				Masquerade: rapid.Bool().Draw(t, "masquerade"),
				Empty:      rapid.SampledFrom([]Refusal{Reject, Drop, DropOutside, Ignore}).Draw(t, "empty"),
			}
			if rapid.IntRange(0, 3).Draw(t, "guarded") == 0 {
				end.Sources = rapid.SliceOfNDistinct(rapid.SampledFrom(w.prefixes), 0, 3, rapid.ID[netip.Prefix]).Draw(t, "sources")
			}
			sp.Fronts = append(sp.Fronts, end)
		}
		return sp
	})
}

// connection is a tracked one.
type connection struct {
	packet packet
	target netip.AddrPort
}

// machine is a table under test with the expected state.
type machine struct {
	*bed
	world *world
	// wanted is the staged model, done the one of the last write, and before the one of the write before it.
	wanted, done, before model
	now                  time.Time
	connections          map[connection]bool
	// intact means that there was no foreign change since the last Commit.
	intact bool
	// toForget has the pending requests to forget clients.
	toForget []Forget
	// forgetful means that the table knows less or more of the past than the last Commit that was written.
	forgetful bool
}

// Random changes of tables, with packets after every transaction.
func TestTableMatchesModel(t *testing.T) {
	for _, family := range []Family{IPv4, IPv6} {
		t.Run(family.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { runMachine(t, newWorld(family)) })
		})
	}
}

func runMachine(t *rapid.T, w *world) {
	config := w.config().Draw(t, "config")
	m := &machine{
		bed: newBed(config), world: w, now: time.Unix(1e9, 0), connections: make(map[connection]bool), intact: true,
		wanted: model{config: config, ports: make(map[string]ServicePort)},
	}
	m.commit(t)
	t.Repeat(map[string]func(*rapid.T){
		"set":       m.set,
		"set more":  m.set,
		"similar":   m.similar,
		"remove":    m.remove,
		"hairpin":   m.setHairpin,
		"configure": m.configure,
		"commit":    m.commit,
		"wait":      m.wait,
		"refuse":    m.refuse,
		"restart":   m.restart,
		"tamper":    m.tamper,
	})
	m.commit(t)
	m.drain(t)
}

func (m *machine) set(t *rapid.T) {
	sp := m.world.servicePort().Draw(t, "port")
	m.Set(sp)
	m.wanted.ports[sp.Name] = sp
}

// similar changes the endpoints of a ServicePort alone.
func (m *machine) similar(t *rapid.T) {
	if len(m.wanted.ports) == 0 {
		return
	}
	sp := m.wanted.ports[rapid.SampledFrom(slices.Sorted(maps.Keys(m.wanted.ports))).Draw(t, "name")]
	other := m.world.servicePort().Draw(t, "other")
	if rapid.Bool().Draw(t, "endpoints") {
		sp.Cluster, sp.Weights, sp.Local, sp.Known = other.Cluster, other.Weights, other.Local, other.Known
	} else {
		sp.Affinity = other.Affinity
	}
	m.Set(sp)
	m.wanted.ports[sp.Name] = sp
}

func (m *machine) remove(t *rapid.T) {
	name := m.world.servicePort().Draw(t, "port").Name
	m.Remove(name)
	delete(m.wanted.ports, name)
}

func (m *machine) setHairpin(t *rapid.T) {
	m.wanted.hairpin = nil
	for _, target := range rapid.SliceOf(rapid.SampledFrom(m.world.targets)).Draw(t, "endpoints") {
		m.wanted.hairpin = append(m.wanted.hairpin, target.Addr())
	}
	m.SetHairpin(m.wanted.hairpin)
}

func (m *machine) configure(t *rapid.T) {
	clients := m.wanted.config.MaxAffinityClients
	m.wanted.config = m.world.config().Draw(t, "config")
	m.wanted.config.MaxAffinityClients = clients
	m.Configure(m.wanted.config)
}

// commit commits and checks everything visible.
func (m *machine) commit(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(0, 120).Draw(t, "hundredths")) * Linger / 100)
	if rapid.Bool().Draw(t, "forget") {
		m.forgetClients()
	}
	c := m.Commit(m.now)
	if names := m.Staged(); len(names) > 0 {
		t.Fatalf("still staged: %v", names)
	}
	before := m.kernel.clone()
	if err := m.kernel.apply(c.Transaction); err != nil {
		t.Fatal(err)
	}
	if m.intact {
		if err := m.kernel.check(before); err != nil {
			t.Fatal(err)
		}
	}
	m.before, m.done = m.done, m.wanted
	m.done.ports = maps.Clone(m.wanted.ports)
	for _, f := range c.Forget {
		m.toForget = slices.DeleteFunc(m.toForget, func(other Forget) bool { return other.Set == f.Set })
		m.toForget = append(m.toForget, f)
	}
	if m.intact {
		m.lookAtConnections(t, c.Stale)
	}
	m.intact, m.forgetful = true, false
	m.check(t)
	m.connect()
}

// forgetClients has clients forgotten, which takes its time.
func (m *machine) forgetClients() {
	m.kernel.forget(m.world.family, m.toForget)
	for _, f := range m.toForget {
		m.Forgotten(f.Set, m.now)
	}
	m.toForget = nil
}

// check compares the kernel with the model.
func (m *machine) check(t *rapid.T) {
	l := m.kernel.list(m.world.family)
	if !m.Holds(l) || !m.HoldsShape(l) {
		t.Fatalf("the kernel differs: %v", m.compare(l, true))
	}
	if differences := m.Differences(l); len(differences) > 0 {
		t.Fatalf("%v", differences)
	}
	if again := m.Commit(m.now); !again.Transaction.Empty() || again.Stale != nil || again.Forget != nil {
		t.Fatalf("a Commit without changes has %v", again)
	}
	for _, front := range m.world.fronts {
		for _, p := range m.world.clients {
			p.front = front
			m.lookAtPacket(t, p)
		}
	}
}

// lookAtPacket sends a packet so often that it draws every number.
func (m *machine) lookAtPacket(t *rapid.T, p packet) {
	want, got := m.done.outcomes(p), m.kernel.outcomes(p)
	// A remembered client goes to its earlier target. The model does not remember clients, but this target is one of
	// its possible outcomes.
	sp, _, _ := m.done.winner(p.front)
	for f, part := range got {
		if off := math.Abs(part - want[f]); want[f] == 0 || off > 0.01 && sp.Affinity == 0 {
			t.Fatalf("%v goes to %v in %.4f of all cases; it should go to %v", p, f, part, want)
		}
	}
	if len(got) < len(want) && sp.Affinity == 0 {
		t.Fatalf("%v goes to %v instead of %v", p, got, want)
	}
}

// lookAtConnections finds connections that continue though they must end, and the reverse.
func (m *machine) lookAtConnections(t *rapid.T, stale []Stale) {
	for c := range m.connections {
		ended := slices.Contains(stale, Stale{Front: c.packet.front, Target: c.target})
		if want, certain := m.mayNotGoOn(c); ended != want && (certain || ended && !want && m.serves(c)) {
			t.Fatalf("the connection of %v to %s has ended: %t, want %t", c.packet, c.target, ended, want)
		}
	}
}

// serves reports whether the endpoint of a connection serves.
func (m *machine) serves(c connection) bool {
	after, _, _ := m.done.winner(c.packet.front)
	return slices.Contains(after.alive(), c.target)
}

func (sp ServicePort) alive() []netip.AddrPort {
	return slices.Concat(sp.Cluster, sp.Local, sp.Known.Serving)
}

// mayNotGoOn reports whether a connection from before the last Commit must end with it,
// and whether the table can know that.
func (m *machine) mayNotGoOn(c connection) (ends, certain bool) {
	front := c.packet.front
	was, _, some := m.before.winner(front)
	is, _, still := m.done.winner(front)
	switch {
	case !still:
		return false, true
	case c.target == front.own():
		return m.translated(front), true
	case slices.Contains(is.alive(), c.target):
		return false, true
	case len(is.alive()) == 0:
		return false, !m.forgetful // a Commit that the kernel refused may have ended it
	case some && was.Name != is.Name:
		return true, !m.forgetful
	case slices.Contains(is.Known.Silent, c.target) || is.Known.View == "":
		return true, true
	default:
		return was.Known.View == is.Known.View && !slices.Contains(was.Known.Fleeting, c.target), !m.forgetful
	}
}

// translated reports whether some packets to a front are since the last Commit that were
// not before.
func (m *machine) translated(front Front) bool {
	before, after := m.before.pools(front), m.done.pools(front)
	_, end, _ := m.before.winner(front)
	some := func(pools [2][]netip.AddrPort) bool { return len(pools[0])+len(pools[1]) > 0 }
	if some(before) && end.Pool != PoolSplit {
		return false
	}
	return len(before[0]) == 0 && len(after[0]) > 0 || len(before[1]) == 0 && len(after[1]) > 0
}

// pools are the targets that connections to a front may have.
func (m *model) pools(front Front) [2][]netip.AddrPort {
	sp, end, _ := m.winner(front)
	switch end.Pool {
	case PoolCluster:
		return [2][]netip.AddrPort{sp.Cluster, nil}
	case PoolLocal:
		return [2][]netip.AddrPort{nil, sp.Local}
	default:
		return [2][]netip.AddrPort{sp.Cluster, sp.Local}
	}
}

// connect opens new connections, which some sets remember.
func (m *machine) connect() {
	clear(m.connections)
	for _, front := range m.world.fronts {
		for _, p := range m.world.clients {
			p.front = front
			for draw := range uint32(5) {
				if f := m.kernel.send(p, draw); f.target.IsValid() {
					m.connections[connection{p, f.target}] = true
				} else {
					// It was there before anything was refused.
					m.connections[connection{p, p.front.own()}] = true
				}
			}
		}
	}
}

// wait lets all that lingers go.
func (m *machine) wait(t *rapid.T) {
	if due, ok := m.Due(); ok && due.After(m.now) {
		m.now = due
	}
	m.commit(t)
}

// drain waits until nothing lingers. Then the table equals a new one.
func (m *machine) drain(t *rapid.T) {
	for range 9 {
		m.forgetClients()
		if _, ok := m.Due(); !ok {
			break
		}
		m.wait(t)
	}
	if due, ok := m.Due(); ok {
		t.Fatalf("something is still due at %s", due)
	}
	fresh := m.done.fresh()
	if differences := fresh.Differences(m.kernel.list(m.world.family)); len(differences) > 0 {
		t.Fatalf("the kernel differs from a fresh table: %v", differences)
	}
	want, got := fresh.Want(), m.Want()
	for i, set := range want.Sets {
		if len(got.Sets[i].Elements) != len(set.Elements) {
			t.Fatalf("%s has %d elements instead of %d", set.Name, len(got.Sets[i].Elements), len(set.Elements))
		}
	}
	if len(m.lingering.slots)+len(m.lingering.queue) > 0 {
		t.Fatalf("nothing is due but %v", m.lingering)
	}
}

// refuse is a kernel that does not take a transaction.
func (m *machine) refuse(t *rapid.T) {
	m.Commit(m.now)
	m.Adopt(m.kernel.list(m.world.family))
	m.forgetful = true
	if rapid.Bool().Draw(t, "commit") {
		m.commit(t)
	}
}

// restart begins with another table, which may remember another number of clients.
func (m *machine) restart(t *rapid.T) {
	m.wanted.config.MaxAffinityClients = m.world.config().Draw(t, "config").MaxAffinityClients
	m.Table = NewTable(m.wanted.config)
	m.forgetful = true
	first := rapid.Bool().Draw(t, "adopt first")
	if first {
		m.Adopt(m.kernel.list(m.world.family))
	}
	for _, name := range slices.Sorted(maps.Keys(m.wanted.ports)) {
		m.Set(m.wanted.ports[name])
	}
	m.SetHairpin(m.wanted.hairpin)
	if !first {
		m.Adopt(m.kernel.list(m.world.family))
	}
	m.commit(t)
}

// tamper makes foreign changes of the table.
func (m *machine) tamper(t *rapid.T) {
	before := m.kernel.list(m.world.family)
	held := m.Holds(before)
	for range rapid.IntRange(1, 3).Draw(t, "times") {
		m.tamperOnce(t)
	}
	after := m.kernel.list(m.world.family)
	if reflect.DeepEqual(before, after) && held != m.Holds(after) {
		t.Fatalf("the kernel holds the same as before, and this is correct: %t", held)
	}
	// A table that finds no difference continues unchanged.
	if !m.Holds(after) {
		m.intact = false
		m.Adopt(after)
	}
	m.commit(t)
}

func (m *machine) tamperOnce(t *rapid.T) {
	if !m.kernel.exists {
		return
	}
	name := rapid.SampledFrom(slices.Sorted(maps.Keys(m.kernel.sets))).Draw(t, "set")
	set := m.kernel.sets[name]
	if set == nil || set.Dynamic {
		return
	}
	keys := slices.Sorted(maps.Keys(set.elements))
	if len(keys) == 0 {
		keys = []string{""}
	}
	key := rapid.SampledFrom(keys).Draw(t, "key")
	other := set.elements[rapid.SampledFrom(keys).Draw(t, "other key")]
	switch rapid.IntRange(0, 10).Draw(t, "kind") {
	case 0:
		delete(set.elements, key)
	case 1:
		if e, ok := set.elements[key]; ok {
			e.Data, e.Verdict = other.Data, other.Verdict
			set.elements[key] = e
		}
	case 2:
		junk := key + "junk"
		set.elements[junk] = Element{Key: junk, Data: other.Data, Verdict: other.Verdict}
	case 3:
		clear(set.elements)
	case 4:
		c := *m.kernel.chains[dropOutsideChain]
		c.Rules = append(slices.Clone(c.Rules), Rule{Family: m.world.family, Statements: []Statement{NewConnection{}}})
		m.kernel.chains[dropOutsideChain] = &c
	case 5:
		m.kernel.chains["foreign"] = &Chain{Name: "foreign"}
	case 6, 7:
		if c := m.kernel.chains["nat-output"]; c != nil {
			other := *c
			// The kernel lets no chain lead to a base chain.
			if other.Base = nil; rapid.Bool().Draw(t, "base") && m.kernel.checkUnused(c.Name, "-") == nil {
				other.Base = &Base{NAT: true, Hook: Output, Priority: rememberPriority}
			}
			m.kernel.chains["nat-output"] = &other
		}
	case 8, 9:
		name := rapid.SampledFrom(slices.Sorted(maps.Keys(m.kernel.chains))).Draw(t, "chain")
		other := *m.kernel.chains[name]
		if other.Rules = nil; other.Base == nil && rapid.Bool().Draw(t, "led to") {
			other = Chain{Name: "pick-7", Rules: []Rule{{Family: m.world.family, Statements: []Statement{leadTo(name)}}}}
		}
		m.kernel.chains[other.Name] = &other
	default:
		delete(m.kernel.chains, "nat-prerouting")
	}
}
