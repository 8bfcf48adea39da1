package coverage

import (
	"cmp"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/disruption"
)

// MostOwners bounds the owners that are asked for their replicas. Each costs a request, and a tenant can invent owners in pods.
const MostOwners = 100

// OwnerRefs lists the owners of selected pods whose replicas the world lacks: the first MostOwners by ID. The caller
// reads each and adds it to Workloads: OfScale, WithoutScale, or an object that its cache lacked. If one
// cannot be read, the state of the budget is unknown. The pods of all other owners are expected as they are.
func OwnerRefs(w World) []Ref {
	known := workloadsByUID(w.Workloads)
	missing := map[types.UID]Ref{}
	climb := func(from *Workload) {
		if from.climbs() && known[from.Controller.UID] == nil {
			missing[from.Controller.UID] = *from.Controller
		}
	}
	selector := Selector(w.Budget)
	for _, pod := range w.Pods {
		ref := controllerOf(pod)
		if ref == nil || isFinished(pod) || ref.hasNoReplicas() || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if owner := known[ref.UID]; owner != nil {
			climb(owner)
		} else {
			missing[ref.UID] = *ref
		}
	}
	for i := range w.Workloads {
		if found := &w.Workloads[i]; found.makes(selector) {
			climb(found)
		}
	}
	refs := slices.SortedFunc(maps.Values(missing), compareRefs)
	return refs[:min(len(refs), MostOwners)]
}

func compareRefs(a, b Ref) int {
	return cmp.Or(cmp.Compare(a.ID(), b.ID()), cmp.Compare(a.UID, b.UID))
}

// hasNoReplicas reports whether the pods of an object are expected as they are.
func (r Ref) hasNoReplicas() bool {
	switch r.Group() {
	case corev1.GroupName:
		return r.Kind == "Node" // of static pods
	case batchv1.GroupName:
		return true
	}
	return false
}

// climbs reports whether the workload's controller decides the number of replicas, as a Deployment does for its ReplicaSets. During a
// rollout a Deployment has two.
func (w *Workload) climbs() bool {
	return w.Kind == "ReplicaSet" && w.Group() == appsv1.GroupName && w.Controller != nil && !w.Controller.hasNoReplicas()
}

// makes reports whether a workload asks for pods that the selector matches.
func (w *Workload) makes(selector labels.Selector) bool {
	return w.Template != nil && w.Replicas > 0 && !w.AsIs && selector.Matches(labels.Set(w.Template.Labels))
}

func workloadsByUID(workloads []Workload) map[types.UID]*Workload {
	known := make(map[types.UID]*Workload, len(workloads))
	for i := range workloads {
		known[workloads[i].UID] = &workloads[i]
	}
	return known
}

// owners are the owners of the pods of a budget.
type owners struct {
	known map[types.UID]*Workload
	found map[types.UID]*owner
}

type owner struct {
	*Workload
	id     string
	groups map[string]bool // of its pods
	others int32           // pods outside the selector
	// templates are the owner's own template and those of its ReplicaSets.
	templates []*corev1.PodTemplateSpec
}

// of returns the workload that decides how many pods an object should have, nil if none does.
func (o *owners) of(uid types.UID) *Workload {
	w := o.known[uid]
	if w != nil && w.climbs() {
		if above := o.known[w.Controller.UID]; above != nil && !above.AsIs {
			return above
		}
	}
	if w == nil || w.AsIs {
		return nil
	}
	return w
}

func (o *owners) add(w *Workload) *owner {
	if o.found[w.UID] == nil {
		o.found[w.UID] = &owner{Workload: w, groups: map[string]bool{}}
	}
	return o.found[w.UID]
}

// findOwners finds the owners of selected pods, and workloads that ask for such pods and have none now: a StatefulSet
// with one replica has none between the end of its pod and the start of the next.
func findOwners(w World, selector labels.Selector, groupBy string) *owners {
	o := &owners{known: workloadsByUID(w.Workloads), found: map[types.UID]*owner{}}
	for i := range w.Workloads {
		made := &w.Workloads[i]
		if !made.makes(selector) {
			continue
		}
		if asks := o.of(made.UID); asks != nil {
			found := o.add(asks)
			found.templates = append(found.templates, made.Template)
		}
	}
	for _, pod := range w.Pods {
		if !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if asks := o.ofPod(pod); asks != nil {
			if owner := o.add(asks); !isFinished(pod) {
				owner.groups[pod.Labels[groupBy]] = true
			}
		}
	}
	for _, pod := range w.Pods {
		if selector.Matches(labels.Set(pod.Labels)) || pod.DeletionTimestamp != nil || isFinished(pod) {
			continue
		}
		if asks := o.ofPod(pod); asks != nil && o.found[asks.UID] != nil {
			o.found[asks.UID].others++
		}
	}
	byID := map[string]int{}
	for _, found := range o.found {
		byID[found.ID()]++
	}
	for _, found := range o.found {
		found.id = found.ID()
		if byID[found.id] > 1 { // one was deleted and created again, and its old pods still exist
			found.id += "/" + string(found.UID)
		}
	}
	return o
}

func (o *owners) ofPod(pod *corev1.Pod) *Workload {
	ref := controllerOf(pod)
	if ref == nil {
		return nil
	}
	return o.of(ref.UID)
}

// list converts the owners, in the order of their IDs.
func (o *owners) list(groupBy string) []disruption.Owner {
	list := make([]disruption.Owner, 0, len(o.found))
	for _, found := range o.found {
		listed := disruption.Owner{ID: found.id, Replicas: int(max(0, found.Replicas-found.others))}
		if groupBy != "" {
			listed.Group, listed.ManyGroups = found.group(groupBy)
		}
		list = append(list, listed)
	}
	slices.SortFunc(list, func(a, b disruption.Owner) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// group returns the group of the pods that an owner asks for. Without the label in its template, each pod gets its group
// elsewhere, and a missing pod may belong to any group.
func (o *owner) group(groupBy string) (group string, many bool) {
	groups := maps.Clone(o.groups)
	for _, template := range o.templates {
		value, found := template.Labels[groupBy]
		if !found {
			return "", true
		}
		groups[value] = true
	}
	if len(groups) != 1 {
		return "", true
	}
	for group = range groups {
	}
	return group, false
}

// DirectDeleters lists, by ID, the owners of selected pods whose rollouts delete pods without an eviction before their replacements
// are available. It includes an owner whose template now has other labels: it is about to delete covered pods.
func DirectDeleters(w World) []Ref {
	owners := findOwners(w, Selector(w.Budget), "")
	var refs []Ref
	for _, found := range owners.found {
		if found.DeletesDirectly {
			refs = append(refs, found.Ref)
		}
	}
	slices.SortFunc(refs, compareRefs)
	return refs
}

// WayOut says how a direct deleter of a kind can respect a budget.
func WayOut(kind string) string {
	if kind == "Deployment" {
		return "strategy.type: RollingUpdate with rollingUpdate.maxUnavailable: 0 deletes a pod only once its replacement is available"
	}
	return "updateStrategy.type: OnDelete leaves the pods alone, and a DomainRollout evicts them by failure domain, as budgets allow"
}
