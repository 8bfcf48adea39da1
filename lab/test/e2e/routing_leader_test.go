package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/load"
)

// leads waits until one of the controllers that run now leads.
func (s *scene) leads(ctx context.Context) error {
	return kube.Wait(ctx, "a controller to lead", func(ctx context.Context) (string, error) {
		leader, err := s.leader(ctx)
		if err != nil || leader != "" {
			return "", err
		}
		return "no lease is held by a pod that runs", nil
	})
}

// leader is the pod that leads of the controllers that run now, if one does.
func (s *scene) leader(ctx context.Context) (string, error) {
	pods, err := controllers(ctx, s.Client)
	if err != nil {
		return "", err
	}
	leases, err := s.CoordinationV1().Leases(vicinityNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	for i := range leases.Items {
		holder := leases.Items[i].Spec.HolderIdentity
		for j := range pods {
			if holder != nil && strings.HasPrefix(*holder, pods[j].Name+"_") {
				return pods[j].Name, nil
			}
		}
	}
	return "", nil
}

// leaderChanged kills the controller that leads, and no other, while connections are made
// to a Service whose pods come and go. The other takes over: nothing of a Service that is
// at rest is written, no connection fails, and the next change is planned.
func leaderChanged(ctx context.Context, s *scene) (figure string, err error) {
	if err := s.Apply(ctx, s.namespace, lab.EchoManifests("calm", 12)); err != nil {
		return "", err
	}
	if err := s.serve(ctx, patientEcho(lab.EchoManifests("echo", 12)), 12); err != nil {
		return "", err
	}
	for _, service := range []string{"echo", "calm"} {
		if err := s.PatchService(ctx, s.namespace, service, preferZone); err != nil {
			return "", err
		}
	}
	for _, service := range []string{"echo", "calm"} {
		if _, err := s.converged(ctx, service, 12); err != nil {
			return "", err
		}
	}
	l, err := s.watchSlices(ctx)
	if err != nil {
		return "", err
	}
	defer l.end()
	for _, service := range []string{"echo", "calm"} {
		if err := l.quiet(ctx, service); err != nil {
			return "", err
		}
	}
	before, err := s.allHints(ctx, "calm")
	if err != nil {
		return "", err
	}
	written := l.count("calm")
	defer func() {
		ctx := context.WithoutCancel(ctx)
		err = errors.Join(err, s.Delete(ctx, vicinityNamespace, noMorePods), s.vicinityWorks(ctx))
	}()
	o := lab.LoadOptions{Plan: load.Plan{Rate: 300}}
	var change leaderChange
	result, err := s.during(ctx, o, func(ctx context.Context) error {
		// The pod that would take the place of the one that is killed would want to lead, too.
		if err := s.Apply(ctx, vicinityNamespace, noMorePods); err != nil {
			return err
		}
		var err error
		if change, err = s.changeLeader(ctx); err != nil {
			return err
		}
		if _, err := s.converged(ctx, "echo", 12); err != nil {
			return err
		}
		return s.haveGone(ctx)
	})
	if err != nil {
		return "", err
	}
	if err := l.quiet(ctx, "calm"); err != nil {
		return "", err
	}
	after, err := s.allHints(ctx, "calm")
	if err != nil {
		return "", err
	}
	if events := l.count("calm") - written; events > 0 || !maps.Equal(before, after) {
		return "", fmt.Errorf("the change wrote slices of a Service at rest %d times: hints were %v and are %v", events, before, after)
	}
	if err := s.scale(ctx, "calm", 15); err != nil {
		return "", err
	}
	if _, err := s.converged(ctx, "calm", 15); err != nil {
		return "", err
	}
	if hinted, err := s.hinted(ctx, "calm"); err != nil || !hinted {
		return "", errors.Join(err, errors.New("after the change new endpoints have no hints"))
	}
	l.end()
	return fmt.Sprintf("the other leads after %.1f s, in which %d pods were replaced: %d connections, 0 failed; of a Service at rest no slice written and no endpoint moved, and its next change planned (%d endpoints that stayed moved where pods did not)",
		change.took.Seconds(), change.replaced, result.Answered, l.moves["echo"]), nil
}

// noMorePods keeps pods from being made in the namespace that it is in.
const noMorePods = `apiVersion: v1
kind: ResourceQuota
metadata: {name: no-more-pods}
spec: {hard: {pods: "0"}}
`

// leaderChange is what happened while another controller came to lead.
type leaderChange struct {
	took     time.Duration
	replaced int // pods
}

// changeLeader kills the pod that leads, and replaces echo pods one by one until the
// other leads.
func (s *scene) changeLeader(ctx context.Context) (leaderChange, error) {
	change := leaderChange{}
	first, err := s.leader(ctx)
	if err != nil {
		return change, err
	}
	pods, err := controllers(ctx, s.Client)
	if err != nil {
		return change, err
	}
	if first == "" || len(pods) != 2 {
		return change, fmt.Errorf("of pods %q, %q leads; want two, one of which does", names(pods), first)
	}
	begun := time.Now()
	if err := s.CoreV1().Pods(vicinityNamespace).Delete(ctx, first, atOnce()); err != nil {
		return change, err
	}
	for leader := ""; leader == ""; change.replaced++ {
		if err := s.deletePod(ctx, change.replaced, metav1.DeleteOptions{}); err != nil {
			return change, err
		}
		if err := s.WaitEndpoints(ctx, s.namespace, "echo", 12); err != nil {
			return change, err
		}
		if leader, err = s.leader(ctx); err != nil {
			return change, err
		}
		if leader != "" && !slices.Contains(names(pods), leader) {
			return change, fmt.Errorf("%s leads, and was none of %q", leader, names(pods))
		}
	}
	change.took = time.Since(begun)
	return change, nil
}
