package cli

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	kubetesting "k8s.io/client-go/testing"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/test/golden"
)

// newUninstalledCluster is a cluster after "helm uninstall". It has leftovers, and objects of other owners.
func newUninstalledCluster(t *testing.T, more ...runtime.Object) *dynamicfake.FakeDynamicClient {
	t.Helper()
	named := func(name string, labels, annotations map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "1", Labels: labels, Annotations: annotations}
	}
	slice := func(name, manager string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: named(name, map[string]string{v1alpha1.LabelRouted: "true", discoveryv1.LabelManagedBy: manager}, map[string]string{v1alpha1.AnnotationHeld: "{}"}),
			Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "a"}}}}},
		}
	}
	web := &corev1.Service{ObjectMeta: named("web", map[string]string{v1alpha1.LabelRouted: "true", v1alpha1.LabelServiceProxyName: v1alpha1.ServiceProxyName, "app": "web"},
		map[string]string{v1alpha1.AnnotationTopologyMode: v1alpha1.MarkRouted})}
	web.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionTopologyRouting}, {Type: "example.com/Other"}}
	cheap := &corev1.Pod{ObjectMeta: named("cheap", nil, map[string]string{corev1.PodDeletionCost: "7", v1alpha1.AnnotationDeletionCost: "7"})}
	cheap.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.RolloutGate}, {Name: "example.com/other"}}
	responder := &corev1.Pod{ObjectMeta: named("responder", nil, nil)}
	responder.Spec.EvictionResponders = []corev1.EvictionResponder{{Name: v1alpha1.EvictionResponder}}
	taken := &appsv1.Deployment{ObjectMeta: named("coredns", nil, map[string]string{v1alpha1.AnnotationDNSBefore: "{}"})}
	inherits := &appsv1.ReplicaSet{ObjectMeta: named("coredns-1", nil, taken.Annotations)}
	gated := &appsv1.Deployment{ObjectMeta: named("gated", nil, map[string]string{v1alpha1.AnnotationWantedReplicas: "2"})}
	gated.Spec.Template.Spec.SchedulingGates = cheap.Spec.SchedulingGates
	onDelete := func(name string) *appsv1.StatefulSet {
		set := &appsv1.StatefulSet{ObjectMeta: named(name, nil, nil)}
		set.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
		return set
	}
	adopted := onDelete("queue")
	adopted.Annotations = map[string]string{v1alpha1.AnnotationAdopted: "{}"}
	managed := map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByController}
	request := func(name, requester string) *lifecyclev1alpha1.EvictionRequest {
		return &lifecyclev1alpha1.EvictionRequest{ObjectMeta: named(name, nil, nil), Spec: lifecyclev1alpha1.EvictionRequestSpec{Requester: requester}}
	}
	definition := func(group string) runtime.Object {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": "things." + group}, "spec": map[string]any{"group": group},
		}}
	}
	objects := append([]runtime.Object{
		web, slice("by-hand", "me"), slice("of-kubernetes", v1alpha1.ManagedByKubernetes), cheap, responder, taken, inherits, gated, adopted, onDelete("db"), onDelete("other"),
		&corev1.Service{ObjectMeta: named("other", map[string]string{v1alpha1.LabelServiceProxyName: "another"},
			map[string]string{v1alpha1.AnnotationTopologyMode: "vicinity.dev/near"})},
		&corev1.Pod{ObjectMeta: named("costly", nil, map[string]string{corev1.PodDeletionCost: "9", v1alpha1.AnnotationDeletionCost: "7"})},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{v1alpha1.LabelBudgets: "true", "team": "shop"}}},
		&policyv1.PodDisruptionBudget{ObjectMeta: named("made", managed, nil)},
		&policyv1.PodDisruptionBudget{ObjectMeta: named("own", nil, nil)},
		&coordinationv1.Lease{ObjectMeta: named("vicinity-controller", nil, nil)},
		&coordinationv1.Lease{ObjectMeta: named("vicinity-proxy-n1", map[string]string{v1alpha1.LabelProxyLease: "true"}, nil)},
		&coordinationv1.Lease{ObjectMeta: named("other", nil, nil)},
		&rbacv1.Role{ObjectMeta: named("vicinity-controller-cilium", map[string]string{"app.kubernetes.io/part-of": "vicinity"}, nil)},
		&rbacv1.RoleBinding{ObjectMeta: named("vicinity-controller-cilium", map[string]string{"app.kubernetes.io/part-of": "vicinity"}, nil)},
		&rbacv1.Role{ObjectMeta: named("other", nil, nil)},
		request("ours", v1alpha1.RequesterRollout), request("drain", "example.com/drain"),
		definition(v1alpha1.GroupVersion.Group), definition("example.com"),
		inAPI(t, aRollout()),
	}, more...)
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(kinds); err != nil {
			t.Fatal(err)
		}
	}
	return dynamicfake.NewSimpleDynamicClient(kinds, objects...)
}

func runCleanup(t *testing.T, cluster *dynamicfake.FakeDynamicClient, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	c := &fakeCluster{dynamic: cluster}
	return runCommands(t.Context(), append([]string{"cleanup"}, args...), func(s command.Streams) []*cobra.Command {
		return []*cobra.Command{newCleanupCommand(s, c.connect)}
	})
}

// writesTo returns the writes that a cluster has received.
func writesTo(cluster *dynamicfake.FakeDynamicClient) []string {
	var done []string
	for _, action := range cluster.Actions() {
		if verb := action.GetVerb(); verb != "list" && verb != "get" {
			done = append(done, verb+" "+action.GetResource().Resource)
		}
	}
	return done
}

func TestCleanupListsAndRemoves(t *testing.T) {
	cluster := newUninstalledCluster(t)
	code, listed, stderr := runCleanup(t, cluster, "--crds")
	if code != 0 || stderr != "" {
		t.Fatalf("listing: exit code %d: %s", code, stderr)
	}
	golden.Compare(t, "testdata/cleanup/list.txt", listed)
	_, list, _ := runCleanup(t, cluster, "-o", "json")
	golden.Compare(t, "testdata/cleanup/list.json", list)
	if done := writesTo(cluster); len(done) > 0 {
		t.Errorf("without --yes it wrote: %v", done)
	}

	code, removed, stderr := runCleanup(t, cluster, "--crds", "--yes")
	if code != 0 || stderr != "" {
		t.Fatalf("removing: exit code %d: %s", code, stderr)
	}
	golden.Compare(t, "testdata/cleanup/remove.txt", removed)

	_, again, _ := runCleanup(t, cluster)
	for line := range strings.Lines(again) {
		if !strings.HasPrefix(line, "left to you: ") {
			t.Errorf("after --yes it still lists: %s", line)
		}
	}
}

func TestCleanupKeepsWhatOthersWrote(t *testing.T) {
	cluster := newUninstalledCluster(t)
	if code, _, stderr := runCleanup(t, cluster, "--yes"); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	for _, test := range []struct {
		resource schema.GroupVersionResource
		object   string
		path     string
		want     any
	}{
		{corev1.SchemeGroupVersion.WithResource("services"), "shop/web", "metadata.labels", map[string]any{"app": "web"}},
		{corev1.SchemeGroupVersion.WithResource("services"), "shop/web", "status.conditions.type", []any{"example.com/Other"}},
		{corev1.SchemeGroupVersion.WithResource("services"), "shop/other", "metadata.labels", map[string]any{v1alpha1.LabelServiceProxyName: "another"}},
		{corev1.SchemeGroupVersion.WithResource("services"), "shop/other", "metadata.annotations", map[string]any{v1alpha1.AnnotationTopologyMode: "vicinity.dev/near"}},
		{corev1.SchemeGroupVersion.WithResource("namespaces"), "/shop", "metadata.labels", map[string]any{"team": "shop"}},
		{corev1.SchemeGroupVersion.WithResource("pods"), "shop/costly", "metadata.annotations", map[string]any{corev1.PodDeletionCost: "9"}},
		{corev1.SchemeGroupVersion.WithResource("pods"), "shop/cheap", "spec.schedulingGates.name", []any{"example.com/other"}},
		{discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), "shop/of-kubernetes", "metadata.labels", map[string]any{
			discoveryv1.LabelManagedBy: v1alpha1.ManagedByKubernetes, v1alpha1.LabelRouted: "true",
		}},
		{policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"), "shop/own", "metadata.name", "own"},
		{coordinationv1.SchemeGroupVersion.WithResource("leases"), "shop/other", "metadata.name", "other"},
		{lifecyclev1alpha1.SchemeGroupVersion.WithResource("evictionrequests"), "shop/drain", "metadata.name", "drain"},
		{rbacv1.SchemeGroupVersion.WithResource("roles"), "shop/other", "metadata.name", "other"},
		{definitionResource, "/things.vicinity.dev", "metadata.name", "things.vicinity.dev"},
	} {
		t.Run(test.resource.Resource+" "+test.object+" "+test.path, func(t *testing.T) {
			namespace, name, _ := strings.Cut(test.object, "/")
			object, err := cluster.Resource(test.resource).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := valueAt(object.Object, strings.Split(test.path, ".")); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// valueAt follows fields, also into each item of a list.
func valueAt(value any, path []string) any {
	if len(path) == 0 {
		return value
	}
	switch v := value.(type) {
	case map[string]any:
		return valueAt(v[path[0]], path[1:])
	case []any:
		var values []any
		for _, item := range v {
			values = append(values, valueAt(item, path))
		}
		return values
	}
	return nil
}

func TestCleanupRefusesWhileVicinityIsInstalled(t *testing.T) {
	part := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "vicinity-system", Name: "vicinity-proxy", Labels: map[string]string{"app.kubernetes.io/part-of": "vicinity"}}}
	cluster := newUninstalledCluster(t, part)
	code, _, stderr := runCleanup(t, cluster, "--yes")
	if code != 1 || !strings.Contains(stderr, "DaemonSet vicinity-system/vicinity-proxy is installed") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if done := writesTo(cluster); len(done) > 0 {
		t.Errorf("it wrote: %v", done)
	}
}

func TestCleanupGoesOnAfterAFailure(t *testing.T) {
	cluster := newUninstalledCluster(t)
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
	code, stdout, stderr := runCleanup(t, cluster, "--yes")
	if code != 1 || !strings.Contains(stderr, "cleaning Namespace shop") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	for _, removed := range []string{"removed: Pod shop/cheap: ", "removed: Lease shop/vicinity-controller\n"} {
		if !strings.Contains(stdout, removed) {
			t.Errorf("%q is missing:\n%s", removed, stdout)
		}
	}
}

// JSON has what was removed before a list failed.
func TestCleanupPrintsJSONInSpiteOfAFailure(t *testing.T) {
	cluster := newUninstalledCluster(t)
	cluster.PrependReactor("list", "pods", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewInternalError(errors.New("etcd is away"))
	})
	code, stdout, stderr := runCleanup(t, cluster, "--yes", "-o", "json")
	if code != 1 || !strings.Contains(stderr, "etcd is away") || !strings.Contains(stdout, `"object": "Service shop/web"`) {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}

// Removals can outlast the token of the next page.
func TestCleanupListsAgainAfterAnExpiredPage(t *testing.T) {
	cluster := newUninstalledCluster(t)
	first, err := cluster.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace("shop").Get(t.Context(), "cheap", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lists := 0
	cluster.PrependReactor("list", "pods", func(kubetesting.Action) (bool, runtime.Object, error) {
		lists++
		switch lists {
		case 1:
			page := &unstructured.UnstructuredList{Items: []unstructured.Unstructured{*first}}
			page.SetContinue("next")
			return true, page, nil
		case 2:
			return true, nil, apierrors.NewResourceExpired("the continue token is too old")
		}
		return false, nil, nil
	})
	code, stdout, stderr := runCleanup(t, cluster, "--yes")
	if code != 0 || !strings.Contains(stdout, "removed: Pod shop/costly: ") {
		t.Errorf("exit code %d: %s\n%s", code, stderr, stdout)
	}
}
