package charts_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
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

// rights matches the kinds of the chart's objects that allow and refuse requests.
var rights = regexp.MustCompile(`(?m)^kind: (Cluster)?Role(Binding)?$|^kind: ValidatingAdmissionPolicy(Binding)?$`)

// TestRightsInACluster lets an API server judge writes by the controller's account and others, with
// all roles and policies of the chart. Other tests evaluate the details of the policies without a
// server.
func TestRightsInACluster(t *testing.T) {
	c := rig.Start(t)
	c.Make("", "{apiVersion: v1, kind: Namespace, metadata: {name: "+namespace+"}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {pod-security.kubernetes.io/enforce: restricted}}}\n")
	r := rendered(t, "locators.enabled=true", "disruption.enabled=true", "disruption.projectPDBs=true", "rollouts.enabled=true", "rollouts.pacing=true", "rollouts.scaleDown=true")
	for document := range strings.SplitSeq(r.Manifest, "\n---\n") {
		if rights.MatchString(document) {
			c.Make("", document)
		}
	}
	t.Run("Services", func(t *testing.T) { onServices(t, c.For(t)) })
	t.Run("namespaces and budgets", func(t *testing.T) { onNamespaces(t, c.For(t)) })
	t.Run("rollouts", func(t *testing.T) { onRollouts(t, c.For(t)) })
	t.Run("PodLocators", func(t *testing.T) { onLocators(t, c.For(t)) })
}

// as returns a client for a user; without a name, for the administrator.
func as(t *testing.T, c rig.ControlPlane, user string) kubernetes.Interface {
	t.Helper()
	config := rest.CopyConfig(c.Config())
	if user != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// judged checks the answer to a write: refused by a policy, by "cannot" for a missing role, or not
// at all. Refusals must be Forbidden.
func judged(t *testing.T, what string, err error, refused string) {
	t.Helper()
	switch {
	case refused == "" && err != nil:
		t.Errorf("%s: %v", what, err)
	case refused != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), refused)):
		t.Errorf("%s: the answer is %v, want that %q forbids it", what, err, refused)
	}
}

// cannot is a part of the API server's message about a missing role.
const cannot = "cannot"

// onServices writes as the controller to a Service and to a slice of the largest size.
func onServices(t *testing.T, c rig.ControlPlane) {
	ctx, controller := t.Context(), as(t, c, own)
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
	const policy = "vicinity-controller-writes"
	// The API server needs a moment to apply the roles and the policy. Each try changes something,
	// because the policy allows writes without a change.
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
		{"the mark", "", onService(), `{"metadata":{"annotations":{"service.kubernetes.io/topology-mode":"vicinity.dev/Routed"}}}`},
		{"another mode", policy, onService(), `{"metadata":{"annotations":{"service.kubernetes.io/topology-mode":"Auto"}}}`},
		{"the outcome", "", onService("status"), `{"status":{"conditions":[{"type":"vicinity.dev/TopologyRouting","status":"True","reason":"Allocated","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`},
		{"the outcome goes", "", onService("status"), `{"status":{"conditions":[{"$patch":"delete","type":"vicinity.dev/TopologyRouting"}]}}`},
		{"hints of 1,000 endpoints", "", onSlice, "[" + strings.Join(hints, ",") + "]"},
		{"an external address", policy, onService(), `{"spec":{"externalIPs":["192.0.2.1"]}}`},
		{"a load balancer", policy, onService("status"), `{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}`},
		{"an address", policy, onSlice, `[{"op":"replace","path":"/endpoints/999/addresses","value":["192.0.2.1"]}]`},
		{"the Secret", "", secrets, "metadata.name=vicinity-webhook-certificate"},
		{"all Secrets", cannot, secrets, ""},
		{"another Secret", cannot, secrets, "metadata.name=other"},
	} {
		judged(t, test.name, test.do(ctx, test.what), test.refused)
	}
	// The policy restricts only the controller.
	if err := second(c.CoreV1().Services("shop").Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"externalIPs":["192.0.2.1"]}}`), metav1.PatchOptions{})); err != nil {
		t.Errorf("an administrator: %v", err)
	}
}

// onNamespaces writes as the controller to namespaces and PodDisruptionBudgets, and as users with
// the cluster's roles to budgets.
func onNamespaces(t *testing.T, c rig.ControlPlane) {
	ctx := t.Context()
	c.Make("shop", `
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: edits}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}, subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: editor}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: views}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: viewer}]}
---
{apiVersion: vicinity.dev/v1alpha1, kind: TopologyDisruptionBudget, metadata: {name: web}, spec: {selector: {}, maxUnavailable: 1}}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: theirs}, spec: {maxUnavailable: 1}}
`)
	label := func(user, name string) func(patch string) error {
		return func(patch string) error {
			return second(as(t, c, user).CoreV1().Namespaces().Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))
		}
	}
	onBudget := func(user, sub string) func(patch string) error {
		client := as(t, c, user).CoreV1().RESTClient()
		return func(patch string) error {
			path := "/apis/vicinity.dev/v1alpha1/namespaces/shop/topologydisruptionbudgets/web" + sub
			return client.Patch(types.MergePatchType).AbsPath(path).Body([]byte(patch)).Do(ctx).Error()
		}
	}
	readBudget := func(user string) func(string) error {
		return func(string) error {
			return as(t, c, user).CoreV1().RESTClient().Get().AbsPath("/apis/vicinity.dev/v1alpha1/namespaces/shop/topologydisruptionbudgets/web").Do(ctx).Error()
		}
	}
	var web metav1.PartialObjectMetadata
	stored, err := c.CoreV1().RESTClient().Get().AbsPath("/apis/vicinity.dev/v1alpha1/namespaces/shop/topologydisruptionbudgets/web").Do(ctx).Raw()
	if err == nil {
		err = json.Unmarshal(stored, &web)
	}
	if err != nil {
		t.Fatal(err)
	}
	pdb := func(name, labels string) string {
		return `{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"` + name + `","labels":{` + labels + `},"ownerReferences":[
{"apiVersion":"vicinity.dev/v1alpha1","kind":"TopologyDisruptionBudget","name":"web","uid":"` + string(web.UID) + `","controller":true}]},"spec":{"maxUnavailable":1}}`
	}
	pdbs := func(verb, name string) func(string) error {
		path := "/apis/policy/v1/namespaces/shop/poddisruptionbudgets" + name
		return func(body string) error {
			return as(t, c, own).PolicyV1().RESTClient().Verb(verb).AbsPath(path).SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(ctx).Error()
		}
	}
	relabel := func(name string) func(string) error {
		return func(manager string) error {
			there, err := c.PolicyV1().PodDisruptionBudgets("shop").Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			there.Labels = map[string]string{v1alpha1.LabelManagedBy: manager}
			return second(as(t, c, own).PolicyV1().PodDisruptionBudgets("shop").Update(ctx, there, metav1.UpdateOptions{}))
		}
	}
	const managed = `"vicinity.dev/managed-by":"vicinity-controller"`
	tries := 0
	c.Await("the rights to be known", func(context.Context) (string, error) {
		tries++
		err := label(own, "shop")(fmt.Sprintf(`{"metadata":{"labels":{"try":"%d"}}}`, tries))
		if apierrors.IsForbidden(err) && strings.Contains(err.Error(), policyOfNamespaces) {
			err = pdbs("POST", "")(pdb("try", ""))
		}
		if apierrors.IsForbidden(err) && strings.Contains(err.Error(), policyOfPDBs) {
			return "", onBudget("editor", "")(`{"spec":{"maxUnavailable":2}}`)
		}
		return fmt.Sprint(err), nil
	})
	for _, test := range []struct {
		name, refused string
		do            func(string) error
		what          string
	}{
		{"the label", "", label(own, "shop"), `{"metadata":{"labels":{"vicinity.dev/disruption-budgets":"true"}}}`},
		{"pod security", policyOfNamespaces, label(own, "shop"), `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`},
		{"a PodDisruptionBudget of its own", "", pdbs("POST", ""), pdb("own", managed)},
		{"one without the label", policyOfPDBs, pdbs("POST", ""), pdb("other", "")},
		{"one of another owner becomes its own", policyOfPDBs, relabel("theirs"), "vicinity-controller"},
		{"its own loses the label", policyOfPDBs, relabel("own"), "other"},
		{"one of another owner goes", policyOfPDBs, pdbs("DELETE", "/theirs"), "{}"},
		{"its own goes", "", pdbs("DELETE", "/own"), "{}"},
		{"an administrator's label", "", label("", "shop"), `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`},
		{"the controller writes a spec", cannot, onBudget(own, ""), `{"spec":{"maxUnavailable":9}}`},
		{"an editor writes a spec", "", onBudget("editor", ""), `{"spec":{"maxUnavailable":3}}`},
		{"an editor breaks the glass", "", onBudget("editor", ""), `{"metadata":{"annotations":{"vicinity.dev/break-glass":"2026-01-01T00:00:00Z test"}}}`},
		{"an editor writes a status", cannot, onBudget("editor", "/status"), `{"status":{"disruptionsAllowed":9}}`},
		{"a viewer reads", "", readBudget("viewer"), ""},
		{"a viewer writes a spec", cannot, onBudget("viewer", ""), `{"spec":{"maxUnavailable":9}}`},
		{"a viewer writes a status", cannot, onBudget("viewer", "/status"), `{"status":{"disruptionsAllowed":9}}`},
	} {
		judged(t, test.name, test.do(test.what), test.refused)
	}
}

// onLocators checks who may write PodLocators: the controller, users with the verb forge or all
// verbs on them in the whole cluster, and Kubernetes' own controllers as far as cascading deletion
// needs it. Other verbs in the whole cluster, or all verbs in a namespace, do not suffice.
func onLocators(t *testing.T, c rig.ControlPlane) {
	const (
		collector  = "system:serviceaccount:kube-system:generic-garbage-collector"
		namespaces = "system:serviceaccount:kube-system:namespace-controller"
	)
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
	shop := func(user string) dynamic.ResourceInterface { return in("shop", user) }
	object := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "vicinity.dev/v1alpha1", "kind": "PodLocator",
			"metadata": map[string]any{"name": name, "labels": map[string]any{v1alpha1.LabelManagedBy: v1alpha1.ManagedByController}},
			"ips":      []any{"10.0.0.1"}, "nodeName": "n1", "nodeLabels": map[string]any{"topology.kubernetes.io/zone": "a"},
			"podCreationTimestamp": "2026-01-02T03:04:05Z",
		}}
	}
	create := func(user, name string) error {
		return second(shop(user).Create(t.Context(), object(name), metav1.CreateOptions{}))
	}
	patch := func(user, patch string) error {
		return second(shop(user).Patch(t.Context(), "web", types.MergePatchType, []byte(patch), metav1.PatchOptions{}))
	}
	remove := func(user, name string) error { return shop(user).Delete(t.Context(), name, metav1.DeleteOptions{}) }
	// The controller may not patch: it writes whole PodLocators.
	update := func() error {
		made, err := shop("operator").Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		made.Object["nodeName"] = "n2"
		return second(shop(own).Update(t.Context(), made, metav1.UpdateOptions{}))
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
		{"a tenant deletes all", true, shop("tenant").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})},
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

// second returns only the error of a call.
func second[T any](_ T, err error) error { return err }
