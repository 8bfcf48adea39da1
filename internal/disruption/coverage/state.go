package coverage

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
	"vicinity.dev/vicinity/internal/kit/bools"
	"vicinity.dev/vicinity/internal/shift"
)

// StateOf makes the input of decisions from the objects of a budget.
func StateOf(w World) disruption.State {
	budget, term := BudgetOf(w.Budget)
	if isNone(budget.MaxUnavailable) {
		budget.Free, budget.Advances = term.LeftOut(maps.Values(w.Nodes)), len(term.exclusions()) == 1
	}
	selector, groupBy := Selector(w.Budget), w.Budget.Spec.GroupBy
	owners := findOwners(w, selector, groupBy)
	places := newPlaces(term, w.Nodes)
	for _, owner := range owners.found {
		for _, template := range owner.templates {
			places.use(&template.Spec)
		}
	}
	pods := make([]disruption.Pod, 0, len(w.Pods))
	for _, pod := range w.Pods {
		if !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		read := readPod(pod, groupBy)
		if asks := owners.ofPod(pod); asks != nil {
			read.Owner = owners.found[asks.UID].id
		}
		places.place(pod, &read)
		read.Shift = shiftOf(w, pod)
		pods = append(pods, read)
	}
	slices.SortFunc(pods, func(a, b disruption.Pod) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	s := disruption.State{
		Budget: budget, Domains: places.domains(), Owners: owners.list(groupBy), Pods: pods,
		Reservations: Reservations(&w.Budget.Status), Disturbed: disturbed(&w.Budget.Status),
	}
	limitGroups(&s, groupBy)
	return s
}

// shiftOf returns the ZoneShift that takes the node of a pod out of service.
func shiftOf(w World, pod *corev1.Pod) disruption.Shift {
	node := w.Nodes[pod.Spec.NodeName]
	if node == nil {
		return disruption.Shift{}
	}
	zs := shift.OfNodes(w.Shifts, node.Labels)
	if zs == nil {
		return disruption.Shift{}
	}
	return disruption.Shift{Name: zs.Name, Until: shift.Until(zs)}
}

// MostCells bounds groups times domains. Each cell has its own numbers.
const MostCells = 50_000

// limitGroups makes a budget with too many groups invalid, and puts all its pods into one group.
func limitGroups(s *disruption.State, groupBy string) {
	groups, domains := s.Groups(), len(s.Domains)
	if groups == 1 || groups*domains <= MostCells {
		return
	}
	if s.Budget.Invalid == "" {
		s.Budget.Invalid = fmt.Sprintf("spec.groupBy: the label %s puts the pods in %d groups, each with %d domains; groups x domains is %d, and at most %d are allowed",
			groupBy, groups, domains, groups*domains, MostCells)
	}
	for i := range s.Pods {
		s.Pods[i].Group = ""
	}
	for i := range s.Owners {
		s.Owners[i].Group, s.Owners[i].ManyGroups = "", false
	}
}

// Reservations converts the reservations of a status.
func Reservations(status *v1alpha1.TopologyDisruptionBudgetStatus) []disruption.Reservation {
	read := make([]disruption.Reservation, len(status.Reservations))
	for i, r := range status.Reservations {
		read[i] = disruption.Reservation{UID: string(r.UID), Pod: r.Pod, Expires: r.Expires.Time, Holder: r.Holder}
	}
	return read
}

// disturbed lists the disturbed domains of a status.
func disturbed(status *v1alpha1.TopologyDisruptionBudgetStatus) []disruption.DomainKey {
	var keys []disruption.DomainKey
	for i := range status.Domains {
		if d := &status.Domains[i]; d.Disturbed {
			keys = append(keys, disruption.DomainKey{Group: d.Group, Domain: d.Domain})
		}
	}
	return keys
}

func readPod(pod *corev1.Pod, groupBy string) disruption.Pod {
	read := disruption.Pod{
		UID: string(pod.UID), Name: pod.Name,
		// Only pods that are not stored have no phase.
		Pending:     pod.Status.Phase == corev1.PodPending || pod.Status.Phase == "",
		Finished:    isFinished(pod),
		Terminating: pod.DeletionTimestamp != nil,
	}
	if groupBy != "" {
		read.Group = pod.Labels[groupBy]
	}
	read.Ready, read.ReadySince = Readiness(pod)
	return read
}

func isFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Readiness returns whether a pod is ready, and since when.
func Readiness(pod *corev1.Pod) (ready bool, since time.Time) {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return true, c.LastTransitionTime.Time
		}
	}
	return false, time.Time{}
}

// MaxDomains bounds the domains of a status.
const MaxDomains = 500

// Status writes measures into a status. It leaves out reservations, podsObserved and conditions, which others write.
func Status(status *v1alpha1.TopologyDisruptionBudgetStatus, generation int64, m disruption.Measures) {
	status.ObservedGeneration = generation
	status.ExpectedPods, status.CurrentHealthy = count(m.Expected), count(m.Healthy)
	status.DesiredHealthy, status.DisruptionsAllowed = count(m.Desired), count(m.Allowed)
	status.DisturbedDomains = count(m.Disturbed)
	status.Domains = domainsOf(m.Domains)
}

// domainsOf lists domains by group and name. Of too many it keeps the ones with the least allowance.
func domainsOf(measures []disruption.DomainMeasure) []v1alpha1.DomainStatus {
	listed := slices.Clone(measures)
	if len(listed) > MaxDomains {
		slices.SortStableFunc(listed, func(a, b disruption.DomainMeasure) int {
			return cmp.Or(cmp.Compare(a.Allowed, b.Allowed), bools.Compare(b.Disturbed, a.Disturbed), comparePlaces(a, b))
		})
		listed = listed[:MaxDomains]
	}
	slices.SortStableFunc(listed, comparePlaces)
	domains := make([]v1alpha1.DomainStatus, len(listed))
	for i, m := range listed {
		domains[i] = v1alpha1.DomainStatus{
			Domain: m.Domain, Group: m.Group, Expected: count(m.Expected), Healthy: count(m.Healthy),
			Desired: count(m.Desired), Allowed: count(m.Allowed), Disturbed: m.Disturbed, Shift: m.Shift,
		}
	}
	return domains
}

func comparePlaces(a, b disruption.DomainMeasure) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Domain, b.Domain))
}

func count(n int) int32 { return int32(min(max(n, 0), math.MaxInt32)) }
