package responder

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"vicinity.dev/vicinity/internal/controller/shell"
)

// A pod is counted while it waits, and how long that was once it is admitted.
func TestWaitingPodsAreCounted(t *testing.T) {
	b := newBench(t, newEviction(ownTurn, part{name: evictor, state: inactive}))
	b.denial = "zone a has no more to spare"
	b.next()
	b.next()
	if n := testutil.ToFloat64(b.metrics.waiting); n != 1 {
		t.Errorf("%g pods wait, want 1", n)
	}
	_, own, _ := ownOf(b.eviction())
	b.clock.SetTime(own.StartTime.Add(40 * time.Second))
	b.denial = ""
	b.next()
	if n := testutil.ToFloat64(b.metrics.waiting); n != 0 {
		t.Errorf("%g pods wait, want none", n)
	}
	var read dto.Metric
	if err := b.metrics.waited.Write(&read); err != nil {
		t.Fatal(err)
	}
	if h := read.GetHistogram(); h.GetSampleCount() != 1 || h.GetSampleSum() != 40 {
		t.Errorf("%d waits of %g s in all, want one of 40 s", h.GetSampleCount(), h.GetSampleSum())
	}
	if n := testutil.ToFloat64(b.metrics.syncs.WithLabelValues(string(shell.Done))); n != 3 {
		t.Errorf("%g syncs were done, want 3", n)
	}
}
