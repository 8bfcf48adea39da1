package verdict

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	held := Try{Figure: "0 of 10 lost", Took: 1234 * time.Millisecond}
	lost := Try{Err: errors.Join(errors.New("3 of 10 lost"), errors.New("2 late")), Took: 2 * time.Second}
	outcome := func(promise string, tries ...Try) Outcome { return Outcome{Promise: promise, Tries: tries} }
	onSecondTry := func(promise string) []string {
		return []string{"  " + promise, "    first:  3 of 10 lost; 2 late (2s)", "    second: 0 of 10 lost (1.2s)"}
	}
	disturbed := Try{Err: fmt.Errorf("%w all the time", ErrDisturbed), Took: 2 * time.Second}
	const heading = "kept on the second try"
	for name, test := range map[string]struct {
		outcomes []Outcome
		want     []string
		passed   bool
	}{
		"nothing": {nil, []string{"promises: 0 passed, 0 failed"}, true},
		"all kept": {
			[]Outcome{outcome("lab/a", held), outcome("lab/b", held)},
			[]string{"promises: 2 passed, 0 failed"},
			true,
		},
		"kept on the second try": {
			[]Outcome{outcome("lab/a", lost, held), outcome("lab/b", held)},
			slices.Concat([]string{heading}, onSecondTry("lab/a"), []string{"promises: 2 passed, 0 failed"}), true,
		},
		"as many on the second try as may be": {
			[]Outcome{outcome("lab/a", lost, held), outcome("lab/b", held), outcome("proxy/c", lost, held)},
			slices.Concat([]string{heading}, onSecondTry("lab/a"), onSecondTry("proxy/c"), []string{"promises: 3 passed, 0 failed"}), true,
		},
		"one more than may be": {
			[]Outcome{outcome("lab/a", lost, held), outcome("lab/b", lost, held), outcome("lab/c", lost, held)},
			slices.Concat([]string{heading}, onSecondTry("lab/a"), onSecondTry("lab/b"), onSecondTry("lab/c"), []string{
				"FAIL 3 promises needed a second try; at most 2 may", "promises: 3 passed, 0 failed",
			}), false,
		},
		"as many as may be, and one that was disturbed": {
			[]Outcome{outcome("lab/a", lost, held), outcome("lab/b", lost, held), outcome("lab/c", disturbed, held)},
			slices.Concat([]string{heading}, onSecondTry("lab/a"), onSecondTry("lab/b"), []string{
				"  lab/c", "    first:  the machine stood still all the time (2s)", "    second: 0 of 10 lost (1.2s)", "promises: 3 passed, 0 failed",
			}), true,
		},
		"disturbed twice": {
			[]Outcome{outcome("lab/a", disturbed, disturbed)},
			[]string{"FAIL lab/a the machine stood still all the time (2s); second try: the machine stood still all the time (2s)", "promises: 0 passed, 1 failed"},
			false,
		},
		"failed twice": {
			[]Outcome{outcome("lab/a", lost, lost), outcome("lab/b", held)},
			[]string{"FAIL lab/a 3 of 10 lost; 2 late (2s); second try: 3 of 10 lost; 2 late (2s)", "promises: 1 passed, 1 failed"},
			false,
		},
		"one failed twice, one kept on the second try": {
			[]Outcome{outcome("lab/a", lost, lost), outcome("lab/b", lost, held)},
			slices.Concat([]string{heading}, onSecondTry("lab/b"), []string{
				"FAIL lab/a 3 of 10 lost; 2 late (2s); second try: 3 of 10 lost; 2 late (2s)", "promises: 1 passed, 1 failed",
			}), false,
		},
		"failed, and the run ended before the second try": {
			[]Outcome{outcome("lab/a", lost)},
			[]string{"FAIL lab/a 3 of 10 lost; 2 late (2s)", "promises: 0 passed, 1 failed"},
			false,
		},
		"the run ended before the first try": {
			[]Outcome{outcome("lab/a", held), outcome("lab/b")},
			[]string{"promises: 1 passed, 0 failed, 1 not tried"},
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, passed := Judge(test.outcomes)
			if passed != test.passed || !slices.Equal(got, test.want) {
				t.Errorf("passed %v, want %v, and says\n%s\nwant\n%s", passed, test.passed, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

func TestFailed(t *testing.T) {
	kept, broken := Try{Figure: "1"}, Try{Err: errors.New("no")}
	for _, test := range []struct {
		tries []Try
		want  bool
	}{
		{nil, false},
		{[]Try{kept}, false},
		{[]Try{broken}, true},
		{[]Try{broken, kept}, false},
		{[]Try{broken, broken}, true},
	} {
		if got := (Outcome{Tries: test.tries}).Failed(); got != test.want {
			t.Errorf("Failed() = %v after %v, want %v", got, test.tries, test.want)
		}
	}
}

// What was not begun when a run is interrupted is not begun any more, and is named.
func TestEach(t *testing.T) {
	for _, test := range []struct{ stopAt, want, left string }{
		{"", "a b c", ""},
		{"b", "a b", "c"},
		{"c", "a b c", ""},
		{"before", "", "a b c"},
	} {
		ctx, stop := context.WithCancel(t.Context())
		if test.stopAt == "before" {
			stop()
		}
		var begun []string
		left := Each(ctx, []string{"a", "b", "c"}, func(name string) {
			begun = append(begun, name)
			if name == test.stopAt {
				stop()
			}
		})
		stop()
		if got := strings.Join(begun, " "); got != test.want || strings.Join(left, " ") != test.left {
			t.Errorf("interrupted at %q: begun %q, left %q", test.stopAt, got, left)
		}
	}
}
