// Package adopt decides which fields let a DomainRollout update a workload, and how the workload gets its own fields back. The
// command line reads workloads, writes the patches, and makes the DomainRollouts.
//
// Apply changes nothing twice. The annotation vicinity.dev/adopted records each field that it changes, also if the field was
// absent, and Undo gives back exactly that. Fields and record are one write, so a workload never has one without the other.
package adopt

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"vicinity.dev/vicinity/api/v1alpha1"
)

const (
	updateStrategy = "spec.updateStrategy"
	strategy       = "spec.strategy"
	gates          = "spec.template.spec.schedulingGates"

	onDelete = string(appsv1.OnDeleteStatefulSetStrategyType)
)

// wanted returns the value of a field under a DomainRollout, for the one before, nil if that is absent. It returns a right
// value unchanged.
type wanted func(before any) any

// fields are the fields that count, by kind and path.
var fields = map[string]map[string]wanted{
	v1alpha1.KindStatefulSet: {updateStrategy: setOnDelete},
	v1alpha1.KindDaemonSet:   {updateStrategy: setOnDelete},
	v1alpha1.KindDeployment:  {strategy: setSurge, gates: addGate},
}

// valueAt returns nil for an absent field.
func valueAt(w *unstructured.Unstructured, path string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(w.Object, strings.Split(path, ".")...)
	return value
}

func setOnDelete(before any) any {
	if fields, _ := before.(map[string]any); fields["type"] == onDelete {
		return before
	}
	return map[string]any{"type": onDelete}
}

// setSurge keeps maxSurge, unless it is 0 too: the API refuses that.
func setSurge(before any) any {
	fields, _ := before.(map[string]any)
	after, rolling, zero := map[string]any{}, map[string]any{}, []string{"0", "0%"}
	maps.Copy(after, fields)
	if before, isMap := fields["rollingUpdate"].(map[string]any); isMap {
		maps.Copy(rolling, before)
	}
	if !slices.Contains(zero, fmt.Sprint(rolling["maxUnavailable"])) {
		rolling["maxUnavailable"] = int64(0)
	}
	if slices.Contains(zero, fmt.Sprint(rolling["maxSurge"])) {
		rolling["maxSurge"] = int64(1)
	}
	after["type"], after["rollingUpdate"] = string(appsv1.RollingUpdateDeploymentStrategyType), rolling
	return after
}

func addGate(before any) any {
	if hasGate(before) {
		return before
	}
	list, _ := before.([]any)
	return append([]any{map[string]any{"name": v1alpha1.RolloutGate}}, list...) // where a strategic merge patch puts it
}

func hasGate(value any) bool {
	list, _ := value.([]any)
	return slices.ContainsFunc(list, func(item any) bool {
		gate, _ := item.(map[string]any)
		return gate["name"] == v1alpha1.RolloutGate
	})
}

// set writes a field, or removes it if the value is nil.
func set(w *unstructured.Unstructured, value any, path ...string) {
	if value == nil {
		unstructured.RemoveNestedField(w.Object, path...)
		return
	}
	_ = unstructured.SetNestedField(w.Object, value, path...) // cannot fail: the parents of a field are objects
}

// Change makes one version of a workload another.
type Change struct {
	// Patch is a strategic merge patch, without directives that only kubectl knows. It is nil if no field changes.
	Patch map[string]any
	// Notes say what the patch does to pods.
	Notes []string
}

// Apply sets the fields that a DomainRollout needs. An error is a reason to skip the workload.
func Apply(w *unstructured.Unstructured) (Change, error) {
	recorded, err := record(w)
	if err != nil {
		return Change{}, err
	}
	after, changes := w.DeepCopy(), false
	for path, want := range fields[w.GetKind()] {
		before := valueAt(w, path)
		if value := want(before); !reflect.DeepEqual(before, value) {
			recorded[path], changes = before, true
			set(after, value, strings.Split(path, ".")...)
		}
	}
	text, err := json.Marshal(recorded)
	if err != nil {
		return Change{}, fmt.Errorf("its fields cannot be recorded: %w", err)
	}
	if changes {
		set(after, string(text), "metadata", "annotations", v1alpha1.AnnotationAdopted)
	}
	return changeOf(w, after)
}

// record returns the fields before Apply, none for a workload that it has not changed.
func record(w *unstructured.Unstructured) (map[string]any, error) {
	recorded := map[string]any{}
	if text, adopted := w.GetAnnotations()[v1alpha1.AnnotationAdopted]; adopted {
		if err := json.Unmarshal([]byte(text), &recorded); err != nil || recorded == nil {
			return nil, fmt.Errorf("its annotation %s is not an object in JSON; write its fields yourself, and remove the annotation", v1alpha1.AnnotationAdopted)
		}
	}
	return recorded, nil
}

// Undo gives back the fields before Apply, and removes the record. A field that was changed since stays, and a note says so. An
// error is a reason to skip the workload.
func Undo(w *unstructured.Unstructured) (Change, error) {
	recorded, err := record(w)
	if err != nil {
		return Change{}, err
	}
	after := w.DeepCopy()
	var kept []string
	for path, want := range fields[w.GetKind()] {
		switch before, changed := recorded[path]; {
		case !changed:
		case reflect.DeepEqual(valueAt(w, path), want(before)):
			set(after, before, strings.Split(path, ".")...)
		default:
			kept = append(kept, path+" was changed since, and stays")
		}
	}
	set(after, nil, "metadata", "annotations", v1alpha1.AnnotationAdopted)
	slices.Sort(kept)
	change, err := changeOf(w, after)
	change.Notes = append(change.Notes, kept...)
	return change, err
}

func changeOf(before, after *unstructured.Unstructured) (Change, error) {
	typed := map[string]any{
		v1alpha1.KindStatefulSet: appsv1.StatefulSet{}, v1alpha1.KindDaemonSet: appsv1.DaemonSet{}, v1alpha1.KindDeployment: appsv1.Deployment{},
	}
	difference, err := strategicpatch.CreateTwoWayMergeMapPatch(before.Object, after.Object, typed[before.GetKind()])
	if err != nil {
		return Change{}, fmt.Errorf("its fields cannot be compared: %w", err)
	}
	if len(difference) == 0 {
		return Change{}, nil
	}
	patch := &unstructured.Unstructured{Object: difference}
	set(patch, nil, "spec", "strategy", "$retainKeys")
	set(patch, nil, "spec", "template", "spec", "$setElementOrder/schedulingGates")
	patch.SetAPIVersion(before.GetAPIVersion())
	patch.SetKind(before.GetKind())
	patch.SetNamespace(before.GetNamespace())
	patch.SetName(before.GetName())
	return Change{Patch: patch.Object, Notes: notes(before, after)}, nil
}

func notes(before, after *unstructured.Unstructured) (list []string) {
	wasGated, isGated := hasGate(valueAt(before, gates)), hasGate(valueAt(after, gates))
	switch {
	case !wasGated && isGated:
		list = append(list, "the scheduling gate changes the pod template, so all pods are replaced once, by domain. While no vicinity-controller runs, new pods are not scheduled")
	case wasGated && !isGated:
		list = append(list, "without the scheduling gate the pod template changes, so the Deployment replaces all pods, in any order and without asking a budget")
	case valueAt(before, updateStrategy+".type") == onDelete && valueAt(after, updateStrategy+".type") != onDelete:
		list = append(list, "it replaces pods of old revisions by itself again, in any domain and without asking a budget")
	}
	if partition := partitionOf(before); partition > 0 {
		list = append(list, fmt.Sprintf("the DomainRollout also updates the pods below its partition %d", partition))
	}
	return list
}

// Refusal says why a workload is not adopted by the change of Apply, and is empty if it is. rollout is the DomainRollout that it
// has already, and named is set if the user has named the workload.
func (c Change) Refusal(w *unstructured.Unstructured, rollout string, named bool) string {
	owner, isDeployment := metav1.GetControllerOf(w), w.GetKind() == v1alpha1.KindDeployment
	switch {
	case rollout != "" && c.Patch == nil:
		return "the DomainRollout " + rollout + " updates it already"
	case owner != nil:
		return fmt.Sprintf("%s %s controls it and can set its fields again; change them there, and create a DomainRollout", owner.Kind, owner.Name)
	case isDeployment && valueAt(w, strategy+".type") == string(appsv1.RecreateDeploymentStrategyType):
		return "with its strategy Recreate old and new pods never run together, but an update by domain needs that; set RollingUpdate first if they can"
	case named:
		return ""
	case valueAt(w, "spec.replicas") == int64(0):
		return "it has 0 replicas; name it to adopt it"
	case !isDeployment && partitionOf(w) > 0:
		return fmt.Sprintf("its partition %d holds pods back, and an update by domain replaces them too; name it to adopt it", partitionOf(w))
	case !isDeployment && c.Patch == nil:
		return "its strategy is OnDelete already, so a person or another program replaces its pods; name it to adopt it"
	}
	return ""
}

func partitionOf(w *unstructured.Unstructured) int64 {
	partition, _ := valueAt(w, updateStrategy+".rollingUpdate.partition").(int64)
	return partition
}
