// Package pacing decides how far a workload may be scaled down now. The pods of a scale-down go in an order. The scale-down may remove as
// many of the first ones as TopologyDisruptionBudgets would let evict. Pods without a budget may always go.
//
// The controllers of Kubernetes delete these pods without asking. So their evictions are reserved before a smaller number is
// admitted: two scale-downs, or a scale-down and an eviction, never use the same allowance. The reserved pods must be the ones that are
// deleted:
//
//   - A StatefulSet deletes the highest ordinals.
//   - A ReplicaSet chooses by its ranking (package spread). If that depends on the age of pods, which may be equal and
//     depends on the moment, the reserved pods first get a deletion cost below all others. All reserved pods get
//     v1alpha1.AnnotationGoesUntil, so that internal/scaledown/controller leaves the costs of the workload alone. The mark outlives
//     a reservation that is given up. If other pods would go even with the marks, none may go. A cost of
//     another owner stays: then another pod may go.
//   - A workload of another kind is asked about by its subresource scale. All its reserved pods get the cost. If another object controls
//     its pods, none may go, unless that is a ReplicaSet, a StatefulSet or a Deployment: those are asked about themselves. A Scale
//     without a selector does not show pods of other controllers, so only the workload's own pods count.
//   - A Deployment lets its only ReplicaSet choose. During a rolling update several have pods, and the pods to go are unknown, so none
//     may go.
//
// A budget expects no more pods than the workload's replicas. So it stops counting a removed pod as soon as that is being
// deleted, although the pod may serve for long. While a covered pod of the workload is being deleted, no other may go.
package pacing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
	"vicinity.dev/vicinity/internal/disruption/reservation"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/scaledown/spread"
)

// ledger is the part of reservation.Ledger that a Pacer uses.
type ledger interface {
	Pods(ctx context.Context, namespace string, selector labels.Selector) ([]*corev1.Pod, error)
	Forecast(ctx context.Context, pods []*corev1.Pod) (admitted int, denial string, err error)
	Admit(context.Context, reservation.Request) (reservation.Answer, error)
	GiveUp(pod types.NamespacedName, uid types.UID, holder string)
	Hold(ctx context.Context, pod *corev1.Pod, holder string) error
	Covering(namespace string, labels map[string]string) []types.NamespacedName
}

// Pacer answers questions about scale-downs.
type Pacer struct {
	ledger ledger
	live   client.Reader
	writer client.Writer
	clock  clock.PassiveClock
}

// New makes a Pacer. It reads workloads live. The ledger's pods are at least as new.
func New(books ledger, live client.Reader, writer client.Writer) *Pacer {
	return &Pacer{ledger: books, live: live, writer: writer, clock: clock.RealClock{}}
}

// Question asks how far a workload may be scaled down.
type Question struct {
	Workload Workload // as stored
	Wanted   int32
	Holder   string // of reservations
	// Whole reserves nothing unless the whole scale-down is allowed.
	Whole bool
	// DryRun reserves nothing.
	DryRun bool
}

// Answer says how far a workload may be scaled down.
type Answer struct {
	// Replicas is the allowed number now: at least the wanted number, and at most the present one. The evictions of the removed pods are
	// reserved, except in a dry run, or if Whole is set and not all pods may go.
	Replicas int32
	// Denial says why Replicas is above the wanted number. It is empty otherwise.
	Denial string
}

// mostAtOnce bounds the pods of a step, and together the concurrent reservations.
const (
	mostAtOnce = 500
	together   = 32
	// costsSeen is the time for the ReplicaSet controller to see costs before it can see the smaller number, which comes by
	// another watch. Reading the pods again waits longer if Vicinity's own watch lacks the costs.
	costsSeen = 500 * time.Millisecond
)

// Ask answers a question.
func (p *Pacer) Ask(ctx context.Context, q Question) (Answer, error) {
	leaving, err := p.leavingOf(ctx, q)
	if err != nil {
		return Answer{}, err
	}
	if leaving.refusal != "" {
		return Answer{Replicas: q.Workload.Replicas, Denial: leaving.refusal}, nil
	}
	n, denial, err := p.ledger.Forecast(ctx, leaving.pods)
	if err != nil {
		return Answer{}, fmt.Errorf("asking the budgets of %s: %w", q.Workload, err)
	}
	if n > mostAtOnce && !q.Whole {
		n, denial = mostAtOnce, fmt.Sprintf("At most %d pods are removed at once.", mostAtOnce)
	}
	answer := Answer{Replicas: leaving.replicasWithout(n), Denial: denial}
	if q.DryRun || n == 0 || q.Whole && n < len(leaving.pods) {
		return answer, nil
	}
	reserved, denial, err := p.reserve(ctx, leaving.pods[:n], q.Holder)
	made := leaving.pods[:reserved]
	if err == nil && (reserved == n || !q.Whole) {
		var others string
		if others, err = p.mark(ctx, leaving, reserved); others != "" {
			reserved, denial = 0, others
		}
	}
	if err != nil || reserved < len(made) || reserved < n && q.Whole {
		p.giveUp(made, q.Holder)
	}
	if reserved < n {
		answer = Answer{Replicas: leaving.replicasWithout(reserved), Denial: denial}
	}
	return answer, err
}

// leaving has the pods of a scale-down, in their order.
type leaving struct {
	workload Workload
	selector labels.Selector
	owner    types.UID // of the pods
	wanted   int32
	pods     []*corev1.Pod
	// staying are the other pods of a ReplicaSet.
	staying []*corev1.Pod
	refusal string // why none may go now, besides budgets
}

// replicasWithout returns the replicas that remove at most the first n pods.
func (l leaving) replicasWithout(n int) int32 {
	if n == len(l.pods) {
		return l.wanted
	}
	fewest := int32(len(l.pods) + len(l.staying) - n)
	if l.workload.Kind == StatefulSet {
		ordinal, _ := ordinalOf(l.pods[n])
		fewest = ordinal - l.workload.start + 1
	}
	return min(l.workload.Replicas, max(l.wanted, fewest))
}

func (p *Pacer) leavingOf(ctx context.Context, q Question) (leaving, error) {
	l := leaving{workload: q.Workload, owner: q.Workload.Object.GetUID(), wanted: q.Wanted}
	var err error
	if l.selector, err = q.Workload.labelSelector(); err != nil {
		return l, err
	}
	if q.Workload.Kind == Deployment {
		set, unknown, err := p.onlySet(ctx, q.Workload, l.selector)
		if err != nil || set == nil {
			l.refusal = unknown
			return l, err
		}
		l.owner = set.UID
	}
	pods, others, err := p.podsOf(ctx, l)
	if err != nil {
		return l, err
	}
	l.refusal = p.stillGoing(pods)
	pods = slices.DeleteFunc(pods, func(pod *corev1.Pod) bool { return !isActive(pod) })
	if q.Workload.Kind == Scale && l.refusal == "" && !l.selector.Empty() && len(pods) < int(q.Workload.Replicas) {
		if l.refusal, err = p.between(ctx, l, len(pods), others); err != nil {
			return l, err
		}
	}
	if q.Workload.Kind == StatefulSet {
		l.pods = ordered(pods, q.Workload.start+q.Wanted)
		return l, nil
	}
	l.pods, l.staying = ranked(pods, len(pods)-int(q.Wanted), p.clock.Now())
	return l, nil
}

// podsOf lists the pods that the selector matches: those of the owner, and the others.
func (p *Pacer) podsOf(ctx context.Context, l leaving) (own, others []*corev1.Pod, err error) {
	pods, err := p.ledger.Pods(ctx, l.workload.Object.GetNamespace(), l.selector)
	for _, pod := range pods {
		if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && owner.UID == l.owner {
			own = append(own, pod)
		} else {
			others = append(others, pod)
		}
	}
	return own, others, err
}

// between returns a refusal if a workload of another kind lacks pods, and an object in between may control covered pods that its selector
// matches. It is unknown which of them a scale-down removes. Jobs count only if the workload has no pods of its own.
func (p *Pacer) between(ctx context.Context, l leaving, own int, others []*corev1.Pod) (refusal string, err error) {
	missing, paced := int(l.workload.Replicas)-own, map[types.UID]bool{}
	for _, pod := range others {
		if !isActive(pod) {
			continue
		}
		owner, group := metav1.OwnerReference{Kind: "no", Name: "controller"}, ""
		if found := metav1.GetControllerOfNoCopy(pod); found != nil {
			owner = *found
			group, _, _ = strings.Cut(owner.APIVersion, "/")
		}
		switch {
		case group == appsv1.GroupName:
			if _, known := paced[owner.UID]; !known {
				if paced[owner.UID], err = p.isFor(ctx, pod.Namespace, owner, l.owner); err != nil {
					return "", err
				}
			}
			if paced[owner.UID] {
				missing--
			}
		case group == batchv1.GroupName && own > 0:
		case p.isCovered(pod):
			refusal = fmt.Sprintf("It controls fewer pods than its replicas, and its selector matches pod %s of %s %s. Budgets cannot limit such a scale-down. To scale down without them, remove the label %s of the namespace.",
				pod.Name, owner.Kind, owner.Name, v1alpha1.PaceScaleDown)
		}
	}
	if missing <= 0 {
		return "", nil
	}
	return refusal, nil
}

// isFor reports whether a workload controls a ReplicaSet, a StatefulSet or a Deployment, or the Deployment of a ReplicaSet. It looks no
// further, because users can make objects control each other.
func (p *Pacer) isFor(ctx context.Context, namespace string, owner metav1.OwnerReference, workload types.UID) (bool, error) {
	for range 2 {
		if !slices.Contains([]Kind{ReplicaSet, StatefulSet, Deployment}, Kind(owner.Kind)) {
			return false, nil
		}
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind))
		if err := p.live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: owner.Name}, object); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		above := metav1.GetControllerOfNoCopy(object)
		if above == nil || above.UID == workload {
			return above != nil, nil
		}
		owner = *above
	}
	return false, nil
}

// stillGoing returns a refusal if covered pods are still being deleted.
func (p *Pacer) stillGoing(pods []*corev1.Pod) string {
	var names []string
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil && p.isCovered(pod) {
			names = append(names, pod.Name)
		}
	}
	slices.Sort(names)
	switch len(names) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("Pod %s is still being deleted.", names[0])
	}
	return fmt.Sprintf("%d pods are still being deleted, %s among them.", len(names), names[0])
}

func (p *Pacer) isCovered(pod *corev1.Pod) bool {
	return len(p.ledger.Covering(pod.Namespace, pod.Labels)) > 0
}

// onlySet returns the ReplicaSet of a Deployment that has pods or should have some, nil without one. Of several it is unknown which one
// would shrink, and the sentence says so.
func (p *Pacer) onlySet(ctx context.Context, w Workload, selector labels.Selector) (*appsv1.ReplicaSet, string, error) {
	var sets appsv1.ReplicaSetList
	if err := p.live.List(ctx, &sets, client.InNamespace(w.Object.GetNamespace()), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, "", fmt.Errorf("reading the ReplicaSets of %s: %w", w, err)
	}
	var found *appsv1.ReplicaSet
	for i := range sets.Items {
		set := &sets.Items[i]
		if !metav1.IsControlledBy(set, w.Object) || Of(set).Replicas == 0 && set.Status.Replicas == 0 {
			continue
		}
		if found != nil {
			return nil, fmt.Sprintf("A rolling update of %s is in progress; until it ends, the pods to remove are unknown.", w), nil
		}
		found = set
	}
	return found, "", nil
}

// ordered returns the pods of a StatefulSet from an ordinal upwards, the highest first.
func ordered(pods []*corev1.Pod, from int32) []*corev1.Pod {
	found := slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool {
		ordinal, ok := ordinalOf(pod)
		return !ok || ordinal < from
	})
	slices.SortFunc(found, func(a, b *corev1.Pod) int {
		first, _ := ordinalOf(a)
		second, _ := ordinalOf(b)
		return cmp.Compare(second, first)
	})
	return found
}

func ordinalOf(pod *corev1.Pod) (int32, bool) {
	n, err := strconv.ParseInt(pod.Name[strings.LastIndex(pod.Name, "-")+1:], 10, 32)
	return int32(n), err == nil
}

// ranked returns the n pods that a ReplicaSet deletes first, in order, and the others.
func ranked(pods []*corev1.Pod, n int, now time.Time) (gone, others []*corev1.Pod) {
	all := make([]spread.Pod, len(pods))
	byName := map[string]*corev1.Pod{}
	for i, pod := range pods {
		all[i], byName[pod.Name] = RankedPod(pod), pod
	}
	if len(pods) == 0 {
		return nil, nil
	}
	for i, p := range spread.Removed(all, all[0].Set, len(all), now) {
		if i < n {
			gone = append(gone, byName[p.Name])
		} else {
			others = append(others, byName[p.Name])
		}
	}
	return gone, others
}

// reserve reserves the evictions of pods. It gives up those after the first refusal.
func (p *Pacer) reserve(ctx context.Context, pods []*corev1.Pod, holder string) (reserved int, denial string, err error) {
	type result struct {
		answer reservation.Answer
		err    error
	}
	results := make([]result, len(pods))
	// Without the context's end: skipped pods would look reserved.
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), together, len(pods), func(i int) {
		results[i].answer, results[i].err = p.ledger.Admit(ctx, reservation.Request{Pod: pods[i], Holder: holder})
	})
	reserved = slices.IndexFunc(results, func(r result) bool { return r.err != nil || !r.answer.Allowed() })
	if reserved < 0 {
		return len(pods), "", nil
	}
	p.giveUp(pods[reserved:], holder)
	if reserved == 0 {
		err = results[0].err
	}
	if failed := results[reserved].err; failed != nil {
		return reserved, failed.Error(), err
	}
	return reserved, results[reserved].answer.Denial, nil
}

func (p *Pacer) giveUp(pods []*corev1.Pod, holder string) {
	for _, pod := range pods {
		p.ledger.GiveUp(client.ObjectKeyFromObject(pod), pod.UID, holder)
	}
}

// mark makes a ReplicaSet delete exactly the first n pods. If others would go nevertheless, it returns a sentence about them.
func (p *Pacer) mark(ctx context.Context, l leaving, n int) (others string, err error) {
	all := slices.Concat(l.pods, l.staying)
	if l.workload.Kind == StatefulSet || n == 0 || n == len(all) || !slices.ContainsFunc(all, p.isCovered) {
		return "", nil
	}
	tied, below := tiesOf(all, n)
	failed := make([]error, n)
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), together, n, func(i int) {
		switch {
		case RankedPod(all[i]).Foreign:
		case tied[i] || l.workload.Kind == Scale:
			failed[i] = p.write(ctx, all[i], below)
		default:
			failed[i] = p.write(ctx, all[i], "")
		}
	})
	if err := errors.Join(failed...); err != nil {
		return "", err
	}
	if err := command.Pause(ctx, costsSeen); err != nil {
		return "", err
	}
	pods, _, err := p.podsOf(ctx, l)
	if err != nil {
		return "", err
	}
	first, _ := ranked(slices.DeleteFunc(pods, func(pod *corev1.Pod) bool { return !isActive(pod) }), n, p.clock.Now())
	for _, pod := range first {
		if !slices.ContainsFunc(all[:n], func(reserved *corev1.Pod) bool { return reserved.UID == pod.UID }) {
			return fmt.Sprintf("The pods to remove have just changed: pod %s is now one of them.", pod.Name), nil
		}
	}
	return "", nil
}

// tiesOf finds which of the first n pods a ReplicaSet distinguishes from the others only by age. It also returns a cost below all others,
// empty if none exists.
func tiesOf(all []*corev1.Pod, n int) (tied []bool, below string) {
	pods, lowest := make([]spread.Pod, len(all)), int64(0)
	for i, pod := range all {
		pods[i] = RankedPod(pod)
		lowest = min(lowest, int64(pods[i].Cost))
	}
	ranking := spread.NewRanking(pods, time.Time{})
	tied = make([]bool, n)
	for i := range tied {
		tied[i] = slices.ContainsFunc(pods[n:], func(other spread.Pod) bool { return !ranking.TellsApart(&pods[i], &other) })
	}
	if lowest > math.MinInt32 {
		below = strconv.FormatInt(lowest-1, 10)
	}
	return tied, below
}

// write marks a pod for removal, with a deletion cost unless that is empty.
func (p *Pacer) write(ctx context.Context, pod *corev1.Pod, cost string) error {
	read := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}}
	until := p.clock.Now().Add(disruption.ReservationTime).UTC().Format(time.RFC3339)
	annotations := map[string]*string{v1alpha1.AnnotationGoesUntil: &until}
	if cost != "" { // a cost that another owner has set meanwhile must stay
		read.ResourceVersion = pod.ResourceVersion
		annotations[corev1.PodDeletionCost], annotations[v1alpha1.AnnotationDeletionCost] = &cost, &cost
	}
	if err := shell.Annotate(ctx, p.writer, read, &corev1.Pod{}, annotations); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("marking Pod %s/%s for removal: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// Hold extends the reservations and the marks of admitted pods that still exist. A controller of Kubernetes may take longer than a
// reservation: a StatefulSet deletes one pod after the other.
func (p *Pacer) Hold(ctx context.Context, w Workload, holder string) error {
	l, err := p.leavingOf(ctx, Question{Workload: w, Wanted: w.Replicas})
	if err != nil {
		return err
	}
	var failed []error
	for _, pod := range l.pods {
		failed = append(failed, p.ledger.Hold(ctx, pod, holder))
	}
	for _, pod := range l.pods {
		if _, marked := pod.Annotations[v1alpha1.AnnotationGoesUntil]; marked && !RankedPod(pod).Foreign {
			failed = append(failed, p.write(ctx, pod, ""))
		}
	}
	return errors.Join(failed...)
}
