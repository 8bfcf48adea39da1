package e2e_test

import (
	"context"
	"fmt"
	"time"

	"vicinity.dev/vicinity/lab/load"
)

// measurements limits how often a disturbed measurement is made.
const measurements = 4

// After a stall the machine is calm once it has not stalled for calm. The wait is limited
// to calmWithin.
const calm, calmWithin = 5 * time.Second, 30 * time.Second

// undisturbed repeats a measurement during which the machine stood still, since that shows
// neither success nor failure. A measurement says how it was disturbed. Other failures are
// not repeated.
func undisturbed(ctx context.Context, measure func() (disturbance string, err error)) error {
	for n := 1; ; n++ {
		disturbance, err := measure()
		switch {
		case err != nil || disturbance == "":
			return err
		case n == measurements:
			return fmt.Errorf("the machine stood still during each of %d measurements, so they show nothing; the last one: %s", n, disturbance)
		}
		if err := calmDown(ctx); err != nil {
			return err
		}
	}
}

// calmDown waits until the machine is calm.
func calmDown(ctx context.Context) error {
	stalls, stop, err := load.DetectStalls()
	if err != nil {
		return err
	}
	defer stop()
	begun := time.Now()
	tick := time.NewTicker(calm / 10)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case now := <-tick.C:
			since := now.Sub(begun)
			if since >= calmWithin || since >= calm && stalls.Stalled(now.Add(-calm), now) == 0 {
				return nil
			}
		}
	}
}

// disturbance says how the machine disturbed a load of which nothing failed otherwise, or
// nothing.
func disturbance(r load.Result) string {
	if r.Failed() > 0 || tooLate(r, r.Slow) || r.Stalled == 0 && !tooLate(r, r.Slow+r.Delayed) {
		return ""
	}
	return fmt.Sprintf("%d of %d requests failed and %d were answered late meanwhile", r.Stalled, r.Due, r.Delayed)
}
