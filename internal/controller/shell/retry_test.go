package shell

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestFinish(t *testing.T) {
	failure := errors.New("no")
	for _, test := range []struct {
		name    string
		err     error
		after   time.Duration
		outcome Outcome
		want    error
	}{
		{"done", nil, time.Minute, Done, nil},
		{"changed", fmt.Errorf("writing: %w", ErrChanged), ConflictWait, Conflict, nil},
		{"ending", fmt.Errorf("creating: %w", errEnding), 0, Done, nil},
		{"failed", failure, 0, Failed, failure},
	} {
		result, outcome, err := Finish(time.Minute, test.err)
		if result.RequeueAfter != test.after || outcome != test.outcome || !errors.Is(err, test.want) {
			t.Errorf("%s: %+v, %s, %v", test.name, result, outcome, err)
		}
	}
}

func TestBackoff(t *testing.T) {
	now := time.Unix(1000, 0)
	var b Backoff
	if b.Wait(now) != 0 {
		t.Error("it waits before it has failed")
	}
	for i, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		if b.Fail(now, time.Second, 10*time.Second); b.Wait(now) != want*time.Second || b.Failures != i+1 {
			t.Errorf("after %d failures it waits for %s, want %d s", b.Failures, b.Wait(now), want)
		}
	}
	for range 100 {
		b.Fail(now, time.Second, 10*time.Second)
	}
	if b.Wait(now) != 10*time.Second || b.Wait(now.Add(time.Hour)) != 0 {
		t.Errorf("after many failures it waits for %s", b.Wait(now))
	}
}

func TestLasting(t *testing.T) {
	now := time.Unix(1000, 0)
	var l Lasting[string]
	left := func(value string, want time.Duration) {
		t.Helper()
		if got := l.Left(value, now, 10*time.Second); got != want {
			t.Errorf("%s has to stay for %s, want %s", value, got, want)
		}
	}
	left("a", 10*time.Second)
	now = now.Add(4 * time.Second)
	left("a", 6*time.Second)
	left("b", 10*time.Second)
	left("a", 10*time.Second)
	now = now.Add(11 * time.Second)
	left("a", 0)
	l.Reset()
	left("a", 10*time.Second)
}
