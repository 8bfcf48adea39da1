package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/test/evictions"
	"vicinity.dev/vicinity/test/kube"
)

const (
	// After the loss of a node, evictions are requested for lossAsks, one every askEvery.
	lossAsks = 60 * time.Second
	askEvery = 250 * time.Millisecond
	// lossHurts is how long they may fail. Kubernetes takes 50 s to notice the loss and to remove
	// the endpoint from the Service.
	lossHurts = 55 * time.Second
)

// evictionsWithoutAReplica stops a node with one of two replicas of the controller, and then with
// one of three. Its lab notices a lost node as late as Kubernetes does by default.
func evictionsWithoutAReplica(ctx context.Context, s *scene) (figure string, err error) {
	wanted := fleet.shape()
	wanted.Name = fmt.Sprintf("replicas-%d", os.Getpid())
	second := func(n int) shape.Duration { return shape.Duration{Duration: time.Duration(n) * time.Second} }
	wanted.Timing = shape.Timing{
		LeaseDuration: second(40), LeaseRenewal: second(10), MonitorPeriod: second(5), MonitorGrace: second(50), Toleration: second(300),
	}
	cluster := must(lab.Up(ctx, wanted, s.options))
	defer undo(&err, func() error { return cluster.Down(context.WithoutCancel(ctx)) })
	check(cluster.InstallVicinity(ctx, "disruption.enabled=true"))
	client := must(cluster.Client())
	own := &scene{Client: client, cluster: cluster, namespace: metav1.NamespaceDefault, options: s.options}
	f := own.field()
	held := evictions.Workload{Name: "held", Replicas: 9}
	check(f.Run(ctx, evictions.ByZone("held", "app", "held", "maxUnavailable: 1"), held))
	var figures []string
	for _, replicas := range []int{2, 3} {
		check(own.hasReplicas(ctx, replicas))
		lost, err := own.loseReplica(ctx, f, held)
		if err != nil {
			return "", fmt.Errorf("with %d replicas: %w", replicas, err)
		}
		figures = append(figures, fmt.Sprintf("with %d replicas %s", replicas, lost))
	}
	return strings.Join(figures, "; "), nil
}

// hasReplicas scales the controller and waits for its replicas.
func (s *scene) hasReplicas(ctx context.Context, replicas int) error {
	if err := s.cluster.ChangeVicinity(ctx, fmt.Sprintf("replicas=%d", replicas)); err != nil {
		return err
	}
	return kube.Wait(ctx, fmt.Sprintf("%d replicas of the controller", replicas), func(ctx context.Context) (string, error) {
		pods, err := controllers(ctx, s.Client)
		if len(pods) != replicas {
			return fmt.Sprintf("%d are ready", len(pods)), err
		}
		return "", err
	})
}

// loseReplica stops the node of a replica, and requests evictions meanwhile.
func (s *scene) loseReplica(ctx context.Context, f *evictions.Field, held evictions.Workload) (figure string, err error) {
	replicas, err := controllers(ctx, s.Client)
	if err != nil {
		return "", err
	}
	pods, err := f.Pods(ctx, held.Name, "")
	if err != nil {
		return "", err
	}
	node := replicas[0].Spec.NodeName
	if err := s.cluster.StopNode(ctx, node); err != nil {
		return "", err
	}
	seen := askMeanwhile(ctx, f, pods[0].Name)
	if err := errors.Join(seen.err, s.cluster.StartNode(ctx, node), s.waitControllers(ctx)); err != nil {
		return "", err
	}
	// Requests are spread at random, so each replica gets the same share.
	if share := seen.failed * len(replicas); share == 0 || 10*share > 11*seen.asked {
		return "", fmt.Errorf("%d of %d evictions failed, such as %q; want some, and at most the share of one of %d replicas", seen.failed, seen.asked, seen.example, len(replicas))
	}
	if seen.last > lossHurts {
		return "", fmt.Errorf("evictions failed until %.1f s after the loss: %s", seen.last.Seconds(), seen.example)
	}
	return fmt.Sprintf("%d of %d evictions in %.0f s failed, the last after %.1f s", seen.failed, seen.asked, lossAsks.Seconds(), seen.last.Seconds()), nil
}

// losses has the outcome of the requested evictions.
type losses struct {
	asked, failed int
	last          time.Duration // when the last failed one was requested
	example       string
	err           error
}

// askMeanwhile keeps requesting the eviction of a pod as dry runs, without waiting for answers.
func askMeanwhile(ctx context.Context, f *evictions.Field, pod string) losses {
	var mu sync.Mutex
	var asks sync.WaitGroup
	var seen losses
	begun := time.Now()
	for ticker := time.NewTicker(askEvery); time.Since(begun) < lossAsks; <-ticker.C {
		if ctx.Err() != nil {
			seen.err = ctx.Err()
			break
		}
		at := time.Since(begun)
		seen.asked++
		asks.Go(func() {
			err := f.Evict(ctx, pod, &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil || apierrors.IsTooManyRequests(err) {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			seen.failed++
			seen.last, seen.example = max(seen.last, at), err.Error()
		})
	}
	asks.Wait()
	return seen
}
