package shift

import "testing"

func TestBound(t *testing.T) {
	for _, test := range []struct {
		inside, outside, bound int
		percent                int
		unlimited, exceeds     bool
		needed, replicas       int
	}{
		{inside: 2, outside: 4, bound: 50, percent: 50, needed: 4, replicas: 6},
		{inside: 2, outside: 4, bound: 49, percent: 50, exceeds: true, needed: 5, replicas: 8},
		{inside: 2, outside: 3, bound: 66, percent: 67, exceeds: true, needed: 4, replicas: 7},
		{inside: 2, outside: 3, bound: 67, percent: 67, needed: 3, replicas: 5},
		{inside: 1, outside: 1, bound: 100, percent: 100, needed: 1, replicas: 2},
		{inside: 3, outside: 1, bound: 50, percent: 300, exceeds: true, needed: 6, replicas: 24},
		{inside: 0, outside: 3, bound: 1},
		{inside: 0, outside: 0, bound: 1},
		{inside: 1, outside: 0, bound: 50, unlimited: true, exceeds: true, needed: 2},
	} {
		percent, unlimited := Overload(test.inside, test.outside)
		exceeds, needed, replicas := Exceeds(test.inside, test.outside, test.bound), NeededOutside(test.inside, test.bound), 0
		if test.outside > 0 {
			replicas = Replicas(test.inside+test.outside, test.outside, needed)
		}
		if percent != test.percent || unlimited != test.unlimited || exceeds != test.exceeds || needed != test.needed || replicas != test.replicas {
			t.Errorf("%+v: got %d %%, unlimited %t, exceeds %t, needed %d, replicas %d", test, percent, unlimited, exceeds, needed, replicas)
		}
		if test.outside > 0 && needed > 0 && (Exceeds(test.inside, needed, test.bound) || needed > 1 && !Exceeds(test.inside, needed-1, test.bound)) {
			t.Errorf("%+v: %d is not the fewest outside", test, needed)
		}
	}
}
