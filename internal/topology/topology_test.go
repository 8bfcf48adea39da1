package topology_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"vicinity.dev/vicinity/internal/topology"
)

func TestParseTiers(t *testing.T) {
	for _, test := range []struct {
		list string
		want topology.Tiers
		hard bool
	}{
		{"", nil, false},
		{" \t\n", nil, false},
		{"*", topology.Tiers{"*"}, false},
		{topology.Zone, topology.Tiers{topology.Zone}, true},
		{"kubernetes.io/hostname, topology.kubernetes.io/zone ,*", topology.Tiers{topology.Hostname, topology.Zone, "*"}, false},
		{"\track,topology.kubernetes.io/region\n", topology.Tiers{"rack", topology.Region}, true},
		{"Rack,rack", topology.Tiers{"Rack", "rack"}, true},
	} {
		tiers, err := topology.ParseTiers(test.list)
		if err != nil || !slices.Equal(tiers, test.want) {
			t.Errorf("ParseTiers(%q) = %q, %v, want %q", test.list, tiers, err, test.want)
			continue
		}
		if tiers.Hard() != test.hard {
			t.Errorf("%q is hard: %v", tiers, tiers.Hard())
		}
		if again, err := topology.ParseTiers(tiers.String()); err != nil || !slices.Equal(again, tiers) {
			t.Errorf("reading the form %q of %q again gives %q, %v", tiers.String(), test.list, again, err)
		}
	}
}

func TestTiersThatMakeNoSense(t *testing.T) {
	for _, test := range []struct {
		list, want string
	}{
		{",", `topology keys: key 1 of 2 is empty; each must be a node label key, or "*" as the last`},
		{"rack,", `topology keys: key 2 of 2 is empty; each must be a node label key, or "*" as the last`},
		{"rack, ,*", `topology keys: key 2 of 3 is empty; each must be a node label key, or "*" as the last`},
		{"*,rack", `topology keys: "*" is key 1 of 2; it matches everything and must be the last`},
		{"rack,*,row", `topology keys: "*" is key 2 of 3; it matches everything and must be the last`},
		{"*,*", `topology keys: "*" is key 1 of 2; it matches everything and must be the last`},
		{"rack,row,rack,*", `topology keys: "rack" is given twice, the second time as key 3 of 4; each key may appear once`},
		{keys(17), "topology keys: 17 keys given, at most 16 are allowed"},
	} {
		tiers, err := topology.ParseTiers(test.list)
		if err == nil || err.Error() != test.want {
			t.Errorf("ParseTiers(%q) fails with\n%v, want\n%s", test.list, err, test.want)
		}
		if tiers != nil {
			t.Errorf("ParseTiers(%q) gives %q with its error", test.list, tiers)
		}
	}
	if _, err := topology.ParseTiers(keys(topology.MaxKeys)); err != nil {
		t.Errorf("%d keys: %v", topology.MaxKeys, err)
	}
}

func keys(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("example.com/level-%d", i))
	}
	return strings.Join(list, ",")
}

// place makes the labels of a node from "host/zone/region", where "-" is a label
// that is missing.
func place(path string) topology.Labels {
	labels := topology.Labels{}
	for i, value := range strings.Split(path, "/") {
		if value != "-" {
			labels[[]string{topology.Hostname, topology.Zone, topology.Region}[i]] = value
		}
	}
	return labels
}

func TestSelect(t *testing.T) {
	const host, zone, region = topology.Hostname, topology.Zone, topology.Region
	// From the client h1/a/x: 0 is on its host, 1 and 2 in its zone, 3 in its
	// region, 4 elsewhere, 5 nowhere known.
	all := []string{"h1/a/x", "h2/a/x", "h3/a/x", "h4/b/x", "h5/c/y", "-/-/-"}
	without := func(n int) []string { return append(slices.Repeat([]string{""}, n), all[n:]...) }
	for _, test := range []struct {
		name      string
		tiers     topology.Tiers
		client    string
		endpoints []string // "" is one that is not ready
		tier      int
		want      []int
	}{
		{"no keys", nil, "h1/a/x", all, 0, []int{0, 1, 2, 3, 4, 5}},
		{"no keys, empty list", topology.Tiers{}, "-/-/-", all, 0, []int{0, 1, 2, 3, 4, 5}},
		{"no keys, some ready", nil, "h1/a/x", without(4), 0, []int{4, 5}},
		{"no keys, none ready", nil, "h1/a/x", without(6), topology.None, nil},
		{"no keys, no endpoints", nil, "h1/a/x", nil, topology.None, nil},

		{"one hard key", topology.Tiers{zone}, "h1/a/x", all, 0, []int{0, 1, 2}},
		{"one hard key, not ready", topology.Tiers{host}, "h1/a/x", without(1), topology.None, nil},
		{"one hard key, others elsewhere", topology.Tiers{zone}, "h1/a/x", without(3), topology.None, nil},
		{"one hard key, client without it", topology.Tiers{zone}, "h1/-/x", all, topology.None, nil},
		{"one hard key, widest", topology.Tiers{region}, "h1/a/x", without(1), 0, []int{1, 2, 3}},

		{"anywhere", topology.Tiers{"*"}, "h1/a/x", all, 0, []int{0, 1, 2, 3, 4, 5}},
		{"anywhere, client without labels", topology.Tiers{"*"}, "-/-/-", without(4), 0, []int{4, 5}},
		{"anywhere, none ready", topology.Tiers{"*"}, "h1/a/x", without(6), topology.None, nil},

		{"hard keys, host", topology.Tiers{host, zone, region}, "h1/a/x", all, 0, []int{0}},
		{"hard keys, zone", topology.Tiers{host, zone, region}, "h1/a/x", without(1), 1, []int{1, 2}},
		{"hard keys, region", topology.Tiers{host, zone, region}, "h1/a/x", without(3), 2, []int{3}},
		{"hard keys, none", topology.Tiers{host, zone, region}, "h1/a/x", without(4), topology.None, nil},
		{"hard keys, wider first", topology.Tiers{region, host}, "h1/a/x", all, 0, []int{0, 1, 2, 3}},
		{"hard keys, client without the first", topology.Tiers{host, zone}, "-/a/x", all, 1, []int{0, 1, 2}},

		{"soft keys, host", topology.Tiers{host, zone, region, "*"}, "h1/a/x", all, 0, []int{0}},
		{"soft keys, zone", topology.Tiers{host, zone, region, "*"}, "h1/a/x", without(1), 1, []int{1, 2}},
		{"soft keys, region", topology.Tiers{host, zone, region, "*"}, "h1/a/x", without(3), 2, []int{3}},
		{"soft keys, anywhere", topology.Tiers{host, zone, region, "*"}, "h1/a/x", without(4), 3, []int{4, 5}},
		{"soft keys, none", topology.Tiers{host, zone, region, "*"}, "h1/a/x", without(6), topology.None, nil},
		{"soft keys, client without labels", topology.Tiers{host, zone, region, "*"}, "-/-/-", all, 3, []int{0, 1, 2, 3, 4, 5}},
		{"soft keys, own key", topology.Tiers{"rack", "*"}, "h1/a/x", all, 1, []int{0, 1, 2, 3, 4, 5}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var endpoints []topology.Endpoint
			for i, path := range test.endpoints {
				if path == "" {
					endpoints = append(endpoints, topology.Endpoint{Node: place(all[i])})
					continue
				}
				endpoints = append(endpoints, topology.Endpoint{Node: place(path), Ready: true})
			}
			if tier, matching := test.tiers.Select(place(test.client), endpoints); tier != test.tier || !slices.Equal(matching, test.want) {
				t.Errorf("tier %d %v, want %d %v", tier, matching, test.tier, test.want)
			}
		})
	}
}
