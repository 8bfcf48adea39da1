// Package coverage finds which pods a TopologyDisruptionBudget covers, in which failure domains they
// are, and how many pods their owners ask for. StateOf makes a disruption.State from the objects of a cluster. Status
// writes the measures of package disruption into the status of a budget, and Problems reports what is wrong with the budget.
//
// The package decides no eviction and reads no cluster. A World has the objects that its caller knows at one moment. It never
// changes, and no result depends on the time of the call.
package coverage

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// World has the objects that determine the state of a budget.
type World struct {
	Budget *v1alpha1.TopologyDisruptionBudget
	// Pods are all pods of the namespace. Pods outside the selector count if their owner also has pods inside.
	Pods []*corev1.Pod
	// Nodes are all nodes of the cluster by name, including those of LostNodes that exist.
	Nodes map[string]*corev1.Node
	// Workloads are all Deployments, ReplicaSets, StatefulSets and DaemonSets of the namespace, and the owners of OwnerRefs.
	Workloads []Workload
	// Shifts are all ZoneShifts of the cluster.
	Shifts []*v1alpha1.ZoneShift
}

// Workload is an object that asks for pods.
type Workload struct {
	Ref
	// Controller is the controller of the workload, as a Deployment is of its ReplicaSets.
	Controller *Ref
	Replicas   int32
	// AsIs says that the number of replicas is unknown, so that the existing pods are expected.
	AsIs bool
	// Template of the pods, nil if unknown. Its labels, node selector and node affinity count.
	Template *corev1.PodTemplateSpec
	// DeletesDirectly says that a rollout deletes pods without an eviction before their replacements are available.
	DeletesDirectly bool
}

// Ref names an object of the budget's namespace.
type Ref struct {
	APIVersion, Kind, Name string
	UID                    types.UID
}

// Group is the API group.
func (r Ref) Group() string {
	group, _, found := strings.Cut(r.APIVersion, "/")
	if !found {
		return ""
	}
	return group
}

// ID is kind/name. Kinds that are not built in have their API group as well.
func (r Ref) ID() string {
	kind := schema.GroupKind{Kind: r.Kind}
	if group := r.Group(); group != appsv1.GroupName && group != corev1.GroupName && group != batchv1.GroupName {
		kind.Group = group
	}
	return kind.String() + "/" + r.Name
}

func controllerOf(object metav1.Object) *Ref {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil {
		return nil
	}
	return &Ref{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID}
}

func workload(object metav1.Object, apiVersion schema.GroupVersion, kind string, replicas *int32, template *corev1.PodTemplateSpec) Workload {
	w := Workload{
		Ref:        Ref{APIVersion: apiVersion.String(), Kind: kind, Name: object.GetName(), UID: object.GetUID()},
		Controller: controllerOf(object), Replicas: 1, Template: template,
	}
	if replicas != nil {
		w.Replicas = *replicas
	}
	return w
}

// OfObject reads a workload of a built-in kind. It returns nil for any other object.
func OfObject(object any) *Workload {
	switch o := object.(type) {
	case *appsv1.Deployment:
		return new(OfDeployment(o))
	case *appsv1.ReplicaSet:
		return new(OfReplicaSet(o))
	case *appsv1.StatefulSet:
		return new(OfStatefulSet(o))
	case *appsv1.DaemonSet:
		return new(OfDaemonSet(o))
	}
	return nil
}

// SameWorkload reports whether two versions of a workload are the same for budgets.
func SameWorkload[O any](before, after O) bool {
	return equality.Semantic.DeepEqual(OfObject(before), OfObject(after))
}

// OfDeployment reads a Deployment.
func OfDeployment(d *appsv1.Deployment) Workload {
	w := workload(d, appsv1.SchemeGroupVersion, "Deployment", d.Spec.Replicas, &d.Spec.Template)
	w.DeletesDirectly = true
	if rolling := d.Spec.Strategy.RollingUpdate; rolling != nil {
		w.DeletesDirectly = goesBelow(rolling.MaxSurge, rolling.MaxUnavailable, w.Replicas, false)
	}
	return w
}

// OfReplicaSet reads a ReplicaSet.
func OfReplicaSet(r *appsv1.ReplicaSet) Workload {
	return workload(r, appsv1.SchemeGroupVersion, "ReplicaSet", r.Spec.Replicas, &r.Spec.Template)
}

// OfStatefulSet reads a StatefulSet.
func OfStatefulSet(s *appsv1.StatefulSet) Workload {
	w := workload(s, appsv1.SchemeGroupVersion, "StatefulSet", s.Spec.Replicas, &s.Spec.Template)
	w.DeletesDirectly = s.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType
	return w
}

// OfDaemonSet reads a DaemonSet.
func OfDaemonSet(d *appsv1.DaemonSet) Workload {
	w := workload(d, appsv1.SchemeGroupVersion, "DaemonSet", &d.Status.DesiredNumberScheduled, &d.Spec.Template)
	w.DeletesDirectly = d.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType
	if rolling := d.Spec.UpdateStrategy.RollingUpdate; rolling != nil && w.DeletesDirectly {
		w.DeletesDirectly = goesBelow(rolling.MaxSurge, rolling.MaxUnavailable, w.Replicas, true)
	}
	return w
}

// goesBelow reports whether a rollout makes fewer pods available than requested. Deployments round a percentage of
// maxUnavailable down, DaemonSets up. If both numbers are zero, both kinds delete one pod at a time.
func goesBelow(surge, unavailable *intstr.IntOrString, replicas int32, up bool) bool {
	of := func(amount *intstr.IntOrString, up bool) int {
		scaled, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(amount, intstr.FromInt32(0)), int(replicas), up)
		if err != nil {
			return 0 // the API server refuses such an amount
		}
		return scaled
	}
	return of(unavailable, up) > 0 || of(surge, true) == 0
}

// OfScale makes a workload from the replicas of a subresource scale.
func OfScale(ref Ref, replicas int32) Workload { return Workload{Ref: ref, Replicas: replicas} }

// WithoutScale makes a workload from an object that does not exist, or whose kind has no subresource scale.
func WithoutScale(ref Ref) Workload { return Workload{Ref: ref, AsIs: true} }
