package ruleset

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// again returns another table for the same kernel, as after a restart, with the ports staged.
func (b *bed) again(t *testing.T, ports ...ServicePort) *bed {
	t.Helper()
	other := &bed{Table: NewTable(b.config), kernel: b.kernel}
	other.Adopt(b.kernel.list(b.config.Family))
	other.stage(t, ports...)
	return other
}

func TestAdoptKeepsSlots(t *testing.T) {
	b := newBed(Config{Family: IPv4})
	b.program(t, start, dnsPort("5"))
	b.program(t, start, dnsPort("51"))
	b.program(t, start, dnsPort("512"))
	other := b.again(t, dnsPort("253"))
	c := other.Commit(start)
	expectLines(t, describe(c.Transaction),
		"delete from slots: 10.96.0.10 . udp . 53 . 1", "add to slots: 10.96.0.10 . udp . 53 . 1 : 10.1.0.3 . 8080")
	if want := []Stale{{Front: dns, Target: targets("1")[0]}}; !slices.Equal(c.Stale, want) {
		t.Errorf("stale are %v, want %v", c.Stale, want)
	}
}

func TestAdoptRepairsForeignChanges(t *testing.T) {
	split := dnsPort("12")
	split.Local, split.Fronts[0].Pool = targets("1"), PoolSplit
	for _, test := range []struct {
		name   string
		tamper func(*fakeKernel)
		// differs is the text of the difference, empty without one.
		differs string
		want    []string
	}{
		{
			"a target is another",
			func(k *fakeKernel) {
				key := slotKey(dns, 1)
				k.sets["slots"].elements[key] = Element{Key: key, Data: TargetData(targets("9")[0])}
			},
			"slots of 10.96.0.10:53/udp are [10.1.0.1:8080 10.1.0.9:8080] instead of [10.1.0.1:8080 10.1.0.2:8080]",
			[]string{"delete from slots: 10.96.0.10 . udp . 53 . 1", "add to slots: 10.96.0.10 . udp . 53 . 1 : 10.1.0.2 . 8080"},
		},
		{
			"an element makes no sense",
			func(k *fakeKernel) { k.sets["hairpin"].elements["odd"] = Element{Key: "odd"} },
			"hairpin has 1 elements that are not of this table",
			[]string{"delete from hairpin: the bytes 6f6464"},
		},
		{
			"a base chain has a rule more",
			func(k *fakeKernel) {
				c := *k.chains["nat-output"]
				c.Rules = append(slices.Clone(c.Rules), Rule{Family: IPv4, Statements: []Statement{NewConnection{}}})
				k.chains["nat-output"] = &c
			},
			"the chain nat-output has other rules",
			[]string{"delete chain nat-output", "add chain nat-output"},
		},
		{
			"nothing",
			func(*fakeKernel) {},
			"",
			nil,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(Config{Family: IPv4})
			b.program(t, start, split)
			test.tamper(b.kernel)
			l := b.kernel.list(IPv4)
			differences := b.Differences(l)
			if test.differs == "" && len(differences) > 0 || test.differs != "" && !slices.Contains(differences, test.differs) {
				t.Errorf("the differences are\n%s\nwithout\n%s", strings.Join(differences, "\n"), test.differs)
			}
			if b.Holds(l) != (test.differs == "") {
				t.Errorf("the kernel holds the table: %t", b.Holds(l))
			}
			b.Adopt(l)
			c := b.Commit(start)
			expectLines(t, describe(c.Transaction), test.want...)
			if err := b.kernel.apply(c.Transaction); err != nil {
				t.Fatal(err)
			}
			if l := b.kernel.list(IPv4); !b.Holds(l) {
				t.Errorf("the kernel still differs: %v", b.compare(l, true))
			}
		})
	}
}

func TestAdoptReplacesForeignTables(t *testing.T) {
	for _, test := range []struct {
		name   string
		tamper func(*fakeKernel)
		want   string
	}{
		{"no table", func(k *fakeKernel) { *k = fakeKernel{} }, "there is no table ip vicinity"},
		{"a chain of another", func(k *fakeKernel) { k.chains["x"] = &Chain{Name: "x"} }, "the chain x is not of this table"},
		{"a chain with the name of a map", func(k *fakeKernel) { k.chains["affinity-x"] = &Chain{Name: "affinity-x"} }, "the chain affinity-x is not of this table"},
		{"a pick chain without a number", func(k *fakeKernel) { k.chains["service-x"] = &Chain{Name: "service-x"} }, "the chain service-x is not of this table"},
		{"a split chain of nothing", func(k *fakeKernel) { k.chains["split-1-x"] = &Chain{Name: "split-1-x"} }, "the chain split-1-x is not of this table"},
		{"a set of another", func(k *fakeKernel) { k.sets["x"] = &fakeSet{Set: Set{Name: "x"}} }, "the set x is not of this table"},
		{"a set of another definition", func(k *fakeKernel) { k.sets["slots"].Key = nil }, "the set slots is not of this table"},
		{"a memory of another definition", func(k *fakeKernel) { k.sets["affinity-x"] = &fakeSet{Set: Set{Name: "affinity-x"}} }, "the set affinity-x is not of this table"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(Config{Family: IPv4})
			b.program(t, start, dnsPort("12"))
			test.tamper(b.kernel)
			l := b.kernel.list(IPv4)
			if differences := b.Differences(l); !slices.Contains(differences, test.want) {
				t.Errorf("the differences are %v, without %s", differences, test.want)
			}
			b.Adopt(l)
			c := b.Commit(start)
			if kind := c.Transaction.Changes[0].Kind; kind != DeleteTable {
				t.Errorf("the first change is %d instead of %d", kind, DeleteTable)
			}
			if err := b.kernel.apply(c.Transaction); err != nil {
				t.Fatal(err)
			}
			if !b.Holds(b.kernel.list(IPv4)) {
				t.Error("the kernel does not hold the table")
			}
		})
	}
}

// A chain with a foreign type or policy, and a table with flags, are replaced.
func TestForeignBasesAndFlagsAreReplaced(t *testing.T) {
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

// A hook with foreign rules gets its own rules at once, even if no front needs it: packets pass it until it is
// deleted.
func TestForeignRulesInHooksAreReplaced(t *testing.T) {
	for name, h := range hooks {
		b := newBed(Config{Family: IPv4})
		b.program(t, start, dnsPort("12"))
		drop := Rule{Family: IPv4, Statements: []Statement{Decide{Verdict{Kind: VerdictDrop}}}}
		b.kernel.chains[name] = &Chain{Name: name, Base: &h.base, Rules: []Rule{drop}}
		b.Adopt(b.kernel.list(IPv4))
		b.do(t, b.Commit(start))
		if c := b.kernel.chains[name]; c != nil && len(c.Rules) > 0 && c.Rules[0].String() == drop.String() {
			t.Errorf("%s still drops packets", name)
		}
		for due, some := b.Due(); some; due, some = b.Due() {
			b.do(t, b.Commit(due))
		}
		if b.kernel.chains[name] != nil {
			t.Errorf("%s is not deleted", name)
		}
	}
}

// Clients that are added after the listing are not led to targets that were removed before.
func TestAdoptKeepsClientsFromRemovedTargets(t *testing.T) {
	b := newBed(Config{Family: IPv4})
	b.program(t, start, sticky("123", "1"))
	set := b.program(t, start, sticky("13", "1")).Forget[0].Set
	b.Adopt(b.kernel.list(IPv4))
	b.program(t, start.Add(10*time.Millisecond), sticky("13", "1"))
	// A packet on its way has a client remembered.
	client := netip.MustParseAddr("192.0.2.2")
	late := addressKey(client)
	b.kernel.sets[set].elements[late] = Element{Key: late, Data: TargetData(targets("2")[0])}
	send := func() string {
		f := b.kernel.send(packet{source: client, front: sticky("", "").Fronts[0].Front}, 0)
		return digits([]netip.AddrPort{f.target})
	}
	if at := send(); at == "2" {
		t.Error("the client is led to the removed endpoint")
	}
	b.kernel.sets[set].elements[late] = Element{Key: late, Data: TargetData(targets("2")[0])}
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
		t.Error("the client stays with the removed endpoint")
	}
	if _, due := b.Due(); due || len(b.withRemoved) > 0 {
		t.Errorf("clients in %d maps are still kept from removed endpoints", len(b.withRemoved))
	}
}
