package netset_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"vicinity.dev/vicinity/internal/topology/netset"
)

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func TestSetsHaveTheFewestPrefixes(t *testing.T) {
	for _, test := range []struct {
		name string
		set  netset.Set
		want string
	}{
		{"nothing", netset.Set{}, ""},
		{"one address", netset.Of(netip.MustParseAddr("192.0.2.1")), "192.0.2.1\n"},
		{"an address that is none", netset.Of(netip.Addr{}), ""},
		{"an address in IPv6 notation", netset.Of(netip.MustParseAddr("::ffff:192.0.2.1")), "192.0.2.1\n"},
		{"an address with a zone", netset.Of(netip.MustParseAddr("fe80::1%eth0")), "fe80::1\n"},
		{"neighbours", netset.New(prefixes("10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/23")), "10.0.0.0/22\n"},
		{"neighbours without the same parent", netset.New(prefixes("10.0.1.0/24", "10.0.2.0/24")), "10.0.1.0/24\n10.0.2.0/24\n"},
		{"one in another", netset.New(prefixes("10.0.1.0/24", "10.0.0.0/16", "10.0.1.7/32")), "10.0.0.0/16\n"},
		{"bits that do not count", netset.New(prefixes("10.0.1.7/16")), "10.0.0.0/16\n"},
		{"both families", netset.New(prefixes("fd00::/64", "10.0.0.0/8")), "10.0.0.0/8\nfd00::/64\n"},
		{"everything", netset.New(prefixes("128.0.0.0/1", "0.0.0.0/1")), "0.0.0.0/0\n"},
		{"a prefix in IPv6 notation", netset.New([]netip.Prefix{netip.PrefixFrom(netip.MustParseAddr("::ffff:10.0.0.0"), 104)}), "10.0.0.0/8\n"},
	} {
		if got := test.set.String(); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// A set has exactly the addresses that it was made from.
func TestSetsHaveTheirAddresses(t *testing.T) {
	address := rapid.Custom(func(t *rapid.T) netip.Addr {
		low := byte(rapid.IntRange(0, 31).Draw(t, "low"))
		if rapid.Bool().Draw(t, "IPv6") {
			return netip.AddrFrom16([16]byte{0xfd, 15: low})
		}
		return netip.AddrFrom4([4]byte{10, 0, 0, low})
	})
	prefix := rapid.Custom(func(t *rapid.T) netip.Prefix {
		a := address.Draw(t, "address")
		return netip.PrefixFrom(a, a.BitLen()-rapid.IntRange(0, 4).Draw(t, "bits"))
	})
	rapid.Check(t, func(t *rapid.T) {
		one, two := rapid.SliceOf(prefix).Draw(t, "one"), rapid.SliceOf(prefix).Draw(t, "two")
		set := netset.New(one).Union(netset.New(two))
		parsed, err := netset.Parse(set.String())
		if err != nil || !parsed.Equal(set) || !set.Equal(netset.New(slices.Concat(two, one))) {
			t.Fatalf("%q is read as %q: %v", set, parsed, err)
		}
		a := address.Draw(t, "asked for")
		want := slices.ContainsFunc(slices.Concat(one, two), func(p netip.Prefix) bool { return p.Contains(a) })
		if set.Contains(a) != want || want && !set.Prefix(a).Contains(a) {
			t.Fatalf("%s is in %v: %t", a, set.Prefixes(), !want)
		}
		for i, p := range set.Prefixes() {
			if i > 0 && p.Overlaps(set.Prefixes()[i-1]) {
				t.Fatalf("%v overlap", set.Prefixes())
			}
		}
	})
}

func TestTruncate(t *testing.T) {
	set := netset.New(prefixes("10.0.0.1/32", "10.0.0.4/30", "10.0.1.0/24"))
	for most, want := range map[int]string{0: "", 8: "", 9: "10.0.0.1\n", 21: "10.0.0.1\n10.0.0.4/30\n", 33: set.String(), 1000: set.String()} {
		got, left := set.Truncate(most)
		if got != want || left != 3-strings.Count(want, "\n") {
			t.Errorf("at most %d bytes: %q and %d left, want %q", most, got, left, want)
		}
	}
}

func TestParseInvalidLines(t *testing.T) {
	set, err := netset.Parse(" 10.0.0.1 \n\nhere\n10.0.0.0/8 or so\n10.1.0.0/16\n")
	if err == nil || err.Error() != `"here" is neither an address nor a prefix` {
		t.Errorf("the error is %v", err)
	}
	if got := set.String(); got != "10.0.0.1\n10.1.0.0/16\n" {
		t.Errorf("the set is %q", got)
	}
}
