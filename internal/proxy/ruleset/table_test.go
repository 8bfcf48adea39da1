package ruleset

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func frontOf(address string, protocol Protocol, port uint16) Front {
	return Front{Address: netip.MustParseAddr(address), Protocol: protocol, Port: port}
}

var dns = frontOf("10.96.0.10", UDP, 53)

// dnsPort is a ServicePort with one front.
func dnsPort(cluster string) ServicePort {
	return ServicePort{Name: "kube-system/dns:udp", Cluster: targets(cluster), Fronts: []FrontEnd{{Front: dns, ClusterIP: true}}}
}

// stage stages ServicePorts.
func (b *bed) stage(t *testing.T, ports ...ServicePort) {
	t.Helper()
	for _, sp := range ports {
		b.Set(sp)
	}
}

// program stages ServicePorts and commits.
func (b *bed) program(t *testing.T, now time.Time, ports ...ServicePort) Commit {
	t.Helper()
	b.stage(t, ports...)
	c := b.Commit(now)
	b.do(t, c)
	return c
}

// describe is a transaction in words.
func describe(transaction Transaction) []string {
	kinds := map[ChangeKind]string{
		AddTable: "add table", DeleteTable: "delete table", AddSet: "add set", DeleteSet: "delete set",
		AddChain: "add chain", DeleteChain: "delete chain", ReplaceRules: "replace rules of",
		AddElements: "add to", DeleteElements: "delete from",
	}
	var lines []string
	for _, change := range transaction.Changes {
		line := kinds[change.Kind]
		switch {
		case change.Chain != nil:
			line += " " + change.Chain.Name
		case change.Set != nil:
			line += " " + change.Set.Name
		}
		if len(change.Elements) == 0 {
			lines = append(lines, line)
		}
		for _, e := range change.Elements {
			text := transaction.Family.elementText(change.Set, e)
			if change.Kind == DeleteElements {
				text = transaction.Family.KeyText(change.Set.Key, e.Key)
			}
			lines = append(lines, line+": "+text)
		}
	}
	return lines
}

func expectLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestChangesAreSmall(t *testing.T) {
	b := newBed(Config{Family: IPv4})
	b.program(t, start, dnsPort("123"))
	for _, step := range []struct {
		name  string
		after time.Duration
		port  ServicePort
		want  []string
	}{
		{"an endpoint is replaced", 0, dnsPort("134"), []string{
			"delete from slots: 10.96.0.10 . udp . 53 . 1",
			"add to slots: 10.96.0.10 . udp . 53 . 1 : 10.1.0.4 . 8080",
		}},
		{"nothing changes", 0, dnsPort("431"), nil},
		{"an endpoint comes", 0, dnsPort("1345"), []string{
			"add chain pick-4", "add chain service-4",
			"delete from services: 10.96.0.10 . udp . 53",
			"add to services: 10.96.0.10 . udp . 53 : goto service-4",
			"add to slots: 10.96.0.10 . udp . 53 . 3 : 10.1.0.5 . 8080",
		}},
		{"an endpoint goes, and the chain before is due", Linger, dnsPort("345"), []string{
			"delete from services: 10.96.0.10 . udp . 53",
			"add to services: 10.96.0.10 . udp . 53 : goto service-3",
			"delete from slots: 10.96.0.10 . udp . 53 . 0",
			"add to slots: 10.96.0.10 . udp . 53 . 0 : 10.1.0.5 . 8080",
		}},
		{"its slot is due", 2 * Linger, dnsPort("345"), []string{
			"delete from slots: 10.96.0.10 . udp . 53 . 3",
			"delete chain service-4", "delete chain pick-4",
		}},
		{"an endpoint goes", 3 * Linger, dnsPort("34"), []string{
			"add chain pick-2", "add chain service-2",
			"delete from services: 10.96.0.10 . udp . 53",
			"add to services: 10.96.0.10 . udp . 53 : goto service-2",
			"delete from slots: 10.96.0.10 . udp . 53 . 0",
			"add to slots: 10.96.0.10 . udp . 53 . 0 : 10.1.0.3 . 8080",
		}},
		{"it comes again while its slot lingers", 7 * Linger / 2, dnsPort("345"), []string{
			"delete from services: 10.96.0.10 . udp . 53",
			"add to services: 10.96.0.10 . udp . 53 : goto service-3",
			"delete from slots: 10.96.0.10 . udp . 53 . 2",
			"add to slots: 10.96.0.10 . udp . 53 . 2 : 10.1.0.5 . 8080",
		}},
		{"what lingers is due", 10 * Linger, dnsPort("345"), []string{"delete chain service-2", "delete chain pick-2"}},
		{"all endpoints go", 10 * Linger, dnsPort(""), []string{
			"delete from services: 10.96.0.10 . udp . 53",
			"add to refused: 10.96.0.10 . udp . 53 : goto refuse",
		}},
		{"their slots are due", 20 * Linger, dnsPort(""), []string{
			"delete from slots: 10.96.0.10 . udp . 53 . 0",
			"delete from slots: 10.96.0.10 . udp . 53 . 1",
			"delete from slots: 10.96.0.10 . udp . 53 . 2",
			"delete chain service-3", "delete chain pick-3",
		}},
	} {
		t.Run(step.name, func(t *testing.T) {
			c := b.program(t, start.Add(step.after), step.port)
			expectLines(t, describe(c.Transaction), step.want...)
		})
	}
}

// The linger time begins when the kernel has the change.
func TestLingerBeginsWithWritten(t *testing.T) {
	const slow = 226 * time.Millisecond
	b := newBed(Config{Family: IPv4})
	split := func(cluster, local string) ServicePort {
		return ServicePort{Name: "web", Cluster: targets(cluster), Local: targets(local), Fronts: []FrontEnd{
			{Front: frontOf("10.96.0.1", TCP, 80), Pool: PoolSplit},
		}}
	}
	b.program(t, start, split("123", "12"))
	b.program(t, start, split("12", "1"))
	at := start.Add(slow)
	b.Written(at)
	if due, ok := b.Due(); !ok || !due.Equal(at.Add(Linger)) {
		t.Errorf("due at %s (%t), want %s", due, ok, at.Add(Linger))
	}
	if early := b.Commit(at.Add(Linger - 1)); !early.Transaction.Empty() {
		t.Errorf("before its time: %v", describe(early.Transaction))
	}
	b.Written(start) // as if a clock had been set back
	c := b.Commit(at.Add(Linger))
	expectLines(t, describe(c.Transaction),
		"delete from slots: 10.96.0.1 . tcp . 80 . 2", "delete from local-slots: 10.96.0.1 . tcp . 80 . 1",
		"delete chain split-3-2", "delete chain pick-local-2", "delete chain pick-3")
	b.do(t, c)
	// The removed endpoint is checked again at the next interval.
	recheck := start.Add(Linger + recheckEvery)
	if due, ok := b.Due(); !ok || !due.Equal(recheck) {
		t.Errorf("due at %s (%t), want %s", due, ok, recheck)
	}
	if c := b.Commit(recheck); !c.Transaction.Empty() || len(c.Stale) == 0 {
		t.Errorf("%v, of connections %v", describe(c.Transaction), c.Stale)
	}
	if due, ok := b.Due(); ok {
		t.Errorf("something is due at %s though all is deleted", due)
	}
}

// Checks of endpoints that are removed one by one are batched.
func TestChecksAreBatched(t *testing.T) {
	const apart = Linger / 25
	b := newBed(Config{Family: IPv4})
	web := func(all string) ServicePort {
		return ServicePort{Name: "web", Cluster: targets(all), Fronts: []FrontEnd{{Front: frontOf("10.96.0.1", TCP, 80)}}}
	}
	b.program(t, start, web("1"))
	at := start
	for i := range 26 {
		at = at.Add(apart)
		b.program(t, at, web(string("21"[i%2])))
		b.Written(at)
	}
	rechecks := 0
	for {
		due, some := b.Due()
		if !some {
			break
		}
		if due.Before(at) {
			t.Fatalf("a check was due at %s and not done", due.Sub(start))
		}
		if c := b.Commit(due); len(c.Stale) != 1 || c.Stale[0].Target != targets("2")[0] {
			t.Errorf("at %s connections to %v are searched", due.Sub(start), c.Stale)
		}
		rechecks++
	}
	// The last commit has returned the first one. Twelve endpoints were removed later.
	if rechecks != 1 {
		t.Errorf("%d rechecks, want one", rechecks)
	}
}

func TestDisputesAreDecidedByRank(t *testing.T) {
	b := newBed(Config{Family: IPv4})
	port := func(name, rank, cluster string) ServicePort {
		sp := dnsPort(cluster)
		sp.Name, sp.Rank = name, rank
		return sp
	}
	holds := func(want string) {
		t.Helper()
		p := packet{source: netip.MustParseAddr("192.0.2.1"), front: dns}
		if got := b.kernel.send(p, 0).target; got != targets(want)[0] {
			t.Errorf("the front goes to %s, want %s", got, targets(want)[0])
		}
	}
	b.program(t, start, port("b/b:", "2", "1"))
	holds("1")
	b.program(t, start, port("c/c:", "1", "2"))
	holds("2")
	b.program(t, start, port("a/a:", "1", "3"))
	holds("3")
	want := []Dispute{{dns, "a/a:", "b/b:"}, {dns, "a/a:", "c/c:"}}
	if got := b.Disputed(); !slices.Equal(got, want) {
		t.Errorf("disputed are %v, want %v", got, want)
	}
	// A loser may change, and go.
	c := b.program(t, start, port("b/b:", "2", "456"))
	expectLines(t, describe(c.Transaction))
	b.Remove("a/a:")
	b.do(t, b.Commit(start))
	holds("2")
	b.program(t, start, port("c/c:", "3", "2"))
	holds("4")
	b.Remove("c/c:")
	b.do(t, b.Commit(start))
	if got := b.Disputed(); got != nil {
		t.Errorf("still disputed: %v", got)
	}
	holds("4")
}

// cluster are ServicePorts with ten endpoints each.
func cluster(services int) []ServicePort {
	front, target := netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("10.128.0.1")
	ports := make([]ServicePort, services)
	for i := range ports {
		ports[i] = ServicePort{
			Name:   fmt.Sprintf("namespace-%d/service-%d:http", i%100, i),
			Rank:   fmt.Sprintf("2030-01-01T00:00:00Z namespace-%d/service-%d", i%100, i),
			Fronts: []FrontEnd{{Front: Front{Address: front, Protocol: TCP, Port: 80}, ClusterIP: true}},
		}
		front = front.Next()
		for range 10 {
			ports[i].Cluster = append(ports[i].Cluster, netip.AddrPortFrom(target, 8080))
			target = target.Next()
		}
	}
	return ports
}

func filledTable(services int) (*Table, []ServicePort) {
	ports := cluster(services)
	table := NewTable(Config{Family: IPv4})
	for _, sp := range ports {
		table.Set(sp)
	}
	table.Commit(time.Unix(0, 0))
	return table, ports
}

// flap takes an endpoint from a ServicePort, and puts it back.
func flap(b testing.TB, table *Table, sp ServicePort, at int) {
	all := sp.Cluster
	for i, endpoints := range [][]netip.AddrPort{all[1:], all} {
		sp.Cluster = endpoints
		table.Set(sp)
		if table.Commit(time.Unix(int64(2*at+i), 0)).Transaction.Empty() {
			b.Fatal("nothing changes")
		}
	}
}

func TestCostOfChangesDoesNotDependOnServices(t *testing.T) {
	var allocations [2]float64
	for i, services := range []int{100, 2000} {
		table, ports := filledTable(services)
		n := 0
		allocations[i] = testing.AllocsPerRun(500, func() {
			flap(t, table, ports[n%len(ports)], n)
			n++
		})
	}
	if allocations[1] > 1.2*allocations[0] {
		t.Errorf("changes among 100 Services make %.0f allocations, among 2000 %.0f", allocations[0], allocations[1])
	}
}
