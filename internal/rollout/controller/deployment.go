package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/rollout"
)

// deployment has the fields of a target that only Deployments have.
type deployment struct {
	// sets are its ReplicaSets, in the order in which its controller shrinks those of old revisions.
	sets   []*appsv1.ReplicaSet
	paused bool
	number int // of the revision
}

// readDeployment reads the ReplicaSets. The ReplicaSet with the Deployment's revision number has its template, unless another
// has a higher number: a Deployment that returns to an earlier template numbers the ReplicaSet first.
func (t *target) readDeployment(ctx context.Context, reader client.Reader, w *appsv1.Deployment) error {
	d := &deployment{paused: w.Spec.Paused, number: numberOf(w)}
	t.kind, t.deployment, t.desired, t.problem = rollout.Surge, d, int(ptr.Deref(w.Spec.Replicas, 1)), checkDeployment(w)
	var list appsv1.ReplicaSetList
	if err := reader.List(ctx, &list, client.InNamespace(w.Namespace)); err != nil {
		return fmt.Errorf("reading the ReplicaSets of %s/%s: %w", w.Namespace, w.Name, err)
	}
	for i := range list.Items {
		set := &list.Items[i]
		if !metav1.IsControlledBy(set, w) {
			continue
		}
		d.sets = append(d.sets, set)
		if w.Status.ObservedGeneration == w.Generation && d.number > 0 && numberOf(set) == d.number {
			t.revision = hashOf(set)
		}
	}
	if slices.ContainsFunc(d.sets, d.isAhead) {
		t.revision = ""
	}
	slices.SortFunc(d.sets, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return nil
}

// numberOf returns the revision number of an object, 0 without one.
func numberOf(object client.Object) int {
	number, err := strconv.Atoi(object.GetAnnotations()[v1alpha1.AnnotationDeploymentRevision])
	if err != nil {
		return 0
	}
	return number
}

// isAhead reports whether a ReplicaSet has a template that the Deployment has not numbered yet.
func (d *deployment) isAhead(set *appsv1.ReplicaSet) bool { return numberOf(set) > d.number }

// hashOf returns the revision of a ReplicaSet as in the label of its pods.
func hashOf(set *appsv1.ReplicaSet) string {
	return set.Spec.Template.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
}

// set returns the Deployment's ReplicaSet of a pod, or nil.
func (d *deployment) set(pod *corev1.Pod) *appsv1.ReplicaSet {
	owner := metav1.GetControllerOfNoCopy(pod)
	for _, set := range d.sets {
		if owner != nil && owner.UID == set.UID {
			return set
		}
	}
	return nil
}

// checkDeployment says why the pods of a Deployment cannot be updated in order, nil if they can.
func checkDeployment(w *appsv1.Deployment) *problem {
	rolling := w.Spec.Strategy.RollingUpdate
	switch {
	case w.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType:
		return &problem{reasonStrategy, fmt.Sprintf("spec.strategy.type of Deployment %s is %s, which deletes all its pods at once; set it to RollingUpdate, with maxUnavailable: 0", w.Name, w.Spec.Strategy.Type)}
	case rolling == nil || rolling.MaxUnavailable == nil || rolling.MaxUnavailable.String() != "0" && rolling.MaxUnavailable.String() != "0%":
		value := "25%"
		if rolling != nil && rolling.MaxUnavailable != nil {
			value = rolling.MaxUnavailable.String()
		}
		return &problem{reasonStrategy, fmt.Sprintf("spec.strategy.rollingUpdate.maxUnavailable of Deployment %s is %s, so it deletes pods of any domain before their replacements are ready; set it to 0", w.Name, value)}
	case !hasGate(w.Spec.Template.Spec.SchedulingGates):
		return &problem{reasonNotGated, fmt.Sprintf("Deployment %s creates pods without the scheduling gate, so it replaces them in any domain; add {name: %s} to its spec.template.spec.schedulingGates", w.Name, v1alpha1.RolloutGate)}
	}
	return nil
}

func hasGate(gates []corev1.PodSchedulingGate) bool { return gateIn(gates) >= 0 }

// slotOf returns the slot that a pod was released for, or its own. A value that cannot be the name of a pod comes from another owner, and
// must not get into the status.
func slotOf(pod *corev1.Pod) string {
	slot := pod.Annotations[v1alpha1.AnnotationReleasedFor]
	if len(validation.IsDNS1123Subdomain(slot)) > 0 {
		return pod.Name
	}
	return slot
}

// releasedAt returns when a pod was released, zero if it was not held.
func releasedAt(pod *corev1.Pod) time.Time {
	at, err := time.Parse(time.RFC3339, pod.Annotations[v1alpha1.AnnotationReleasedAt])
	if err != nil {
		return time.Time{}
	}
	return at
}

// isHeld reports whether a pod waits to be released.
func isHeld(pod *corev1.Pod) bool { return hasGate(pod.Spec.SchedulingGates) }

func isActive(pod *corev1.Pod) bool { return !podOf(pod).Terminating }

// member is a pod of a Deployment with a slot.
type member struct {
	*corev1.Pod
	set      *appsv1.ReplicaSet
	slot     string
	revision string
}

// fleet is the pods of a Deployment at one moment.
type fleet struct {
	*target
	// members are active, ending are terminating or finished, held wait at the gate and have no slot. All are sorted by age.
	members, ending, held []*member
}

func newFleet(t *target, pods []*corev1.Pod, m *rollout.Memory) *fleet {
	f := &fleet{target: t}
	for _, pod := range pods {
		set := t.deployment.set(pod)
		if set == nil {
			continue
		}
		one := &member{Pod: pod, set: set, slot: slotOf(pod), revision: hashOf(set)}
		switch active := isActive(pod); {
		case isHeld(pod) && active && !t.deployment.isAhead(set):
			f.held = append(f.held, one)
		case isHeld(pod):
		case active:
			f.members = append(f.members, one)
		default:
			f.ending = append(f.ending, one)
		}
	}
	for _, list := range [][]*member{f.members, f.ending, f.held} {
		slices.SortFunc(list, func(a, b *member) int {
			return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
		})
	}
	f.divide(m)
	return f
}

// divide gives each pod a slot. While the pod of a slot is being replaced, the slot has one old pod, which is the replaced one or else the
// first, and the new pods that were released for it. Every other pod has its own slot.
func (f *fleet) divide(m *rollout.Memory) {
	shared := map[string][]*member{}
	for _, p := range f.members {
		shared[p.slot] = append(shared[p.slot], p)
	}
	for slot, pods := range shared {
		e := replacementOf(m, slot)
		keeps := pods[0]
		for _, p := range pods {
			switch isOld := p.revision != f.revision; {
			case e == nil && p.Name == slot, e != nil && p.UID == e.UID, e != nil && isOld && keeps.revision == f.revision:
				keeps = p
			}
		}
		for _, p := range pods {
			if p != keeps && (e == nil || p.revision != f.revision) {
				p.slot = p.Name
			}
		}
	}
}

func replacementOf(m *rollout.Memory, slot string) *v1alpha1.RolloutReplacement {
	for i := range m.Replacements {
		if m.Replacements[i].Slot == slot {
			return &m.Replacements[i]
		}
	}
	return nil
}

// isReplaced reports whether the rollout takes the pod down.
func isReplaced(m *rollout.Memory, pod *corev1.Pod) bool {
	return slices.ContainsFunc(m.Replacements, func(e v1alpha1.RolloutReplacement) bool { return e.UID == pod.UID })
}

// slots returns the slots with a pod. Up to the number of replicas it adds slots whose pod was taken down or is terminating, and then slots
// for pods that do not exist yet, which count in all domains.
func (f *fleet) slots(m *rollout.Memory) []rollout.Slot {
	names := map[string]bool{}
	for _, p := range f.members {
		names[p.slot] = true
	}
	add := func(name string) {
		if len(names) < f.desired {
			names[name] = true
		}
	}
	for i := range m.Replacements {
		add(m.Replacements[i].Slot)
	}
	for _, p := range f.ending {
		add(p.slot)
	}
	return rollout.Slots(names, f.desired)
}

// podsOf adds the slots and the pods of a Deployment to a view, without held pods.
func (v *view) podsOf(f *fleet, place func(*corev1.Pod) string) {
	v.fleet = f
	for _, p := range slices.Concat(f.members, f.ending) {
		v.pods[string(p.UID)] = p.Pod
		read := podOf(p.Pod)
		read.Slot, read.Revision, read.Domain, read.Released = p.slot, p.revision, place(p.Pod), releasedAt(p.Pod)
		v.state.Pods = append(v.state.Pods, read)
	}
	v.state.Slots = f.slots(&v.state.Memory)
}

// restoreDeployment writes the template of a revision into a Deployment, as kubectl rollout undo does. It adds the gate if the old template
// lacks it.
func (r *reconciler) restoreDeployment(ctx context.Context, n *notes, t *target, revision string) error {
	stored := &appsv1.ReplicaSet{}
	at := slices.IndexFunc(t.deployment.sets, func(set *appsv1.ReplicaSet) bool { return hashOf(set) == revision })
	err := error(nil)
	if at >= 0 {
		err = r.live.Get(ctx, client.ObjectKeyFromObject(t.deployment.sets[at]), stored)
	}
	if at < 0 || apierrors.IsNotFound(err) {
		n.problem = fmt.Sprintf("the ReplicaSet of revision %s is gone (spec.revisionHistoryLimit); write its template", revision)
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading ReplicaSet %s/%s: %w", t.object.GetNamespace(), t.deployment.sets[at].Name, err)
	}
	template := stored.Spec.Template.DeepCopy()
	delete(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	if !hasGate(template.Spec.SchedulingGates) {
		template.Spec.SchedulingGates = append(template.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: v1alpha1.RolloutGate})
	}
	if w, ok := t.object.(*appsv1.Deployment); ok && equality.Semantic.DeepEqual(&w.Spec.Template, template) {
		n.problem = fmt.Sprintf("the template already equals that of revision %s plus the scheduling gate; write another template", revision)
		return nil
	}
	err = shell.Patch(ctx, r.client, t.object, []shell.Operation{shell.Guard(t.object), shell.Replace("/spec/template", template)})
	if err != nil && !shell.IsChanged(err) {
		n.problem = fmt.Sprintf("the template cannot be written: %v", err)
		return fmt.Errorf("restoring revision %s of %s/%s: %w", revision, t.object.GetNamespace(), t.object.GetName(), err)
	}
	if err == nil {
		n.problem = ""
	}
	return err
}

// whyStays says that no held pod exists to release for an old one. It is empty if the old pod waits for something else.
func (f *fleet) whyStays(name string) string {
	old := slices.IndexFunc(f.members, func(p *member) bool { return p.Name == name })
	updated := slices.IndexFunc(f.deployment.sets, func(set *appsv1.ReplicaSet) bool { return hashOf(set) == f.revision })
	if old < 0 || updated < 0 || f.hasHeld() || f.isReleased(rollout.Target{UID: string(f.members[old].UID)}) {
		return ""
	}
	return fmt.Sprintf("the Deployment has created no replacement yet; if this lasts, run: kubectl describe replicaset %s", f.deployment.sets[updated].Name)
}

// whyUnplaced returns what the scheduler says about a pod, empty if it says nothing.
func (r *reconciler) whyUnplaced(ctx context.Context, namespace, name string) string {
	pod := &corev1.Pod{}
	if err := r.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pod); err != nil {
		return "" // the sentence already says that the pod has no node
	}
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		// The scheduler's message about a gate outlasts the gate for a moment.
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && (c.Reason != corev1.PodReasonSchedulingGated || len(pod.Spec.SchedulingGates) > 0) {
			return c.Message
		}
	}
	return ""
}
