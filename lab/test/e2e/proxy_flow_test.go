package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/load"
)

// proxyFlow takes the endpoints of a zone away, and measures before and after it that each zone
// sends to others what the weights say, within chance. No connection is lost meanwhile. In the long
// form they come back, and then zones share two endpoints.
func proxyFlow(ctx context.Context, s *scene) (string, error) {
	if err := s.routeZones(ctx, patientEcho, annotated("vicinity.dev/proxy", "true", zoneAnnotation, "Prefer"), 6, 4, 2); err != nil {
		return "", err
	}
	if err := s.servedBy(ctx, "echo", true); err != nil {
		return "", err
	}
	far, answered := 0.0, uint64(0)
	reshape := func(ctx context.Context, numbers ...int) error {
		off, n, err := s.reshaped(ctx, numbers...)
		if err != nil {
			return fmt.Errorf("with %d endpoints: %w", numbers, err)
		}
		far, answered = max(far, off), answered+n
		return nil
	}
	steps := [][]int{{6, 4, 2}, {6, 4, 0}}
	if soaking() {
		steps = append(steps, []int{6, 4, 2}, []int{1, 1, 0})
	}
	u, err := s.unharmed(ctx, func(ctx context.Context, _ *traffic) error {
		for _, numbers := range steps {
			if err := reshape(ctx, numbers...); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d endpoints in 3 zones: shares at most %.1f points from the plan over %d connections; while weights changed: %s",
		steps, far, answered, u), nil
}

// reshaped gives the zones so many endpoints, waits until traffic follows the plan, and
// measures by how many points it is off.
func (s *scene) reshaped(ctx context.Context, numbers ...int) (far float64, answered uint64, err error) {
	all := 0
	for i, zone := range s.inhabited() {
		if err := s.scale(ctx, "echo-"+zone.Name, int32(numbers[i])); err != nil {
			return 0, 0, err
		}
		all += numbers[i]
	}
	if _, err := s.converged(ctx, "echo", all); err != nil {
		return 0, 0, err
	}
	want, _, err := s.plannedShares(ctx)
	if err != nil {
		return 0, 0, err
	}
	// The zones have as many nodes each, so what they keep is known without the plan.
	zones := s.inhabited()
	even := float64(all) / float64(len(zones))
	for i, zone := range zones {
		own := min(1, float64(numbers[i])/even)
		if p := points(want[[2]string{zone.Name, zone.Name}], own); p > 1 {
			return 0, 0, fmt.Errorf("the plan keeps %.1f %% of the traffic of %s, %.1f %% could stay", 100*want[[2]string{zone.Name, zone.Name}], zone.Name, 100*own)
		}
	}
	if err := s.followsPlan(ctx, want); err != nil {
		return 0, 0, err
	}
	// Zones keep for a while what a change takes from them.
	err = kube.Wait(ctx, "no zone to leave a group", func(ctx context.Context) (string, error) {
		groups, err := s.groupsOf(ctx, "echo")
		for i := range groups {
			if strings.Contains(groups[i].Annotations["vicinity.dev/marks"], `"leaving"`) {
				return groups[i].Name + " has one", err
			}
		}
		return "", err
	})
	if err != nil {
		return 0, 0, err
	}
	result, err := s.flawless(ctx, lab.LoadOptions{Plan: load.Plan{Rate: 4000, Duration: 2 * time.Second}})
	if err != nil {
		return 0, 0, err
	}
	chance, err := byChance(result)
	if err != nil {
		return 0, 0, err
	}
	far, where := farthest(result, want)
	if most := max(2, chance); far > most {
		return 0, 0, fmt.Errorf("%s; at most %.1f points are allowed", where, most)
	}
	return far, uint64(result.Answered), nil
}
