package reservation

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/disruption/coverage"
)

// gate is the PodDisruptionBudget of a pod, which Kubernetes asks after the webhooks. If it is going to refuse, nothing is reserved:
// the reservation would only block other evictions.
type gate struct {
	pdb      *policyv1.PodDisruptionBudget
	selector labels.Selector
}

// denial is a refusal that comes from no TopologyDisruptionBudget.
type denial struct {
	reason, message string
	unsupported     bool
}

// gateOf returns the gate of a pod, nil without one, or why the gate is closed.
func (w *world) gateOf(pod *corev1.Pod) (*gate, *denial) {
	return gateAmong(pod, ofType[*policyv1.PodDisruptionBudget](inNamespace(w.pdbs, pod.Namespace)))
}

// RefusedByPDB says why PodDisruptionBudgets refuse the eviction of a pod. It is empty if they do not.
func RefusedByPDB(pod *corev1.Pod, pdbs []*policyv1.PodDisruptionBudget) string {
	if _, denial := gateAmong(pod, pdbs); denial != nil {
		return denial.message
	}
	return ""
}

func gateAmong(pod *corev1.Pod, pdbs []*policyv1.PodDisruptionBudget) (*gate, *denial) {
	// Kubernetes asks no PodDisruptionBudget about such pods.
	if isGoing(pod) || pod.Status.Phase == corev1.PodPending {
		return nil, nil
	}
	var found []*gate
	for _, pdb := range pdbs {
		selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
		if err == nil && selector.Matches(labels.Set(pod.Labels)) {
			found = append(found, &gate{pdb, selector})
		}
	}
	switch len(found) {
	case 0:
		return nil, nil
	case 1:
		return found[0].of(pod)
	}
	names := make([]string, len(found))
	for i, g := range found {
		names[i] = g.pdb.Name
	}
	slices.Sort(names)
	return nil, &denial{
		reason: reasonSeveral, unsupported: true,
		message: fmt.Sprintf("Pod %s has more than one PodDisruptionBudget: %s. Kubernetes evicts no such pod. Delete all but one of them.",
			pod.Name, strings.Join(names, ", ")),
	}
}

// of applies the rules of the eviction API.
func (g *gate) of(pod *corev1.Pod) (*gate, *denial) {
	status := &g.pdb.Status
	if !isReady(pod) {
		if policy := g.pdb.Spec.UnhealthyPodEvictionPolicy; policy != nil && *policy == policyv1.AlwaysAllow ||
			status.CurrentHealthy >= status.DesiredHealthy && status.DesiredHealthy > 0 {
			return nil, nil
		}
	}
	switch {
	case status.ObservedGeneration < g.pdb.Generation:
		return nil, &denial{reason: reasonPDB, message: fmt.Sprintf("PodDisruptionBudget %s has just changed, and Kubernetes has not counted its pods yet. Try again.", g.pdb.Name)}
	case status.DisruptionsAllowed <= 0:
		return nil, g.closed()
	}
	return g, nil
}

func (g *gate) closed() *denial {
	status := &g.pdb.Status
	return &denial{reason: reasonPDB, message: fmt.Sprintf(
		"PodDisruptionBudget %s allows no eviction now: it has %d healthy pods and must keep %d. Nothing is reserved in TopologyDisruptionBudgets. Try again.",
		g.pdb.Name, status.CurrentHealthy, status.DesiredHealthy)}
}

// refuses returns a denial if pending evictions use up the allowance of the PodDisruptionBudget.
func (g *gate) refuses(c *commit, pod types.UID) *denial {
	if g == nil {
		return nil
	}
	var coming int32
	for i := range c.next.Status.Reservations {
		r := &c.next.Status.Reservations[i]
		if _, taken := g.pdb.Status.DisruptedPods[r.Pod]; taken || r.UID == pod {
			continue
		}
		other := c.queue.ledger.world.pod(types.NamespacedName{Namespace: c.queue.key.Namespace, Name: r.Pod})
		if other != nil && other.UID == r.UID && !isGoing(other) && isReady(other) && g.selector.Matches(labels.Set(other.Labels)) {
			coming++
		}
	}
	if coming >= g.pdb.Status.DisruptionsAllowed {
		return g.closed()
	}
	return nil
}

func isReady(pod *corev1.Pod) bool {
	ready, _ := coverage.Readiness(pod)
	return ready
}
