package probe

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

var (
	start   = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	errLost = errors.New("there is no answer")
	noRoute = impossibleError{"the node has no route to 10.96.0.9"}
)

func TestVerdict(t *testing.T) {
	passed := State{Outcome: Passed, Proven: start, next: start.Add(DefaultPace.Every)}
	old := State{Outcome: Passed, Proven: start.Add(-time.Minute), next: start.Add(DefaultPace.Every)}
	missed := State{Outcome: Passed, Proven: start, missed: 1, next: start.Add(DefaultPace.Again)}
	asked := State{Outcome: Passed, Proven: start}
	failed := State{Outcome: Failed, Reason: "bypassed", next: start.Add(DefaultPace.Retry)}
	impossible := State{Outcome: Impossible, Reason: "no route"}
	for _, test := range []struct {
		name   string
		v4, v6 *State
		want   Verdict
	}{
		{"nothing is probed", nil, nil, Verdict{Holds: true, Recent: true}},
		{"nothing can be", &impossible, nil, Verdict{Holds: true, Recent: true}},
		{"it is not known", &State{}, nil, Verdict{Due: true}},
		{"one family is not known", &passed, &State{}, Verdict{Due: true}},
		{"both pass", &passed, &passed, Verdict{Holds: true, Recent: true}},
		{"one cannot be", &passed, &impossible, Verdict{Holds: true, Recent: true}},
		{"one is old", &passed, &old, Verdict{Holds: true}},
		{"one has failed since", &passed, &missed, Verdict{Holds: true, Due: true}},
		{"one was asked for since", &asked, &passed, Verdict{Holds: true, Due: true}},
		{"one fails", &passed, &failed, Verdict{Failure: "bypassed"}},
		{"one fails, one cannot be", &impossible, &failed, Verdict{Failure: "bypassed"}},
	} {
		states := map[ruleset.Family]State{}
		if test.v4 != nil {
			states[ruleset.IPv4] = *test.v4
		}
		if test.v6 != nil {
			states[ruleset.IPv6] = *test.v6
		}
		if got := verdict(states, start.Add(time.Second), DefaultPace.Fresh); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

// After any history, a state is Passed only if one of the last probes passed, and Failed only if none of them did.
func TestOutcomeIsThatOfTheLastProbes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kinds := rapid.SliceOfN(rapid.IntRange(0, 2), 1, 30).Draw(t, "probes")
		var s State
		for i, kind := range kinds {
			at := start.Add(time.Duration(i) * time.Second)
			s.take([]error{nil, errLost, noRoute}[kind], at, at, DefaultPace)
		}
		missed := 0
		for missed < len(kinds) && kinds[len(kinds)-1-missed] != 0 {
			missed++
		}
		decided := missed >= DefaultPace.Tries
		switch {
		case (s.Outcome == Failed || s.Outcome == Impossible) != decided:
			if decided || s.Outcome == Passed {
				t.Fatalf("outcome %d after %v", s.Outcome, kinds)
			}
			// The outcome was the same before, and a passed probe would have changed it.
			t.Fatalf("outcome %d after %d that did not pass", s.Outcome, missed)
		case decided && (s.Outcome == Failed) != (kinds[len(kinds)-1] == 1):
			t.Fatalf("outcome %d differs from the last of %v", s.Outcome, kinds)
		case !decided && missed < len(kinds) && s.Outcome != Passed:
			t.Fatalf("outcome %d, though one passed: %v", s.Outcome, kinds)
		case !decided && missed == len(kinds) && s.Outcome != Pending:
			t.Fatalf("outcome %d after too few: %v", s.Outcome, kinds)
		}
	})
}
