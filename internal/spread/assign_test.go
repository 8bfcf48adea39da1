package spread

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// difference is how many more pods the fullest of some domains has than the emptiest.
func difference(counts map[string]int, domains []Place) int {
	fullest, emptiest := 0, 0
	for i, domain := range domains {
		n := counts[domain.Name]
		if fullest = max(fullest, n); i == 0 {
			emptiest = n
		}
		emptiest = min(emptiest, n)
	}
	return fullest - emptiest
}

func drawPlaces(t *rapid.T) []Place {
	places := make([]Place, rapid.IntRange(1, 6).Draw(t, "domains"))
	for i := range places {
		places[i] = Place{Name: fmt.Sprintf("d%d", i), Usable: true}
	}
	return places
}

// However far a StatefulSet is scaled, its pods are spread as evenly as can be, whatever its first ordinal is.
func TestEveryNumberOfOrdinalsIsSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		places, counts := drawPlaces(t), map[string]int{}
		start := rapid.IntRange(0, 20).Draw(t, "start")
		for i := range rapid.IntRange(0, 40).Draw(t, "ordinals") {
			name, ok := Assign(start+i, places)
			if !ok {
				t.Fatalf("ordinal %d has no domain of %v", start+i, places)
			}
			if counts[name]++; difference(counts, places) > 1 {
				t.Fatalf("with ordinals %d to %d there are %v", start, start+i, counts)
			}
		}
	})
}

// While domains are lost, only their own ordinals are in others, and all are spread over these as evenly as can be.
func TestOnlyOrdinalsOfLostDomainsMove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := drawPlaces(t)
		after, lost, left := make([]Place, len(before)), map[string]bool{}, []Place(nil)
		for i, place := range before {
			place.Usable = !rapid.Bool().Draw(t, "lost")
			if after[i] = place; place.Usable {
				left = append(left, place)
			} else {
				lost[place.Name] = true
			}
		}
		counts := map[string]int{}
		for ordinal := range 40 {
			was, _ := Assign(ordinal, before)
			now, ok := Assign(ordinal, after)
			switch {
			case ok != (len(left) > 0):
				t.Fatalf("ordinal %d of %v: %t", ordinal, after, ok)
			case !ok:
				continue
			case lost[now]:
				t.Fatalf("ordinal %d is in %s, which is lost", ordinal, now)
			case now != was && !lost[was]:
				t.Fatalf("ordinal %d moves from %s to %s, and %v are lost", ordinal, was, now, lost)
			}
			if counts[now]++; difference(counts, left) > 1 {
				t.Fatalf("with ordinal %d there are %v, and %v are lost", ordinal, counts, lost)
			}
		}
	})
}

func TestNoDomain(t *testing.T) {
	for _, test := range []struct {
		ordinal int
		domains []Place
	}{{0, nil}, {3, []Place{{Name: "a"}, {Name: "b"}}}, {-1, []Place{{Name: "a", Usable: true}}}} {
		if name, ok := Assign(test.ordinal, test.domains); ok || name != "" {
			t.Errorf("ordinal %d of %v is in %q", test.ordinal, test.domains, name)
		}
	}
}
