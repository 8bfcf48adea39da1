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
	// unknownTime is how long a request may still be under way if its outcome is not known, or if it was made before the
	// controller began. The denial of another request proves nothing about it.
	unknownTime = 30 * time.Second
	// askTime is after how long the eviction of a pod that has not gone is requested again. While responders work, the wait
	// doubles up to longestWaiting.
	askTime, longestWaiting = 5 * time.Second, 30 * time.Second
	// The wait after a denial in a domain doubles with each in a row.
	firstDenial, longestDenial = time.Second, 30 * time.Second
	// longestWithdrawn bounds the wait before a request is withdrawn again: another one may have been under way.
	longestWithdrawn = 5 * time.Minute
	// maxTries is how many evictions a sync tries with budgets without requesting them.
	maxTries = 32
)

// notes are what is known of a DomainRollout besides its status. Only its sync uses them; isDenied is for others, too.
type notes struct {
	written   shell.Written
	asked     map[string]*asking   // by the UID of a pod
	withdrawn map[string]*asking   // by the UID of a pod
	unknown   map[string]time.Time // when a request was made whose outcome is not known, by the UID of its pod
	refused   map[string]rollout.Refusal
	domains   map[string]*denied
	// standing are the names of pods, by UID, for which an EvictionRequest may stand.
	standing map[string]string
	// isDenied says that a domain waits after a denial, so that a changed budget may help.
	isDenied atomic.Bool
	gate     gate
	problem  string                // why the revision before cannot be restored
	phase    v1alpha1.RolloutPhase // that metrics have
	// shortSince is since when the Deployment lacks pods.
	shortSince time.Time
	// behindSince is since when the workload's controller has not seen the last change.
	behindSince time.Time
	// unfollowedSince is since when a Deployment has no DomainRollout; isReported says that an event says so.
	unfollowedSince time.Time
	isReported      bool
}

// asking is when something may be asked for again.
type asking struct {
	backoff shell.Backoff
	says    string // what responders to it say
}

// denied is a domain in which pods are denied.
type denied struct {
	backoff shell.Backoff
	at      time.Time // of the last denial
	until   time.Time
	uid     string // of the pod that was denied last
	reason  string
	// explained says that the known budgets have refused that pod since, too. Otherwise something else denied it, and it
	// makes no sense to ask sooner when budgets admit a pod.
	explained bool
}

func newNotes() *notes {
	return &notes{
		asked: map[string]*asking{}, withdrawn: map[string]*asking{}, unknown: map[string]time.Time{}, refused: map[string]rollout.Refusal{},
		domains: map[string]*denied{}, standing: map[string]string{},
	}
}

// keep forgets pods that have gone.
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

// ask notes a request, and doubles the time until the next one for the pod.
func ask(of map[string]*asking, uid string, now time.Time, longest time.Duration) *asking {
	a := of[uid]
	if a == nil {
		a = &asking{}
		of[uid] = a
	}
	a.backoff.Fail(now, askTime, longest)
	return a
}

// wait returns after how long a pod may be asked for again.
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
	if !d.at.Equal(now) { // pods that were asked for at once are denied once
		d.backoff.Fail(now, firstDenial, longestDenial)
		d.at = now
	}
	wait := d.backoff.Wait(now)
	// So rollouts that one budget denies do not come back all at once.
	d.until = now.Add(wait - wait/16 - time.Duration(rand.Int64N(int64(wait)/4)))
	d.uid, d.reason, d.explained = t.UID, reason, false
	n.isDenied.Store(true)
	n.refused[t.UID] = rollout.Refusal{Reason: reason, Denied: counts, Until: now.Add(wait)}
}

// admit notes that a pod of a domain was not denied. A denial at the same time still counts.
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

// waits returns the denial after which a domain waits, nil if it does not wait.
func (n *notes) waits(domain string, now time.Time) *denied {
	if d := n.domains[domain]; d != nil && now.Before(d.until) {
		return d
	}
	return nil
}

// counts reports whether a denial that was given now proves that a pod stays.
func (r *reconciler) counts(n *notes, uid string, now time.Time) bool {
	at, unknown := n.unknown[uid]
	return !now.Before(r.begin) && (!unknown || !now.Before(at.Add(unknownTime)))
}

// refusals has the refusals of pods that are not of the revision or are being taken down. A domain waits after a denial, and the
// denied pod waits a little longer. A pod is asked for sooner if its budgets would admit it now, and if they explain the last
// denial.
func (r *reconciler) refusals(ctx context.Context, n *notes, v *view, now time.Time) error {
	v.state.Refusals = map[string]rollout.Refusal{}
	for name, d := range n.domains {
		if now.After(d.until.Add(longestDenial)) { // nothing was requested since
			delete(n.domains, name)
		}
	}
	if len(n.refused)+len(n.domains) == 0 {
		n.isDenied.Store(false)
		return nil
	}
	known, err := r.knownBudgets(ctx, v)
	if err != nil {
		return err
	}
	for _, d := range n.domains {
		if pod := v.pods[d.uid]; pod != nil && !d.explained && now.Before(d.until) {
			d.explained = !known.admit(ctx, pod)
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
		// A pod of the revision is asked for, too, if it was being taken down when the revision came back.
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
			if tries++; known.admit(ctx, v.pods[p.UID]) {
				refusal.Until = now
			}
		}
		v.state.Refusals[p.UID] = refusal
	}
	return nil
}

// knownBudgets are the budgets of a namespace as the caches have them.
type knownBudgets struct {
	pdbs []*policyv1.PodDisruptionBudget
	tdbs budgets
}

func (r *reconciler) knownBudgets(ctx context.Context, v *view) (knownBudgets, error) {
	known := knownBudgets{tdbs: r.options.Budgets}
	var list policyv1.PodDisruptionBudgetList
	if err := r.client.List(ctx, &list, client.InNamespace(v.object.GetNamespace())); err != nil {
		return known, fmt.Errorf("reading the PodDisruptionBudgets of %s: %w", v.object.GetNamespace(), err)
	}
	for i := range list.Items {
		known.pdbs = append(known.pdbs, &list.Items[i])
	}
	return known, nil
}

// admit tries the eviction of a pod without requesting it.
func (k knownBudgets) admit(ctx context.Context, pod *corev1.Pod) bool {
	if reservation.RefusedByPDB(pod, k.pdbs) != "" {
		return false
	}
	if k.tdbs == nil {
		return true
	}
	answer, err := k.tdbs.Admit(ctx, reservation.Request{Pod: pod, Holder: requesterName, DryRun: true})
	return err == nil && answer.Allowed()
}
