package ruleset

import (
	"slices"
	"strings"
	"testing"
)

func TestFingerprintsDistinguishChains(t *testing.T) {
	config := Config{Family: IPv4}
	rules := [][]Statement{{NewConnection{}}, {Translated{}}}
	chains := []*Chain{
		config.chain("a", nil, rules...),
		config.chain("b", nil, rules...),
		config.chain("a", nil, rules[1], rules[0]),
		config.chain("a", nil, rules[0]),
		Config{Family: IPv6}.chain("a", nil, rules...),
		config.chain("a", &Base{}, rules...),
		config.chain("a", &Base{NAT: true}, rules...),
		config.chain("a", &Base{Hook: Output}, rules...),
		config.chain("a", &Base{Priority: 1}, rules...),
	}
	var seen []string
	for i, c := range chains {
		prints := c.Fingerprints()
		if len(prints) != len(c.Rules) {
			t.Errorf("chain %d has %d fingerprints for %d rules", i, len(prints), len(c.Rules))
		}
		for _, mine := range prints {
			if slices.Contains(seen, mine) {
				t.Errorf("chain %d has a fingerprint of another rule: %s", i, mine)
			}
			seen = append(seen, mine)
		}
		if again := c.Fingerprints(); !slices.Equal(again, prints) {
			t.Errorf("chain %d has other fingerprints the second time", i)
		}
	}
}

func TestNamesAreValidInNft(t *testing.T) {
	long := strings.Repeat("x", 500)
	var seen []string
	for _, name := range []string{"a/b:c", "a/b/c", "a/b:", "", "ä/ß:\"{}", long, long + "y"} {
		got := uniqueName(name)
		if slices.Contains(seen, got) {
			t.Errorf("%q has the name of another: %s", name, got)
		}
		seen = append(seen, got)
		if len(affinityPrefix+got+"-local") > 255 {
			t.Errorf("%q has a name of %d bytes", name, len(got))
		}
		if strings.Trim(got, "abcdefghijklmnopqrstuvwxyz0123456789-_./") != "" {
			t.Errorf("%q has a name that nft does not know: %s", name, got)
		}
	}
}
