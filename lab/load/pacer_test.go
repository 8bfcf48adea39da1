package load

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestPacersShareTheSchedule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		plan := Plan{
			Rate:     rapid.Float64Range(0.1, 5000).Draw(t, "rate"),
			Duration: time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(10*time.Second)).Draw(t, "duration")),
		}
		of := rapid.IntRange(1, 9).Draw(t, "of")
		var all int64
		for i := range of {
			p := newPacer(job{Plan: plan, Index: i, Of: of})
			all += max(p.count, 0)
			if p.count > 0 && p.due(p.count-1) > plan.Duration {
				t.Fatalf("the last of %d requests is due at %v, after %v", p.count, p.due(p.count-1), plan.Duration)
			}
		}
		if all != plan.requests() {
			t.Fatalf("the sources have %d requests, the plan has %d", all, plan.requests())
		}
	})
}

// However late the pacer is asked, no request leaves early.
func TestPacerIsNeverEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		plan := Plan{Rate: rapid.Float64Range(1, 2000).Draw(t, "rate"), Duration: 3 * time.Second}
		p := newPacer(job{Plan: plan, Of: 1})
		var now time.Duration
		var sent, skipped int64
		for {
			action, by := p.step(now)
			switch action {
			case wait:
				if by <= 0 {
					t.Fatalf("at %v it waits for %v", now, by)
				}
				late := rapid.Int64Range(0, int64(2*time.Second)).Draw(t, "late")
				if rapid.IntRange(0, 9).Draw(t, "pause") > 0 {
					late = 0
				}
				now += by + time.Duration(late)
				continue
			case send:
				sent++
				if by > tolerance {
					t.Fatalf("a request is sent %v late", by)
				}
			case skip:
				skipped++
				if by <= tolerance {
					t.Fatalf("a request is skipped that is %v late", by)
				}
			case finish:
				if sent+skipped != plan.requests() {
					t.Fatalf("%d sent and %d skipped of %d", sent, skipped, plan.requests())
				}
				return
			}
			if allowed := int64(plan.Rate*now.Seconds()+1e-6) + 1; sent > allowed {
				t.Fatalf("%d sent at %v, when %d are allowed", sent, now, allowed)
			}
		}
	})
}
