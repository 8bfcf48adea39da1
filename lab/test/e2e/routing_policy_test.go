package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/load"
)

// nearLabel is the label of the namespaces that the ClusterRoutingPolicy is for.
const nearLabel = "e2e.vicinity.dev/near"

// clusterPolicy has a ClusterRoutingPolicy route the Services of a namespace that has a
// label, but not one that opts out, and no Service once the label is gone.
func clusterPolicy(ctx context.Context, s *scene) (figure string, err error) {
	policy := fmt.Sprintf(`apiVersion: vicinity.dev/v1alpha1
kind: ClusterRoutingPolicy
metadata: {name: %s}
spec: {namespaceSelector: {matchLabels: {%s: "true"}}}
`, s.namespace, nearLabel)
	// It is the whole cluster's, and does not go with the namespace.
	defer func() { err = errors.Join(err, s.Delete(context.WithoutCancel(ctx), "", policy)) }()
	if err := s.deploy(ctx); err != nil {
		return "", err
	}
	if err := s.Apply(ctx, s.namespace, twin("out", "endpointslice.kubernetes.io/same-zone: Balanced")+"---\n"+policy); err != nil {
		return "", err
	}
	if err := s.WaitEndpoints(ctx, s.namespace, "out", echoes); err != nil {
		return "", err
	}
	if err := s.labelNamespace(ctx, `"true"`); err != nil {
		return "", err
	}
	if err := s.followsPolicy(ctx, "echo"); err != nil {
		return "", err
	}
	if err := s.followers(ctx, 1); err != nil {
		return "", err
	}
	out, err := s.optedOut(ctx, "out")
	if err != nil {
		return "", err
	}
	if err := s.stays(ctx); err != nil {
		return "", err
	}
	near, err := s.flawless(ctx, lab.LoadOptions{Plan: lightPlan()})
	if err != nil {
		return "", err
	}
	if near.InZone() < 1 {
		return "", fmt.Errorf("with the label, %.1f %% of traffic stayed in its zone; all should", 100*near.InZone())
	}
	if err := s.labelNamespace(ctx, "null"); err != nil {
		return "", err
	}
	if err := s.WaitHints(ctx, s.namespace, "echo", false); err != nil {
		return "", err
	}
	err = kube.Wait(ctx, "the condition to go with the label", func(ctx context.Context) (string, error) {
		e, err := s.explain(ctx, "echo")
		switch {
		case err != nil:
			return "", err
		case e.ClusterPolicy != "":
			return "explain names ClusterRoutingPolicy " + e.ClusterPolicy, nil
		case e.Condition != nil:
			return fmt.Sprintf("it is %+v", *e.Condition), nil
		}
		return "", nil
	})
	if err != nil {
		return "", err
	}
	if err := s.followers(ctx, 0); err != nil {
		return "", err
	}
	if err := s.allUsed(ctx, echoes); err != nil {
		return "", err
	}
	return fmt.Sprintf("in zone %.1f %% by the namespace's label, %.1f %% of a Service that opts out; without the label no hints, all %d endpoints used from every node",
		100*near.InZone(), 100*out.InZone(), echoes), nil
}

// labelNamespace gives the label of the scene's namespace a value in JSON; null takes it
// away.
func (s *scene) labelNamespace(ctx context.Context, value string) error {
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, nearLabel, value)
	if _, err := s.CoreV1().Namespaces().Patch(ctx, s.namespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("labelling namespace %s: %w", s.namespace, err)
	}
	return nil
}

// followsPolicy waits until a Service that says nothing itself has hints, a condition that
// is true, and the scene's ClusterRoutingPolicy as the reason.
func (s *scene) followsPolicy(ctx context.Context, service string) error {
	if err := s.WaitHints(ctx, s.namespace, service, true); err != nil {
		return err
	}
	return kube.Wait(ctx, service+" to follow the ClusterRoutingPolicy", func(ctx context.Context) (string, error) {
		e, err := s.converged(ctx, service, echoes)
		if err != nil {
			return "", err
		}
		source := fmt.Sprintf("ClusterRoutingPolicy %s by its selector", s.namespace)
		switch {
		case e.ClusterPolicy != s.namespace || e.Source != source:
			return fmt.Sprintf("explain names policy %q and source %q", e.ClusterPolicy, e.Source), nil
		case e.Condition == nil:
			return "it has no condition", nil
		case e.Condition.Status != "True" || e.Condition.Reason != "Allocated" || !strings.HasPrefix(e.Condition.Message, "endpoints are divided among zones by optimal"):
			return fmt.Sprintf("its condition is %+v", *e.Condition), nil
		}
		return "", nil
	})
}

// optedOut sends requests to a Service that says Balanced in a namespace whose Services
// are routed. It has no hints, no condition, and its traffic crosses zones.
func (s *scene) optedOut(ctx context.Context, service string) (load.Result, error) {
	e, err := s.explain(ctx, service)
	if err != nil {
		return load.Result{}, err
	}
	const source = "annotation endpointslice.kubernetes.io/same-zone: Balanced"
	if e.Source != source || e.ClusterPolicy != "" || e.Condition != nil {
		return load.Result{}, fmt.Errorf("%s opts out, but explain says source %q, policy %q, condition %+v", service, e.Source, e.ClusterPolicy, e.Condition)
	}
	hints, err := s.allHints(ctx, service)
	if err != nil {
		return load.Result{}, err
	}
	for address, zones := range hints {
		if zones != "" {
			return load.Result{}, fmt.Errorf("endpoint %s of %s, which opts out, has hints for %s", address, service, zones)
		}
	}
	if err := s.answersOn(ctx, service); err != nil {
		return load.Result{}, err
	}
	job, err := s.planLoadOf(ctx, service, lightPlan())
	if err != nil {
		return load.Result{}, err
	}
	result, err := s.runFlawless(ctx, job, load.Watch{})
	if err == nil && result.InZone() > 0.6 {
		err = fmt.Errorf("%.1f %% of the traffic of %s, which opts out, stayed in its zone; a third should", 100*result.InZone(), service)
	}
	return result, err
}

// answersOn waits until a new Service is known to the proxies of all clients' nodes.
func (s *scene) answersOn(ctx context.Context, service string) error {
	return kube.Wait(ctx, service+" to answer on every node", func(ctx context.Context) (string, error) {
		job, err := s.planLoadOf(ctx, service, load.Plan{Rate: 400, Duration: 250 * time.Millisecond})
		if err != nil {
			return "", err
		}
		result, err := job.Run(ctx, load.Watch{})
		if err != nil {
			return "", err
		}
		return failures(result), nil
	})
}

// followers waits until the status of the scene's ClusterRoutingPolicy counts so many
// Services.
func (s *scene) followers(ctx context.Context, want int) error {
	return kube.Wait(ctx, fmt.Sprintf("%d Services to follow the ClusterRoutingPolicy", want), func(ctx context.Context) (string, error) {
		output, err := s.kubectl(ctx, "", "get", "clusterroutingpolicy", s.namespace, "-o", `jsonpath={.status.services} {.status.conditions[?(@.type=="Accepted")].status}`)
		if err != nil {
			return "", err
		}
		if output != fmt.Sprintf("%d True", want) {
			return fmt.Sprintf("its status says %q", output), nil
		}
		return "", nil
	})
}
