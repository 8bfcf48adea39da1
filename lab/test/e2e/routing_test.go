package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/load"
	"vicinity.dev/vicinity/test/kube"
)

// routingArea covers topology-aware routing by the controller, with hints for stock proxies.
func routingArea() area {
	return area{
		name:  "routing",
		setup: zones,
		promises: []promise{
			{name: "prefer", keep: preferNear, within: 5 * time.Minute, beside: true, tier: inTest},
			{name: "nodes-within-the-bound", keep: nodesWithinTheBound(byHints), within: 4 * time.Minute, beside: true},
			{name: "nearest-region", keep: nearestRegion, within: 5 * time.Minute, beside: true},
			{name: "thresholds", keep: thresholds, within: 8 * time.Minute, beside: true, tier: inTest},
			{name: "gardener", keep: ownZone, beside: true, tier: inTest},
			{name: "rolling-update", keep: rollingUpdate, within: 6 * time.Minute, beside: true, tier: inTest},
			{name: "uneven", keep: uneven, tier: inTest},
			{name: "live-switch", keep: liveSwitch},
			{name: "churn", keep: churn, within: 40 * time.Minute},
			{name: "controller-killed", keep: controllerKilled, within: 4 * time.Minute, tier: inTest},
			{name: "webhook-away", keep: webhookAway, within: 4 * time.Minute, tier: inTest},
			{name: "bad-input", keep: badInput},
			{name: "auto-safeguards", keep: autoSafeguards, within: 6 * time.Minute},
			{name: "documentation", keep: documentation("docs/routing.md"), within: 8 * time.Minute, alone: true, tier: inTest},
		},
	}
}

var preferZone, balancedZone = annotated(zoneAnnotation, "Prefer"), annotated(zoneAnnotation, "Balanced")

// explained has the parts of "vicinity explain -o json" that promises check.
type explained struct {
	Source        string
	ClusterPolicy string
	Written       *bool
	Pending       []string
	Warnings      []string
	Condition     *struct{ Status, Reason, Message string }
	Families      []struct {
		Family   string
		State    string
		Expected struct{ InZone, MaxOverload float64 }
		Zones    []struct {
			Zone    string
			Traffic float64
		}
		Endpoints map[string][]string
		Plan      struct {
			Groups []struct {
				Members []struct {
					Zone      string
					Endpoints int
				}
				Consumers []struct {
					Zone   string
					Weight float64
				}
			}
		}
	}
}

// vicinity runs the command line as a user does.
func (s *scene) vicinity(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(root, "bin", "vicinity"), append(args, "--kubeconfig", s.cluster.Kubeconfig())...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("vicinity %s: %w: %s", strings.Join(args, " "), err, &complaint)
	}
	return output, nil
}

func (s *scene) explain(ctx context.Context, service string) (explained, error) {
	output, err := s.vicinity(ctx, "explain", "svc/"+service, "-n", s.namespace, "-o", "json")
	if err != nil {
		return explained{}, err
	}
	var e explained
	if err := json.Unmarshal(output, &e); err != nil {
		return e, fmt.Errorf("reading the output of explain: %w", err)
	}
	return e, nil
}

// waitConverged waits until the slices contain the plan for the current endpoints, and as many
// endpoints as wanted are ready.
func (s *scene) waitConverged(ctx context.Context, service string, endpoints int) (e explained, err error) {
	if err := s.WaitEndpoints(ctx, s.namespace, service, endpoints); err != nil {
		return e, err
	}
	err = kube.Wait(ctx, "the plan to be written", func(ctx context.Context) (string, error) {
		if e, err = s.explain(ctx, service); err != nil {
			return "", err
		}
		switch {
		case len(e.Families) == 0:
			return "explain knows no address family of the Service", nil
		case e.Written != nil && !*e.Written:
			return "pending: " + strings.Join(e.Pending, ", "), nil
		}
		return "", nil
	})
	return e, err
}

// waitWarning waits for a warning of explain and, if given, a text in the Service's condition.
func (s *scene) waitWarning(ctx context.Context, service, warning, condition string) error {
	return kube.Wait(ctx, "the warning about "+service, func(ctx context.Context) (string, error) {
		e, err := s.explain(ctx, service)
		if err != nil {
			return "", err
		}
		if !strings.Contains(strings.Join(e.Warnings, "; "), warning) {
			return fmt.Sprintf("explain warns %q, want %q", e.Warnings, warning), nil
		}
		if condition != "" && (e.Condition == nil || !strings.Contains(e.Condition.Message, condition)) {
			return fmt.Sprintf("the condition is %+v, want %q", e.Condition, condition), nil
		}
		return "", nil
	})
}

// route runs an echo Service with so many endpoints, and clients, and patches the Service.
func (s *scene) route(ctx context.Context, endpoints int, patch string) error {
	if err := s.serve(ctx, lab.EchoManifests("echo", endpoints), endpoints); err != nil {
		return err
	}
	return s.PatchService(ctx, s.namespace, "echo", patch)
}

// preferNear measures a Service of twelve endpoints before and after it prefers its zone.
func preferNear(ctx context.Context, s *scene) (string, error) {
	check(s.route(ctx, 12, balancedZone))
	check(s.waitAllUsed(ctx, 12))
	before := must(s.flawless(ctx, lab.LoadOptions{Plan: heavyPlan()}))
	if points(before.InZone(), 1.0/3) > 5 {
		return "", fmt.Errorf("balanced, %.1f %% of traffic stayed in its zone, want a third", 100*before.InZone())
	}
	check(s.PatchService(ctx, s.namespace, "echo", preferZone))
	must(s.waitConverged(ctx, "echo", 12))
	check(s.waitInZone(ctx))
	after := must(s.flawless(ctx, lab.LoadOptions{Plan: heavyPlan()}))
	if after.InZone() < 1 {
		return "", fmt.Errorf("%.2f %% of traffic stayed in its zone, want all", 100*after.InZone())
	}
	return fmt.Sprintf("in zone %.1f %% before, %.1f %% after, %d requests, 0 failed",
		100*before.InZone(), 100*after.InZone(), before.Answered+after.Answered), nil
}

// routeUneven runs an echo Service with a different number of endpoints in each zone, and clients,
// and patches the Service.
func (s *scene) routeUneven(ctx context.Context, patch string, numbers ...int) error {
	inZones, all := map[string]int{}, 0
	for i, zone := range s.cluster.Shape().Zones {
		inZones[zone.Name] = numbers[i]
		all += numbers[i]
	}
	if err := s.serve(ctx, lab.UnevenEchoManifests("echo", inZones), all); err != nil {
		return err
	}
	return s.PatchService(ctx, s.namespace, "echo", patch)
}

// predictedLoads returns the loads of endpoints relative to the even share, by address, as the
// zones that use them imply.
func predictedLoads(e explained) map[string]float64 {
	family := e.Families[0]
	uses := map[string]int{} // endpoints, by the zone that uses them
	for _, zones := range family.Endpoints {
		for _, zone := range zones {
			uses[zone]++
		}
	}
	loads := map[string]float64{}
	for address, zones := range family.Endpoints {
		for _, zone := range family.Zones {
			if slices.Contains(zones, zone.Zone) {
				loads[address] += zone.Traffic / 100 / float64(uses[zone.Zone]) * float64(len(family.Endpoints))
			}
		}
	}
	return loads
}

// addresses returns the addresses of the echo pods, by name.
func (s *scene) addresses(ctx context.Context) (map[string]string, error) {
	list, err := s.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=echo"})
	if err != nil {
		return nil, err
	}
	addresses := map[string]string{}
	for i := range list.Items {
		addresses[list.Items[i].Name] = list.Items[i].Status.PodIP
	}
	return addresses, nil
}

// uneven has six, four and two endpoints in three equal zones. The measured loads are those
// predicted, and no endpoint is overloaded.
func uneven(ctx context.Context, s *scene) (string, error) {
	check(s.routeUneven(ctx, preferZone, 6, 4, 2))
	e := must(s.waitConverged(ctx, "echo", 12))
	addresses := must(s.addresses(ctx))
	usable := func(result load.Result) string {
		for _, flow := range result.Flows {
			if !slices.Contains(e.Families[0].Endpoints[addresses[flow.To.Pod]], flow.Zone) {
				return fmt.Sprintf("%s was answered by %s, which the plan does not give it", flow.Zone, flow.To.Pod)
			}
		}
		return ""
	}
	// A node's proxy has the whole plan when its clients use exactly the endpoints that they may
	// use.
	check(kube.Wait(ctx, "traffic to follow the plan", func(ctx context.Context) (string, error) {
		result, err := s.load(ctx, lab.LoadOptions{Plan: load.Plan{Rate: 1000, Duration: time.Second}})
		if err != nil {
			return "", err
		}
		used, zones := map[string]int{}, map[string]string{}
		for _, flow := range result.Flows {
			used[flow.Node]++
			zones[flow.Node] = flow.Zone
		}
		for node, number := range used {
			allowed := 0
			for _, forZones := range e.Families[0].Endpoints {
				if slices.Contains(forZones, zones[node]) {
					allowed++
				}
			}
			if number < allowed {
				return fmt.Sprintf("%s uses %d of %d endpoints", node, number, allowed), nil
			}
		}
		return usable(result), nil
	}))
	result := must(s.flawless(ctx, lab.LoadOptions{Plan: load.Plan{Rate: 4000, Duration: 3 * time.Second}}))
	if text := usable(result); text != "" {
		return "", errors.New(text)
	}
	expected := e.Families[0].Expected
	if points(result.InZone(), expected.InZone/100) > 5 {
		return "", fmt.Errorf("%.1f %% of traffic stayed in its zone; explain predicts %.1f %%", 100*result.InZone(), expected.InZone)
	}
	shares := map[string]float64{}
	for pod, share := range sharesOf(e, result) {
		shares[addresses[pod]] = share
	}
	// Endpoints that the same zones use have the same load, except for chance. Chance is smaller
	// for all of them together.
	loads := predictedLoads(e)
	highest := 0.0
	measured, predicted, members := map[string]float64{}, map[string]float64{}, map[string]float64{}
	for address, zones := range e.Families[0].Endpoints {
		share, set := shares[address]*float64(len(loads)), strings.Join(zones, ",")
		highest = max(highest, share)
		measured[set] += share
		predicted[set] += loads[address]
		members[set]++
	}
	furthest := 0.0
	for set, n := range members {
		furthest = max(furthest, points(measured[set]/n, predicted[set]/n))
	}
	const most = 12 // five standard deviations of two endpoints' load
	if highest-1 >= 0.5 || furthest > most {
		return "", fmt.Errorf("the highest load is %.0f %% of the even share, and loads are up to %.1f points from what explain predicts; want less than 150 %% and at most %d",
			100*highest, furthest, most)
	}
	return fmt.Sprintf("6, 4 and 2 endpoints: in zone %.1f %% (predicted %.1f %%), highest load %.0f %% of the even share (predicted %.0f %%), loads at most %.1f points from the prediction",
		100*result.InZone(), expected.InZone, 100*highest, 100+expected.MaxOverload, furthest), nil
}

// nearestRegion sends the clients of a zone without endpoints to those of its region, by hints
// alone.
func nearestRegion(ctx context.Context, s *scene) (string, error) {
	const keys = `{"metadata":{"annotations":{"vicinity.dev/topology-keys":"topology.kubernetes.io/zone,topology.kubernetes.io/region,*"}}}`
	check(s.routeUneven(ctx, keys, 0, 4, 4))
	must(s.waitConverged(ctx, "echo", 8))
	check(s.waitSettled(ctx))
	zones := s.cluster.Shape().Zones
	empty, near := zones[0].Name, zones[1].Name // both in the west
	var result load.Result
	check(kube.Wait(ctx, "traffic to stay in its region", func(ctx context.Context) (string, error) {
		var err error
		result, err = s.flawless(ctx, lab.LoadOptions{Plan: load.Plan{Rate: 600, Duration: time.Second}})
		if err != nil {
			return "", err
		}
		for _, flow := range result.Flows {
			if flow.Zone == empty && flow.To.Zone != near || flow.Zone != empty && flow.Zone != flow.To.Zone {
				return fmt.Sprintf("%s is answered by %s", flow.Zone, flow.To.Zone), nil
			}
		}
		return "", nil
	}))
	return fmt.Sprintf("%s without endpoints is served by %s of its region, the others by themselves; %d requests", empty, near, result.Answered), nil
}

// liveSwitch switches a Service from balanced to near and back under load.
func liveSwitch(ctx context.Context, s *scene) (string, error) {
	check(s.route(ctx, 12, balancedZone))
	const switches = 4
	o := lab.LoadOptions{Plan: load.Plan{Rate: 500}}
	result := must(s.during(ctx, o, func(ctx context.Context) error {
		for i := range switches {
			patch, near := preferZone, true
			if i%2 == 1 {
				patch, near = balancedZone, false
			}
			if err := s.PatchService(ctx, s.namespace, "echo", patch); err != nil {
				return err
			}
			if err := s.WaitHints(ctx, s.namespace, "echo", near); err != nil {
				return err
			}
		}
		return s.waitAllUsed(ctx, 12) // the proxies have followed the last switch
	}))
	return fmt.Sprintf("switched %d times under load; %d connections, 0 failed", switches, result.Answered), nil
}

// localPolicy is a policy of the algorithm local, with the thresholds of the proposal.
const localPolicy = "apiVersion: vicinity.dev/v1alpha1\nkind: RoutingPolicy\nmetadata: {name: local}\nspec: {algorithm: local}\n"

// thresholds has a policy that bounds Prefer. It walks through the states of starting threshold 9
// and padding 3: on from 12, off at 6, and unchanged in between. These are the rules of the
// algorithm local.
func thresholds(ctx context.Context, s *scene) (string, error) {
	const policy = "apiVersion: vicinity.dev/v1alpha1\nkind: RoutingPolicy\nmetadata: {name: local}\nspec: {selector: {}, algorithm: local}\n"
	const source = "annotation endpointslice.kubernetes.io/same-zone: Prefer, bounded by RoutingPolicy local by its selector"
	check(s.Apply(ctx, s.namespace, policy))
	check(s.route(ctx, 11, preferZone))
	steps := []struct {
		endpoints int
		hinted    bool
	}{{11, false}, {12, true}, {7, true}, {6, false}, {11, false}}
	var walked []string
	for _, step := range steps {
		check(s.scale(ctx, "echo", int32(step.endpoints)))
		e := must(s.waitConverged(ctx, "echo", step.endpoints))
		if e.Source != source {
			return "", fmt.Errorf("explain says %q, want %q", e.Source, source)
		}
		if hinted, err := s.hinted(ctx, "echo"); err != nil || hinted != step.hinted {
			return "", errors.Join(err, fmt.Errorf("after %s, with %d endpoints, hints exist: %t; want %t (state %s)",
				strings.Join(walked, " "), step.endpoints, hinted, step.hinted, e.Families[0].State))
		}
		walked = append(walked, fmt.Sprintf("%d:%s", step.endpoints, map[bool]string{true: "near", false: "balanced"}[step.hinted]))
	}
	return strings.Join(walked, " "), nil
}

// hinted reports whether all endpoints of a Service have hints for zones.
func (s *scene) hinted(ctx context.Context, service string) (bool, error) {
	endpoints, err := s.Endpoints(ctx, s.namespace, service, discoveryv1.AddressTypeIPv4)
	if err != nil {
		return false, err
	}
	for _, endpoint := range endpoints {
		if endpoint.Hints == nil || len(endpoint.Hints.ForZones) == 0 {
			return false, nil
		}
	}
	return len(endpoints) > 0, nil
}
