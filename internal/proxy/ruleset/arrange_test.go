package ruleset

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// targets are endpoints named by digits.
func targets(digits string) []netip.AddrPort {
	var all []netip.AddrPort
	for _, d := range digits {
		all = append(all, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(d - '0')}), 8080))
	}
	return all
}

// digits are the names of endpoints.
func digits(all []netip.AddrPort) string {
	var names []byte
	for _, target := range all {
		names = append(names, '0'+target.Addr().As4()[3])
	}
	return string(names)
}

func TestArrangeChangesFewestSlots(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		several := rapid.SliceOfN(rapid.SampledFrom(targets("1234567")), 0, 12)
		before := several.Draw(t, "before")
		wanted := several.Draw(t, "wanted")
		slices.SortFunc(wanted, netip.AddrPort.Compare)
		oldBefore, oldWanted := slices.Clone(before), slices.Clone(wanted)
		got := arrange(before, wanted)
		if !slices.Equal(before, oldBefore) || !slices.Equal(wanted, oldWanted) {
			t.Fatal("the input has changed")
		}
		if sorted := slices.SortedFunc(slices.Values(got), netip.AddrPort.Compare); !slices.Equal(sorted, wanted) {
			t.Fatalf("%s from %s holds other targets than %s", digits(got), digits(before), digits(wanted))
		}
		// No arrangement keeps more of a target than there is in the slots that stay, and
		// than is wanted.
		kept, most := 0, 0
		count := func(all []netip.AddrPort, target netip.AddrPort) int {
			n := 0
			for _, other := range all {
				if other == target {
					n++
				}
			}
			return n
		}
		stay := before[:min(len(before), len(wanted))]
		for _, target := range targets("1234567") {
			most += min(count(stay, target), count(wanted, target))
		}
		for slot, target := range stay {
			if got[slot] == target {
				kept++
			}
		}
		if kept != most {
			t.Fatalf("%s from %s keeps %d slots instead of %d", digits(got), digits(before), kept, most)
		}
	})
}
