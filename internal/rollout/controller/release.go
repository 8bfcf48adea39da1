package controller

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
	"vicinity.dev/vicinity/internal/disruption/requester"
	"vicinity.dev/vicinity/internal/disruption/reservation"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/rollout"
)

// shortTime is how long old ReplicaSets have to create the pods that they lack. Then pods of the revision are released instead.
const shortTime = 5 * time.Second

// release is a held pod to release.
type release struct {
	*member
	slot   string // the slot that it gets, empty for its own
	domain string // empty for any
}

// missing returns how many pods a Deployment lacks. Ready pods count. An unready pod counts if it is alone in its
// slot: beside another pod it is that pod's replacement. With hopeless, unready pods of the revision do not count.
func (f *fleet) missing(hopeless bool) int {
	ready, alone := map[string]int{}, map[string]bool{}
	for _, p := range f.members {
		switch {
		case podOf(p.Pod).Ready:
			ready[p.slot]++
		case !hopeless || p.revision != f.revision:
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

// toCome returns how many pods the ReplicaSets of old revisions still lack.
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

// replaceMissing returns the held pods to release so that the Deployment has all its replicas. The other held pods are
// for the replacement of old ones. A pod of the revision replaces a pod that the rollout has taken down. In other slots,
// pods of old revisions come first, because their ReplicaSets create pods only to replace and to scale. While the rollout is
// halted, they come first in all slots. With late, it does not wait for old ReplicaSets that create no pods.
func (f *fleet) replaceMissing(m *rollout.Memory, halted, late bool) (list []release) {
	lack := f.missing(m.Failure != nil)
	if lack <= 0 {
		return nil
	}
	var old, updated []*member
	for _, p := range f.held {
		if p.revision == f.revision {
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
	isAbandoned := func(p *member) bool { return slices.Contains(m.AbandonedRevisions, p.revision) }
	good := slices.DeleteFunc(slices.Clone(old), isAbandoned)
	bad := slices.DeleteFunc(old, func(p *member) bool { return !isAbandoned(p) })
	old = slices.Concat(good, bad)
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

// keepFull releases the pods that a Deployment lacks, and unmarks pods that stay after all.
func (r *reconciler) keepFull(ctx context.Context, n *notes, d *v1alpha1.DomainRollout, v *view) (time.Duration, error) {
	if err := r.unmark(ctx, v.fleet, &d.Status); err != nil {
		return 0, err
	}
	return r.fill(ctx, n, d, v.fleet, &d.Status)
}

// fillOnly releases the pods that a Deployment lacks while it is not updated by domain. It keeps the marks of pods that are about to be
// replaced, and removes others.
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

// isStuck reports whether the controller of a Deployment has not observed the last change for some time, for example because a
// quota refuses the ReplicaSet. Then it sets the target's revision to the last known one.
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

// behind waits until the controller of a workload has observed the last change, and reports a long wait. Meanwhile it releases the pods
// that a Deployment lacks, because pods of the old template are held, too.
func (r *reconciler) behind(ctx context.Context, n *notes, d *v1alpha1.DomainRollout, t *target) (time.Duration, error) {
	after, err := r.fillOnly(ctx, n, d, t)
	if err != nil || t.revision == "" && !n.isStuck(t, &d.Status, r.clock.Now()) {
		return shell.BehindWait, err
	}
	kind, name := d.Spec.TargetRef.Kind, t.object.GetName()
	status := *d.Status.DeepCopy()
	switch {
	case t.deployment != nil:
		status.WaitingFor = fmt.Sprintf("waits for Deployment %s to observe its last change; if this lasts, run: kubectl describe deployment %s", name, name)
	case t.object.GetDeletionTimestamp() != nil:
		status.WaitingFor = fmt.Sprintf("%s %s is being deleted, so it is not updated", kind, name)
	case t.isCustom:
		status.WaitingFor = fmt.Sprintf("waits for %s %s: its status.observedGeneration must reach its generation %d, and its status.updateRevision must name a revision. See the log of its controller", kind, name, t.object.GetGeneration())
	default:
		status.WaitingFor = fmt.Sprintf("waits for %s %s to observe its last change; check whether a quota or a webhook refuses its ControllerRevision", kind, name)
	}
	return shell.Sooner(after, shell.BehindWait), r.store(ctx, n, d, status, false)
}

// fill releases the pods that a Deployment lacks by a live read. It returns after how long to look again.
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

// liveFleet reads the pods of a Deployment live, and then the Deployment. In the other order, a scale-down in between would look
// like missing pods. It returns nil if the Deployment now has another revision.
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
	return newFleet(live, shell.Pointers(list.Items), m), nil
}

// due returns the targets that can be handled now, and a function that returns when to handle a target again. A paused
// Deployment deletes no pod, so it takes no more pods down.
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

// surge releases a new pod for an old one. The Deployment deletes the old pod when the new one is available.
func (r *reconciler) surge(ctx context.Context, n *notes, d *v1alpha1.DomainRollout, v *view, t rollout.Target) error {
	refused, err := r.releaseFor(ctx, n, d, v, t)
	if err != nil || refused == "" {
		return err
	}
	live, err := r.liveFleet(ctx, d, v.target, &d.Status)
	if err != nil || live == nil || live.isReleased(t) {
		return err // it has a replacement already, so it must keep its mark
	}
	return r.denied(ctx, n, d, t, refused)
}

// releaseFor releases a new pod for an old one that may go, or says why the old one may not.
func (r *reconciler) releaseFor(ctx context.Context, n *notes, d *v1alpha1.DomainRollout, v *view, t rollout.Target) (refused string, err error) {
	m, pod := &d.Status, v.pods[t.UID]
	if v.fleet.isReleased(t) {
		return "", r.hold(ctx, n, pod, t)
	}
	if cost, set := pod.Annotations[corev1.PodDeletionCost]; set && pod.Annotations[v1alpha1.AnnotationDeletionCost] != cost {
		return fmt.Sprintf("another owner set its annotation %s; remove it", corev1.PodDeletionCost), nil
	}
	if !v.fleet.hasHeld() {
		return "", nil // the creation of a held pod is an event
	}
	if podOf(pod).Ready && !v.fleet.isInTurn(pod, m) {
		// If a new pod became available now, the Deployment would delete a pod of another ReplicaSet. So this pod is evicted
		// first, and its slot is filled afterwards.
		return "", r.evict(ctx, n, d, v, []rollout.Target{t})
	}
	if other := v.fleet.foreign(pod, m); other != "" {
		return fmt.Sprintf("the Deployment would delete pod %s instead, because another owner set its annotation %s to %s; remove it", other, corev1.PodDeletionCost, v1alpha1.RolloutDeletionCost), nil
	}
	delete(n.refused, t.UID)
	if refused, err = r.reserve(ctx, d, pod, t); err != nil {
		now := r.clock.Now()
		n.unknown[t.UID] = now
		n.deny(t, "its budgets cannot be asked: "+err.Error(), false, now)
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
	if err != nil || live == nil || live.problem != nil || live.deployment.paused {
		return "", err
	}
	old := live.member(t.UID)
	if old == nil || !isMarked(old.Pod) || live.isReleased(t) || live.isTooMany(m) {
		return "", nil // the cache will show it
	}
	if podOf(old.Pod).Ready && (!podOf(pod).Ready || !live.isInTurn(old.Pod, m)) {
		return "", nil // its budgets were not asked, or the Deployment would delete another pod
	}
	for _, p := range live.held {
		if p.revision == live.revision {
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
	if i := slices.IndexFunc(f.members, func(p *member) bool { return string(p.UID) == uid }); i >= 0 {
		return f.members[i]
	}
	return nil
}

func (f *fleet) hasHeld() bool {
	return slices.ContainsFunc(f.held, func(p *member) bool { return p.revision == f.revision })
}

// isReleased reports whether an old pod is about to be deleted for a released new pod: the new pod is not ready yet, or the
// Deployment has a surplus pod.
func (f *fleet) isReleased(t rollout.Target) bool {
	old := f.member(t.UID)
	return old != nil && slices.ContainsFunc(f.members, func(p *member) bool {
		return p.slot == old.slot && p.revision == f.revision && (!podOf(p.Pod).Ready || len(f.members) > f.desired)
	})
}

// isTooMany reports whether the Deployment has surplus pods beyond those released for others. It is about to delete some, and would
// delete the wrong ones if more pods were released.
func (f *fleet) isTooMany(m *rollout.Memory) bool {
	surplus := len(f.members) - f.desired
	for i := range m.Replacements {
		if t := (rollout.Target{UID: string(m.Replacements[i].UID)}); f.isReleased(t) {
			surplus--
		}
	}
	return surplus > 0
}

// isInTurn reports whether the Deployment shrinks the pod's ReplicaSet next: it empties the ReplicaSets of old revisions one after the
// other.
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

// foreign names a pod that has the deletion cost of a mark from another owner: the ReplicaSet could delete it instead.
func (f *fleet) foreign(pod *corev1.Pod, m *rollout.Memory) string {
	for _, p := range f.members {
		if metav1.IsControlledBy(pod, p.set) && p.Annotations[corev1.PodDeletionCost] == v1alpha1.RolloutDeletionCost && !isMarked(p.Pod) && !isReplaced(m, p.Pod) {
			return p.Name
		}
	}
	return ""
}

// reserve asks all budgets about the eviction of a pod, and returns the refusal. It does not ask about an unready pod, which the
// Deployment deletes as soon as it can.
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
	// A denied attempt may be given up after the start of the next one, so each attempt has its own holder.
	answer, err := r.options.Budgets.Admit(ctx, reservation.Request{Pod: pod, Holder: requesterName + "/" + string(uuid.NewUUID())})
	if err != nil {
		return "", fmt.Errorf("reserving pod %s/%s with its budgets: %w", pod.Namespace, pod.Name, err)
	}
	return answer.Denial, nil
}

// hold renews the mark and the reservation of a pod that is about to be deleted.
func (r *reconciler) hold(ctx context.Context, n *notes, pod *corev1.Pod, t rollout.Target) error {
	ask(n.asked, t.UID, r.clock.Now(), longestWaiting)
	if err := r.mark(ctx, pod); err != nil || r.options.Budgets == nil || !podOf(pod).Ready {
		return err
	}
	return r.options.Budgets.Hold(ctx, pod, requesterName)
}

// mark makes the ReplicaSet delete a pod first. Only pods with a released replacement, or one that is about to be released, have a
// mark: each of them may be deleted as soon as one of the new pods is ready.
func (r *reconciler) mark(ctx context.Context, pod *corev1.Pod) error {
	written, set := pod.Annotations[corev1.PodDeletionCost]
	if isMarked(pod) || set && pod.Annotations[v1alpha1.AnnotationDeletionCost] != written {
		return nil
	}
	cost := v1alpha1.RolloutDeletionCost
	return r.writeCost(ctx, pod, &cost)
}

// unmark removes the marks of pods that stay after all.
func (r *reconciler) unmark(ctx context.Context, f *fleet, m *rollout.Memory) error {
	for _, p := range f.members {
		if isMarked(p.Pod) && (!isReplaced(m, p.Pod) && !f.hasSuccessor(p) || p.revision == f.revision) {
			if err := r.writeCost(ctx, p.Pod, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// hasSuccessor reports whether a pod was released for an existing old pod, even if a recreated DomainRollout does
// not know of it: the Deployment is about to delete a pod, and without the mark it could be any.
func (f *fleet) hasSuccessor(old *member) bool {
	return slices.ContainsFunc(f.members, func(p *member) bool {
		return p.UID != old.UID && p.revision == f.revision && slotOf(p.Pod) == old.slot && (!podOf(p.Pod).Ready || len(f.members) > f.desired)
	})
}

func isMarked(pod *corev1.Pod) bool {
	return pod.Annotations[corev1.PodDeletionCost] == v1alpha1.RolloutDeletionCost &&
		pod.Annotations[v1alpha1.AnnotationDeletionCost] == v1alpha1.RolloutDeletionCost
}

// writeCost sets or removes the deletion cost of a pod that is unchanged since it was read.
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
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.AnnotationReleasedAt, r.clock.Now().UTC().Format(time.RFC3339))
	if one.slot != "" {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.AnnotationReleasedFor, one.slot)
	}
	operations := []shell.Operation{
		shell.Guard(pod), removeGate(gateIn(pod.Spec.SchedulingGates)), shell.Add("/metadata/annotations", pod.Annotations),
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
	log.FromContext(ctx).Info("Pod released", "rollout", d.Name, "pod", pod.Name, "for", one.slot, "domain", one.domain, "revision", one.revision)
	return nil
}

// hasNodeFor reports whether a domain has a node for a pod. The domain may be gone, and a new template may require other nodes
// than the old one. A pod that fits nowhere in the domain would wait forever, so it may be placed anywhere.
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

// placeIn limits a held pod to a domain.
func placeIn(pod *corev1.Pod, key, domain string) shell.Operation {
	if pod.Spec.NodeSelector == nil {
		return shell.Add("/spec/nodeSelector", map[string]string{key: domain})
	}
	return shell.Add(shell.Pointer("spec", "nodeSelector", key), domain)
}
