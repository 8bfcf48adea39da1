package verdict

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	held = Try{Figure: "0 of 10 lost", Took: 1234 * time.Millisecond}
	lost = Try{Err: errors.Join(errors.New("3 of 10 lost"), errors.New("2 late")), Took: 2 * time.Second}
)

func TestJudge(t *testing.T) {
	outcome := func(promise string, tries ...Try) Outcome {
		return Outcome{Area: "lab", Promise: promise, Tries: tries}
	}
	for name, test := range map[string]struct {
		outcomes []Outcome
		want     []string
		passed   bool
	}{
		"all kept": {[]Outcome{outcome("a", held), outcome("b", held)}, []string{"promises: 2 passed, 0 failed"}, true},
		"one failed": {
			[]Outcome{outcome("a", held), outcome("b", lost)},
			[]string{"FAIL lab/b 3 of 10 lost; 2 late (2s)", "promises: 1 passed, 1 failed"},
			false,
		},
		"kept by the second try": {
			[]Outcome{outcome("a", lost, held)},
			[]string{"FLAKE lab/a 3 of 10 lost; 2 late (2s); second try: 0 of 10 lost (1.2s)", "promises: 1 passed, 0 failed"},
			true,
		},
		"failed twice": {
			[]Outcome{outcome("a", lost, lost)},
			[]string{"FAIL lab/a 3 of 10 lost; 2 late (2s); second try: 3 of 10 lost; 2 late (2s)", "promises: 0 passed, 1 failed"},
			false,
		},
		"the run ended before": {[]Outcome{outcome("a", held), outcome("b")}, []string{"promises: 1 passed, 0 failed, 1 not tried"}, false},
	} {
		lines, passed := Judge(test.outcomes)
		if !slices.Equal(lines, test.want) || passed != test.passed {
			t.Errorf("%s: got %q, %t, want %q, %t", name, lines, passed, test.want, test.passed)
		}
	}
}

func TestTable(t *testing.T) {
	long := Try{Figure: strings.Repeat("x", 2*figureWidth), Took: time.Minute}
	got := Table([]Outcome{
		{Area: "routing", Promise: "prefer", Tries: []Try{held}},
		{Area: "proxy", Promise: "flow", Tries: []Try{lost}},
		{Area: "names", Promise: "nearest", Tries: []Try{long}},
		{Area: "names", Promise: "planned"},
	})
	want := []string{
		"CAPABILITY  PROMISE  SECONDS  FIGURE",
		"routing     prefer   1.2      0 of 10 lost",
		"proxy       flow     2.0      FAIL 3 of 10 lost; 2 late",
		"names       nearest  60.0     " + strings.Repeat("x", figureWidth-1) + "…",
		"names       planned  -        not tried",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
