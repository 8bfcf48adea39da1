package adopt

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// workload reads the fields of a workload, as YAML without the head.
func workload(t testing.TB, kind, fields string) *unstructured.Unstructured {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte("apiVersion: apps/v1\nkind: " + kind + "\nmetadata: {namespace: shop, name: db}\n" + fields))
	if err != nil {
		t.Fatal(err)
	}
	w := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &w.Object); err != nil {
		t.Fatal(err)
	}
	return w
}

// typedOf converts a workload, so that absent and empty fields are equal.
func typedOf(t testing.TB, w *unstructured.Unstructured) (typed any) {
	t.Helper()
	switch w.GetKind() {
	case v1alpha1.KindStatefulSet:
		typed = &appsv1.StatefulSet{}
	case v1alpha1.KindDaemonSet:
		typed = &appsv1.DaemonSet{}
	default:
		typed = &appsv1.Deployment{}
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(w.Object, typed); err != nil {
		t.Fatal(err)
	}
	return typed
}

// patched applies the patch of a change, as the API server does.
func patched(t testing.TB, w *unstructured.Unstructured, change Change, err error) *unstructured.Unstructured {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal(w.Object)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := json.Marshal(change.Patch)
	if err != nil {
		t.Fatal(err)
	}
	text, err := strategicpatch.StrategicMergePatch(before, patch, typedOf(t, w))
	if err != nil {
		t.Fatal(err)
	}
	after := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &after.Object); err != nil {
		t.Fatal(err)
	}
	return after
}

// TestUndoGivesBackWhatWasThere adopts workloads twice, and undoes that.
func TestUndoGivesBackWhatWasThere(t *testing.T) {
	const gate = "template: {spec: {schedulingGates: [{name: vicinity.dev/rollout}]}}"
	for _, test := range []struct{ name, kind, spec, want, notes string }{
		{"the default of a StatefulSet", v1alpha1.KindStatefulSet, "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 0}}", "updateStrategy: {type: OnDelete}", ""},
		{"a partition", v1alpha1.KindStatefulSet, "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 3, maxUnavailable: 2}}", "updateStrategy: {type: OnDelete}", "partition 3"},
		{"a StatefulSet without a strategy", v1alpha1.KindStatefulSet, "replicas: 3", "replicas: 3, updateStrategy: {type: OnDelete}", ""},
		{"a DaemonSet", v1alpha1.KindDaemonSet, "updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 10%, maxSurge: 0}}", "updateStrategy: {type: OnDelete}", ""},
		{"OnDelete", v1alpha1.KindDaemonSet, "updateStrategy: {type: OnDelete, rollingUpdate: {maxUnavailable: 1}}", "", ""},
		{
			"the default of a Deployment", v1alpha1.KindDeployment, "strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 25%, maxSurge: 25%}}, template: {spec: {}}",
			"strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 0, maxSurge: 25%}}, " + gate, "all pods are replaced once",
		},
		{
			"a Deployment without surge", v1alpha1.KindDeployment, "strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1, maxSurge: 0}}, template: {spec: {}}",
			"strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}, " + gate, "all pods are replaced once",
		},
		{
			"a gate of another owner", v1alpha1.KindDeployment, "strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 0%, maxSurge: 1}}, template: {spec: {schedulingGates: [{name: a}, {name: b}]}}",
			"strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 0%, maxSurge: 1}}, template: {spec: {schedulingGates: [{name: vicinity.dev/rollout}, {name: a}, {name: b}]}}", "all pods are replaced once",
		},
		{
			"the gate alone", v1alpha1.KindDeployment, "strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1, maxSurge: 1}}, " + gate,
			"strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}, " + gate, "",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := workload(t, test.kind, "spec: {"+test.spec+"}")
			change, err := Apply(before)
			if (change.Patch == nil) != (test.want == "") {
				t.Fatalf("patch %v", change.Patch)
			}
			if test.want == "" {
				return
			}
			if notes := strings.Join(change.Notes, "; "); !strings.Contains(notes, test.notes) || test.notes == "" && notes != "" {
				t.Errorf("notes %q, want %q", notes, test.notes)
			}
			adopted := patched(t, before, change, err)
			want := workload(t, test.kind, "spec: {"+test.want+"}")
			want.SetAnnotations(adopted.GetAnnotations())
			if !equality.Semantic.DeepEqual(typedOf(t, adopted), typedOf(t, want)) {
				t.Errorf("adopted it is\n%v\nwant\n%v", adopted.Object, want.Object)
			}
			if again, err := Apply(adopted); err != nil || again.Patch != nil {
				t.Errorf("the second patch is %v, %v", again.Patch, err)
			}
			back, err := Undo(adopted)
			if after := patched(t, adopted, back, err); !equality.Semantic.DeepEqual(typedOf(t, after), typedOf(t, before)) {
				t.Errorf("undone it is\n%v\nwant\n%v", after.Object, before.Object)
			}
			if again, err := Undo(before); err != nil || again.Patch != nil {
				t.Errorf("undoing twice patches %v, %v", again.Patch, err)
			}
		})
	}
}

func TestUndoKeepsLaterChanges(t *testing.T) {
	w := workload(t, v1alpha1.KindDeployment, "spec: {strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1, maxSurge: 1}}, template: {spec: {}}}")
	change, err := Apply(w)
	adopted := patched(t, w, change, err)
	set(adopted, int64(5), "spec", "strategy", "rollingUpdate", "maxSurge")
	back, err := Undo(adopted)
	after := patched(t, adopted, back, err)
	if surge := valueAt(after, "spec.strategy.rollingUpdate.maxSurge"); surge != int64(5) || hasGate(valueAt(after, gates)) || len(after.GetAnnotations()) > 0 {
		t.Errorf("undone it is %v", after.Object)
	}
	if !slices.Contains(back.Notes, "spec.strategy was changed since, and stays") {
		t.Errorf("notes %q", back.Notes)
	}
	// The present fields are recorded when another owner has reset them.
	adopted = patched(t, w, change, nil)
	set(adopted, map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxUnavailable": int64(7), "maxSurge": int64(1)}}, "spec", "strategy")
	change, err = Apply(adopted)
	again := patched(t, adopted, change, err)
	back, err = Undo(again)
	if after := patched(t, again, back, err); valueAt(after, "spec.strategy.rollingUpdate.maxUnavailable") != int64(7) || hasGate(valueAt(after, gates)) {
		t.Errorf("undone it is %v", after.Object)
	}
}

func TestRefusal(t *testing.T) {
	for _, test := range []struct {
		kind, fields, rollout string
		named, owned          bool
		want                  string
	}{
		{v1alpha1.KindStatefulSet, "spec: {}", "", false, false, ""},
		{v1alpha1.KindStatefulSet, "spec: {}", "db", false, false, ""},
		{v1alpha1.KindStatefulSet, "spec: {updateStrategy: {type: OnDelete}}", "db", true, false, "the DomainRollout db updates it already"},
		{v1alpha1.KindStatefulSet, "spec: {updateStrategy: {type: OnDelete}}", "", false, false, "OnDelete already"},
		{v1alpha1.KindStatefulSet, "spec: {updateStrategy: {type: OnDelete}}", "", true, false, ""},
		{v1alpha1.KindStatefulSet, "spec: {replicas: 0}", "", false, false, "0 replicas"},
		{v1alpha1.KindStatefulSet, "spec: {replicas: 0}", "", true, false, ""},
		{v1alpha1.KindStatefulSet, "spec: {}", "", true, true, "Database main controls it"},
		{v1alpha1.KindDeployment, "spec: {strategy: {type: Recreate}, template: {spec: {}}}", "", true, false, "Recreate"},
	} {
		w := workload(t, test.kind, test.fields)
		if test.owned {
			w.SetOwnerReferences([]metav1.OwnerReference{{Kind: "Database", Name: "main", Controller: new(true)}})
		}
		change, err := Apply(w)
		if err != nil {
			t.Fatal(err)
		}
		if got := change.Refusal(w, test.rollout, test.named); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s %s with DomainRollout %q, named %t: %q, want %q", test.kind, test.fields, test.rollout, test.named, got, test.want)
		}
	}
}

// FuzzUndo reads a record that a user has written.
func FuzzUndo(f *testing.F) {
	f.Add(`{"spec.updateStrategy":{"type":"RollingUpdate"},"spec.strategy":null,"spec.template.spec.schedulingGates":[]}`)
	f.Add(`{"spec.updateStrategy":1.5,"spec.strategy":"x","spec.template.spec.schedulingGates":{"a":[1]},"spec.replicas":0}`)
	f.Add("null")
	f.Fuzz(func(t *testing.T, text string) {
		for kind, spec := range map[string]string{
			v1alpha1.KindStatefulSet: "updateStrategy: {type: OnDelete}",
			v1alpha1.KindDeployment:  "strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 0}}, template: {spec: {schedulingGates: [{name: vicinity.dev/rollout}]}}",
		} {
			w := workload(t, kind, "spec: {"+spec+"}")
			w.SetAnnotations(map[string]string{v1alpha1.AnnotationAdopted: text})
			change, err := Undo(w)
			if err != nil {
				continue
			}
			unstructured.RemoveNestedField(change.Patch, "spec", "template", "spec", "schedulingGates")
			unstructured.RemoveNestedField(change.Patch, "spec", "strategy")
			unstructured.RemoveNestedField(change.Patch, "spec", "updateStrategy")
			if left := fmt.Sprint(change.Patch["spec"]); !slices.Contains([]string{"<nil>", "map[]", "map[template:map[spec:map[]]]"}, left) {
				t.Errorf("%q also patches %s", text, left)
			}
		}
	})
}
