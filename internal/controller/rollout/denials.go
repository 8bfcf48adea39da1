package rollout

import (
	"context"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/controller/shell"
	"vicinity.dev/vicinity/internal/reservation"
	"vicinity.dev/vicinity/internal/rollout"
)

const (
	// unknownTime is how long a request may still be under way that was made before the controller began, or
	// whose outcome is not known. A denial of another request says nothing about it.
	unknownTime = 30 * time.Second
	// askTime is after how long a pod is asked for again that has not gone since it was.
	askTime = 5 * time.Second
	// The wait after a denial in a domain doubles with each in a row.
	firstDenial, longestDenial = time.Second, 30 * time.Second
	// maxTries is how many evictions are tried with budgets for a sync, without being requested.
	maxTries = 32
)

// denialRule says whether a denial proves that a pod stays.
type denialRule struct{ countFrom time.Time }

// notes are what is known of a DomainRollout besides its status. Only its sync uses them.
type notes struct {
	written shell.Written
	asked   map[string]time.Time // by the UID of a pod: when something was asked for
	unknown map[string]time.Time // the same for requests whose outcome is not known
	refused map[string]rollout.Refusal
	domains map[string]*denied
	gate    gate
	problem string // why the revision before cannot be restored
}

// denied is a domain in which pods are denied.
type denied struct {
	backoff shell.Backoff
	reason  string
}

func newNotes() *notes {
	return &notes{asked: map[string]time.Time{}, unknown: map[string]time.Time{}, refused: map[string]rollout.Refusal{}, domains: map[string]*denied{}}
}

// keep forgets pods that have gone.
func (n *notes) keep(pods map[string]*corev1.Pod) {
	for uid := range n.asked {
		if pods[uid] == nil {
			delete(n.asked, uid)
		}
	}
	for uid := range n.unknown {
		if pods[uid] == nil {
			delete(n.unknown, uid)
		}
	}
	for uid := range n.refused {
		if pods[uid] == nil {
			delete(n.refused, uid)
		}
	}
}

// isDue reports whether something is asked for a pod now.
func (n *notes) isDue(uid string, now time.Time) bool {
	at, asked := n.asked[uid]
	return (!asked || !now.Before(at.Add(askTime))) && !now.Before(n.refused[uid].Until)
}

// deny notes a denial. The pod waits longer than its domain, so that it yields to another one.
func (n *notes) deny(t rollout.Target, reason string, counts bool, now time.Time) {
	d := n.domains[t.Domain]
	if d == nil {
		d = &denied{}
		n.domains[t.Domain] = d
	}
	d.backoff.Fail(now, firstDenial, longestDenial)
	d.reason = reason
	wait := d.backoff.Wait(now)
	n.refused[t.UID] = rollout.Refusal{Reason: reason, Denied: counts, Until: now.Add(wait + time.Duration(rand.Int64N(int64(wait)/2+1)))}
}

// counts reports whether a denial that was given now proves that a pod stays.
func (r *reconciler) counts(n *notes, uid string, now time.Time) bool {
	at, unknown := n.unknown[uid]
	return !now.Before(r.denials.countFrom) && (!unknown || !now.Before(at.Add(unknownTime)))
}

// refusals are those of the pods that are not of the revision. A pod that was denied is asked for again when
// its time has come, or as soon as its budgets would admit it; the others of its domain are not asked for
// meanwhile, unless their budgets would admit them.
func (r *reconciler) refusals(ctx context.Context, n *notes, v *view, now time.Time) {
	v.state.Refusals = map[string]rollout.Refusal{}
	tries := 0
	for i := range v.state.Pods {
		p := &v.state.Pods[i]
		if p.Revision == v.state.Revision || p.Terminating {
			continue
		}
		refusal, refused := n.refused[p.UID]
		d := n.domains[p.Domain]
		waits := d != nil && d.backoff.Wait(now) > 0
		if !refused && !waits {
			continue
		}
		if !refused {
			refusal = rollout.Refusal{Reason: d.reason, Until: now.Add(d.backoff.Wait(now))}
		}
		if now.Before(refusal.Until) && r.options.Budgets != nil && tries < maxTries {
			tries++
			if r.isAdmitted(ctx, v.pods[p.UID]) {
				refusal.Until = now
				if refused {
					n.refused[p.UID] = refusal
				}
			}
		}
		v.state.Refusals[p.UID] = refusal
	}
}

// isAdmitted tries an eviction with the budgets of a pod.
func (r *reconciler) isAdmitted(ctx context.Context, pod *corev1.Pod) bool {
	answer, err := r.options.Budgets.Admit(ctx, reservation.Request{Pod: pod, Holder: requesterName, DryRun: true})
	return err == nil && answer.Allowed()
}
