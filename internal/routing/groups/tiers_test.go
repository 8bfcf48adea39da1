package groups

import (
	"strings"
	"testing"
)

func TestWiderTiers(t *testing.T) {
	for _, test := range []struct{ from, to, want string }{
		{"", "zone", "zone,*"},
		{"zone", "", "zone,*"},
		{"zone", "zone,*", "zone,*"},
		{"zone,*", "zone", "zone,*"},
		{"rack", "zone", "rack,zone"},
		{"host,zone,*", "zone,*", "host,zone,*"},
		{"", "", ""},
	} {
		split := func(list string) []string {
			if list == "" {
				return nil
			}
			return strings.Split(list, ",")
		}
		if got := widerTiers(split(test.from), split(test.to)); strings.Join(got, ",") != test.want {
			t.Errorf("from %q to %q: %q, want %q", test.from, test.to, got, test.want)
		}
	}
}
