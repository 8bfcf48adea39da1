package charts_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/test/rig"
)

const (
	withScaleDown = "rollouts.scaleDown=true"
	policyOfPods  = "vicinity-controller-pods"
)

// The policy of pods is there wherever the controller may patch them.
func TestPodsAreGuarded(t *testing.T) {
	for set, want := range map[string]bool{
		"rollouts.scaleDown=false":                false,
		withScaleDown:                             true,
		withScaleDown + ",routing.enabled=false":  false,
		withScaleDown + ",rbac.guardWrites=false": false,
	} {
		installed := names(t, set)
		for _, kind := range []string{"ValidatingAdmissionPolicy ", "ValidatingAdmissionPolicyBinding "} {
			if got := slices.Contains(installed, kind+policyOfPods); got != want {
				t.Errorf("%s: %s%s is there: %t, want %t", set, kind, policyOfPods, got, want)
			}
		}
	}
}

const thePod = `
metadata: {name: web, namespace: shop, labels: {a: b}, annotations: {c: d}}
spec: {nodeName: n1, containers: [{name: web, image: web}]}
status: {phase: Running}
`

// Of a pod the controller changes annotations: the deletion cost and its own.
func TestControllerWritesItsOwnToPods(t *testing.T) {
	p := newPolicy(t, object[*admissionv1.ValidatingAdmissionPolicy](t, rendered(t, withScaleDown), "ValidatingAdmissionPolicy "+policyOfPods))
	metadata := func(field string, value any) func(map[string]any) {
		return func(object map[string]any) { object["metadata"].(map[string]any)[field] = value }
	}
	annotation := func(name string) func(map[string]any) {
		return metadata("annotations", map[string]any{"c": "d", name: "-2"})
	}
	for name, test := range map[string]struct {
		change func(map[string]any)
		want   string
	}{
		"nothing":            {metadata("resourceVersion", "8"), ""},
		"the cost":           {annotation(corev1.PodDeletionCost), ""},
		"its mark":           {annotation(v1alpha1.AnnotationDeletionCost), ""},
		"another annotation": {annotation("e"), "annotations of a Pod"},
		"another value":      {metadata("annotations", map[string]any{"c": "e"}), "annotations of a Pod"},
		"annotations go":     {func(o map[string]any) { delete(o["metadata"].(map[string]any), "annotations") }, "annotations of a Pod"},
		"a label":            {metadata("labels", map[string]any{"a": "c"}), "labels, owners"},
		"labels go":          {func(o map[string]any) { delete(o["metadata"].(map[string]any), "labels") }, "labels, owners"},
		"an owner":           {metadata("ownerReferences", []any{map[string]any{"name": "o"}}), "labels, owners"},
		"a finalizer":        {metadata("finalizers", []any{"example.com/keep"}), "labels, owners"},
		"an image": {func(o map[string]any) {
			o["spec"].(map[string]any)["containers"] = []any{map[string]any{"name": "web", "image": "other"}}
		}, "the spec of a Pod"},
	} {
		before, after := parsed(t, thePod), parsed(t, thePod)
		test.change(after)
		if got, _ := p.refuses(t, "pods", before, after); test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: refused %q, want %q", name, got, test.want)
		}
	}
}

// TestRightsOnPods has an API server judge what somebody with the controller's account does to pods.
func TestRightsOnPods(t *testing.T) {
	c := rig.Start(t, rig.Shape{Name: "test-pods", Zones: []string{"a"}, SingleStack: true, FakeNodes: 1})
	ctx, r := t.Context(), rendered(t, withScaleDown)
	rbac, admission := c.RbacV1(), c.AdmissionregistrationV1()
	for _, err := range []error{
		second(rbac.ClusterRoles().Create(ctx, object[*rbacv1.ClusterRole](t, r, "ClusterRole vicinity-controller"), metav1.CreateOptions{})),
		second(rbac.ClusterRoleBindings().Create(ctx, object[*rbacv1.ClusterRoleBinding](t, r, "ClusterRoleBinding vicinity-controller"), metav1.CreateOptions{})),
		second(admission.ValidatingAdmissionPolicies().Create(ctx, object[*admissionv1.ValidatingAdmissionPolicy](t, r, "ValidatingAdmissionPolicy "+policyOfPods), metav1.CreateOptions{})),
		second(admission.ValidatingAdmissionPolicyBindings().Create(ctx, object[*admissionv1.ValidatingAdmissionPolicyBinding](t, r, "ValidatingAdmissionPolicyBinding "+policyOfPods), metav1.CreateOptions{})),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	shop, err := c.MakeNamespace(ctx, "shop")
	if err != nil {
		t.Fatal(err)
	}
	c.Make(shop, "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: web, image: web}]}}")
	config := rest.CopyConfig(c.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: own, Groups: []string{"system:authenticated"}}
	controller, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	patch := func(body string) error {
		return second(controller.CoreV1().Pods(shop).Patch(ctx, "web", types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}))
	}
	tries := 0
	c.Await("the rights to be known", func(context.Context) (string, error) {
		tries++ // what changes nothing is allowed
		err := patch(fmt.Sprintf(`{"metadata":{"labels":{"try":"%d"}}}`, tries))
		if apierrors.IsForbidden(err) && strings.Contains(err.Error(), policyOfPods) {
			return "", nil
		}
		return fmt.Sprint(err), nil
	})
	for body, refused := range map[string]string{
		`{"metadata":{"annotations":{"controller.kubernetes.io/pod-deletion-cost":"-2","vicinity.dev/deletion-cost":"-2"}}}`: "",
		`{"metadata":{"annotations":{"a":"b"}}}`:                        policyOfPods,
		`{"metadata":{"finalizers":["example.com/keep"]}}`:              policyOfPods,
		`{"spec":{"containers":[{"name":"web","image":"other"}]}}`:      policyOfPods,
		`{"metadata":{"resourceVersion":"1","annotations":{"a":null}}}`: "the object has been modified",
	} {
		err := patch(body)
		if refused == "" && err != nil || refused != "" && (err == nil || !strings.Contains(err.Error(), refused)) {
			t.Errorf("%s: the answer is %v, want %q", body, err, refused)
		}
	}
	pods := controller.CoreV1().Pods(shop)
	if err := pods.Delete(ctx, "web", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a pod is deleted: %v", err)
	}
	if err := pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "web"}}); err != nil {
		t.Errorf("a pod is not evicted: %v", err)
	}
}
