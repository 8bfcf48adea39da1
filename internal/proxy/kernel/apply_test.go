package kernel_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/kernel"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

var families = []ruleset.Family{ruleset.IPv4, ruleset.IPv6}

// key is the bytes of a key or of data, each part padded to a multiple of four.
func key(parts ...any) string {
	var b []byte
	for _, part := range parts {
		switch part := part.(type) {
		case netip.Addr:
			b = append(b, part.AsSlice()...)
		case ruleset.Protocol:
			b = append(b, byte(part), 0, 0, 0)
		case uint16:
			b = append(binary.BigEndian.AppendUint16(b, part), 0, 0)
		case uint32:
			b = binary.NativeEndian.AppendUint32(b, part)
		}
	}
	return string(b)
}

// things are one of each kind of thing that a table holds.
type things struct {
	family                                                ruleset.Family
	ips, fronts, verdicts, refused, slots, pairs, clients ruleset.Set
	address, endpoint                                     netip.Addr
	prefix, host                                          netip.Prefix
}

func newThings(family ruleset.Family) things {
	const (
		address  = ruleset.FieldAddress
		protocol = ruleset.FieldProtocol
		port     = ruleset.FieldPort
	)
	fields := func(fields ...ruleset.Field) []ruleset.Field { return fields }
	th := things{
		family:   family,
		ips:      ruleset.Set{Name: "ips", Key: fields(address)},
		fronts:   ruleset.Set{Name: "fronts", Key: fields(address, protocol, port)},
		verdicts: ruleset.Set{Name: "verdicts", Key: fields(address, protocol, port), Verdicts: true},
		refused:  ruleset.Set{Name: "refused", Key: fields(address, protocol, port), Verdicts: true},
		slots:    ruleset.Set{Name: "slots", Key: fields(address, protocol, port, ruleset.FieldSlot), Data: fields(address, port)},
		pairs:    ruleset.Set{Name: "pairs", Key: fields(address, address)},
		clients:  ruleset.Set{Name: "clients-of/some.service", Key: fields(address), Data: fields(address, port), Dynamic: true},
		address:  netip.MustParseAddr("10.96.0.10"), endpoint: netip.MustParseAddr("10.128.1.2"),
		prefix: netip.MustParsePrefix("10.128.0.0/9"), host: netip.MustParsePrefix("192.0.2.1/32"),
	}
	if family == ruleset.IPv6 {
		th.address, th.endpoint = netip.MustParseAddr("fd00:96::10"), netip.MustParseAddr("fd00:128::1:2")
		th.prefix, th.host = netip.MustParsePrefix("fd00:128::/33"), netip.MustParsePrefix("2001:db8::1/128")
	}
	return th
}

func (th things) sets() []*ruleset.Set {
	return []*ruleset.Set{&th.ips, &th.fronts, &th.verdicts, &th.refused, &th.slots, &th.pairs, &th.clients}
}

// chains have a rule of each kind.
func (th things) chains() []*ruleset.Chain {
	front := []ruleset.Value{ruleset.DestinationAddress, ruleset.TransportProtocol, ruleset.DestinationPort}
	original := []ruleset.Value{ruleset.OriginalAddress, ruleset.TransportProtocol, ruleset.OriginalPort}
	rules := func(all ...[]ruleset.Statement) []ruleset.Rule {
		var rules []ruleset.Rule
		for _, one := range all {
			rules = append(rules, ruleset.Rule{Family: th.family, Statements: one})
		}
		return rules
	}
	decide := func(kind ruleset.VerdictKind, chain string) ruleset.Statement {
		return ruleset.Decide{Verdict: ruleset.Verdict{Kind: kind, Chain: chain}}
	}
	type rule = []ruleset.Statement
	return []*ruleset.Chain{
		{Name: "refuse", Rules: rules(
			rule{ruleset.HasProtocol{Protocol: ruleset.TCP}, ruleset.Refuse{Reset: true}},
			rule{ruleset.Refuse{}},
		)},
		{Name: "pick-3", Rules: rules(
			rule{ruleset.Translate{Key: front, Slots: 3, Map: th.slots.Name}},
			rule{decide(ruleset.VerdictDrop, "")},
		)},
		{Name: "sticky", Rules: rules(
			rule{ruleset.HasProtocol{Protocol: ruleset.SCTP}, ruleset.Translate{Key: []ruleset.Value{ruleset.SourceAddress}, Map: th.clients.Name}},
		)},
		{Name: "remember", Rules: rules(
			rule{ruleset.Remember{Map: th.clients.Name, Timeout: 3 * time.Hour}},
		)},
		{Name: "sources", Rules: rules(
			rule{ruleset.InPrefix{Value: ruleset.SourceAddress, Prefix: th.prefix}, decide(ruleset.VerdictReturn, "")},
			rule{ruleset.InPrefix{Value: ruleset.SourceAddress, Prefix: th.host, Not: true}, decide(ruleset.VerdictDrop, "")},
		)},
		{Name: "serve", Rules: rules(
			rule{ruleset.InSet{Key: front, Set: th.fronts.Name}, ruleset.FromNode{}, ruleset.SetMark{Bits: 0x2000}},
			rule{ruleset.InSet{Key: front[:1], Set: th.ips.Name}, decide(ruleset.VerdictGoto, "pick-3")},
			rule{ruleset.LookUp{Key: front, Map: th.verdicts.Name}},
		)},
		{Name: "nat-prerouting", Base: &ruleset.Base{NAT: true, Hook: ruleset.Prerouting, Priority: -101}, Rules: rules(
			rule{decide(ruleset.VerdictGoto, "serve")},
		)},
		{Name: "nat-output", Base: &ruleset.Base{NAT: true, Hook: ruleset.Output, Priority: -101}, Rules: rules(
			rule{decide(ruleset.VerdictGoto, "serve")},
		)},
		{Name: "nat-postrouting", Base: &ruleset.Base{NAT: true, Hook: ruleset.Postrouting, Priority: 99}, Rules: rules(
			rule{ruleset.Marked{Bits: 0x2000}, ruleset.FlipMark{Bits: 0x2000}, ruleset.Masquerade{}},
			rule{ruleset.Translated{}, ruleset.InSet{Key: []ruleset.Value{ruleset.SourceAddress, ruleset.DestinationAddress}, Set: th.pairs.Name}, ruleset.Masquerade{}},
		)},
		{Name: "remember-output", Base: &ruleset.Base{Hook: ruleset.Output, Priority: -99}, Rules: rules(
			rule{ruleset.NewConnection{}, ruleset.Translated{}, ruleset.LookUp{Key: original, Map: th.refused.Name}},
		)},
		{Name: "refuse-input", Base: &ruleset.Base{Hook: ruleset.Input, Priority: -1}, Rules: rules(
			rule{ruleset.NewConnection{}, ruleset.LookUp{Key: front, Map: th.refused.Name}},
		)},
		{Name: "refuse-forward", Base: &ruleset.Base{Hook: ruleset.Forward, Priority: -1}, Rules: rules(
			rule{decide(ruleset.VerdictGoto, "refuse")},
		)},
	}
}

// elements are some of each set that packets do not add to.
func (th things) elements() map[string][]ruleset.Element {
	element := func(key, data string) ruleset.Element { return ruleset.Element{Key: key, Data: data} }
	verdict := func(key string, kind ruleset.VerdictKind, chain string) ruleset.Element {
		return ruleset.Element{Key: key, Verdict: ruleset.Verdict{Kind: kind, Chain: chain}}
	}
	front := func(port uint16) string { return key(th.address, ruleset.UDP, port) }
	return map[string][]ruleset.Element{
		th.ips.Name:    {element(key(th.address), "")},
		th.fronts.Name: {element(front(53), ""), element(front(54), "")},
		th.pairs.Name:  {element(key(th.endpoint, th.endpoint), "")},
		th.slots.Name: {
			element(front(53)+key(uint32(0)), key(th.endpoint, uint16(5353))),
			element(front(53)+key(uint32(70000)), key(th.address, uint16(65535))),
		},
		th.verdicts.Name: {
			verdict(front(53), ruleset.VerdictGoto, "pick-3"), verdict(front(54), ruleset.VerdictGoto, "sources"),
			verdict(front(55), ruleset.VerdictDrop, ""), verdict(front(56), ruleset.VerdictReturn, ""),
		},
		th.refused.Name: {verdict(front(57), ruleset.VerdictGoto, "refuse")},
	}
}

// make returns the transaction that adds all things.
func (th things) make() ruleset.Transaction {
	t := ruleset.Transaction{Family: th.family, Changes: []ruleset.Change{{Kind: ruleset.DeleteTable}, {Kind: ruleset.AddTable}}}
	for _, set := range th.sets() {
		t.Changes = append(t.Changes, ruleset.Change{Kind: ruleset.AddSet, Set: set})
	}
	for _, chain := range th.chains() {
		t.Changes = append(t.Changes, ruleset.Change{Kind: ruleset.AddChain, Chain: chain})
	}
	elements := th.elements()
	for _, set := range th.sets() {
		t.Changes = append(t.Changes, ruleset.Change{Kind: ruleset.AddElements, Set: set, Elements: elements[set.Name]})
	}
	return t
}

// listing returns the expected listing of sets, chains and elements.
func (th things) listing(sets []*ruleset.Set, chains []*ruleset.Chain, elements map[string][]ruleset.Element) ruleset.Listing {
	l := ruleset.Listing{Family: th.family, Exists: true}
	for _, set := range sets {
		l.Sets = append(l.Sets, ruleset.ListedSet{Name: set.Name, Fingerprint: set.Fingerprint(), Elements: elements[set.Name]})
	}
	for _, chain := range chains {
		l.Chains = append(l.Chains, ruleset.ListedChain{Name: chain.Name, Base: chain.Base, Fingerprints: chain.Fingerprints()})
	}
	return l
}

// wantListing compares the kernel's rules with the expected ones.
func wantListing(t *testing.T, c *kernel.Conn, want ruleset.Listing) {
	t.Helper()
	got, err := c.Read(want.Family)
	if err != nil {
		t.Fatal(err)
	}
	if found := differences(got, want); found != "" {
		t.Fatalf("the kernel differs:\n%s", found)
	}
}

// differences returns the lines that only one of two listings has.
func differences(got, want ruleset.Listing) string {
	has := make(map[any]int)
	count := func(l ruleset.Listing, n int) {
		type inSet struct {
			set     string
			element ruleset.Element
		}
		has[fmt.Sprint("family ", l.Family, " ", l.Exists, " ", l.Flagged)] += n
		for _, chain := range l.Chains {
			base := "none"
			if chain.Base != nil {
				base = fmt.Sprint(*chain.Base)
			}
			has[fmt.Sprint("chain ", chain.Name, " ", base, " ", chain.ForeignBase, " ", chain.Fingerprints)] += n
		}
		for _, set := range l.Sets {
			has[fmt.Sprint("set ", set.Name, " ", set.Fingerprint)] += n
			for _, e := range set.Elements {
				has[inSet{set.Name, e}] += n
			}
		}
	}
	count(got, 1)
	count(want, -1)
	var lines []string
	for what, n := range has {
		switch {
		case n > 0:
			lines = append(lines, fmt.Sprintf("has %q\n", what))
		case n < 0:
			lines = append(lines, fmt.Sprintf("lacks %q\n", what))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines[:min(len(lines), 20)], "")
}

func TestReadReturnsAppliedRules(t *testing.T) {
	n := newNamespace(t)
	c := n.open(t)
	for _, family := range families {
		wantListing(t, c, ruleset.Listing{Family: family})
	}
	// Both exist at the same time, with the same names.
	for _, family := range families {
		apply(t, c, newThings(family).make())
	}
	for _, family := range families {
		th := newThings(family)
		wantListing(t, c, th.listing(th.sets(), th.chains(), th.elements()))
		shape, err := c.Shape(family)
		if err != nil {
			t.Fatal(err)
		}
		if found := differences(shape, th.listing(th.sets(), th.chains(), nil)); found != "" {
			t.Errorf("Shape differs:\n%s", found)
		}
	}
	// Other programs can still list the tables.
	if list := n.nft(t, "list", "ruleset"); strings.Count(list, "table ") != len(families) {
		t.Errorf("nft lists\n%s", list)
	}
}

func TestCleanupLeavesTablesOfOthers(t *testing.T) {
	n := newNamespace(t)
	c := n.open(t)
	n.nft(t, "add table ip kube-proxy; add table inet vicinity")
	before := n.nft(t, "list", "ruleset")
	for _, family := range families {
		apply(t, c, newThings(family).make())
	}
	if err := c.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := n.nft(t, "list", "ruleset"); after != before {
		t.Errorf("after Cleanup:\n%s\nwant\n%s", after, before)
	}
}

// manySlots are more slots of one front than a message has room for, in a table of their own.
func manySlots(th things, many int) (ruleset.Transaction, ruleset.Listing) {
	elements := make([]ruleset.Element, many)
	for i := range elements {
		elements[i] = ruleset.Element{Key: key(th.address, ruleset.TCP, uint16(80), uint32(i)), Data: key(th.endpoint, uint16(i))}
	}
	slots := []*ruleset.Set{&th.slots}
	return ruleset.Transaction{Family: th.family, Changes: []ruleset.Change{
		{Kind: ruleset.DeleteTable},
		{Kind: ruleset.AddTable},
		{Kind: ruleset.AddSet, Set: slots[0]},
		{Kind: ruleset.AddElements, Set: slots[0], Elements: elements},
	}}, th.listing(slots, nil, map[string][]ruleset.Element{slots[0].Name: elements})
}

func TestManyElements(t *testing.T) {
	many := map[ruleset.Family]int{ruleset.IPv4: 100_000, ruleset.IPv6: 10_000}
	if testing.Short() {
		many[ruleset.IPv4] = 10_000
	}
	for _, family := range families {
		c := newNamespace(t).open(t)
		add, want := manySlots(newThings(family), many[family])
		apply(t, c, add)
		wantListing(t, c, want)
	}
}

func TestLongTransactionsAreSplit(t *testing.T) {
	c := newNamespace(t).open(t)
	c.ForbidLong()
	th := newThings(ruleset.IPv4)
	add, want := manySlots(th, 30_000)
	apply(t, c, add)
	wantListing(t, c, want)

	// An error after the first part is no Refusal, which would say that nothing was done.
	bad := ruleset.Change{Kind: ruleset.AddElements, Set: &th.ips, Elements: []ruleset.Element{{Key: key(th.address)}}}
	add.Changes = append(add.Changes, bad)
	err := c.Apply(t.Context(), add)
	var refusal *kernel.Refusal
	if !errors.Is(err, unix.ENOENT) || errors.As(err, &refusal) || !strings.Contains(err.Error(), "to set ips") {
		t.Errorf("Apply = %v, want an error that is no Refusal and names the set", err)
	}
	left, err := c.Read(th.family)
	if err != nil {
		t.Fatal(err)
	}
	if len(left.Sets) != 1 || len(left.Sets[0].Elements) == 0 {
		t.Errorf("nothing of the first part remains: %v", left)
	}
}

// A chain is not split: the kernel keeps the unnamed sets of its ranges only together with a rule.
func TestChainsAreNotSplit(t *testing.T) {
	c := newNamespace(t).open(t)
	c.ForbidLong()
	add := ruleset.Transaction{Family: ruleset.IPv4, Changes: []ruleset.Change{{Kind: ruleset.AddTable}}}
	for i := range 3000 {
		sources := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12")}
		add.Changes = append(add.Changes, ruleset.Change{Kind: ruleset.AddChain, Chain: &ruleset.Chain{
			Name: fmt.Sprint("sources-", i), Rules: []ruleset.Rule{{Family: ruleset.IPv4, Statements: []ruleset.Statement{
				ruleset.InPrefixes{Value: ruleset.SourceAddress, Prefixes: sources},
				ruleset.Decide{Verdict: ruleset.Verdict{Kind: ruleset.VerdictDrop}},
			}}},
		}})
	}
	apply(t, c, add)
}

func TestRefusals(t *testing.T) {
	th := newThings(ruleset.IPv4)
	slots := th.elements()[th.slots.Name]
	missing := ruleset.Set{Name: "missing", Key: th.ips.Key}
	another := slots[1]
	another.Data = slots[0].Data
	loop := ruleset.Chain{Name: "sources", Rules: []ruleset.Rule{{Family: th.family, Statements: []ruleset.Statement{
		ruleset.Decide{Verdict: ruleset.Verdict{Kind: ruleset.VerdictGoto, Chain: "serve"}},
	}}}}
	// Each fails, so that there are more answers than the socket has room for.
	var failing ruleset.Chain
	failing.Name = "failing"
	for range 5000 {
		failing.Rules = append(failing.Rules, ruleset.Rule{Family: th.family, Statements: []ruleset.Statement{
			ruleset.InSet{Key: []ruleset.Value{ruleset.SourceAddress}, Set: missing.Name},
		}})
	}
	for _, test := range []struct {
		name   string
		change ruleset.Change
		errno  unix.Errno
		want   string
	}{
		{
			"an element of no set",
			ruleset.Change{Kind: ruleset.AddElements, Set: &missing, Elements: []ruleset.Element{{Key: key(th.address)}}},
			unix.ENOENT, "adding elements to set missing",
		},
		{
			"another value",
			ruleset.Change{Kind: ruleset.AddElements, Set: &th.slots, Elements: []ruleset.Element{slots[0], another}},
			unix.EEXIST, "adding element 10.96.0.10 . udp . 53 . 70000 to set slots",
		},
		{
			"a set in use",
			ruleset.Change{Kind: ruleset.DeleteSet, Set: &th.slots},
			unix.EBUSY, "deleting set slots",
		},
		{
			"a chain in use",
			ruleset.Change{Kind: ruleset.DeleteChain, Chain: th.chains()[1]},
			unix.EBUSY, "deleting chain pick-3",
		},
		{
			"a loop",
			ruleset.Change{Kind: ruleset.ReplaceRules, Chain: &loop},
			unix.EMLINK, "replacing the rules of chain sources",
		},
		{
			"answers without end",
			ruleset.Change{Kind: ruleset.AddChain, Chain: &failing},
			unix.ENOENT, "adding chain failing",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newNamespace(t).open(t)
			apply(t, c, th.make())
			err := c.Apply(t.Context(), ruleset.Transaction{Family: th.family, Changes: []ruleset.Change{
				{Kind: ruleset.DeleteElements, Set: &th.pairs, Elements: th.elements()[th.pairs.Name]}, test.change,
			}})
			var refusal *kernel.Refusal
			if !errors.As(err, &refusal) || !errors.Is(err, test.errno) || !strings.Contains(err.Error(), "changing table ip vicinity: "+test.want) {
				t.Fatalf("Apply = %v (%#v), want a Refusal of %q with %v", err, refusal, test.want, test.errno)
			}
			if refusal.Change != 1 {
				t.Errorf("change %d was refused, want 1", refusal.Change)
			}
			wantListing(t, c, th.listing(th.sets(), th.chains(), th.elements()))
		})
	}
}

func TestRefusalsUndoTheFirstStage(t *testing.T) {
	c := newNamespace(t).open(t)
	th := newThings(ruleset.IPv4)
	apply(t, c, th.make())
	more := ruleset.Set{Name: "more-clients", Key: th.clients.Key, Data: th.clients.Data, Dynamic: true}
	chain := ruleset.Chain{Name: "more", Rules: []ruleset.Rule{{Family: th.family, Statements: []ruleset.Statement{
		ruleset.Remember{Map: more.Name, Timeout: time.Hour},
	}}}}
	lead := ruleset.Change{Kind: ruleset.AddElements, Set: &th.verdicts, Elements: []ruleset.Element{
		{Key: key(th.address, ruleset.TCP, uint16(80)), Verdict: ruleset.Verdict{Kind: ruleset.VerdictGoto, Chain: chain.Name}},
	}}
	add := []ruleset.Change{{Kind: ruleset.AddSet, Set: &more}, {Kind: ruleset.AddChain, Chain: &chain}, lead}
	refused := ruleset.Change{Kind: ruleset.DeleteSet, Set: &th.slots}
	err := c.Apply(t.Context(), ruleset.Transaction{Family: th.family, Changes: append(slices.Clone(add), refused)})
	var refusal *kernel.Refusal
	if !errors.As(err, &refusal) || refusal.Change != len(add) {
		t.Fatalf("Apply = %v, want a Refusal of change %d", err, len(add))
	}
	wantListing(t, c, th.listing(th.sets(), th.chains(), th.elements()))

	// Without the refused change, the transaction succeeds. So does one that replaces a chain by another with its name.
	apply(t, c, ruleset.Transaction{Family: th.family, Changes: add})
	other := chain
	other.Rules = []ruleset.Rule{{Family: th.family, Statements: []ruleset.Statement{ruleset.Refuse{}}}}
	lead.Kind = ruleset.DeleteElements
	apply(t, c, ruleset.Transaction{Family: th.family, Changes: []ruleset.Change{
		lead, {Kind: ruleset.DeleteChain, Chain: &chain}, {Kind: ruleset.AddChain, Chain: &other},
	}})
	wantListing(t, c, th.listing(append(th.sets(), &more), append(th.chains(), &other), th.elements()))
}

func apply(tb testing.TB, c *kernel.Conn, t ruleset.Transaction) {
	tb.Helper()
	if err := c.Apply(tb.Context(), t); err != nil {
		tb.Fatal(err)
	}
}
