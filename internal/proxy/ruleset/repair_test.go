package ruleset

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// A chain that others made anew, without hook, with one, or at another priority, is made anew:
// the kernel changes the rules of a chain, and nothing else of it.
func TestChainsWithAnotherBaseAreMadeAnew(t *testing.T) {
	b := newBed(Config{Family: IPv4})
	guarded := sticky("12", "1")
	guarded.Fronts[0].Sources = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	b.program(t, start, guarded)
	for name, right := range b.kernel.clone().chains {
		others := []*Base{{Hook: Input, Priority: 7}}
		if right.Base != nil {
			later := *right.Base
			later.Priority++
			others = []*Base{nil, &later}
		}
		for _, other := range others {
			changed := *right
			changed.Base = other
			b.kernel.chains[name] = &changed
			l := b.kernel.list(IPv4)
			if b.Holds(l) || b.HoldsShape(l) || len(b.Differences(l)) == 0 {
				t.Errorf("that %s has the base %v makes no difference", name, other)
			}
			b.Adopt(l)
			b.do(t, b.Commit(start))
			if base := b.kernel.chains[name].Base; (base == nil) != (right.Base == nil) || base != nil && *base != *right.Base {
				t.Errorf("%s has the base %v", name, base)
			}
		}
	}
}

// A chain with a type or policy of others, and a table with flags, are made anew.
func TestForeignBasesAndFlagsAreMadeAnew(t *testing.T) {
	for name, change := range map[string]func(*Listing){
		"delete chain nat-output": func(l *Listing) {
			at := slices.IndexFunc(l.Chains, func(c ListedChain) bool { return c.Name == "nat-output" })
			l.Chains[at].ForeignBase = true
		},
		"delete table": func(l *Listing) { l.Flagged = true },
	} {
		b := newBed(Config{Family: IPv4})
		b.program(t, start, dnsPort("12"))
		l := b.kernel.list(IPv4)
		change(&l)
		if b.Holds(l) || b.HoldsShape(l) || len(b.Differences(l)) == 0 {
			t.Errorf("%s: it makes no difference", name)
		}
		b.Adopt(l)
		c := b.Commit(start)
		if lines := describe(c.Transaction); !slices.Contains(lines, name) {
			t.Errorf("there is no %q in\n%s", name, strings.Join(lines, "\n"))
		}
		b.do(t, c)
	}
}

// A chain with a name that the table could have given, and rules of others that lead to chains of
// the table, keeps none of these from being deleted.
func TestChainsOfOthersKeepNothing(t *testing.T) {
	b := newBed(Config{Family: IPv4})
	b.program(t, start, dnsPort("12"))
	b.kernel.chains["pick-7"] = &Chain{Name: "pick-7", Rules: []Rule{{Family: IPv4, Statements: []Statement{leadTo("service-2")}}}}
	b.Adopt(b.kernel.list(IPv4))
	b.program(t, start.Add(10*time.Millisecond), dnsPort("1"))
	for range 20 {
		due, some := b.Due()
		if !some {
			return
		}
		b.do(t, b.Commit(due))
		b.Written(due)
	}
	t.Error("something is due still")
}

// A hook that nothing needs, and that others made with rules of their own, gets its own rules at
// once: packets enter it for as long as it lingers.
func TestHooksOfOthersDoNothing(t *testing.T) {
	for name, h := range hooks {
		b := newBed(Config{Family: IPv4})
		b.program(t, start, dnsPort("12"))
		drop := Rule{Family: IPv4, Statements: []Statement{Decide{Verdict{Kind: VerdictDrop}}}}
		b.kernel.chains[name] = &Chain{Name: name, Base: &h.base, Rules: []Rule{drop}}
		b.Adopt(b.kernel.list(IPv4))
		b.do(t, b.Commit(start))
		if c := b.kernel.chains[name]; c != nil && len(c.Rules) > 0 && c.Rules[0].String() == drop.String() {
			t.Errorf("%s drops packets still", name)
		}
		for due, some := b.Due(); some; due, some = b.Due() {
			b.do(t, b.Commit(due))
		}
		if b.kernel.chains[name] != nil {
			t.Errorf("%s stays", name)
		}
	}
}

// What others change of chains that linger is seen, be it that they linger for themselves or for
// others that do: they may be used again before they go.
func TestLingeringChainsAreLookedAt(t *testing.T) {
	guarded := dnsPort("12")
	guarded.Fronts[0].ClusterIP = false
	guarded.Fronts[0].Sources = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	open := dnsPort("1")
	open.Fronts[0].ClusterIP = false
	fresh := newBed(Config{Family: IPv4})
	fresh.program(t, start, guarded)
	for name := range fresh.kernel.chains {
		b := newBed(Config{Family: IPv4})
		b.program(t, start, guarded)
		b.program(t, start.Add(10*time.Millisecond), open)
		emptied := *b.kernel.chains[name]
		emptied.Rules = nil
		b.kernel.chains[name] = &emptied
		l := b.kernel.list(IPv4)
		if b.Holds(l) || b.HoldsShape(l) {
			t.Errorf("that %s is empty makes no difference", name)
		}
		b.Adopt(l)
		b.program(t, start.Add(20*time.Millisecond), guarded)
	}
}

// Another Config does not give a chain that lingers rules that lead to what is not there.
func TestConfigureLeavesLingeringChainsOfOthers(t *testing.T) {
	b := newBed(Config{Family: IPv4})
	b.program(t, start, dnsPort("12"))
	for _, name := range []string{"service-7", "split-7-3", "draw-2x500.3x500"} {
		b.kernel.chains[name] = &Chain{Name: name}
	}
	b.Adopt(b.kernel.list(IPv4))
	b.do(t, b.Commit(start))
	b.Configure(Config{Family: IPv4, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}})
	b.do(t, b.Commit(start.Add(10*time.Millisecond)))
	// One that is used again has its rules.
	b.program(t, start.Add(20*time.Millisecond), dnsPort("1234567"))
	for due, some := b.Due(); some; due, some = b.Due() {
		b.do(t, b.Commit(due))
	}
}

// A chain that only exists does not have Differences leave out what its name says it leads to.
func TestDifferencesBesideChainsOfOthers(t *testing.T) {
	b := newBed(Config{Family: IPv4})
	b.program(t, start, dnsPort("12"))
	b.kernel.chains["draw-2x500.3x500"] = &Chain{Name: "draw-2x500.3x500"}
	b.Adopt(b.kernel.list(IPv4))
	b.do(t, b.Commit(start))
	b.kernel.chains["pick-2"] = &Chain{Name: "pick-2"}
	if found := b.Differences(b.kernel.list(IPv4)); !slices.Contains(found, "the chain pick-2 has other rules") {
		t.Errorf("the differences are %q", found)
	}
}

// Nothing is made for a chain that only exists, whatever its name says that it leads to.
func TestNothingIsMadeForNamesOfOthers(t *testing.T) {
	own := make(map[string]bool)
	fresh := newBed(Config{Family: IPv4})
	fresh.program(t, start, dnsPort("12"))
	for name := range fresh.kernel.chains {
		own[name] = true
	}
	for _, name := range []string{"draw-2x500.4294967295x500", "draw-2x500.3x500", "sticky-draw-3-foo", "service-77777"} {
		b := newBed(Config{Family: IPv4})
		b.program(t, start, dnsPort("12"))
		b.kernel.chains[name] = &Chain{Name: name}
		b.Adopt(b.kernel.list(IPv4))
		c := b.Commit(start)
		for _, line := range describe(c.Transaction) {
			if made, ok := strings.CutPrefix(line, "add chain "); ok && !own[made] || strings.HasPrefix(line, "add set affinity-") {
				t.Errorf("for %s: %s", name, line)
			}
		}
		b.do(t, c)
		for range 3 {
			due, ok := b.Due()
			if !ok {
				break
			}
			b.do(t, b.Commit(due))
		}
		if _, ok := b.kernel.chains[name]; ok {
			t.Errorf("%s stays", name)
		}
	}
}

// The clients that are remembered after the table was read are not led to what went before.
func TestAdoptKeepsClientsFromTheGone(t *testing.T) {
	b := newBed(Config{Family: IPv4})
	b.program(t, start, sticky("123", "1"))
	set := b.program(t, start, sticky("13", "1")).Forget[0].Set
	b.Adopt(b.kernel.list(IPv4))
	b.program(t, start.Add(10*time.Millisecond), sticky("13", "1"))
	// A packet on its way has a client remembered.
	client := netip.MustParseAddr("192.0.2.2")
	late := addressKey(client)
	b.kernel.sets[set].elements[late] = Element{Key: late, Data: targetData(targets("2")[0])}
	send := func() string {
		f := b.kernel.send(packet{source: client, front: sticky("", "").Fronts[0].Front}, 0)
		return digits([]netip.AddrPort{f.target})
	}
	if at := send(); at == "2" {
		t.Error("the client is led to what went")
	}
	b.kernel.sets[set].elements[late] = Element{Key: late, Data: targetData(targets("2")[0])}
	for i := range 5 {
		at := start.Add(time.Duration(i) * time.Second)
		c := b.Commit(at)
		b.do(t, c)
		b.Written(at)
		for _, f := range c.Forget {
			b.Forgotten(f.Set, at)
		}
	}
	if at := send(); at == "2" {
		t.Error("the client is led to what went, for ever")
	}
	if _, due := b.Due(); due || len(b.buried) > 0 {
		t.Errorf("still kept from the gone are clients in %d maps", len(b.buried))
	}
}

// A map whose port comes after the table was read keeps the clients of what lives.
func TestMapsThatAreUsedAgainKeepClients(t *testing.T) {
	b := newBed(Config{Family: IPv4})
	b.program(t, start, sticky("12", "1"))
	again := b.again(t)
	again.do(t, again.Commit(start))
	asked := 0
	for i := range 6 {
		c := again.program(t, start.Add(100*time.Millisecond+time.Duration(i)*time.Second), sticky("12", "1"))
		for _, f := range c.Forget {
			asked++
			if !slices.Contains(f.Keep, targets("1")[0]) {
				t.Errorf("clients in %s are forgotten but for those of %v", f.Set, f.Keep)
			}
		}
	}
	if asked == 0 {
		t.Error("what was asked for before is not asked for anew")
	}
}

// What is asked for while others are still to be forgotten knows of what came since.
func TestForgetKeepsWhatCameSince(t *testing.T) {
	b := newBed(Config{Family: IPv4})
	pending := make(map[string]Forget) // as one keeps them who has not begun
	for i, cluster := range []string{"123", "13", "134"} {
		for _, f := range b.program(t, start.Add(time.Duration(i)*time.Millisecond), sticky(cluster, "")).Forget {
			pending[f.Set] = f
		}
	}
	if len(pending) == 0 {
		t.Fatal("nothing is to be forgotten")
	}
	for set, f := range pending {
		if !slices.Contains(f.Keep, targets("4")[0]) {
			t.Errorf("clients in %s are forgotten but for those of %v", set, f.Keep)
		}
	}
}

// Endpoints without a weight have no share, as they have no slot.
func TestSharesOfNoWeight(t *testing.T) {
	for _, weights := range [][]uint32{{0}, {0, 0}} {
		sp := weightedPort(weights...)
		if got := sp.Shares(); !slices.Equal(got, make([]float64, len(weights))) {
			t.Errorf("the shares of %v are %v", weights, got)
		}
	}
	sp := weightedPort(0, 3, 1)
	if got := sp.Shares(); got[0] != 0 || got[1] != 0.75 || got[2] != 0.25 {
		t.Errorf("the shares of 0, 3 and 1 are %v", got)
	}
}
