package controller

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption/reservation"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/rollout"
)

const (
	// unknownTime is how long a request may still be pending if its outcome is unknown, or if an earlier process made it. The denial of
	// another request proves nothing about it.
	unknownTime = 30 * time.Second
	// askTime is the wait before the eviction of a remaining pod is requested again. While responders work, the wait
	// doubles up to longestWaiting.
	askTime, longestWaiting = 5 * time.Second, 30 * time.Second
	// The wait after a denial in a domain doubles with each in a row.
	firstDenial, longestDenial = time.Second, 30 * time.Second
	// longestWithdrawn bounds the wait before a request is withdrawn again, since another request may have been pending.
	longestWithdrawn = 5 * time.Minute
	// maxTries bounds the evictions that a sync tries with budgets without a request.
	maxTries = 32
)

// notes has the memory of a DomainRollout beyond its status. Only its sync uses it, except for isDenied.
type notes struct {
	written   shell.Written
	asked     map[string]*asking   // by the UID of a pod
	withdrawn map[string]*asking   // by the UID of a pod
	unknown   map[string]time.Time // when a request with an unknown outcome was made, by the UID of its pod
	refused   map[string]rollout.Refusal
	domains   map[string]*denied
	// standing has, by UID, the names of pods that may have an EvictionRequest.
	standing map[string]string
	// isDenied says that a domain waits after a denial. A changed budget may help.
	isDenied atomic.Bool
	gate     gate
	problem  string                // why the previous revision cannot be restored
	phase    v1alpha1.RolloutPhase // as counted in metrics
	// shortSince is since when the Deployment lacks pods.
	shortSince time.Time
	// behindSince is since when the workload's controller has not seen the last change.
	behindSince time.Time
	// unfollowedSince is since when a Deployment has no DomainRollout. isReported says that an event was written.
	unfollowedSince time.Time
	isReported      bool
}

// asking is when a request may be repeated.
type asking struct {
	backoff shell.Backoff
	says    string // the messages of responders
}

// denied is a domain with denied pods.
type denied struct {
	backoff shell.Backoff
	at      time.Time // of the last denial
	until   time.Time
	uid     string // of the pod that was denied last
	reason  string
	// explained says that the known budgets have refused that pod since. Otherwise something else denied it, and a changed budget is no
	// reason to ask sooner.
	explained bool
}

func newNotes() *notes {
	return &notes{
		asked: map[string]*asking{}, withdrawn: map[string]*asking{}, unknown: map[string]time.Time{}, refused: map[string]rollout.Refusal{},
		domains: map[string]*denied{}, standing: map[string]string{},
	}
}

// keep forgets pods that are gone.
func (n *notes) keep(pods map[string]*corev1.Pod) {
	forget(n.asked, pods)
	forget(n.withdrawn, pods)
	forget(n.unknown, pods)
	forget(n.refused, pods)
	forget(n.standing, pods)
}

func forget[T any](of map[string]T, pods map[string]*corev1.Pod) {
	for uid := range of {
		if pods[uid] == nil {
			delete(of, uid)
		}
	}
}

// ask notes a request, and doubles the wait for the next one.
func ask(of map[string]*asking, uid string, now time.Time, longest time.Duration) *asking {
	a := of[uid]
	if a == nil {
		a = &asking{}
		of[uid] = a
	}
	a.backoff.Fail(now, askTime, longest)
	return a
}

// wait returns after how long the request for a pod may be repeated.
func wait(of map[string]*asking, uid string, now time.Time) time.Duration {
	if a := of[uid]; a != nil {
		return a.backoff.Wait(now)
	}
	return 0
}

// deny notes a denial. The pod waits longer than its domain, so that another pod has its turn.
func (n *notes) deny(t rollout.Target, reason string, counts bool, now time.Time) {
	d := n.domains[t.Domain]
	if d == nil {
		d = &denied{}
		n.domains[t.Domain] = d
	}
	if !d.at.Equal(now) { // denials of one group count once
		d.backoff.Fail(now, firstDenial, longestDenial)
		d.at = now
	}
	wait := d.backoff.Wait(now)
	// Jitter, so that rollouts denied by the same budget do not retry together.
	d.until = now.Add(wait - wait/16 - time.Duration(rand.Int64N(int64(wait)/4)))
	d.uid, d.reason, d.explained = t.UID, reason, false
	n.isDenied.Store(true)
	n.refused[t.UID] = rollout.Refusal{Reason: reason, Denied: counts, Until: now.Add(wait)}
}

// admit ends the denials of a domain. A denial at the same time still counts.
func (n *notes) admit(domain string, now time.Time) {
	if d := n.domains[domain]; d != nil && !d.at.Equal(now) {
		delete(n.domains, domain)
	}
}

// waitDetails adds the cause of a wait to its message.
func (r *reconciler) waitDetails(ctx context.Context, n *notes, v *view, wait *rollout.Wait) string {
	if wait.For != rollout.WaitRestore {
		n.problem = ""
	}
	if v.deployment != nil && v.deployment.paused && wait.For != rollout.WaitNone {
		return fmt.Sprintf("Deployment %s is paused; continue with: kubectl rollout resume deployment %s", v.object.GetName(), v.object.GetName())
	}
	switch wait.For {
	case rollout.WaitQueryAnswer:
		return n.gate.failure
	case rollout.WaitRestore:
		return n.problem
	case rollout.WaitUnplaced:
		return r.whyUnplaced(ctx, v.object.GetNamespace(), wait.Pod)
	case rollout.WaitEvicting:
		for uid, a := range n.asked {
			if pod := v.pods[uid]; pod != nil && pod.Name == wait.Pod {
				return a.says
			}
		}
		if v.fleet != nil {
			return v.fleet.whyStays(wait.Pod)
		}
	}
	return ""
}

// waits returns the denial for which a domain waits, or nil.
func (n *notes) waits(domain string, now time.Time) *denied {
	if d := n.domains[domain]; d != nil && now.Before(d.until) {
		return d
	}
	return nil
}

// counts reports whether a denial now proves that a pod stays.
func (r *reconciler) counts(n *notes, uid string, now time.Time) bool {
	at, unknown := n.unknown[uid]
	return !now.Before(r.begin) && (!unknown || !now.Before(at.Add(unknownTime)))
}

// refusals returns the refusals of outdated pods and of pods that are being taken down. A domain waits after a denial, and the
// denied pod a little longer. A pod is requested sooner if its budgets would admit it now, and explain the last denial.
func (r *reconciler) refusals(ctx context.Context, n *notes, v *view, now time.Time) error {
	v.state.Refusals = map[string]rollout.Refusal{}
	for name, d := range n.domains {
		if now.After(d.until.Add(longestDenial)) { // no request since
			delete(n.domains, name)
		}
	}
	if len(n.refused)+len(n.domains) == 0 {
		n.isDenied.Store(false)
		return nil
	}
	var pdbs policyv1.PodDisruptionBudgetList
	if err := r.client.List(ctx, &pdbs, client.InNamespace(v.object.GetNamespace())); err != nil {
		return fmt.Errorf("reading the PodDisruptionBudgets of %s: %w", v.object.GetNamespace(), err)
	}
	known := shell.Pointers(pdbs.Items)
	for _, d := range n.domains {
		if pod := v.pods[d.uid]; pod != nil && !d.explained && now.Before(d.until) {
			d.explained = !r.isAdmittedBy(ctx, known, pod)
		}
	}
	replacements := map[string]*v1alpha1.RolloutReplacement{} // by slot
	for i := range v.state.Memory.Replacements {
		e := &v.state.Memory.Replacements[i]
		replacements[e.Slot] = e
	}
	tries := 0
	for i := range v.state.Pods {
		p := &v.state.Pods[i]
		domain, e := p.Domain, replacements[p.Slot]
		if e != nil {
			domain = e.Domain
		}
		// A pod of the revision is requested, too, if it was being taken down when the revision was restored.
		if p.Terminating || p.Revision == v.state.Revision && (e == nil || string(e.UID) != p.UID) {
			continue
		}
		refusal, refused := n.refused[p.UID]
		d := n.waits(domain, now)
		if d != nil && !refused {
			refusal = rollout.Refusal{Reason: d.reason}
		}
		if d != nil && refusal.Until.Before(d.until) {
			refusal.Until = d.until
		}
		if refusal.Until.IsZero() {
			continue
		}
		if d != nil && d.explained && now.Before(refusal.Until) && tries < maxTries {
			if tries++; r.isAdmittedBy(ctx, known, v.pods[p.UID]) {
				refusal.Until = now
			}
		}
		v.state.Refusals[p.UID] = refusal
	}
	return nil
}

// isAdmittedBy asks cached budgets about the eviction of a pod without requesting it.
func (r *reconciler) isAdmittedBy(ctx context.Context, pdbs []*policyv1.PodDisruptionBudget, pod *corev1.Pod) bool {
	if reservation.RefusedByPDB(pod, pdbs) != "" {
		return false
	}
	if r.options.Budgets == nil {
		return true
	}
	answer, err := r.options.Budgets.Admit(ctx, reservation.Request{Pod: pod, Holder: requesterName, DryRun: true})
	return err == nil && answer.Allowed()
}
