package ruleset

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRulesAreWrittenAsNftDoes(t *testing.T) {
	host, network := netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("fd00::/8")
	for _, test := range []struct {
		family Family
		rule   []Statement
		want   string
	}{
		{IPv4, []Statement{InPrefix{Value: SourceAddress, Prefix: host}, Decide{Verdict{Kind: VerdictReturn}}}, "ip saddr 10.0.0.1 return"},
		{IPv6, []Statement{InPrefix{Value: DestinationAddress, Prefix: network, Not: true}, Decide{Verdict{Kind: VerdictDrop}}}, "ip6 daddr != fd00::/8 drop"},
		{IPv6, []Statement{HasProtocol{SCTP}, Translate{Key: []Value{SourceAddress}, Map: "m"}}, "meta l4proto sctp dnat ip6 to ip6 saddr map @m"},
		{IPv4, []Statement{Translate{Key: frontValues, Slots: 7, Map: "m"}}, "dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 7 map @m"},
		{IPv6, []Statement{LookUp{Key: []Value{OriginalAddress, OriginalPort}, Map: "m"}}, "ct original ip6 daddr . ct original proto-dst vmap @m"},
		{IPv4, []Statement{Marked{0x2000}, FlipMark{0x2000}, SetMark{1}}, "meta mark & 0x00002000 == 0x00002000 meta mark set meta mark ^ 0x00002000 meta mark set meta mark | 0x00000001"},
		{IPv4, []Statement{HasProtocol{TCP}, Refuse{Reset: true}}, "meta l4proto tcp reject with tcp reset"},
		{IPv4, []Statement{HasProtocol{UDP}, Refuse{}}, "meta l4proto udp reject"},
		{IPv4, []Statement{NewConnection{}, Translated{}, FromNode{}, Masquerade{}}, "ct state new ct status dnat fib saddr type local masquerade fully-random"},
		{IPv6, []Statement{Remember{Map: "m", Timeout: 26*time.Hour + 3*time.Minute + 4*time.Second + 5*time.Millisecond}}, "update @m { ip6 saddr timeout 1d2h3m4s5ms : ip6 daddr . th dport }"},
		{IPv4, []Statement{Remember{Map: "m"}}, "update @m { ip saddr timeout 0s : ip daddr . th dport }"},
		{IPv4, []Statement{InSet{Key: []Value{TransportProtocol, DestinationPort}, Set: "s"}, Decide{Verdict{Kind: VerdictJump, Chain: "c"}}}, "meta l4proto . th dport @s jump c"},
		{IPv4, []Statement{Decide{}}, "no verdict"},
		{IPv4, []Statement{FromInterface{Interfaces: Interfaces{Name: "cni0"}}}, `iifname "cni0"`},
		{IPv6, []Statement{FromInterface{Interfaces: Interfaces{Name: "veth", Prefix: true}, Not: true}, FromNode{}}, `iifname != "veth*" fib saddr type local`},
	} {
		if got := (Rule{Family: test.family, Statements: test.rule}).String(); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

func TestFingerprintsTellChainsApart(t *testing.T) {
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

func TestFingerprintsTellSetsApart(t *testing.T) {
	seen := make(map[string]string)
	for _, set := range append(sets[:], (Config{}).affinitySet("affinity-a"), (Config{}).affinitySet("affinity-b"), &Set{Name: "affinity-a", Dynamic: true}) {
		mine := set.Fingerprint()
		if other, ok := seen[mine]; ok {
			t.Errorf("%s has the fingerprint of %s", set.Name, other)
		}
		seen[mine] = set.Name
		sized := *set
		if sized.Size = 7; sized.Fingerprint() != mine {
			t.Errorf("%s has another fingerprint with another size", set.Name)
		}
	}
}

func TestNamesAreOnesThatNftKnows(t *testing.T) {
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
