package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption/coverage"
	"vicinity.dev/vicinity/internal/disruption/requester"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/scaledown/spread"
)

const (
	// quietTime is how long the pods of a Deployment must stay the same before each eviction.
	quietTime = 30 * time.Second
	// repairAgain is the wait after a pending or denied eviction.
	repairAgain = 15 * time.Second
	// After an eviction that did not improve the spread, the next one waits.
	repairBackoff, longestRepairBackoff = 2 * time.Minute, time.Hour
)

// repair is the memory of the repair of a Deployment.
type repair struct {
	generation int64     // of evicted
	set        types.UID // the ReplicaSet of the backoff
	evicted    int
	misplaced  int // pods before the last eviction, 0 if the next result does not matter
	backoff    shell.Backoff
	quiet      shell.Lasting[string]
	asked      *corev1.Pod // with a pending request
	gone       types.UID   // of the last evicted pod
}

// repair evicts a pod of a Deployment if that can improve its spread, and no rolling update is in progress. It returns after how
// long to look again.
func (r *reconciler) repair(ctx context.Context, n *notes, c *current, pods []spread.Pod) (time.Duration, error) {
	d, ok := c.owner.(*appsv1.Deployment)
	if !ok {
		return 0, nil
	}
	domains, err := r.domainsOf(ctx, c)
	if err != nil {
		return 0, err
	}
	misplaced := spread.Misplaced(pods, domains)
	n.misplaced.Store(int64(misplaced))
	p := &n.repair
	if p.generation != d.Generation {
		p.generation, p.evicted, p.misplaced = d.Generation, 0, 0
	}
	// The backoff outlives a generation: an autoscaler changes the Deployment often, which does not improve the placement of pods.
	if set := setOf(c); p.set != set {
		p.set, p.backoff = set, shell.Backoff{}
	}
	if p.asked != nil && (c.pods[p.asked.Name] == nil || c.pods[p.asked.Name].UID != p.asked.UID) {
		p.asked, p.evicted = nil, p.evicted+1
	}
	if c.hasPod(p.gone) {
		return repairAgain, nil // the cache does not show the eviction yet
	}
	if !c.repairs || misplaced == 0 || !isSettled(d, c) {
		p.quiet.Reset()
		n.announce(r, d, eventRepairEnds, "")
		return 0, r.withdraw(ctx, n)
	}
	if p.misplaced > 0 && p.asked == nil {
		if misplaced >= p.misplaced {
			p.backoff.Fail(r.clock.Now(), repairBackoff, longestRepairBackoff)
		} else {
			p.backoff = shell.Backoff{}
		}
		p.misplaced = 0
	}
	most := (len(pods) + len(domains) - 1) / len(domains)
	if p.evicted >= most {
		n.announce(r, d, eventRepairEnds, fmt.Sprintf("%d pods are misplaced for the best spread over %s. The repair stops after %d evictions since the last change of the Deployment. Check where the scheduler can place the pods", misplaced, c.key, p.evicted))
		return 0, nil
	}
	now := r.clock.Now()
	names := fmt.Sprint(slices.Sorted(maps.Keys(c.pods)))
	if left := max(p.quiet.Left(names, now, r.quiet), p.backoff.Wait(now)); left > 0 {
		return left, nil
	}
	return r.evict(ctx, n, c, pods, misplaced)
}

// isSettled reports whether a Deployment has exactly its replicas, all ready and of one ReplicaSet.
func isSettled(d *appsv1.Deployment, c *current) bool {
	if d.Spec.Replicas == nil || c.terminating > 0 || len(c.pods) != int(*d.Spec.Replicas) {
		return false
	}
	for i := range c.sets {
		wanted := c.sets[i].Spec.Replicas
		if wanted == nil || *wanted != 0 && *wanted != *d.Spec.Replicas {
			return false
		}
	}
	for _, pod := range c.pods {
		if ready, _ := coverage.Readiness(pod); !ready || pod.Spec.NodeName == "" {
			return false
		}
	}
	return true
}

// evict requests the eviction of the next pod.
func (r *reconciler) evict(ctx context.Context, n *notes, c *current, pods []spread.Pod, misplaced int) (time.Duration, error) {
	domains, err := r.usableDomainsOf(ctx, c)
	if err != nil {
		return 0, err
	}
	p := &n.repair
	next, found := spread.Repair(pods, domains, r.clock.Now())
	if p.asked != nil && (!found || next.Name != p.asked.Name) {
		if err := r.withdraw(ctx, n); err != nil {
			return 0, err
		}
	}
	if !found { // changes of taints have no event here, so look again
		p.backoff.Fail(r.clock.Now(), repairBackoff, longestRepairBackoff)
		return p.backoff.Wait(r.clock.Now()), nil
	}
	pod := c.pods[next.Name]
	reason := fmt.Sprintf("%s %s has more pods than the others of %s", c.key, next.Domain, c.workload)
	outcome, err := r.evictor.Request(ctx, pod, v1alpha1.RequesterSpread, reason)
	if err != nil {
		return 0, err
	}
	r.metrics.repaired(outcome.State)
	log.FromContext(ctx).V(1).Info("repairing", "pod", pod.Name, "domain", next.Domain, "outcome", outcome.State)
	switch outcome.State {
	case requester.Evicted:
		p.evicted, p.misplaced, p.asked, p.gone = p.evicted+1, misplaced, nil, pod.UID
		r.recorder.Eventf(c.owner, pod, corev1.EventTypeNormal, eventRepair, "Evict", "Pod %s is evicted: %s", pod.Name, reason)
	case requester.Waiting:
		p.asked, p.misplaced = pod, misplaced
	case requester.Refused:
		p.backoff.Fail(r.clock.Now(), repairBackoff, longestRepairBackoff)
		return p.backoff.Wait(r.clock.Now()), nil
	}
	return repairAgain, nil
}

// withdraw withdraws the pending request.
func (r *reconciler) withdraw(ctx context.Context, n *notes) error {
	if n.repair.asked == nil {
		return nil
	}
	if err := r.evictor.Withdraw(ctx, n.repair.asked, v1alpha1.RequesterSpread); err != nil {
		return err
	}
	n.repair.asked = nil
	return nil
}
