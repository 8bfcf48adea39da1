package charts_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/test/rig"
)

// TestRightsInACluster has an API server judge what somebody with the controller's account
// writes: what the controller does is allowed, and what it never does is refused.
func TestRightsInACluster(t *testing.T) {
	c := rig.Start(t, rig.Shape{Name: "test-rights", Zones: []string{"a"}, SingleStack: true})
	ctx, r := t.Context(), rendered(t, "locators.enabled=true")
	c.Make("", "{apiVersion: v1, kind: Namespace, metadata: {name: "+namespace+"}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: shop}}\n")
	c.Make(namespace, "{apiVersion: v1, kind: Secret, metadata: {name: vicinity-webhook-certificate}}\n---\n{apiVersion: v1, kind: Secret, metadata: {name: other}}\n")
	rbac, admission := c.RbacV1(), c.AdmissionregistrationV1()
	for _, err := range []error{
		second(rbac.ClusterRoles().Create(ctx, object[*rbacv1.ClusterRole](t, r, "ClusterRole vicinity-controller"), metav1.CreateOptions{})),
		second(rbac.ClusterRoleBindings().Create(ctx, object[*rbacv1.ClusterRoleBinding](t, r, "ClusterRoleBinding vicinity-controller"), metav1.CreateOptions{})),
		second(rbac.Roles(namespace).Create(ctx, object[*rbacv1.Role](t, r, "Role vicinity-controller"), metav1.CreateOptions{})),
		second(rbac.RoleBindings(namespace).Create(ctx, object[*rbacv1.RoleBinding](t, r, "RoleBinding vicinity-controller"), metav1.CreateOptions{})),
		second(admission.ValidatingAdmissionPolicies().Create(ctx, object[*admissionv1.ValidatingAdmissionPolicy](t, r, "ValidatingAdmissionPolicy vicinity-controller-writes"), metav1.CreateOptions{})),
		second(admission.ValidatingAdmissionPolicyBindings().Create(ctx, object[*admissionv1.ValidatingAdmissionPolicyBinding](t, r, "ValidatingAdmissionPolicyBinding vicinity-controller-writes"), metav1.CreateOptions{})),
		second(admission.ValidatingAdmissionPolicies().Create(ctx, object[*admissionv1.ValidatingAdmissionPolicy](t, r, "ValidatingAdmissionPolicy vicinity-podlocators"), metav1.CreateOptions{})),
		second(admission.ValidatingAdmissionPolicyBindings().Create(ctx, object[*admissionv1.ValidatingAdmissionPolicyBinding](t, r, "ValidatingAdmissionPolicyBinding vicinity-podlocators"), metav1.CreateOptions{})),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: new(int32(80))}},
	}
	for i := range 1000 {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.9.%d.%d", i/250, i%250+1)}, NodeName: new(fmt.Sprintf("node-%d", i)), Zone: new("a"),
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: fmt.Sprintf("web-%d", i)},
		})
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"a": "b"}},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if err := second(c.CoreV1().Services("shop").Create(ctx, service, metav1.CreateOptions{})); err != nil {
		t.Fatal(err)
	}
	if err := second(c.DiscoveryV1().EndpointSlices("shop").Create(ctx, slice, metav1.CreateOptions{})); err != nil {
		t.Fatal(err)
	}

	config := rest.CopyConfig(c.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: own, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	controller, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	onService := func(sub ...string) func(context.Context, string) error {
		return func(ctx context.Context, patch string) error {
			return second(controller.CoreV1().Services("shop").Patch(ctx, "web", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, sub...))
		}
	}
	onSlice := func(ctx context.Context, patch string) error {
		return second(controller.DiscoveryV1().EndpointSlices("shop").Patch(ctx, "web-1", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}))
	}
	hints := []string{}
	for i := range 1000 {
		hints = append(hints, fmt.Sprintf(`{"op":"add","path":"/endpoints/%d/hints","value":{"forZones":[{"name":"a"}]}}`, i))
	}
	secrets := func(ctx context.Context, selector string) error {
		return second(controller.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{FieldSelector: selector}))
	}
	const policy, role = "vicinity-controller-writes", "cannot"
	// The API server takes a moment to know of the roles and of the policy. Each try changes
	// something, because the policy has nothing against a write that changes nothing.
	tries := 0
	c.Await("the rights to be known", func(ctx context.Context) (string, error) {
		tries++
		err := onService()(ctx, fmt.Sprintf(`{"spec":{"externalIPs":["198.51.100.%d"]}}`, tries%250+1))
		if apierrors.IsForbidden(err) && strings.Contains(err.Error(), policy) {
			return "", nil
		}
		return fmt.Sprint(err), nil
	})
	for _, test := range []struct {
		name, refused string
		do            func(context.Context, string) error
		what          string
	}{
		{"the label of routed Services", "", onService(), `{"metadata":{"labels":{"vicinity.dev/routed":"true"}}}`},
		{"a Service is taken", "", onService(), `{"metadata":{"labels":{"service.kubernetes.io/service-proxy-name":"vicinity"}}}`},
		{"it is given back", "", onService(), `{"metadata":{"labels":{"service.kubernetes.io/service-proxy-name":null}}}`},
		{"the outcome", "", onService("status"), `{"status":{"conditions":[{"type":"vicinity.dev/TopologyRouting","status":"True","reason":"Allocated","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`},
		{"the outcome goes", "", onService("status"), `{"status":{"conditions":[{"$patch":"delete","type":"vicinity.dev/TopologyRouting"}]}}`},
		{"hints of 1,000 endpoints", "", onSlice, "[" + strings.Join(hints, ",") + "]"},
		{"what is held", "", onSlice, `[{"op":"add","path":"/metadata/annotations","value":{"vicinity.dev/held":"a"}}]`},
		{"the Secret", "", secrets, "metadata.name=vicinity-webhook-certificate"},

		{"another proxy", policy, onService(), `{"metadata":{"labels":{"service.kubernetes.io/service-proxy-name":"other"}}}`},
		{"a foreign label", policy, onService(), `{"metadata":{"labels":{"app":"other"}}}`},
		{"a foreign annotation", policy, onService(), `{"metadata":{"annotations":{"a":null}}}`},
		{"the selector", policy, onService(), `{"spec":{"selector":{"app":"other"}}}`},
		{"a port", policy, onService(), `{"spec":{"ports":[{"port":80,"targetPort":22}]}}`},
		{"an external address", policy, onService(), `{"spec":{"externalIPs":["192.0.2.1"]}}`},
		{"a load balancer", policy, onService("status"), `{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}`},
		{"a foreign condition", policy, onService("status"), `{"status":{"conditions":[{"type":"Other","status":"True","reason":"A","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`},
		{"an address", policy, onSlice, `[{"op":"replace","path":"/endpoints/999/addresses","value":["192.0.2.1"]}]`},
		{"an endpoint less", policy, onSlice, `[{"op":"remove","path":"/endpoints/0"}]`},
		{"the Service of a slice", policy, onSlice, `[{"op":"replace","path":"/metadata/labels/kubernetes.io~1service-name","value":"other"}]`},
		{"all Secrets", role, secrets, ""},
		{"another Secret", role, secrets, "metadata.name=other"},
	} {
		err := test.do(ctx, test.what)
		switch {
		case test.refused == "" && err != nil:
			t.Errorf("%s: %v", test.name, err)
		case test.refused != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.refused)):
			t.Errorf("%s: the answer is %v, want that %q refuses it", test.name, err, test.refused)
		}
	}
	t.Run("PodLocators", func(t *testing.T) { locators(t, c.For(t)) })
	// The policy is in the way of nobody else.
	if err := second(c.CoreV1().Services("shop").Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"externalIPs":["192.0.2.1"]}}`), metav1.PatchOptions{})); err != nil {
		t.Errorf("an administrator: %v", err)
	}
}

// locators sees who may write PodLocators: the controller, and those with the verb forge or all
// verbs on them in the whole cluster; Kubernetes' own controllers as far as objects go with
// others; and not those who may write all of the cluster by other verbs, or do everything in a
// namespace.
func locators(t *testing.T, c rig.ControlPlane) {
	const (
		collector  = "system:serviceaccount:kube-system:generic-garbage-collector"
		namespaces = "system:serviceaccount:kube-system:namespace-controller"
	)
	c.Define()
	c.Make("", "{apiVersion: v1, kind: Namespace, metadata: {name: going}}")
	c.Make("shop", `
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: all}, rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: all}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: all}, subjects: [
  {kind: User, apiGroup: rbac.authorization.k8s.io, name: tenant}, {kind: ServiceAccount, namespace: kube-system, name: generic-garbage-collector},
  {kind: ServiceAccount, namespace: shop, name: generic-garbage-collector}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: everything}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: operator}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: locates}, rules: [{apiGroups: [vicinity.dev], resources: [podlocators], verbs: [create, update, patch, delete, forge]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: locates-all}, rules: [{apiGroups: [vicinity.dev], resources: [podlocators], verbs: ["*"]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: writes}, rules: [{apiGroups: [vicinity.dev], resources: [podlocators], verbs: [create, update, patch, delete]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: locates}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: locates}, subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: locating}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: locates-all}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: locates-all}, subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: locating-all}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: writes}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: writes}, subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: writing}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: locates}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: locates}, subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: locating-here}]}
`)
	resource := v1alpha1.GroupVersion.WithResource("podlocators")
	in := func(namespace, user string) dynamic.ResourceInterface {
		config := rest.CopyConfig(c.Config())
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		return client.Resource(resource).Namespace(namespace)
	}
	as := func(user string) dynamic.ResourceInterface { return in("shop", user) }
	object := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "vicinity.dev/v1alpha1", "kind": "PodLocator",
			"metadata": map[string]any{"name": name, "labels": map[string]any{v1alpha1.LabelManagedBy: v1alpha1.ManagedByController}},
			"ips":      []any{"10.0.0.1"}, "nodeName": "n1", "nodeLabels": map[string]any{"topology.kubernetes.io/zone": "a"},
			"podCreationTimestamp": "2026-01-02T03:04:05Z",
		}}
	}
	create := func(user, name string) error {
		return second(as(user).Create(t.Context(), object(name), metav1.CreateOptions{}))
	}
	patch := func(user, patch string) error {
		return second(as(user).Patch(t.Context(), "web", types.MergePatchType, []byte(patch), metav1.PatchOptions{}))
	}
	remove := func(user, name string) error { return as(user).Delete(t.Context(), name, metav1.DeleteOptions{}) }
	// The controller may not patch: it writes all of a PodLocator.
	update := func() error {
		made, err := as("operator").Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		made.Object["nodeName"] = "n2"
		return second(as(own).Update(t.Context(), made, metav1.UpdateOptions{}))
	}
	const policy = "vicinity-podlocators"
	tries := 0
	c.Await("the policy to be known", func(context.Context) (string, error) {
		tries++
		err := create("tenant", fmt.Sprint("try-", tries))
		if apierrors.IsForbidden(err) && strings.Contains(err.Error(), policy) {
			return "", nil
		}
		return fmt.Sprint(err), nil
	})
	for _, test := range []struct {
		name    string
		refused bool
		err     error
	}{
		{"the controller makes one", false, create(own, "web")},
		{"it makes another", false, create(own, "db")},
		{"it makes a third", false, create(own, "cache")},
		{"it changes one", false, update()},
		{"an operator makes one", false, create("operator", "vm")},
		{"an operator changes one", false, patch("operator", `{"nodeName":"n1"}`)},
		{"one with the verb forge makes one", false, create("locating", "rack")},
		{"one with the verb forge deletes it", false, remove("locating", "rack")},
		{"one with all verbs on them makes one", false, create("locating-all", "room")},
		{"one with all other verbs on them makes one", true, create("writing", "mine")},
		{"one with the verb forge in the namespace makes one", true, create("locating-here", "mine")},
		{"a tenant makes one", true, create("tenant", "mine")},
		{"a tenant changes an address", true, patch("tenant", `{"ips":["10.0.0.2"]}`)},
		{"a tenant takes the addresses away", true, patch("tenant", `{"ips":null}`)},
		{"a tenant changes the node", true, patch("tenant", `{"nodeName":"n9"}`)},
		{"a tenant changes a label of the node", true, patch("tenant", `{"nodeLabels":{"topology.kubernetes.io/zone":"b"}}`)},
		{"a tenant makes the pod younger", true, patch("tenant", `{"podCreationTimestamp":"2036-01-02T03:04:05Z"}`)},
		{"a tenant sets a finalizer", true, patch("tenant", `{"metadata":{"finalizers":["example.com/keep"]}}`)},
		{"a tenant sets an owner", true, patch("tenant", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Namespace","name":"shop","uid":"1"}]}}`)},
		{"a tenant takes the controller's label away", true, patch("tenant", `{"metadata":{"labels":{"vicinity.dev/managed-by":null}}}`)},
		{"a tenant sets an annotation", true, patch("tenant", `{"metadata":{"annotations":{"a":"b"}}}`)},
		{"a tenant deletes one", true, remove("tenant", "web")},
		{"a tenant deletes all", true, as("tenant").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})},
		{"a tenant's account with a name of Kubernetes' deletes one", true, remove("system:serviceaccount:shop:generic-garbage-collector", "web")},
		{"an operator sets a finalizer", false, patch("operator", `{"metadata":{"finalizers":["example.com/keep"]}}`)},
		{"the garbage collector takes it away", false, patch(collector, `{"metadata":{"finalizers":null}}`)},
		{"the garbage collector takes owners away", false, patch(collector, `{"metadata":{"ownerReferences":null}}`)},
		{"the garbage collector makes one", true, create(collector, "collected")},
		{"the garbage collector deletes one", false, remove(collector, "web")},
		{"the controller of namespaces deletes one", false, remove(namespaces, "db")},
		{"the controller deletes one", false, remove(own, "cache")},
	} {
		switch {
		case !test.refused && test.err != nil:
			t.Errorf("%s: %v", test.name, test.err)
		case test.refused && (!apierrors.IsForbidden(test.err) || !strings.Contains(test.err.Error(), policy)):
			t.Errorf("%s: the answer is %v, want that %s refuses it", test.name, test.err, policy)
		}
	}
	if err := second(in("going", own).Create(t.Context(), object("web"), metav1.CreateOptions{})); err != nil {
		t.Fatal(err)
	}
	if err := c.CoreV1().Namespaces().Delete(t.Context(), "going", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Await("a namespace to go with its PodLocator", func(ctx context.Context) (string, error) {
		_, err := c.CoreV1().Namespaces().Get(ctx, "going", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "it is there", err
	})
}

// second is the error of a call that gives an object too.
func second[T any](_ T, err error) error { return err }
