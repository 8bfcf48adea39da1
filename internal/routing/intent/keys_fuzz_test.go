package intent

import (
	"slices"
	"strings"
	"testing"
	"unicode"

	"vicinity.dev/vicinity/internal/topology"
)

// A valid list of keys can be written and read again. An invalid one has an error that can be shown.
func FuzzTopologyKeys(f *testing.F) {
	for _, list := range []string{
		"", "*", "kubernetes.io/hostname,topology.kubernetes.io/zone,*", "rack, zone", ",", "*,rack", "a,a", "a/b/c", "\x1b[2J", strings.Repeat("a,", 17),
		strings.Repeat("x", 64), strings.Repeat("x", 253) + "/y", " rack ",
	} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		tiers, err := ParseTopologyKeys(list)
		if err != nil {
			if len(tiers) > 0 || strings.ContainsFunc(err.Error(), unicode.IsControl) {
				t.Fatalf("%q, and the error %q", tiers, err)
			}
			return
		}
		if len(tiers) > topology.MaxKeys || (len(tiers) == 0) != (strings.TrimSpace(list) == "") {
			t.Fatalf("%q has %d keys", list, len(tiers))
		}
		again, err := ParseTopologyKeys(tiers.String())
		if err != nil || !slices.Equal(again, tiers) {
			t.Fatalf("%q, read again %q, %v", tiers, again, err)
		}
		if at := slices.Index(tiers, topology.Anywhere); at >= 0 && at != len(tiers)-1 {
			t.Fatalf("%q goes on after %s", tiers, topology.Anywhere)
		}
	})
}
