package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"vicinity.dev/vicinity/lab/test/evictions"
)

// updatesCompared updates a StatefulSet by a DomainRollout and by its own rolling update, in the long form also by a controller of the
// test that evicts whatever it is let, and one pod at a time. A DomainRollout and that controller disturb one zone at a time, and none
// sends requests without end.
func updatesCompared(ctx context.Context, s *scene) (string, error) {
	pods, startTime, updaters := 27, time.Second, []evictions.Updater{evictions.ByRollout, evictions.ByNativeMax}
	if soaking() {
		pods, startTime = 420, 2*time.Second
		updaters = append(updaters, evictions.ByEvictor, evictions.ByNative)
	}
	text := ""
	calls := map[evictions.Updater]float64{}
	for _, by := range updaters {
		o := evictions.UpdateOptions{By: by, Pods: pods, StartTime: startTime}
		if by == evictions.ByNative {
			o.Within = time.Hour
		}
		figures, err := s.field().Update(ctx, o)
		if err != nil {
			return "", fmt.Errorf("%s: %w", by, err)
		}
		fmt.Println(figures.Result())
		calls[by] = figures.CallsPerPod()
		if by == evictions.ByRollout || by == evictions.ByEvictor {
			if err := figures.Waves.Err(evictions.Limits{Evictions: pods, Down: pods / 3, Domains: 1}); err != nil {
				return "", fmt.Errorf("%s: %w", by, err)
			}
		}
		text += fmt.Sprintf("%s %.0f s, %d zones down at most, %.1f API calls a pod; ", by, figures.Whole().Seconds(), figures.Waves.MostDomains, figures.CallsPerPod())
	}
	// An eviction takes a request of its own, the write of its condition, and its part of a reservation and of the status.
	const more = 20
	for _, by := range []evictions.Updater{evictions.ByRollout, evictions.ByEvictor} {
		if calls[by] > calls[evictions.ByNativeMax]+more {
			return "", errors.New(text + "which is too many API calls")
		}
	}
	return fmt.Sprintf("%sof %d pods", text, pods), nil
}
