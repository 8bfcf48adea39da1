package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/scheduling"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/rollout"
	"vicinity.dev/vicinity/internal/shift"
	"vicinity.dev/vicinity/internal/topology"
)

// defaultDeadline holds if the spec has no deadline.
const defaultDeadline = 10 * time.Minute

// overdueTime is how long a DaemonSet has to create a pod. After that its node is read, to check whether the DaemonSet should.
const overdueTime = 10 * time.Second

// view is a workload with its pods at one moment.
type view struct {
	*target
	pods    map[string]*corev1.Pod // by UID
	domains map[string]bool        // of all nodes
	fleet   *fleet                 // nil unless it is a Deployment
	version string                 // of the pods, or a later one
	state   *rollout.State
}

// isSeen reports whether the cache has reached the version of pods in the status.
func (r *reconciler) isSeen(ctx context.Context, d *v1alpha1.DomainRollout) (bool, error) {
	needs := d.Status.PodsObserved
	if shell.AtLeast(r.pods.LastStoreSyncResourceVersion(), needs) {
		return true, nil
	}
	reached, err := shell.HasReached(ctx, r.live, d.Namespace, needs)
	return err == nil && !reached, err
}

// read returns the input of the next step, without refusals and the query.
func (r *reconciler) read(ctx context.Context, d *v1alpha1.DomainRollout, t *target) (*view, error) {
	v := &view{target: t, pods: map[string]*corev1.Pod{}, domains: map[string]bool{}}
	var list corev1.NodeList
	if err := r.client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("reading nodes: %w", err)
	}
	nodes := make(map[string]*corev1.Node, len(list.Items))
	for i := range list.Items {
		node := &list.Items[i]
		nodes[node.Name] = node
		v.domains[node.Labels[d.Spec.TopologyKey]] = true
	}
	found, err := r.cachedPods(t)
	if err != nil {
		return nil, err
	}
	v.version = r.pods.LastStoreSyncResourceVersion() // only after the pods are read
	place := func(on string, pod *corev1.Pod) string {
		if node := nodes[on]; node != nil {
			return node.Labels[d.Spec.TopologyKey]
		}
		return pod.Labels[d.Spec.TopologyKey] // Kubernetes sets zone and region on pods
	}
	v.state = &rollout.State{Spec: specOf(&d.Spec), Kind: t.kind, Revision: t.revision, Slots: t.slots, Memory: d.Status}
	daemons, isDaemon := t.object.(*appsv1.DaemonSet)
	if t.deployment != nil {
		v.podsOf(newFleet(t, found, &v.state.Memory), func(pod *corev1.Pod) string { return place(pod.Spec.NodeName, pod) })
		found = nil
	}
	for _, pod := range found {
		v.pods[string(pod.UID)] = pod
		read := podOf(pod)
		on := pod.Spec.NodeName
		if isDaemon {
			on = nodeOf(pod)
			read.Slot = on
		}
		read.Domain = place(on, pod)
		v.state.Pods = append(v.state.Pods, read)
	}
	slices.SortFunc(v.state.Pods, func(a, b rollout.Pod) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID)) })
	if v.state.Shift, err = r.shiftOf(ctx, v, nodes); err != nil {
		return nil, err
	}
	if t.isCustom {
		rollout.AssignSlots(v.state, t.desired, r.clock.Now())
	}
	if isDaemon {
		if v.state.Memory.Replacements, err = r.withoutLost(ctx, daemons, v.state); err != nil {
			return nil, err
		}
		v.daemonSlots(nodes, d.Spec.TopologyKey)
	}
	return v, nil
}

// shiftOf returns the ZoneShift that takes a node with a pod of the workload out of service until the latest time.
func (r *reconciler) shiftOf(ctx context.Context, v *view, nodes map[string]*corev1.Node) (last rollout.Shift, err error) {
	var list v1alpha1.ZoneShiftList
	if err := r.client.List(ctx, &list); err != nil {
		return last, fmt.Errorf("reading ZoneShifts: %w", err)
	}
	var used []topology.Labels
	for _, pod := range v.pods {
		if node := nodes[pod.Spec.NodeName]; node != nil {
			used = append(used, node.Labels)
		}
	}
	if zs := shift.OfNodes(shell.Pointers(list.Items), used...); zs != nil {
		last = rollout.Shift{Name: zs.Name, Key: zs.Spec.From.Key, Domain: zs.Spec.From.Value, Until: shift.Until(zs)}
	}
	return last, nil
}

// withoutLost drops replacements on nodes that no longer match a DaemonSet: no pod will be created there.
func (r *reconciler) withoutLost(ctx context.Context, daemons *appsv1.DaemonSet, s *rollout.State) ([]v1alpha1.RolloutReplacement, error) {
	var left []v1alpha1.RolloutReplacement
	for _, e := range s.Memory.Replacements {
		if isOverdue(&e, r.clock.Now()) && !slices.ContainsFunc(s.Pods, func(p rollout.Pod) bool { return p.Slot == e.Slot }) {
			// The cached nodes have no taints. A deleted node has no slot anyway.
			var list corev1.NodeList
			if err := r.live.List(ctx, &list, client.MatchingFields{metav1.ObjectNameField: e.Slot}); err != nil {
				return nil, fmt.Errorf("reading node %s: %w", e.Slot, err)
			}
			if len(list.Items) > 0 && !wantsPodOn(&list.Items[0], &daemons.Spec.Template.Spec) {
				continue
			}
		}
		left = append(left, e)
	}
	return left, nil
}

// isOverdue reports whether a pod has been gone for longer than a DaemonSet takes to create another one.
func isOverdue(e *v1alpha1.RolloutReplacement, now time.Time) bool {
	return e.Stage == rollout.Gone && !now.Before(e.Since.Add(overdueTime))
}

// wantsPodOn reports whether a DaemonSet should have a pod on a node. Its controller adds tolerations for the taints of Kubernetes itself.
func wantsPodOn(node *corev1.Node, spec *corev1.PodSpec) bool {
	if matches, err := nodeaffinity.NewRequiredNodeAffinity(spec.NodeSelector, spec.Affinity).Match(node); err != nil || !matches {
		return err != nil
	}
	return !scheduling.IsKeptOff(spec, node, func(taint *corev1.Taint) bool { return !strings.HasPrefix(taint.Key, "node.kubernetes.io/") })
}

// cachedPods returns the pods that a workload controls. For a Deployment, whose pods have several controllers, it returns all pods of
// the namespace, because only a single read has the pods of one moment.
func (r *reconciler) cachedPods(t *target) ([]*corev1.Pod, error) {
	index, value := indexController, string(t.object.GetUID())
	if t.deployment != nil {
		index, value = toolscache.NamespaceIndex, t.object.GetNamespace()
	}
	found, err := r.pods.ByIndex(index, value)
	if err != nil {
		return nil, fmt.Errorf("reading pods: %w", err)
	}
	pods := make([]*corev1.Pod, 0, len(found))
	for _, object := range found {
		if pod, ok := object.(*corev1.Pod); ok && pod.Namespace == t.object.GetNamespace() {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// daemonSlots adds the nodes with a pod of the DaemonSet or with a replacement. The status has the number of other nodes that
// should have a pod, but not which, so each of these counts in all domains.
func (v *view) daemonSlots(nodes map[string]*corev1.Node, key string) {
	names := map[string]bool{}
	for i := range v.state.Pods {
		names[v.state.Pods[i].Slot] = true
	}
	for i := range v.state.Memory.Replacements {
		names[v.state.Memory.Replacements[i].Slot] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if node := nodes[name]; node != nil {
			v.state.Slots = append(v.state.Slots, rollout.Slot{Name: name, Domain: node.Labels[key], HasDomain: true})
		}
	}
	for n := len(v.state.Slots); n < v.desired; n++ {
		v.state.Slots = append(v.state.Slots, rollout.Slot{Name: "of a node without one (" + strconv.Itoa(n+1) + ")"})
	}
}

// podOf reads a pod, except for its domain, and for its slot if it is of a DaemonSet or a Deployment.
func podOf(pod *corev1.Pod) rollout.Pod {
	p := rollout.Pod{
		UID: string(pod.UID), Name: pod.Name, Slot: pod.Name, Revision: pod.Labels[appsv1.ControllerRevisionHashLabelKey],
		Placed: pod.Spec.NodeName != "", Since: pod.CreationTimestamp.Time,
		Terminating: pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			p.Ready = c.Status == corev1.ConditionTrue
			if !c.LastTransitionTime.IsZero() {
				p.Since = c.LastTransitionTime.Time
			}
		}
	}
	if pod.DeletionTimestamp != nil {
		p.Since = pod.DeletionTimestamp.Time
	}
	return p
}

// specOf reads a spec that is valid by the schema.
func specOf(s *v1alpha1.DomainRolloutSpec) rollout.Spec {
	gate := ptr.Deref(s.HealthGate, v1alpha1.HealthGate{})
	spec := rollout.Spec{
		Order: s.Order, MaxUnavailable: amountOf(s.MaxUnavailable), PauseBefore: s.PauseBefore, Paused: s.Paused,
		Bake:     ptr.Deref(s.BakeTime, metav1.Duration{}).Duration,
		ReadyFor: ptr.Deref(gate.ReadyFor, metav1.Duration{}).Duration,
		Deadline: ptr.Deref(gate.ProgressDeadline, metav1.Duration{Duration: defaultDeadline}).Duration,
		HasQuery: gate.Prometheus != nil, RollsBack: s.OnFailure == v1alpha1.FailureRollback,
	}
	// The schema admits only values from 0 to 1000.
	if percent, err := strconv.ParseFloat(strings.TrimSuffix(gate.MaxOverload, "%"), 64); err == nil && percent >= 0 && percent <= 1000 {
		spec.MaxOverload = new(percent / 100)
	}
	if w := s.Waves; w != nil {
		spec.Waves = rollout.Waves{
			Exponential: w.Type == v1alpha1.WavesExponential, Most: int(ptr.Deref(w.Most, 0)), Domains: int(ptr.Deref(w.Domains, 0)), All: w.Type == v1alpha1.WavesAll,
		}
	}
	if a := s.Approved; a != nil {
		spec.Approved = rollout.Approved{Revision: a.Revision, Domains: a.Domains, FailuresBefore: ptr.Deref(a.FailuresBefore, metav1.Time{}).Time}
	}
	if s.Stop != nil {
		spec.Stop = rollout.Stop{Revision: s.Stop.Revision}
		if s.Stop.Action == v1alpha1.StopRollback {
			spec.Stop.Action = rollout.Rollback
		}
	}
	return spec
}

func amountOf(n *intstr.IntOrString) rollout.Amount {
	if n == nil {
		return rollout.Amount{Value: 1}
	}
	if n.Type == intstr.Int {
		return rollout.Amount{Value: max(1, n.IntValue())}
	}
	percent, err := strconv.Atoi(strings.TrimSuffix(n.StrVal, "%"))
	if err != nil || percent < 1 || percent > 100 {
		return rollout.Amount{Value: 1}
	}
	return rollout.Amount{Value: percent, Percent: true}
}
