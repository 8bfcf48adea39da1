package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"vicinity.dev/vicinity/api/v1alpha1"
)

const kruise = "apps.kruise.io/v1alpha1"

// readScale serves the subresource scale of objects. Without spec.replicas it fails as Kubernetes does.
func readScale(object, scale client.Object) error {
	of, isAny := object.(*unstructured.Unstructured)
	into, isAlso := scale.(*unstructured.Unstructured)
	if !isAny || !isAlso {
		return fmt.Errorf("the scale of %T is read into %T", object, scale)
	}
	replicas, found, err := unstructured.NestedInt64(of.Object, "spec", "replicas")
	if err != nil || !found {
		return errors.Join(err, apierrors.NewInternalError(errors.New(`the spec replicas field ".spec.replicas" does not exist`)))
	}
	into.Object = map[string]any{"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": map[string]any{"replicas": replicas}}
	return nil
}

// cloned makes a CloneSet the target, with the pods of the StatefulSet of the same name.
func cloned(t *testing.T, change func(w *world, spec map[string]any)) *world {
	t.Helper()
	w := newWorld(t, "CloneSet", appsv1.RollingUpdateStatefulSetStrategyType)
	w.patch(func(d *v1alpha1.DomainRollout) { d.Spec.TargetRef.APIVersion = kruise })
	spec := map[string]any{"replicas": int64(4), "updateStrategy": map[string]any{"paused": true}}
	set := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": kruise, "kind": "CloneSet", "metadata": map[string]any{"namespace": "shop", "name": "db", "uid": "clones", "generation": int64(1)},
		"spec": spec, "status": map[string]any{"observedGeneration": int64(1), "updateRevision": "db-2"},
	}}
	if change != nil {
		change(w, spec)
	}
	if err := w.client.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	return w
}

// A workload of an unknown kind is updated by domain by its contract, and read again without an event.
func TestCustomWorkloadsAreUpdated(t *testing.T) {
	w := cloned(t, nil)
	result := w.sync("db", 2*unknownTime)
	if d := w.rollout("db"); !slices.Equal(w.asked, []string{"db-1"}) || d.Status.Revision != "db-2" || !slices.Equal(d.Status.CurrentDomains, []string{"a"}) {
		t.Fatalf("evictions of %v are requested, and the status is %+v", w.asked, d.Status)
	}
	if result.RequeueAfter == 0 || result.RequeueAfter > customTime {
		t.Errorf("it requeues after %v", result.RequeueAfter)
	}
	// The pod with a new name takes the place of db-1.
	old := &corev1.Pod{}
	if err := w.client.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "db-1"}, old); err != nil {
		t.Fatal(err)
	}
	replacement := old.DeepCopy()
	replacement.Name, replacement.UID, replacement.ResourceVersion = "db-x7k2p", "new", ""
	replacement.Labels[appsv1.ControllerRevisionHashLabelKey] = "db-2"
	replacement.Status.Conditions[0].Status = corev1.ConditionFalse
	if err := errors.Join(w.client.Delete(t.Context(), old), w.client.Create(t.Context(), replacement)); err != nil {
		t.Fatal(err)
	}
	w.version++
	w.sync("db", time.Second)
	if d := w.rollout("db"); len(d.Status.Replacements) != 1 || d.Status.Replacements[0].Slot != "db-1" || !strings.Contains(d.Status.WaitingFor, "db-x7k2p") {
		t.Errorf("the status is %+v", d.Status)
	}
	if !slices.Equal(w.asked, []string{"db-1"}) {
		t.Errorf("evictions of %v are requested", w.asked)
	}
}

func TestCustomWorkloadsKeepTheContract(t *testing.T) {
	for _, test := range []struct {
		name            string
		change          func(w *world, spec map[string]any)
		reason, message string
	}{
		{"it replaces pods itself", func(_ *world, spec map[string]any) { spec["updateStrategy"] = map[string]any{"type": "ReCreate"} }, reasonNotOnDelete, "spec.updateStrategy.paused to true"},
		{"no strategy", func(_ *world, spec map[string]any) { delete(spec, "updateStrategy") }, reasonNotOnDelete, "spec.updateStrategy.type to OnDelete"},
		{"a partition", func(_ *world, spec map[string]any) {
			spec["updateStrategy"] = map[string]any{"paused": true, "partition": "50%\x1b[2J"}
		}, reasonStrategy, "partition of CloneSet db is 50%\uFFFD[2J, so"},
		{"no scale", func(w *world, _ map[string]any) {
			w.r.client = interceptor.NewClient(w.client, interceptor.Funcs{SubResourceGet: func(context.Context, client.Client, string, client.Object, client.Object, ...client.SubResourceGetOption) error {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "clonesets/scale"}, "db")
			}})
		}, reasonKind, "has no subresource scale"},
		{"no replicas", func(_ *world, spec map[string]any) { delete(spec, "replicas") }, reasonKind, `the spec replicas field ".spec.replicas" does not exist`},
		{"a kind that is not served", func(w *world, _ map[string]any) {
			w.r.live = refusing(w, &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "apps.kruise.io", Kind: "CloneSet"}})
		}, reasonKind, "the cluster serves no CloneSet of " + kruise},
		{"no rights", func(w *world, _ map[string]any) {
			w.r.live = refusing(w, apierrors.NewForbidden(schema.GroupResource{Group: "apps.kruise.io", Resource: "clonesets"}, "db", errors.New("no")))
		}, reasonForbidden, `clonesets.apps.kruise.io "db" is forbidden: no. Create a ClusterRole with this right and the label vicinity.dev/aggregate-to-controller: "true"`},
		{"no such object", func(w *world, _ map[string]any) {
			w.r.live = refusing(w, apierrors.NewNotFound(schema.GroupResource{}, "db"))
		}, reasonNotFound, "there is no CloneSet db"},
		{"new pods of an old revision", func(w *world, _ map[string]any) {
			d := w.rollout("db")
			d.Status.Revision, d.Status.PreviousRevision = "db-2", "db-1"
			d.Status.History = []v1alpha1.RolloutTransition{{Event: "RolloutBegan", Time: metav1.Unix(90000, 0)}}
			pod := &corev1.Pod{}
			if err := errors.Join(w.client.Status().Update(w.Context(), d), w.client.Get(w.Context(), types.NamespacedName{Namespace: "shop", Name: "db-3"}, pod)); err != nil {
				w.Fatal(err)
			}
			again := pod.DeepCopy()
			again.ResourceVersion, again.CreationTimestamp = "", metav1.Unix(90100, 0)
			if err := errors.Join(w.client.Delete(w.Context(), pod), w.client.Create(w.Context(), again)); err != nil {
				w.Fatal(err)
			}
		}, reasonKind, `created pod db-3 with the label controller-revision-hash="db-1", and its status.updateRevision is "db-2"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := cloned(t, test.change)
			result := w.sync("db", 2*unknownTime)
			valid := meta.FindStatusCondition(w.rollout("db").Status.Conditions, v1alpha1.ConditionValid)
			if valid == nil || valid.Status != metav1.ConditionFalse || valid.Reason != test.reason || !strings.Contains(valid.Message, test.message) {
				t.Errorf("the condition is %+v", valid)
			}
			if len(w.asked) > 0 || result.RequeueAfter == 0 || result.RequeueAfter > customTime {
				t.Errorf("evictions of %v are requested, and it requeues after %v", w.asked, result.RequeueAfter)
			}
		})
	}
}

// refusing is a reader that answers each Get with an error.
func refusing(w *world, err error) client.Reader {
	return interceptor.NewClient(w.client, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return err
		},
	})
}
