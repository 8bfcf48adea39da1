package cli

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	kubetesting "k8s.io/client-go/testing"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/test/golden"
)

// uninstalled is a cluster after "helm uninstall", with objects of other owners beside Vicinity's leftovers.
func uninstalled(t *testing.T, more ...runtime.Object) *dynamicfake.FakeDynamicClient {
	t.Helper()
	of := func(name string, labels, annotations map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "1", Labels: labels, Annotations: annotations}
	}
	slice := func(name, manager string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: of(name, map[string]string{v1alpha1.LabelRouted: "true", discoveryv1.LabelManagedBy: manager}, map[string]string{v1alpha1.AnnotationHeld: "{}"}),
			Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "a"}}}}},
		}
	}
	web := &corev1.Service{ObjectMeta: of("web", map[string]string{v1alpha1.LabelRouted: "true", v1alpha1.LabelServiceProxyName: v1alpha1.ServiceProxyName, "app": "web"}, nil)}
	web.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionTopologyRouting}, {Type: "example.com/Other"}}
	cheap := &corev1.Pod{ObjectMeta: of("cheap", nil, map[string]string{corev1.PodDeletionCost: "7", v1alpha1.AnnotationDeletionCost: "7"})}
	cheap.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.RolloutGate}, {Name: "example.com/other"}}
	responder := &corev1.Pod{ObjectMeta: of("responder", nil, nil)}
	responder.Spec.EvictionResponders = []corev1.EvictionResponder{{Name: v1alpha1.EvictionResponder}}
	gated := &appsv1.Deployment{ObjectMeta: of("gated", nil, map[string]string{v1alpha1.AnnotationWantedReplicas: "2"})}
	gated.Spec.Template.Spec.SchedulingGates = cheap.Spec.SchedulingGates
	byHand := func(name string) *appsv1.StatefulSet {
		set := &appsv1.StatefulSet{ObjectMeta: of(name, nil, nil)}
		set.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
		return set
	}
	managed := map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByController}
	request := func(name, requester string) *lifecyclev1alpha1.EvictionRequest {
		return &lifecyclev1alpha1.EvictionRequest{ObjectMeta: of(name, nil, nil), Spec: lifecyclev1alpha1.EvictionRequestSpec{Requester: requester}}
	}
	definition := func(group string) runtime.Object {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": "things." + group}, "spec": map[string]any{"group": group},
		}}
	}
	objects := append([]runtime.Object{
		web, slice("by-hand", "me"), slice("of-kubernetes", v1alpha1.ManagedByKubernetes), cheap, responder, gated, byHand("db"), byHand("other"),
		&corev1.Service{ObjectMeta: of("other", map[string]string{v1alpha1.LabelServiceProxyName: "another"}, nil)},
		&corev1.Pod{ObjectMeta: of("costly", nil, map[string]string{corev1.PodDeletionCost: "9", v1alpha1.AnnotationDeletionCost: "7"})},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{v1alpha1.LabelBudgets: "true", "team": "shop"}}},
		&policyv1.PodDisruptionBudget{ObjectMeta: of("made", managed, nil)},
		&policyv1.PodDisruptionBudget{ObjectMeta: of("own", nil, nil)},
		&coordinationv1.Lease{ObjectMeta: of("vicinity-controller", nil, nil)},
		&coordinationv1.Lease{ObjectMeta: of("other", nil, nil)},
		request("ours", v1alpha1.RequesterRollout), request("drain", "example.com/drain"),
		definition(v1alpha1.GroupVersion.Group), definition("example.com"),
		inAPI(t, aRollout()),
	}, more...)
	kinds := listKinds()
	kinds[definitionResource] = "CustomResourceDefinitionList"
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(scheme.Scheme, kinds, objects...)
}

func cleansUp(t *testing.T, cluster *dynamicfake.FakeDynamicClient, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	connect := func(*clusterFlags) (*connection, error) {
		return &connection{dynamic: cluster, server: "https://fake"}, nil
	}
	return runCommands(t.Context(), append([]string{"cleanup"}, args...), func(s command.Streams) []*cobra.Command {
		return []*cobra.Command{newCleanupCommand(s, connect)}
	})
}

func writes(cluster *dynamicfake.FakeDynamicClient) []string {
	var done []string
	for _, action := range cluster.Actions() {
		if verb := action.GetVerb(); verb != "list" && verb != "get" {
			done = append(done, verb+" "+action.GetResource().Resource)
		}
	}
	return done
}

func TestCleanupListsAndRemoves(t *testing.T) {
	cluster := uninstalled(t)
	code, listed, stderr := cleansUp(t, cluster, "--crds")
	if code != 0 || stderr != "" {
		t.Fatalf("listing: exit code %d: %s", code, stderr)
	}
	golden.Compare(t, "testdata/cleanup/list.txt", listed)
	if done := writes(cluster); len(done) > 0 {
		t.Errorf("without --yes it wrote: %v", done)
	}

	code, removed, stderr := cleansUp(t, cluster, "--crds", "--yes")
	if code != 0 || stderr != "" {
		t.Fatalf("removing: exit code %d: %s", code, stderr)
	}
	golden.Compare(t, "testdata/cleanup/remove.txt", removed)

	_, again, _ := cleansUp(t, cluster)
	for line := range strings.Lines(again) {
		if !strings.HasPrefix(line, "left to you: ") {
			t.Errorf("after --yes it still lists: %s", line)
		}
	}
}

func TestCleanupKeepsWhatOthersWrote(t *testing.T) {
	cluster := uninstalled(t)
	if code, _, stderr := cleansUp(t, cluster, "--yes"); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	get := func(group, version, resource, namespace, name string) *unstructured.Unstructured {
		t.Helper()
		gvr := schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
		object, err := cluster.Resource(gvr).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return object
	}
	web := get("", "v1", "services", "shop", "web")
	conditions, _, _ := unstructured.NestedSlice(web.Object, "status", "conditions")
	for what, got := range map[string]any{
		"labels of the Service":                    web.GetLabels(),
		"labels of a Service of another proxy":     get("", "v1", "services", "shop", "other").GetLabels(),
		"number of conditions of the Service":      len(conditions),
		"labels of the namespace":                  get("", "v1", "namespaces", "", "shop").GetLabels(),
		"annotations of a pod with another's cost": get("", "v1", "pods", "shop", "costly").GetAnnotations(),
		"gates of the pod":                         get("", "v1", "pods", "shop", "cheap").Object["spec"].(map[string]any)["schedulingGates"],
		"labels of Kubernetes' slice":              get("discovery.k8s.io", "v1", "endpointslices", "shop", "of-kubernetes").GetLabels()[v1alpha1.LabelRouted],
		"PodDisruptionBudget of a user":            get("policy", "v1", "poddisruptionbudgets", "shop", "own").GetName(),
		"Lease of another program":                 get("coordination.k8s.io", "v1", "leases", "shop", "other").GetName(),
		"EvictionRequest of another requester":     get("lifecycle.k8s.io", "v1alpha1", "evictionrequests", "shop", "drain").GetName(),
		"CRD without --crds":                       get("apiextensions.k8s.io", "v1", "customresourcedefinitions", "", "things."+v1alpha1.GroupVersion.Group).GetName(),
	} {
		want := map[string]any{
			"labels of the Service":                    map[string]string{"app": "web"},
			"labels of a Service of another proxy":     map[string]string{v1alpha1.LabelServiceProxyName: "another"},
			"number of conditions of the Service":      1,
			"labels of the namespace":                  map[string]string{"team": "shop"},
			"annotations of a pod with another's cost": map[string]string{corev1.PodDeletionCost: "9"},
			"gates of the pod":                         []any{map[string]any{"name": "example.com/other"}},
			"labels of Kubernetes' slice":              "true",
			"PodDisruptionBudget of a user":            "own",
			"Lease of another program":                 "other",
			"EvictionRequest of another requester":     "drain",
			"CRD without --crds":                       "things." + v1alpha1.GroupVersion.Group,
		}[what]
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
}

func TestCleanupRefusesWhileVicinityIsInstalled(t *testing.T) {
	part := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "vicinity-system", Name: "vicinity-proxy", Labels: map[string]string{"app.kubernetes.io/part-of": "vicinity"}}}
	cluster := uninstalled(t, part)
	code, _, stderr := cleansUp(t, cluster, "--yes")
	if code != 1 || !strings.Contains(stderr, "DaemonSet vicinity-system/vicinity-proxy is installed") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if done := writes(cluster); len(done) > 0 {
		t.Errorf("it wrote: %v", done)
	}
}

func TestCleanupGoesOnAfterAFailure(t *testing.T) {
	cluster := uninstalled(t)
	conflicts := 1
	cluster.PrependReactor("update", "*", func(action kubetesting.Action) (bool, runtime.Object, error) {
		switch resource := action.GetResource(); {
		case resource.Resource == "namespaces":
			return true, nil, forbidden("", "namespaces")
		case resource.Resource == "pods" && conflicts > 0:
			conflicts--
			return true, nil, apierrors.NewConflict(resource.GroupResource(), "cheap", fmt.Errorf("it has changed"))
		}
		return false, nil, nil
	})
	code, stdout, stderr := cleansUp(t, cluster, "--yes")
	if code != 1 || !strings.Contains(stderr, "cleaning Namespace shop") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	for _, removed := range []string{"removed: Pod shop/cheap: ", "removed: Lease shop/vicinity-controller\n"} {
		if !strings.Contains(stdout, removed) {
			t.Errorf("%q is missing:\n%s", removed, stdout)
		}
	}
}
