package endpoint

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// endpoint reads "1@a1": the address 10.0.0.1 on the node a1 in the zone a. A single letter is a
// zone: "1@a" is on an unknown node of the zone a.
func endpoint(text string) v1alpha1.GroupEndpoint {
	number, node, _ := strings.Cut(text, "@")
	e := v1alpha1.GroupEndpoint{Address: "10.0.0." + number, Node: node}
	if node != "" {
		e.Zone = node[:1]
	}
	if len(node) == 1 {
		e.Node = ""
	}
	return e
}

// group reads endpoints and, after an arrow, the zones that use them, the zones that they are
// hidden from as "!b", and tiers as "tiers=rack,*".
func group(name, text string) *v1alpha1.EndpointGroup {
	g := &v1alpha1.EndpointGroup{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	g.Spec.AddressType = corev1.IPv4Protocol
	endpoints, rest, _ := strings.Cut(text, "->")
	for word := range strings.FieldsSeq(endpoints) {
		g.Spec.Endpoints = append(g.Spec.Endpoints, endpoint(word))
	}
	for word := range strings.FieldsSeq(rest) {
		if zone, hidden := strings.CutPrefix(word, "!"); hidden {
			g.Labels[v1alpha1.LabelNotForPrefix+zone] = ""
		} else if tiers, ok := strings.CutPrefix(word, "tiers="); ok {
			g.Spec.Tiers = strings.Split(tiers, ",")
		} else {
			g.Spec.Consumers = append(g.Spec.Consumers, v1alpha1.GroupConsumer{Zone: word, Weight: 1000})
		}
	}
	return g
}

// Only the DNS server meets endpoints that no group has yet, and unknown clients: the proxy makes
// its rules from groups, for a known node. The tests of its rules cover the common part.
func TestChoose(t *testing.T) {
	const zone, host = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
	onA1 := Client{Node: "a1", Zone: "a", Labels: map[string]string{"rack": "r1"}}
	for _, test := range []struct {
		name   string
		client Client
		groups []string
		slices string
		want   string // the chosen addresses, or all
		tier   string
	}{
		{name: "a plan", client: onA1, groups: []string{"1@a1 -> a !b", "2@b1 -> b !a"}, want: "1"},
		{name: "of a zone without a plan", client: Client{Node: "c1", Zone: "c"}, groups: []string{"1@a1 -> a !b", "2@b1 -> b !a"}, want: "1 2"},
		{name: "of an unknown client", groups: []string{"1@a1 -> a !b", "2@b1 -> b !a"}, want: "1 2"},
		{name: "new in the zone", client: onA1, groups: []string{"1@a1 -> a !b", "2@b1 -> b !a"}, slices: "3@a2 4@b2 5", want: "1 3 5"},
		{name: "new without a plan by zone", client: onA1, groups: []string{"1@a1 2@b1 -> a b"}, slices: "3@b2", want: "1 2 3"},
		{name: "new on the node", client: onA1, groups: []string{"1@a2 -> tiers=" + host + ",*"}, slices: "2@a1 3@a2", want: "2", tier: host},
		{name: "new in the zone of tiers", client: onA1, groups: []string{"1@b1 -> tiers=" + host + "," + zone}, slices: "2@a 3@b", want: "2", tier: zone},
		{name: "new with a label that slices do not have", client: onA1, groups: []string{"1@b1 -> tiers=rack,*"}, slices: "2@a2", want: "1 2", tier: "*"},
		{name: "new on the node has its labels", client: onA1, groups: []string{"1@b1 -> tiers=rack,*"}, slices: "2@a1", want: "2", tier: "rack"},
		{name: "of neither group nor slice", client: onA1, groups: []string{"1@b1 -> tiers=" + zone + ",*"}, slices: "", want: "1 9", tier: "*"},
		{name: "hard, unknown client", groups: []string{"1@a1 2@b1 -> tiers=" + zone}, want: ""},
		{name: "soft, unknown client", groups: []string{"1@a1 2@b1 -> tiers=" + zone + ",*"}, want: "1 2", tier: "*"},
		{name: "hard with nothing near", client: onA1, groups: []string{"1@b1 -> tiers=" + zone}, want: ""},
		{name: "nothing for the zone", client: onA1, groups: []string{"1@b1 -> b !a"}, want: "all"},
		{name: "nothing for the zone, hard", client: onA1, groups: []string{"1@b1 -> b !a tiers=" + host}, want: ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var groups []*v1alpha1.EndpointGroup
			for i, text := range test.groups {
				groups = append(groups, group(string(rune('a'+i)), text))
			}
			sliced := map[netip.Addr]*v1alpha1.GroupEndpoint{}
			var addresses []netip.Addr
			for word := range strings.FieldsSeq(test.slices) {
				e := endpoint(word)
				sliced[netip.MustParseAddr(e.Address)] = &e
				addresses = append(addresses, netip.MustParseAddr(e.Address))
			}
			for _, g := range groups {
				for _, e := range g.Spec.Endpoints {
					addresses = append(addresses, netip.MustParseAddr(e.Address))
				}
			}
			if strings.Contains(test.want, "9") {
				addresses = append(addresses, netip.MustParseAddr("10.0.0.9"))
			}
			slices.SortFunc(addresses, netip.Addr.Compare)
			chosen := NewSet(corev1.IPv4Protocol, groups, sliced).Choose(test.client, addresses)
			var words []string
			for i, takes := range chosen.Takes {
				if takes {
					words = append(words, strings.TrimPrefix(addresses[i].String(), "10.0.0."))
				}
			}
			got := strings.Join(words, " ")
			if chosen.All {
				got = "all"
			}
			if got != test.want || chosen.Tier != test.tier {
				t.Errorf("got %q by %q, want %q by %q", got, chosen.Tier, test.want, test.tier)
			}
			if chosen.Count != len(words) {
				t.Errorf("count is %d of %v", chosen.Count, words)
			}
		})
	}
}

func TestNoGroupsOfTheFamily(t *testing.T) {
	known := NewSet(corev1.IPv4Protocol, []*v1alpha1.EndpointGroup{group("g", "1@a1 ->")}, map[netip.Addr]*v1alpha1.GroupEndpoint{netip.MustParseAddr("10.0.0.2"): {}})
	if !known.Knows(netip.MustParseAddr("10.0.0.1")) || known.Knows(netip.MustParseAddr("10.0.0.2")) {
		t.Error("Knows does not report exactly the addresses of groups")
	}
	if got := NewSet(corev1.IPv6Protocol, []*v1alpha1.EndpointGroup{group("g", "1@a1 ->")}, nil); got != nil {
		t.Errorf("got %v", got)
	}
}
