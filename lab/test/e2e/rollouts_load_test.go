package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/load"
	"vicinity.dev/vicinity/lab/test/evictions"
	"vicinity.dev/vicinity/test/kube"
)

// echoSet returns the echo Service with a StatefulSet, two pods in each zone that serve on for
// patientDrain while they end, and a DomainRollout of it.
func echoSet() string {
	text := patientEcho(lab.EchoManifests("echo", 6))
	for _, change := range [][2]string{
		{"kind: Deployment", "kind: StatefulSet"},
		{"  replicas: 6\n", "  replicas: 6\n  serviceName: echo\n  podManagementPolicy: Parallel\n  updateStrategy: {type: OnDelete}\n"},
		{"        matchLabelKeys: [pod-template-hash]\n", ""}, // a field that StatefulSets lack
	} {
		text = strings.ReplaceAll(text, change[0], change[1])
	}
	return text + `---
apiVersion: vicinity.dev/v1alpha1
kind: DomainRollout
metadata: {name: echo}
spec:
  targetRef: {kind: StatefulSet, name: echo}
  topologyKey: topology.kubernetes.io/zone
  maxUnavailable: "100%"
  healthGate: {readyFor: 1s, maxOverload: "60%"}
`
}

// chance is the largest random difference from the plan, in percent: five standard deviations of
// 4,000 requests to four endpoints.
const chance = 15

// updatedUnderLoad updates the pods of a Service that prefers the client's zone, under load. No
// request fails. While a zone is empty, no endpoint has more load than the rollout expected at the
// start of the wave.
func updatedUnderLoad(ctx context.Context, s *scene) (figure string, err error) {
	// Pods on nodes without network cannot send or answer requests.
	var silent []string
	for _, node := range s.cluster.Shape().FakeNodeList() {
		silent = append(silent, node.Name)
	}
	defer undo(&err, func() error { return s.field().SetSchedulable(context.WithoutCancel(ctx), true, silent...) })
	check(s.field().SetSchedulable(ctx, false, silent...))
	check(s.serve(ctx, echoSet(), 6))
	check(s.PatchService(ctx, s.namespace, "echo", preferZone))
	must(s.waitConverged(ctx, "echo", 6))
	r := &rolled{Field: s.field(), kind: ofStatefulSet, name: "echo", pods: 6}
	must(r.waitPhase(ctx, v1alpha1.PhaseComplete))
	o := must(r.observe(ctx))
	defer o.stop()
	job := must(s.planLoad(ctx, lab.LoadOptions{Plan: load.Plan{Rate: 200, Duration: longest}}))
	flow, stop := context.WithCancel(ctx)
	defer stop()
	sending := start(flow, job, nil)
	measured, err := s.overloads(ctx, r)
	all, failed := sending.end()
	check(errors.Join(err, failed))
	if all.Failed() > 0 || unsent(all) != "" {
		return "", errors.New(failures(all))
	}
	check(o.since().within(2, r.Zones()...))
	d := must(r.rollout(ctx, "echo"))
	var figures []string
	for _, zone := range r.Zones() {
		expected := must(expectedOverload(d, zone))
		if measured[zone] > expected+chance {
			return "", fmt.Errorf("an endpoint had %.0f %% more than the even share while %s was empty, and %.0f %% was expected", measured[zone], zone, expected)
		}
		figures = append(figures, fmt.Sprintf("%.0f of %.0f %%", measured[zone], expected))
	}
	return fmt.Sprintf("3 zones updated, %d requests, 0 failed; overload with each zone empty, of the expected: %s", all.Answered, strings.Join(figures, ", ")), nil
}

// expectedOverload returns the overload in percent that was expected at the start of a zone's last
// wave.
func expectedOverload(d *v1alpha1.DomainRollout, zone string) (percent float64, err error) {
	history := d.Status.History
	for i := len(history) - 1; i >= 0; i-- {
		if history[i].Event != "WaveBegan" || !slices.Equal(history[i].Domains, []string{zone}) {
			continue
		}
		if _, text, found := strings.Cut(history[i].Message, "; "); found {
			if _, err = fmt.Sscanf(text, "expected overload %g%%", &percent); err == nil {
				return percent, nil
			}
		}
		return 0, fmt.Errorf("the history has no expected overload of %s: %q", zone, history[i].Message)
	}
	return 0, fmt.Errorf("the history has no wave of %s: %v", zone, history)
}

// overloads updates the pods, and measures the highest overload of endpoints in percent while each
// zone is empty.
func (s *scene) overloads(ctx context.Context, r *rolled) (measured map[string]float64, err error) {
	// The delay keeps each zone empty long enough for a measurement.
	const patch = `{"spec":{"template":{"metadata":{"labels":{"version":"2"}},"spec":{"containers":[{"name":"echo","readinessProbe":{"initialDelaySeconds":4}}]}}}}`
	if _, err := s.AppsV1().StatefulSets(s.namespace).Patch(ctx, "echo", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		return nil, err
	}
	domains := evictions.Domains(r.Shape)
	measured = map[string]float64{}
	for _, zone := range r.Zones() {
		err := kube.Wait(ctx, "a measurement while "+zone+" is empty", func(ctx context.Context) (string, error) {
			pods, err := r.Pods(ctx, "echo", "")
			if err != nil {
				return "", err
			}
			byZone := map[string]int{}
			for i := range pods {
				byZone[domains[pods[i].Spec.NodeName]]++
			}
			if byZone[zone] > 0 {
				return fmt.Sprintf("it has %d pods", byZone[zone]), nil
			}
			e, err := s.waitConverged(ctx, "echo", 4)
			if err != nil {
				return "", err
			}
			result, err := s.load(ctx, lab.LoadOptions{Plan: load.Plan{Rate: 4000, Duration: time.Second}})
			if err != nil {
				return "", err
			}
			overload, endpoints := measuredOverload(e, result)
			if endpoints != 4 {
				return fmt.Sprintf("%d endpoints answer, want 4", endpoints), nil
			}
			measured[zone] = overload
			return "", nil
		})
		if err != nil {
			return nil, err
		}
	}
	return measured, r.waitComplete(ctx, "2")
}

// sharesOf returns the shares of the traffic that pods get if all zones send the traffic of the plan:
// in a measurement, zones do not send equal amounts.
func sharesOf(e explained, result load.Result) map[string]float64 {
	sent, shares := map[string]float64{}, map[string]float64{}
	for _, flow := range result.Flows {
		sent[flow.Zone] += float64(flow.Answers)
	}
	for _, zone := range e.Families[0].Zones {
		for _, flow := range result.Flows {
			if flow.Zone == zone.Zone {
				shares[flow.To.Pod] += zone.Traffic / 100 * float64(flow.Answers) / sent[flow.Zone]
			}
		}
	}
	return shares
}

// measuredOverload returns by how many percent the busiest endpoint exceeds the even share. It also
// returns how many endpoints answered.
func measuredOverload(e explained, result load.Result) (overload float64, endpoints int) {
	shares := sharesOf(e, result)
	for _, share := range shares {
		overload = max(overload, 100*(share*float64(len(shares))-1))
	}
	return overload, len(shares)
}
