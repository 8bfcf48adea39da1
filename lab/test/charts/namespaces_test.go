package charts_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
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
	withBudgets        = "disruption.enabled=true"
	policyOfNamespaces = "vicinity-controller-namespaces"
	policyOfPDBs       = "vicinity-controller-poddisruptionbudgets"
)

// The policies of namespaces and of PodDisruptionBudgets are there wherever the controller may
// write these.
func TestNamespacesAreGuarded(t *testing.T) {
	for set, want := range map[string]bool{
		"disruption.enabled=false":                   false,
		withBudgets:                                  true,
		withBudgets + ",routing.enabled=false":       false,
		withBudgets + ",rbac.guardWrites=false":      false,
		withBudgets + ",disruption.projectPDBs=true": true,
	} {
		installed := names(t, set)
		for _, kind := range []string{"ValidatingAdmissionPolicy ", "ValidatingAdmissionPolicyBinding "} {
			for _, policy := range []string{policyOfNamespaces, policyOfPDBs} {
				if got := slices.Contains(installed, kind+policy); got != want {
					t.Errorf("%s: %s%s is there: %t, want %t", set, kind, policy, got, want)
				}
			}
		}
	}
}

const theNamespace = `
metadata: {name: shop, labels: {a: b, kubernetes.io/metadata.name: shop, pod-security.kubernetes.io/enforce: restricted}, annotations: {c: d}}
spec: {finalizers: [kubernetes]}
status: {phase: Active}
`

// Of a namespace the controller changes the one label.
func TestControllerWritesItsOwnToNamespaces(t *testing.T) {
	p := newPolicy(t, object[*admissionv1.ValidatingAdmissionPolicy](t, rendered(t, withBudgets), "ValidatingAdmissionPolicy "+policyOfNamespaces))
	type labels = map[string]any
	given := labels{"a": "b", "kubernetes.io/metadata.name": "shop", "pod-security.kubernetes.io/enforce": "restricted"}
	with := func(key, value string) labels {
		all := labels{}
		for k, v := range given {
			all[k] = v
		}
		if all[key] = value; value == "" {
			delete(all, key)
		}
		return all
	}
	metadata := func(field string, value any) func(map[string]any) {
		return func(object map[string]any) { object["metadata"].(map[string]any)[field] = value }
	}
	for name, test := range map[string]struct {
		change func(map[string]any)
		want   string
	}{
		"nothing":                {metadata("resourceVersion", "8"), ""},
		"the label":              {metadata("labels", with(v1alpha1.LabelBudgets, "true")), ""},
		"the label says no":      {metadata("labels", with(v1alpha1.LabelBudgets, "false")), "to true only"},
		"another label":          {metadata("labels", with("e", "f")), "may change the label"},
		"a label of a like name": {metadata("labels", with("vicinity.dev/disruption-budgets2", "true")), "may change the label"},
		"pod security":           {metadata("labels", with("pod-security.kubernetes.io/enforce", "privileged")), "may change the label"},
		"pod security goes":      {metadata("labels", with("pod-security.kubernetes.io/enforce", "")), "may change the label"},
		"all labels go":          {func(object map[string]any) { delete(object["metadata"].(map[string]any), "labels") }, "may change the label"},
		"an annotation":          {metadata("annotations", map[string]any{"c": "e"}), "annotations, owners"},
		"annotations go":         {func(object map[string]any) { delete(object["metadata"].(map[string]any), "annotations") }, "annotations, owners"},
		"an owner":               {metadata("ownerReferences", []any{map[string]any{"name": "o"}}), "annotations, owners"},
		"a finalizer":            {metadata("finalizers", []any{"example.com/keep"}), "annotations, owners"},
		"the spec":               {func(object map[string]any) { object["spec"] = map[string]any{} }, "annotations, owners"},
		"the status":             {func(object map[string]any) { object["status"] = map[string]any{"phase": "Terminating"} }, "annotations, owners"},
		"kube-system":            {metadata("name", "kube-system"), ""},
		"the label, kube-system": {func(o map[string]any) {
			metadata("name", "kube-system")(o)
			metadata("labels", with(v1alpha1.LabelBudgets, "true"))(o)
		}, "not on kube-system"},
		"the label, own": {func(o map[string]any) {
			metadata("name", namespace)(o)
			metadata("labels", with(v1alpha1.LabelBudgets, "true"))(o)
		}, "not on kube-system"},
		"the label, like its own": {func(o map[string]any) {
			metadata("name", namespace+"2")(o)
			metadata("labels", with(v1alpha1.LabelBudgets, "true"))(o)
		}, ""},
	} {
		before, after := parsed(t, theNamespace), parsed(t, theNamespace)
		test.change(after)
		before["metadata"].(map[string]any)["name"] = after["metadata"].(map[string]any)["name"]
		if got, _ := p.refuses(t, "namespaces", before, after); test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: refused %q, want %q", name, got, test.want)
		}
	}
	marked := parsed(t, theNamespace)
	marked["metadata"].(map[string]any)["labels"].(map[string]any)[v1alpha1.LabelBudgets] = "true"
	if got, _ := p.refuses(t, "namespaces", marked, parsed(t, theNamespace)); got != "" {
		t.Errorf("the label cannot be removed: %s", got)
	}
	for _, validation := range p.spec.Validations {
		if strings.Contains(validation.Expression, "oldLabels") && !strings.Contains(validation.Message, "or of a webhook that changes it") {
			t.Errorf("%q does not say that a webhook may have done it", validation.Message)
		}
	}
}

// TestRightsOnNamespaces has an API server judge what somebody with the controller's account
// does to namespaces and budgets of both kinds, and what users with the cluster's roles do to budgets.
func TestRightsOnNamespaces(t *testing.T) {
	c := rig.Start(t, rig.Shape{Name: "test-namespaces", Zones: []string{"a"}, SingleStack: true})
	ctx, r := t.Context(), rendered(t, withBudgets+",disruption.projectPDBs=true")
	c.Define()
	c.Make("", "{apiVersion: v1, kind: Namespace, metadata: {name: "+namespace+"}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {pod-security.kubernetes.io/enforce: restricted}}}\n")
	rbac, admission := c.RbacV1(), c.AdmissionregistrationV1()
	for _, err := range []error{
		second(rbac.ClusterRoles().Create(ctx, object[*rbacv1.ClusterRole](t, r, "ClusterRole vicinity-controller"), metav1.CreateOptions{})),
		second(rbac.ClusterRoleBindings().Create(ctx, object[*rbacv1.ClusterRoleBinding](t, r, "ClusterRoleBinding vicinity-controller"), metav1.CreateOptions{})),
		second(rbac.ClusterRoles().Create(ctx, object[*rbacv1.ClusterRole](t, r, "ClusterRole vicinity-view"), metav1.CreateOptions{})),
		second(rbac.ClusterRoles().Create(ctx, object[*rbacv1.ClusterRole](t, r, "ClusterRole vicinity-edit"), metav1.CreateOptions{})),
		second(admission.ValidatingAdmissionPolicies().Create(ctx, object[*admissionv1.ValidatingAdmissionPolicy](t, r, "ValidatingAdmissionPolicy "+policyOfNamespaces), metav1.CreateOptions{})),
		second(admission.ValidatingAdmissionPolicyBindings().Create(ctx, object[*admissionv1.ValidatingAdmissionPolicyBinding](t, r, "ValidatingAdmissionPolicyBinding "+policyOfNamespaces), metav1.CreateOptions{})),
		second(admission.ValidatingAdmissionPolicies().Create(ctx, object[*admissionv1.ValidatingAdmissionPolicy](t, r, "ValidatingAdmissionPolicy "+policyOfPDBs), metav1.CreateOptions{})),
		second(admission.ValidatingAdmissionPolicyBindings().Create(ctx, object[*admissionv1.ValidatingAdmissionPolicyBinding](t, r, "ValidatingAdmissionPolicyBinding "+policyOfPDBs), metav1.CreateOptions{})),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	c.Make("shop", `
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: edits}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}, subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: editor}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: views}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: viewer}]}
---
{apiVersion: vicinity.dev/v1alpha1, kind: TopologyDisruptionBudget, metadata: {name: web}, spec: {selector: {}, maxUnavailable: 1}}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: theirs}, spec: {maxUnavailable: 1}}
`)
	const administrator = ""
	as := func(user string) kubernetes.Interface {
		if user == administrator {
			return c
		}
		config := rest.CopyConfig(c.Config())
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	label := func(user, name string) func(patch string) error {
		return func(patch string) error {
			return second(as(user).CoreV1().Namespaces().Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))
		}
	}
	onBudget := func(user, sub string) func(patch string) error {
		client := as(user).CoreV1().RESTClient()
		return func(patch string) error {
			path := "/apis/vicinity.dev/v1alpha1/namespaces/shop/topologydisruptionbudgets/web" + sub
			return client.Patch(types.MergePatchType).AbsPath(path).Body([]byte(patch)).Do(ctx).Error()
		}
	}
	readBudget := func(user string) func(string) error {
		return func(string) error {
			return as(user).CoreV1().RESTClient().Get().AbsPath("/apis/vicinity.dev/v1alpha1/namespaces/shop/topologydisruptionbudgets/web").Do(ctx).Error()
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
			return as(own).PolicyV1().RESTClient().Verb(verb).AbsPath(path).SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(ctx).Error()
		}
	}
	relabel := func(name string) func(string) error {
		return func(manager string) error {
			there, err := c.PolicyV1().PodDisruptionBudgets("shop").Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			there.Labels = map[string]string{v1alpha1.LabelManagedBy: manager}
			return second(as(own).PolicyV1().PodDisruptionBudgets("shop").Update(ctx, there, metav1.UpdateOptions{}))
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
	const role = "cannot"
	for _, test := range []struct {
		name, refused string
		do            func(string) error
		what          string
	}{
		{"the label", "", label(own, "shop"), `{"metadata":{"labels":{"vicinity.dev/disruption-budgets":"true"}}}`},
		{"pod security", policyOfNamespaces, label(own, "shop"), `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`},
		{"pod security beside the label", policyOfNamespaces, label(own, "shop"), `{"metadata":{"labels":{"vicinity.dev/disruption-budgets":null,"pod-security.kubernetes.io/enforce":null}}}`},
		{"an annotation", policyOfNamespaces, label(own, "shop"), `{"metadata":{"annotations":{"a":"b"}}}`},
		{"a finalizer", policyOfNamespaces, label(own, "shop"), `{"metadata":{"finalizers":["example.com/keep"]}}`},
		{"the label goes", "", label(own, "shop"), `{"metadata":{"labels":{"vicinity.dev/disruption-budgets":null}}}`},
		{"the label of kube-system", policyOfNamespaces, label(own, "kube-system"), `{"metadata":{"labels":{"vicinity.dev/disruption-budgets":"true"}}}`},
		{"the label of the own namespace", policyOfNamespaces, label(own, namespace), `{"metadata":{"labels":{"vicinity.dev/disruption-budgets":"true"}}}`},
		{"a PodDisruptionBudget of its own", "", pdbs("POST", ""), pdb("own", managed)},
		{"one without the label", policyOfPDBs, pdbs("POST", ""), pdb("other", "")},
		{"one of somebody else becomes its own", policyOfPDBs, relabel("theirs"), "vicinity-controller"},
		{"its own loses the label", policyOfPDBs, relabel("own"), "nobody"},
		{"one of somebody else goes", policyOfPDBs, pdbs("DELETE", "/theirs"), "{}"},
		{"its own goes", "", pdbs("DELETE", "/own"), "{}"},
		{"an administrator's label", "", label(administrator, "shop"), `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`},
		{"the controller writes a spec", role, onBudget(own, ""), `{"spec":{"maxUnavailable":9}}`},
		{"an editor writes a spec", "", onBudget("editor", ""), `{"spec":{"maxUnavailable":3}}`},
		{"an editor breaks the glass", "", onBudget("editor", ""), `{"metadata":{"annotations":{"vicinity.dev/break-glass":"2026-01-01T00:00:00Z test"}}}`},
		{"an editor writes a status", role, onBudget("editor", "/status"), `{"status":{"disruptionsAllowed":9}}`},
		{"a viewer reads", "", readBudget("viewer"), ""},
		{"a viewer writes a spec", role, onBudget("viewer", ""), `{"spec":{"maxUnavailable":9}}`},
		{"a viewer writes a status", role, onBudget("viewer", "/status"), `{"status":{"disruptionsAllowed":9}}`},
	} {
		err := test.do(test.what)
		switch {
		case test.refused == "" && err != nil:
			t.Errorf("%s: %v", test.name, err)
		case test.refused != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.refused)):
			t.Errorf("%s: the answer is %v, want that %q refuses it", test.name, err, test.refused)
		}
	}
}
