package command

import (
	"testing"
	"time"
)

// Ahead is as exact as the answers of the API server allow, and no more.
func TestAheadOfTheServer(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var c Clock
	if got := c.Ahead(); got != 0 {
		t.Errorf("before any answer %s", got)
	}
	for _, test := range []struct {
		after       time.Duration // since the start, by this machine's clock
		ahead, took time.Duration
		want        time.Duration
	}{
		{0, 0, 2 * time.Second, 0},
		{time.Second, 900 * time.Millisecond, 100 * time.Millisecond, 0},                               // the server gives whole seconds
		{2 * time.Second, 9 * time.Second, time.Second, 0},                                             // slower, so it is ignored
		{3 * time.Second, 9 * time.Second, 20 * time.Millisecond, 8*time.Second - 10*time.Millisecond}, // the quickest yet
		{4 * time.Second, -9 * time.Second, 10 * time.Millisecond, -9*time.Second + 5*time.Millisecond},
		{4*time.Second + sampleTime, time.Minute, time.Second, -9*time.Second + 5*time.Millisecond},
		{6*time.Second + sampleTime, time.Minute, 2 * time.Second, 58 * time.Second}, // the quickest sample is too old
	} {
		begun := start.Add(test.after)
		c.Note(begun.Add(test.took/2).Add(-test.ahead), begun, test.took)
		if got := c.Ahead(); got != test.want {
			t.Errorf("after %s it is %s ahead, want %s", test.after, got, test.want)
		}
	}
}
