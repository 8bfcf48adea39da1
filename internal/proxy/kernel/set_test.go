package kernel

import (
	"net/netip"
	"slices"
	"testing"
)

// No address is the end of one range and the beginning of the next.
func TestRangesBesideOneAnotherAreOne(t *testing.T) {
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
