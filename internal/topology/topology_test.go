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

func TestInvalidTiers(t *testing.T) {
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
