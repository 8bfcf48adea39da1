package kernel

import (
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/netlink"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

func TestStages(t *testing.T) {
	set := func(kind ruleset.ChangeKind, name string) ruleset.Change {
		return ruleset.Change{Kind: kind, Set: &ruleset.Set{Name: name}}
	}
	chain := func(kind ruleset.ChangeKind, name string) ruleset.Change {
		return ruleset.Change{Kind: kind, Chain: &ruleset.Chain{Name: name}}
	}
	base := ruleset.Change{Kind: ruleset.AddChain, Chain: &ruleset.Chain{Name: "base", Base: &ruleset.Base{}}}
	lead := set(ruleset.AddElements, "services")
	for _, test := range []struct {
		name    string
		changes []ruleset.Change
		first   []int
	}{
		{"elements alone", []ruleset.Change{set(ruleset.DeleteElements, "services"), lead}, nil},
		{"a chain that something leads to", []ruleset.Change{chain(ruleset.AddChain, "pick-1"), lead}, []int{0}},
		{"whatever the order", []ruleset.Change{set(ruleset.DeleteElements, "services"), chain(ruleset.AddChain, "pick-1"), lead}, []int{1}},
		{"sets that its rules name", []ruleset.Change{lead, set(ruleset.AddSet, "affinity-1"), chain(ruleset.AddChain, "sticky-1")}, []int{1, 2}},
		{"a chain that nothing leads to", []ruleset.Change{chain(ruleset.AddChain, "pick-1")}, nil},
		{"a set alone", []ruleset.Change{set(ruleset.AddSet, "affinity-1"), lead}, nil},
		{"a chain that packets come to first", []ruleset.Change{base, lead}, nil},
		{"rules that lead to a chain", []ruleset.Change{chain(ruleset.ReplaceRules, "serve"), chain(ruleset.AddChain, "pick-1"), base}, []int{1}},
		{"a new table", []ruleset.Change{{Kind: ruleset.AddTable}, chain(ruleset.AddChain, "pick-1"), lead}, nil},
		{"a chain in place of another", []ruleset.Change{chain(ruleset.DeleteChain, "pick-1"), chain(ruleset.AddChain, "pick-1"), lead}, nil},
		{"a set in place of another", []ruleset.Change{set(ruleset.DeleteSet, "a"), set(ruleset.AddSet, "a"), chain(ruleset.AddChain, "pick-1"), lead}, nil},
	} {
		first, rest := stages(ruleset.Transaction{Changes: test.changes})
		if !slices.Equal(first, test.first) {
			t.Errorf("%s: first are %v, want %v", test.name, first, test.first)
		}
		both := slices.Sorted(slices.Values(append(slices.Clone(first), rest...)))
		if len(both) != len(test.changes) || !slices.IsSorted(first) || !slices.IsSorted(rest) || len(slices.Compact(both)) != len(test.changes) {
			t.Errorf("%s: %v and %v are not all changes, each once and in order", test.name, first, rest)
		}
	}
}

// No address ends one range and begins the next.
func TestAdjacentRangesAreMerged(t *testing.T) {
	prefixes := func(texts ...string) []netip.Prefix {
		var all []netip.Prefix
		for _, text := range texts {
			all = append(all, netip.MustParsePrefix(text))
		}
		return all
	}
	for _, test := range []struct {
		prefixes []netip.Prefix
		want     []string
	}{
		{prefixes("10.0.0.0/25", "10.0.0.128/25"), []string{"10.0.0.0", "10.0.1.0 after"}},
		{prefixes("10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32"), []string{"10.0.0.1", "10.0.0.4 after"}},
		{prefixes("10.0.0.1/32", "10.0.0.3/32"), []string{"10.0.0.1", "10.0.0.2 after", "10.0.0.3", "10.0.0.4 after"}},
		{prefixes("0.0.0.0/1", "128.0.0.0/1"), []string{"0.0.0.0"}},
		{prefixes("2001:db8::/33", "2001:db8:8000::/33"), []string{"2001:db8::", "2001:db9:: after"}},
		{nil, nil},
	} {
		var got []string
		for _, end := range rangeEnds(test.prefixes) {
			text := end.address.String()
			if end.after {
				text += " after"
			}
			got = append(got, text)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("the ends of %v are %v, want %v", test.prefixes, got, test.want)
		}
	}
}

// message returns the bytes that a function writes into a message.
func message(write func(*netlink.Messages)) []byte {
	var m netlink.Messages
	write(&m)
	return m.Bytes
}

// The readers accept any bytes, including bytes that no kernel sends.
func FuzzReplies(f *testing.F) {
	f.Add(message(func(m *netlink.Messages) {
		key := m.Nest(unix.NFTA_SET_ELEM_KEY)
		m.Raw(unix.NFTA_DATA_VALUE, "key.")
		m.EndNest(key)
		data := m.Nest(unix.NFTA_SET_ELEM_DATA)
		writeVerdict(m, ruleset.Verdict{Kind: ruleset.VerdictGoto, Chain: "pick-3"})
		m.EndNest(data)
	}))
	f.Add(message(func(m *netlink.Messages) {
		original := m.Nest(netlink.TrackOriginal)
		address := m.Nest(netlink.TupleAddress)
		m.Raw(netlink.AddressIPv4Source, "\x0a\x00\x00\x01")
		m.Raw(netlink.AddressIPv4Destination, "\x0a\x60\x00\x01")
		m.EndNest(address)
		protocol := m.Nest(netlink.TupleProtocol)
		m.Raw(netlink.ProtocolNumber, "\x11")
		m.Raw(netlink.ProtocolDestinationPort, "\x00\x35")
		m.EndNest(protocol)
		m.EndNest(original)
		m.Raw(netlink.TrackID, "1234")
	}))
	f.Add([]byte("\xff\xff\xff\xffxxxx" + comment(setComment, "words")))
	f.Fuzz(func(t *testing.T, content []byte) {
		r := reader{strings: make(map[string]string)}
		e := r.element(content)
		if len(e.Key)+len(e.Data)+len(e.Verdict.Chain) > len(content) {
			t.Errorf("element %q is longer than %q", e, content)
		}
		// The deletion names the same connection.
		deleted := netlink.ReadTuple(netlink.Attribute([]byte(deletion(content)), netlink.TrackOriginal))
		if first := netlink.Attribute(content, netlink.TrackOriginal); first != nil && deleted != netlink.ReadTuple(first) {
			t.Errorf("the deletion is of %+v, the connection %+v", deleted, netlink.ReadTuple(first))
		}
		if words := commented(setComment, content); len(words) > len(content) {
			t.Errorf("comment %q in %q", words, content)
		}
	})
}
