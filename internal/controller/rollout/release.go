package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/controller/shell"
	"vicinity.dev/vicinity/internal/requester"
	"vicinity.dev/vicinity/internal/reservation"
	"vicinity.dev/vicinity/internal/rollout"
)

// shortTime is how long pods of old ReplicaSets are waited for that are too few. Then pods of the revision are
// released in their places.
const shortTime = 5 * time.Second

// release is a pod that is let go.
type release struct {
	*member
	slot   string // that it comes into, empty for one of its own
	domain string // empty for any
}

// missing is how many pods a Deployment lacks that are ready or may become so. A pod that is not ready counts if it
// is alone in its slot: beside another one it is to come instead of that. With hopeless, those of the revision do
// not count at all.
func (f *fleet) missing(hopeless bool) int {
	ready, alone := map[string]int{}, map[string]bool{}
	for _, p := range f.members {
		switch {
		case podOf(p.Pod).Ready:
			ready[p.slot]++
		case !hopeless || p.isOf != f.revision:
			alone[p.slot] = true
		}
	}
	there := 0
	for slot, n := range ready {
		there += n
		delete(alone, slot)
	}
	return f.desired - there - len(alone)
}

// toCome is how many pods the ReplicaSets of old revisions have to make or to be let have.
func (f *fleet) toCome() (pods int) {
	for _, set := range f.deployment.sets {
		if hashOf(set) == f.revision || set.Spec.Replicas == nil {
			continue
		}
		there := 0
		for _, p := range f.members {
			if p.set.UID == set.UID {
				there++
			}
		}
		pods += max(0, int(*set.Spec.Replicas)-there)
	}
	return pods
}

// replaceMissing are the held pods to release so that the Deployment has the pods that it should. What is held besides
// is there to replace others. In the place of a pod that the rollout has taken down comes one of the revision; else pods
// of old revisions come first, since their ReplicaSets make none but to replace and to scale. A rollout that stands
// (halted) lets none of its pods come before those. With late, pods that old ReplicaSets do not make are not waited for.
func (f *fleet) replaceMissing(m *rollout.Memory, halted, late bool) (list []release) {
	lack := f.missing(m.Failure != nil)
	if lack <= 0 {
		return nil
	}
	var old, updated []*member
	for _, p := range f.held {
		if p.isOf == f.revision {
			updated = append(updated, p)
		} else {
			old = append(old, p)
		}
	}
	coming := f.toCome()
	if !halted && m.Failure == nil {
		for i := range m.Replacements {
			e := &m.Replacements[i]
			if lack > 0 && len(updated) > 0 && !slices.ContainsFunc(f.members, func(p *member) bool { return p.slot == e.Slot }) {
				list = append(list, release{updated[0], e.Slot, e.Domain})
				updated = updated[1:]
				lack--
				coming--
			}
		}
	}
	slices.SortStableFunc(old, func(a, b *member) int {
		return compareBool(slices.Contains(m.AbandonedRevisions, a.isOf), slices.Contains(m.AbandonedRevisions, b.isOf))
	})
	for _, p := range old[:min(len(old), max(0, lack))] {
		list = append(list, release{member: p})
		lack--
		coming--
	}
	lack = min(lack, f.missing(false)-len(list))
	if !late {
		lack -= max(0, coming)
	}
	for _, p := range updated[:min(len(updated), max(0, lack))] {
		list = append(list, release{member: p})
	}
	return list
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// keepFull releases the pods that a Deployment lacks, and takes the marks from pods that are not taken down after all.
func (r *reconciler) keepFull(ctx context.Context, n *notes, d *v1alpha1.DomainRollout, v *view) (time.Duration, error) {
	if err := r.unmark(ctx, v.fleet, &d.Status); err != nil {
		return 0, err
	}
	return r.fill(ctx, n, d, v.fleet, &d.Status)
}

// fillOnly releases the pods that a Deployment lacks which is not updated by domain. Which pods are about to go for others,
// their marks say. The other marks are of no use.
func (r *reconciler) fillOnly(ctx context.Context, n *notes, d *v1alpha1.DomainRollout, t *target) (time.Duration, error) {
	switch {
	case t.deployment == nil:
		return 0, nil
	case t.revision != "":
		n.behindSince = time.Time{}
	case !n.isStuck(t, &d.Status, r.clock.Now()):
		return shell.BehindWait, nil
	}
	pods, err := r.cachedPods(t)
	if err != nil {
		return 0, err
	}
	m := rollout.Memory{}
	for _, pod := range pods {
		if t.deployment.set(pod) != nil && isActive(pod) && isMarked(pod) {
			m.Replacements = append(m.Replacements, v1alpha1.RolloutReplacement{Slot: slotOf(pod), UID: pod.UID, Stage: rollout.Evicting})
		}
	}
	f := newFleet(t, pods, &m)
	if len(m.Replacements) > 0 {
		live, err := r.liveFleet(ctx, d, t, &m)
		if err != nil || live == nil {
			return 0, err
		}
		m.Replacements = slices.DeleteFunc(m.Replacements, func(e v1alpha1.RolloutReplacement) bool {
			return !live.isReleased(rollout.Target{UID: string(e.UID)})
		})
		if err := r.unmark(ctx, live, &m); err != nil {
			return 0, err
		}
	}
	return r.fill(ctx, n, d, f, &m)
}

// isStuck reports whether the controller of a Deployment has not taken up its last change for some time, as when a quota
// refuses the ReplicaSet. Then the revision is the last one that is known.
func (n *notes) isStuck(t *target, s *v1alpha1.DomainRolloutStatus, now time.Time) bool {
	if n.behindSince.IsZero() {
		n.behindSince = now
	}
	if now.Before(n.behindSince.Add(shortTime)) {
		return false
	}
	t.isStuck, t.revision = true, s.Revision
	return true
}

// behind waits until the controller of a workload has seen its last change, and says so if that lasts. A Deployment gets the
// pods that it lacks meanwhile: those that it needs for the old template wait at the gate, too.
func (r *reconciler) behind(ctx context.Context, n *notes, d *v1alpha1.DomainRollout, t *target) (time.Duration, error) {
	after, err := r.fillOnly(ctx, n, d, t)
	if err != nil || t.revision == "" && !n.isStuck(t, &d.Status, r.clock.Now()) {
		return shell.BehindWait, err
	}
	kind, name := d.Spec.TargetRef.Kind, t.object.GetName()
	status := *d.Status.DeepCopy()
	switch {
	case t.deployment != nil:
		status.WaitingFor = fmt.Sprintf("waits for Deployment %s to take up its last change; kubectl describe deployment %s says why it does not", name, name)
	case t.object.GetDeletionTimestamp() != nil:
		status.WaitingFor = fmt.Sprintf("%s %s is being deleted, and takes up no change", kind, name)
	default:
		status.WaitingFor = fmt.Sprintf("waits for %s %s to take up its last change; see whether a quota or a webhook refuses its ControllerRevision", kind, name)
	}
	return shell.Sooner(after, shell.BehindWait), r.store(ctx, n, d, status, false)
}

// fill releases the pods that a Deployment lacks, as a live read says. It returns after how long to look again.
func (r *reconciler) fill(ctx context.Context, n *notes, d *v1alpha1.DomainRollout, f *fleet, m *rollout.Memory) (time.Duration, error) {
	if len(f.held) == 0 || f.missing(m.Failure != nil) <= 0 {
		n.shortSince = time.Time{}
		return 0, nil
	}
	live, err := r.liveFleet(ctx, d, f.target, m)
	if err != nil || live == nil {
		return 0, err
	}
	now := r.clock.Now()
	if n.shortSince.IsZero() {
		n.shortSince = now
	}
	late := !now.Before(n.shortSince.Add(shortTime))
	halted := d.Spec.Paused || m.Phase == v1alpha1.PhaseAborted || m.Phase == v1alpha1.PhaseFailed || m.Phase == v1alpha1.PhasePaused
	for _, one := range live.replaceMissing(m, halted, late) {
		if err := r.release(ctx, d, one); err != nil {
			return 0, err
		}
	}
	if late {
		n.shortSince = now
	}
	return shortTime, nil
}

// liveFleet reads the pods of a Deployment live, and then how many it should have: the other way round, a scale-down in
// between would look as if pods were missing. It is nil if the Deployment has another revision by now.
func (r *reconciler) liveFleet(ctx context.Context, d *v1alpha1.DomainRollout, t *target, m *rollout.Memory) (*fleet, error) {
	hashes := make([]string, len(t.deployment.sets))
	for i, set := range t.deployment.sets {
		hashes[i] = hashOf(set)
	}
	those, err := labels.NewRequirement(appsv1.DefaultDeploymentUniqueLabelKey, selection.In, hashes)
	if err != nil {
		return nil, fmt.Errorf("selecting the pods of Deployment %s/%s: %w", d.Namespace, t.object.GetName(), err)
	}
	var list corev1.PodList
	if err := r.live.List(ctx, &list, client.InNamespace(d.Namespace), client.MatchingLabelsSelector{Selector: labels.NewSelector().Add(*those)}); err != nil {
		return nil, fmt.Errorf("reading the pods of Deployment %s/%s: %w", d.Namespace, t.object.GetName(), err)
	}
	live, err := readTarget(ctx, r.live, d)
	if err != nil || live == nil {
		return nil, err
	}
	if t.isStuck && live.revision == "" {
		live.revision = t.revision
	}
	if live.revision != t.revision {
		return nil, nil
	}
	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	return newFleet(live, pods, m), nil
}

// due are the targets for which something can be done now, and after how long it is done again. A pod is released as soon
// as there is one. A Deployment that is paused deletes none, so that no other is taken down then.
func (f *fleet) due(targets []rollout.Target, m *rollout.Memory, asked func(uid string) time.Duration) ([]rollout.Target, func(uid string) time.Duration) {
	again := map[string]bool{}
	targets = slices.DeleteFunc(targets, func(t rollout.Target) bool {
		old := f.member(t.UID)
		isReleased := f.isReleased(t)
		again[t.UID] = isReleased || old != nil && !f.isInTurn(old.Pod, m)
		return old == nil || !again[t.UID] && !f.hasHeld() || !isReleased && f.deployment.paused
	})
	return targets, func(uid string) time.Duration {
		if again[uid] {
			return asked(uid)
		}
		return 0
	}
}

// surge has a pod replaced by one that is released before it goes. Its Deployment deletes it when that is available.
func (r *reconciler) surge(ctx context.Context, n *notes, d *v1alpha1.DomainRollout, v *view, t rollout.Target) error {
	refused, err := r.releaseFor(ctx, n, d, v, t)
	if err != nil || refused == "" {
		return err
	}
	live, err := r.liveFleet(ctx, d, v.target, &d.Status)
	if err != nil || live == nil || live.isReleased(t) {
		return err // a pod that has one released for it goes, and has to be found with its mark
	}
	return r.denied(ctx, n, d, t, refused)
}

// releaseFor releases a pod for another one that may go, or says why that may not.
func (r *reconciler) releaseFor(ctx context.Context, n *notes, d *v1alpha1.DomainRollout, v *view, t rollout.Target) (refused string, err error) {
	m, pod := &d.Status, v.pods[t.UID]
	if v.fleet.isReleased(t) {
		return "", r.hold(ctx, n, pod, t)
	}
	if cost, set := pod.Annotations[corev1.PodDeletionCost]; set && pod.Annotations[v1alpha1.AnnotationDeletionCost] != cost {
		return fmt.Sprintf("another owner has set its annotation %s; remove it", corev1.PodDeletionCost), nil
	}
	if !v.fleet.hasHeld() {
		return "", nil // one that comes wakes this up
	}
	if podOf(pod).Ready && !v.fleet.isInTurn(pod, m) {
		// Any pod that became available now would have its Deployment delete one of another ReplicaSet. So this one
		// goes first, and the place is filled when it has.
		return "", r.evict(ctx, n, d, v, []rollout.Target{t})
	}
	if other := v.fleet.foreign(pod, m); other != "" {
		return fmt.Sprintf("pod %s has the annotation %s: %s of another owner and would go instead; remove it", other, corev1.PodDeletionCost, v1alpha1.RolloutDeletionCost), nil
	}
	delete(n.refused, t.UID)
	if refused, err = r.reserve(ctx, d, pod, t); err != nil {
		now := r.clock.Now()
		n.unknown[t.UID] = now
		n.deny(t, "it is not known whether its budgets admit it: "+err.Error(), false, now)
		r.metrics.requested(requestUnknown)
		return "", err
	}
	if refused != "" {
		r.metrics.requested(requester.Denied)
		return refused, nil
	}
	if err := r.mark(ctx, pod); err != nil {
		return "", err
	}
	live, err := r.liveFleet(ctx, d, v.target, m)
	if err != nil || live == nil || live.deployment.problem != nil || live.deployment.paused {
		return "", err
	}
	old := live.member(t.UID)
	if old == nil || !isMarked(old.Pod) || live.isReleased(t) || live.isTooMany(m) {
		return "", nil // as the cache will show
	}
	if podOf(old.Pod).Ready && (!podOf(pod).Ready || !live.isInTurn(old.Pod, m)) {
		return "", nil // its budgets were not asked, or it would not be the one to go
	}
	for _, p := range live.held {
		if p.isOf == live.revision {
			if err := r.release(ctx, d, release{p, old.slot, t.Domain}); err != nil {
				return "", err
			}
			delete(n.domains, t.Domain)
			return "", nil
		}
	}
	return "", nil
}

func (f *fleet) member(uid string) *member {
	for _, p := range f.members {
		if string(p.UID) == uid {
			return p
		}
	}
	return nil
}

func (f *fleet) hasHeld() bool {
	return slices.ContainsFunc(f.held, func(p *member) bool { return p.isOf == f.revision })
}

// isReleased reports whether a pod has come or is to come instead of another one, which is about to go then: one
// that is not ready yet, or one more than the Deployment should have.
func (f *fleet) isReleased(t rollout.Target) bool {
	old := f.member(t.UID)
	if old == nil {
		return false
	}
	came := false
	for _, p := range f.members {
		if p.slot == old.slot && p.isOf == f.revision {
			if !podOf(p.Pod).Ready {
				return true
			}
			came = true
		}
	}
	return came && len(f.members) > f.desired
}

// isTooMany reports whether there are more pods than the Deployment should have, even without those that were released for
// others: it is about to delete some then, and would delete the wrong ones if more came.
func (f *fleet) isTooMany(m *rollout.Memory) bool {
	surplus := len(f.members) - f.desired
	for i := range m.Replacements {
		if t := (rollout.Target{UID: string(m.Replacements[i].UID)}); f.isReleased(t) {
			surplus--
		}
	}
	return surplus > 0
}

// isInTurn reports whether a Deployment deletes pods of the ReplicaSet of a pod next: it empties those of old revisions
// one after the other.
func (f *fleet) isInTurn(pod *corev1.Pod, m *rollout.Memory) bool {
	for _, set := range f.deployment.sets {
		if metav1.IsControlledBy(pod, set) {
			return true
		}
		if hashOf(set) != f.revision && slices.ContainsFunc(f.members, func(p *member) bool {
			return p.set.UID == set.UID && !isReplaced(m, p.Pod)
		}) {
			return false
		}
	}
	return false
}

// foreign names a pod that a ReplicaSet would delete as soon as a pod that is marked, by the cost of another owner.
func (f *fleet) foreign(pod *corev1.Pod, m *rollout.Memory) string {
	for _, p := range f.members {
		if metav1.IsControlledBy(pod, p.set) && p.Annotations[corev1.PodDeletionCost] == v1alpha1.RolloutDeletionCost && !isMarked(p.Pod) && !isReplaced(m, p.Pod) {
			return p.Name
		}
	}
	return ""
}

// reserve asks all that may refuse the eviction of a pod, and says what does. One that is not ready is deleted by its
// Deployment as soon as it can be: nothing is asked about it.
func (r *reconciler) reserve(ctx context.Context, d *v1alpha1.DomainRollout, pod *corev1.Pod, t rollout.Target) (refused string, err error) {
	if !podOf(pod).Ready {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	outcome, err := r.evictor.Try(ctx, pod, fmt.Sprintf("DomainRollout %s updates %s", d.Name, t.Domain))
	if err != nil {
		return "", err
	}
	if outcome.State == requester.Denied || outcome.State == requester.Refused {
		return strings.Join(outcome.Causes, "; "), nil
	}
	if r.options.Budgets == nil {
		return "", nil
	}
	// An attempt that is denied may be given up behind the next one, so each has a holder of its own.
	answer, err := r.options.Budgets.Admit(ctx, reservation.Request{Pod: pod, Holder: requesterName + "/" + string(uuid.NewUUID())})
	if err != nil {
		return "", fmt.Errorf("reserving pod %s/%s with its budgets: %w", pod.Namespace, pod.Name, err)
	}
	return answer.Denial, nil
}

// hold keeps a pod first in turn and reserved that is about to be deleted.
func (r *reconciler) hold(ctx context.Context, n *notes, pod *corev1.Pod, t rollout.Target) error {
	ask(n.asked, t.UID, r.clock.Now(), longestWaiting)
	if err := r.mark(ctx, pod); err != nil || r.options.Budgets == nil || !podOf(pod).Ready {
		return err
	}
	return r.options.Budgets.Hold(ctx, pod, requesterName)
}

// mark has a pod be deleted before the others of its ReplicaSet. Only pods that another one was released for, or is
// about to be, have a mark: any of them may go when one of the others has come.
func (r *reconciler) mark(ctx context.Context, pod *corev1.Pod) error {
	written, set := pod.Annotations[corev1.PodDeletionCost]
	if isMarked(pod) || set && pod.Annotations[v1alpha1.AnnotationDeletionCost] != written {
		return nil
	}
	cost := v1alpha1.RolloutDeletionCost
	return r.writeCost(ctx, pod, &cost)
}

// unmark takes the marks from pods that are not taken down after all.
func (r *reconciler) unmark(ctx context.Context, f *fleet, m *rollout.Memory) error {
	for _, p := range f.members {
		if isMarked(p.Pod) && (!isReplaced(m, p.Pod) && !f.hasSuccessor(p) || p.isOf == f.revision) {
			if err := r.writeCost(ctx, p.Pod, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// hasSuccessor reports whether a pod was released for another one that has not gone yet, also if that is forgotten, as when
// the DomainRollout was made anew: the Deployment is about to delete one, and without the mark it would be any.
func (f *fleet) hasSuccessor(old *member) bool {
	return slices.ContainsFunc(f.members, func(p *member) bool {
		return p.UID != old.UID && p.isOf == f.revision && slotOf(p.Pod) == old.slot && (!podOf(p.Pod).Ready || len(f.members) > f.desired)
	})
}

func isMarked(pod *corev1.Pod) bool {
	return pod.Annotations[corev1.PodDeletionCost] == v1alpha1.RolloutDeletionCost &&
		pod.Annotations[v1alpha1.AnnotationDeletionCost] == v1alpha1.RolloutDeletionCost
}

// writeCost gives a pod that has not changed since it was read a deletion cost, or takes it off.
func (r *reconciler) writeCost(ctx context.Context, pod *corev1.Pod, cost *string) error {
	_, err := shell.AnnotatePod(ctx, r.client, pod, map[string]*string{v1alpha1.AnnotationDeletionCost: cost, corev1.PodDeletionCost: cost})
	if err != nil && !shell.IsChanged(err) {
		return fmt.Errorf("writing the deletion cost of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return err
}

// release lets a held pod, which was read live, be scheduled.
func (r *reconciler) release(ctx context.Context, d *v1alpha1.DomainRollout, one release) error {
	pod := one.DeepCopy()
	at := slices.IndexFunc(pod.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == v1alpha1.RolloutGate })
	operations := []shell.Operation{shell.Guard(pod), shell.Remove(fmt.Sprintf("/spec/schedulingGates/%d", at))}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
		operations = append(operations, shell.Add("/metadata/annotations", pod.Annotations))
	}
	released := r.clock.Now().UTC().Format(time.RFC3339)
	operations = append(operations, shell.SetAnnotation(pod, v1alpha1.AnnotationReleasedAt, released)[1:]...)
	if one.slot != "" {
		operations = append(operations, shell.SetAnnotation(pod, v1alpha1.AnnotationReleasedFor, one.slot)[1:]...)
	}
	isPlaced, err := r.hasNodeFor(ctx, d.Spec.TopologyKey, one.domain, pod)
	if err != nil {
		return err
	}
	if isPlaced {
		operations = append(operations, placeIn(pod, d.Spec.TopologyKey, one.domain))
	}
	if err := shell.Patch(ctx, r.client, pod, operations); err != nil {
		if shell.IsChanged(err) {
			return err
		}
		return fmt.Errorf("releasing pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	r.metrics.requested(requestReleased)
	log.FromContext(ctx).Info("Pod released", "rollout", d.Name, "pod", pod.Name, "for", one.slot, "domain", one.domain, "revision", one.isOf)
	return nil
}

// hasNodeFor reports whether a domain has a node that a pod can be on. A domain can be gone by now, and a new template can ask
// for other nodes than the old one. A pod that could be nowhere would wait for ever, so it may be anywhere then, as pods
// without a domain may, which are replaced last.
func (r *reconciler) hasNodeFor(ctx context.Context, key, domain string, pod *corev1.Pod) (bool, error) {
	if domain == "" {
		return false, nil
	}
	var nodes corev1.NodeList
	if err := r.client.List(ctx, &nodes, client.MatchingLabels{key: domain}); err != nil {
		return false, fmt.Errorf("reading the nodes of %s: %w", domain, err)
	}
	affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
	return slices.ContainsFunc(nodes.Items, func(node corev1.Node) bool {
		matches, err := affinity.Match(&node)
		return err == nil && matches
	}), nil
}

// placeIn has a held pod scheduled in a domain only.
func placeIn(pod *corev1.Pod, key, domain string) shell.Operation {
	if pod.Spec.NodeSelector == nil {
		return shell.Add("/spec/nodeSelector", map[string]string{key: domain})
	}
	return shell.Add(shell.Pointer("spec", "nodeSelector", key), domain)
}
