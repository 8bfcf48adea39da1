package cli

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	kubetesting "k8s.io/client-go/testing"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/test/golden"
)

// newRollingCluster has workloads of all kinds that replace their pods by themselves, workloads that adopt skips, and the
// controller, which reads new DomainRollouts.
func newRollingCluster(t *testing.T) *fakeCluster {
	t.Helper()
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "shop", Name: name} }
	quarter := new(intstr.FromString("25%"))
	deployment := func(name string, change func(*appsv1.Deployment)) *appsv1.Deployment {
		d := &appsv1.Deployment{ObjectMeta: named(name)}
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: quarter, MaxSurge: quarter}}
		change(d)
		return d
	}
	set := func(name string, change func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
		s := &appsv1.StatefulSet{ObjectMeta: named(name)}
		s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(2))}}
		change(s)
		return s
	}
	onDelete := func(s *appsv1.StatefulSet) {
		s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
	}
	agent := &appsv1.DaemonSet{ObjectMeta: named("agent")}
	agent.Annotations = map[string]string{"team": "shop"}
	agent.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: new(intstr.FromInt32(1))}}

	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(kinds); err != nil {
			t.Fatal(err)
		}
	}
	client := dynamicfake.NewSimpleDynamicClient(kinds, agent,
		deployment("batch", func(d *appsv1.Deployment) {
			d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
		}),
		deployment("idle", func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(0)) }),
		deployment("vicinity-controller", func(d *appsv1.Deployment) { d.Labels = map[string]string{"app.kubernetes.io/part-of": "vicinity"} }),
		deployment("web", func(*appsv1.Deployment) {}),
		set("db", func(*appsv1.StatefulSet) {}), set("log", onDelete), set("queue", onDelete),
		set("owned", func(s *appsv1.StatefulSet) {
			s.OwnerReferences = []metav1.OwnerReference{{Kind: "Database", Name: "main", Controller: new(true)}}
		}),
		set("web", func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.RollingUpdate = nil }),
		inAPI(t, aRollout(func(d *v1alpha1.DomainRollout) { d.Name, d.Spec.TargetRef.Name = "log", "log" })),
	)
	c := &fakeCluster{dynamic: client}
	c.dynamic.PrependReactor("patch", "*", c.mergePatch)
	c.dynamic.PrependReactor("create", rolloutResource, func(action kubetesting.Action) (bool, runtime.Object, error) {
		created := action.(kubetesting.CreateAction).GetObject().(*unstructured.Unstructured)
		if created.GetName() == "" { // the fake client generates none
			created.SetName(utilrand.String(5))
		}
		return false, nil, unstructured.SetNestedField(created.Object, string(v1alpha1.PhaseInvalid), "status", "phase")
	})
	return c
}

// mergePatch applies a strategic merge patch, which the fake client does not do for unstructured objects.
func (c *fakeCluster) mergePatch(action kubetesting.Action) (bool, runtime.Object, error) {
	patch := action.(kubetesting.PatchAction)
	stored, err := c.dynamic.Tracker().Get(patch.GetResource(), patch.GetNamespace(), patch.GetName())
	if err != nil {
		return true, nil, err
	}
	typed := map[string]any{"statefulsets": appsv1.StatefulSet{}, "daemonsets": appsv1.DaemonSet{}, "deployments": appsv1.Deployment{}}
	before, err := json.Marshal(stored)
	if err != nil {
		return true, nil, err
	}
	text, err := strategicpatch.StrategicMergePatch(before, patch.GetPatch(), typed[patch.GetResource().Resource])
	if err != nil {
		return true, nil, err
	}
	after := &unstructured.Unstructured{}
	if err := after.UnmarshalJSON(text); err != nil {
		return true, nil, err
	}
	return true, after, c.dynamic.Tracker().Update(patch.GetResource(), after, patch.GetNamespace())
}

// adoptedState returns the workloads and the DomainRollouts, by title.
func (c *fakeCluster) adoptedState(t *testing.T) map[string]any {
	t.Helper()
	state := map[string]any{}
	for _, resource := range []string{"statefulsets", "daemonsets", "deployments", rolloutResource} {
		group := appsv1.SchemeGroupVersion
		if resource == rolloutResource {
			group = v1alpha1.GroupVersion
		}
		list, err := c.dynamic.Resource(group.WithResource(resource)).Namespace("shop").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			state[objectTitle(o)] = []any{maps.Clone(o.GetAnnotations()), o.Object["spec"]}
			if len(o.GetAnnotations()) == 0 {
				state[objectTitle(o)] = []any{nil, o.Object["spec"]}
			}
		}
	}
	return state
}

func (c *fakeCluster) adopts(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	c.dynamic.ClearActions()
	code, stdout, stderr := c.run(t.Context(), append([]string{"rollout", "adopt"}, args...)...)
	if code != 0 {
		t.Fatalf("adopt %v: exit code %d: %s%s", args, code, stdout, stderr)
	}
	return stdout, stderr
}

func TestRolloutAdopt(t *testing.T) {
	c := newRollingCluster(t)
	before := c.adoptedState(t)
	printed, skipped := c.adopts(t)
	golden.Compare(t, "testdata/rollout/adopt.yaml", printed)
	golden.Compare(t, "testdata/rollout/adopt-skipped.txt", skipped)
	if wrote := writesTo(c.dynamic); len(wrote) > 0 {
		t.Errorf("without --apply it wrote %v", wrote)
	}
	applied, _ := c.adopts(t, "--apply")
	golden.Compare(t, "testdata/rollout/adopt-apply.txt", applied)
	adopted := c.adoptedState(t)
	if _, _ = c.adopts(t, "--apply"); len(writesTo(c.dynamic)) > 0 {
		t.Errorf("the second time it wrote %v", writesTo(c.dynamic))
	}
	printed, _ = c.adopts(t, "--undo", "deployment/web", "agent")
	golden.Compare(t, "testdata/rollout/adopt-undo.yaml", printed)
	c.adopts(t, "--undo", "--apply")
	if after := c.adoptedState(t); !reflect.DeepEqual(after, before) {
		t.Errorf("undone it is\n%v\nwant\n%v", after, before)
	}
	c.adopts(t, "--undo", "--apply")
	if wrote := writesTo(c.dynamic); len(wrote) > 0 {
		t.Errorf("undoing twice wrote %v", wrote)
	}

	// A program that ends before any of its writes is run again. Before it adopts, it writes twice to find the controller.
	for _, run := range []struct {
		args      []string
		isAdopted bool
		writes    int
		ended     map[string]any
	}{{[]string{"--apply"}, false, 8, adopted}, {[]string{"--undo", "--apply"}, true, 6, before}} {
		for writes := range run.writes {
			c, left := newRollingCluster(t), writes
			if run.isAdopted {
				c.adopts(t, "--apply")
			}
			c.dynamic.PrependReactor("*", "*", func(action kubetesting.Action) (bool, runtime.Object, error) {
				if verb := action.GetVerb(); verb == "list" || verb == "get" {
					return false, nil, nil
				}
				left--
				return left < 0, nil, errors.New("the program ends")
			})
			if code, _, stderr := c.run(t.Context(), append([]string{"rollout", "adopt"}, run.args...)...); code != 1 {
				t.Fatalf("%v, ended before write %d: exit code %d: %s", run.args, writes, code, stderr)
			}
			left = 100
			c.adopts(t, run.args...)
			if state := c.adoptedState(t); !reflect.DeepEqual(state, run.ended) {
				t.Errorf("%v, ended before write %d: it is\n%v\nwant\n%v", run.args, writes, state, run.ended)
			}
		}
	}
}

// A workload that is deleted meanwhile, or that the cluster refuses to change, does not keep others from being adopted or undone.
func TestRolloutAdoptGoesOn(t *testing.T) {
	c := newRollingCluster(t)
	before := c.adoptedState(t)
	fails := false
	c.dynamic.PrependReactor("*", "*", func(action kubetesting.Action) (bool, runtime.Object, error) {
		switch verb, resource := action.GetVerb(), action.GetResource(); {
		case fails && verb == "patch" && resource.Resource == "daemonsets":
			return true, nil, forbidden("apps", "daemonsets")
		case fails && verb == "get" && resource.Resource == "deployments":
			return true, nil, apierrors.NewNotFound(resource.GroupResource(), "web")
		}
		return false, nil, nil
	})
	const agent, web, set, rollout = "DaemonSet shop/agent", "Deployment shop/web", "StatefulSet shop/web", "DomainRollout shop/"
	for _, run := range []struct {
		args  []string
		fails bool
		left  []string // that differ from before
	}{
		{[]string{"--apply"}, true, []string{rollout + "agent", rollout + "web-statefulset", set}},
		{[]string{"--apply"}, false, []string{agent, web, rollout + "agent", rollout + "web", rollout + "web-statefulset", set}},
		{[]string{"--undo", "--apply"}, true, []string{agent, web, rollout + "agent"}},
		{[]string{"--undo", "--apply"}, false, nil},
	} {
		if fails = run.fails; run.left == nil {
			if err := c.dynamic.Tracker().Delete(appsv1.SchemeGroupVersion.WithResource("daemonsets"), "shop", "agent"); err != nil {
				t.Fatal(err)
			}
		}
		code, stdout, stderr := c.run(t.Context(), append([]string{"rollout", "adopt"}, run.args...)...)
		if (code == 1) != fails || strings.Contains(stderr, "change DaemonSet shop/agent is not allowed") != fails {
			t.Errorf("%v: exit code %d: %s%s", run.args, code, stdout, stderr)
		}
		after := c.adoptedState(t)
		maps.DeleteFunc(after, func(title string, state any) bool { return reflect.DeepEqual(state, before[title]) })
		if left := slices.Sorted(maps.Keys(after)); !slices.Equal(left, run.left) {
			t.Errorf("%v: %v differ from before, want %v\n%s%s", run.args, left, run.left, stdout, stderr)
		}
	}
}

// Of the DomainRollouts that look for a controller, only one that a killed run left is deleted.
func TestRolloutAdoptKeepsOtherRollouts(t *testing.T) {
	c := newRollingCluster(t)
	made := func(name string, change func(*v1alpha1.DomainRollout)) {
		rollout := aRollout(func(d *v1alpha1.DomainRollout) {
			d.Name, d.Spec.TargetRef.Name, d.Annotations = name, "vicinity-adopt", map[string]string{v1alpha1.AnnotationAdopted: "true"}
			change(d)
		})
		if err := c.dynamic.Tracker().Add(inAPI(t, rollout)); err != nil {
			t.Fatal(err)
		}
	}
	made("vicinity-adopt", func(*v1alpha1.DomainRollout) {})
	made("running", func(d *v1alpha1.DomainRollout) {
		d.GenerateName, d.CreationTimestamp = "vicinity-adopt-", metav1.Now()
	})
	made("left", func(d *v1alpha1.DomainRollout) {
		d.GenerateName, d.CreationTimestamp = "vicinity-adopt-", metav1.NewTime(time.Now().Add(-time.Hour))
	})
	before := c.adoptedState(t)
	c.adopts(t, "agent", "--apply")
	c.adopts(t, "agent", "--undo", "--apply")
	delete(before, "DomainRollout shop/left")
	if after := c.adoptedState(t); !reflect.DeepEqual(after, before) {
		t.Errorf("it is\n%v\nwant\n%v", after, before)
	}
}

// Without the controller no gated pod is ever scheduled, so no workload may change. The status of an older DomainRollout does not show that
// a controller runs.
func TestRolloutAdoptNeedsTheController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRollingCluster(t)
		if err := c.dynamic.Tracker().Add(inAPI(t, aRollout(complete))); err != nil {
			t.Fatal(err)
		}
		c.dynamic.PrependReactor("get", rolloutResource, func(action kubetesting.Action) (bool, runtime.Object, error) {
			return action.(kubetesting.GetAction).GetName() != "db", inAPI(t, aRollout(withoutStatus)), nil
		})
		before := c.adoptedState(t)
		code, _, stderr := c.run(t.Context(), "rollout", "adopt", "db", "--apply")
		if after := c.adoptedState(t); code != 1 || !strings.Contains(stderr, "rollouts.enabled") || !reflect.DeepEqual(after, before) {
			t.Errorf("exit code %d: %s\nit is\n%v\nwant\n%v", code, stderr, after, before)
		}
	})
}

func TestRolloutAdoptErrors(t *testing.T) {
	for _, test := range []struct {
		args, refused string
		code          int
		says          string
	}{
		{"bd", "", 1, `no workload "bd" is in namespace "shop"; it has daemonset/agent`},
		{"daemonset/web", "", 1, "no workload"},
		{"", "daemonsets", 1, "reading DaemonSets is not allowed"},
		{"idle --apply", "", 0, ""},
		{"queue --apply", "", 0, ""},
	} {
		t.Run(test.args, func(t *testing.T) {
			c := newRollingCluster(t)
			if test.refused != "" {
				c.dynamic.PrependReactor("*", test.refused, func(kubetesting.Action) (bool, runtime.Object, error) {
					return true, nil, forbidden("apps", test.refused)
				})
			}
			code, stdout, stderr := c.run(t.Context(), append([]string{"rollout", "adopt"}, strings.Fields(test.args)...)...)
			if code != test.code || !strings.Contains(stderr, test.says) || test.code == 0 && stderr != "" {
				t.Errorf("exit code %d: %s%s", code, stdout, stderr)
			}
		})
	}
}
