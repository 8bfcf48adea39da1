package capacity

import (
	"maps"
	"math"
	"strings"
	"testing"
	"unicode"

	"vicinity.dev/vicinity/internal/routing/intent"
)

// Any expression gives the same usable capacities each time, or an error. Check gives the error, too, unless it depends
// on the zones.
func FuzzExpression(f *testing.F) {
	for _, expression := range []string{
		"zone.cpu + 2.0 * zone.nodes", "1", "0.0 / 0.0", "-1", "zone.name.matches('^a.*') ? 1 : 2", "math.least(zone.cpu, 4.0)",
		"dyn(1)", "zone", "size([1].map(x, [1].map(y, x)))", "double(zone.name)", "'\x1b[2J'", "zone.cpu +", "9223372036854775807 + 1", "'\\u001b'.foo", "\u009b",
	} {
		f.Add(expression)
	}
	zones := []intent.Zone{
		{Name: "a", Region: "north", Nodes: 1, CPU: 2, Memory: 1 << 30, Pods: 110}, {Name: "b", Region: "north"}, {Name: strings.Repeat("z", 63)},
	}
	f.Fuzz(func(t *testing.T, expression string) {
		capacities, err := Evaluate(expression, zones)
		if err != nil {
			if len(capacities) > 0 || strings.ContainsFunc(err.Error(), unicode.IsControl) || len(err.Error()) > 4*maxExpression {
				t.Fatalf("%v, and the error %q", capacities, err)
			}
			return
		}
		if err := Check(expression); err != nil {
			t.Fatalf("it gives %v, and is refused: %v", capacities, err)
		}
		if len(capacities) != len(zones) {
			t.Fatalf("%d of %d zones have a capacity", len(capacities), len(zones))
		}
		for zone, n := range capacities {
			if math.IsNaN(n) || n < 0 || n > maxCapacity {
				t.Fatalf("zone %s has %g", zone, n)
			}
		}
		if again, err := Evaluate(expression, zones); err != nil || !maps.Equal(again, capacities) {
			t.Fatalf("%v, then %v, %v", capacities, again, err)
		}
	})
}
