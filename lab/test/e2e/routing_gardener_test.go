package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/load"
)

// ownZone labels a Service as users of Gardener do. Each of 3, 1 and no endpoints is hinted to its own zone, whatever
// load that gives it; clients of the zone without endpoints use all. Without the label the hints go.
func ownZone(ctx context.Context, s *scene) (string, error) {
	zones := s.cluster.Shape().Zones
	empty := zones[2].Name
	if err := s.serve(ctx, lab.UnevenEchoManifests("echo", map[string]int{zones[0].Name: 3, zones[1].Name: 1, empty: 0}), 4); err != nil {
		return "", err
	}
	label := func(value string) error {
		return s.PatchService(ctx, s.namespace, "echo", fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, v1alpha1.LabelOwnZone, value))
	}
	if err := label(`"true"`); err != nil {
		return "", err
	}
	if err := s.hintedToOwnZone(ctx); err != nil {
		return "", err
	}
	plan := lab.LoadOptions{Plan: load.Plan{Rate: 600, Duration: time.Second}}
	err := kube.Wait(ctx, "traffic to follow the hints", func(ctx context.Context) (string, error) {
		result, err := s.load(ctx, plan)
		if err != nil {
			return "", err
		}
		if off := leavesZone(result, empty, 4); off != "" {
			return off, nil
		}
		return failures(result), nil
	})
	if err != nil {
		return "", err
	}
	result, err := s.flawless(ctx, plan)
	if err != nil {
		return "", err
	}
	if off := leavesZone(result, empty, 4); off != "" {
		return "", errors.New(off)
	}
	if err := label("null"); err != nil {
		return "", err
	}
	if err := s.WaitHints(ctx, s.namespace, "echo", false); err != nil {
		return "", err
	}
	return fmt.Sprintf("3, 1 and 0 endpoints, each hinted to its own zone: of %d requests those of a zone with endpoints stayed in it, those of %s used all; 0 failed; without the label no hints",
		result.Answered, empty), nil
}

// hintedToOwnZone waits until each endpoint of the echo Service has a hint for its own zone and no other.
func (s *scene) hintedToOwnZone(ctx context.Context) error {
	return kube.Wait(ctx, "hints for the endpoints' own zones", func(ctx context.Context) (string, error) {
		endpoints, err := s.Endpoints(ctx, s.namespace, "echo", discoveryv1.AddressTypeIPv4)
		if err != nil {
			return "", err
		}
		for address, e := range endpoints {
			if e.Hints == nil || e.Zone == nil || !slices.Equal(e.Hints.ForZones, []discoveryv1.ForZone{{Name: *e.Zone}}) {
				return fmt.Sprintf("%s has %v", address, e.Hints), nil
			}
		}
		return "", nil
	})
}

// leavesZone says which zone's clients are answered from another one, or that those of the empty zone do not use all
// endpoints.
func leavesZone(result load.Result, empty string, endpoints int) string {
	used := map[string]map[string]bool{} // endpoints, by the nodes of the empty zone
	for _, flow := range result.Flows {
		if flow.Zone != empty {
			if flow.To.Zone != flow.Zone {
				return fmt.Sprintf("%s is answered from %s", flow.Zone, flow.To.Zone)
			}
			continue
		}
		if used[flow.Node] == nil {
			used[flow.Node] = map[string]bool{}
		}
		used[flow.Node][flow.To.Pod] = true
	}
	for node, pods := range used {
		if len(pods) < endpoints {
			return fmt.Sprintf("%s uses %d endpoints of %d", node, len(pods), endpoints)
		}
	}
	if len(used) == 0 {
		return "no client of " + empty + " is answered"
	}
	return ""
}
