package e2e_test

import (
	"fmt"

	"vicinity.dev/vicinity/lab/load"
)

// measurements is how often at most something is measured while the machine disturbs it.
const measurements = 4

// undisturbed measures again when the machine stood still during a measurement: that shows
// neither that all is well nor that something is wrong. A measurement says how it was
// disturbed. What failed for another reason is not repeated.
func undisturbed(measure func() (disturbance string, err error)) error {
	var last string
	for range measurements {
		disturbance, err := measure()
		if err != nil || disturbance == "" {
			return err
		}
		last = disturbance
	}
	return fmt.Errorf("the machine stood still during each of %d measurements, so they show nothing; the last one: %s", measurements, last)
}

// disturbance says how the machine disturbed a load of which nothing failed otherwise, or
// nothing.
func disturbance(r load.Result) string {
	if r.Failed() > 0 || tooLate(r, r.Slow) || r.Stalled == 0 && !tooLate(r, r.Slow+r.Delayed) {
		return ""
	}
	return fmt.Sprintf("%d of %d requests failed and %d were answered late meanwhile", r.Stalled, r.Due, r.Delayed)
}
