package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	rbacac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/util/retry"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/names/corefile"
)

// rights names the ClusterRole and the ClusterRoleBinding of the plugin vicinity in this DNS server. A cluster can have several.
func (d *dnsServer) rights() string { return "vicinity-dns-reader:" + d.namespace + ":" + d.name }

// dnsStep is a change, which can be made twice.
type dnsStep struct {
	text string // as an order
	do   func(context.Context) error
}

func (d *dnsServer) run(ctx context.Context, steps []dnsStep) error {
	for _, step := range steps {
		if d.dryRun {
			d.page.printf("would %s\n", step.text)
			continue
		}
		d.page.printf("%s\n", step.text)
		if err := step.do(ctx); err != nil {
			return err
		}
	}
	return d.page.err
}

// takeOver returns the steps of enable. The image goes first: the old one does not start with the line. The last step replaces
// pods that may have read the Corefile before its change.
func (d *dnsServer) takeOver() []dnsStep {
	return []dnsStep{
		{fmt.Sprintf("set the image %s in %s, and wait for its pods", d.image, d.title()), d.setImage},
		{fmt.Sprintf("let its pods read nodes, EndpointSlices, EndpointGroups and PodLocators (ClusterRole %s)", d.rights()), d.grant},
		{fmt.Sprintf("add the line \"vicinity\" to the Corefile in %s", d.configTitle()), d.addLine},
		{"replace the pods, and wait for the new ones", d.setImage},
	}
}

// giveBack returns the steps of disable.
func (d *dnsServer) giveBack() []dnsStep {
	return []dnsStep{
		d.restoreCorefile(),
		{fmt.Sprintf("restore the image %s in %s, and wait for its pods", d.before.Image, d.title()), d.restoreImage},
		d.deleteRights(),
		{fmt.Sprintf("remove the annotation %s", v1alpha1.AnnotationDNSBefore), func(ctx context.Context) error {
			return d.change(ctx, func() (record, mark any, image string) { return nil, nil, d.container.Image })
		}},
	}
}

func (d *dnsServer) restoreCorefile() dnsStep {
	return dnsStep{fmt.Sprintf("restore the Corefile in %s", d.configTitle()), d.removeLine}
}

func (d *dnsServer) deleteRights() dnsStep {
	return dnsStep{fmt.Sprintf("delete ClusterRole and ClusterRoleBinding %s", d.rights()), d.revoke}
}

// annotated is the metadata of a patch that sets an annotation, or removes it.
func annotated(name string, value any) map[string]any {
	return map[string]any{"annotations": map[string]any{name: value}}
}

// change reads the Deployment, patches its record, the mark of its template and its image, and waits for its pods. Fields that
// this program does not know stay. An installer can write between two steps, so decide sees what the patch replaces.
func (d *dnsServer) change(ctx context.Context, decide func() (record, mark any, image string)) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := d.read(ctx); err != nil {
			return err
		}
		record, mark, image := decide()
		metadata := annotated(v1alpha1.AnnotationDNSBefore, record)
		metadata["resourceVersion"] = d.deployment.ResourceVersion
		body, err := json.Marshal(map[string]any{"metadata": metadata, "spec": map[string]any{"template": map[string]any{
			"metadata": annotated(v1alpha1.AnnotationDNS, mark),
			"spec":     map[string]any{"containers": []any{map[string]any{"name": d.container.Name, "image": image}}},
		}}})
		if err == nil {
			_, err = d.typed.AppsV1().Deployments(d.namespace).Patch(ctx, d.name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
		}
		return d.explained("changing "+d.title(), err)
	})
	if err != nil {
		return err
	}
	return d.awaitPods(ctx)
}

func (d *dnsServer) setImage(ctx context.Context) error {
	return d.change(ctx, func() (record, mark any, image string) {
		before := dnsBefore{Image: d.container.Image, With: d.image}
		if d.before != nil && d.before.isOurs(d.container.Image) {
			before.Image = d.before.Image
		}
		text, _ := json.Marshal(before) // cannot fail: it is two strings
		if corefile.Has(d.corefile()) {
			mark = "enabled" // or the pods would be replaced twice
		}
		return string(text), mark, d.image
	})
}

// restoreImage keeps an image that enable did not set, such as that of an installer's upgrade.
func (d *dnsServer) restoreImage(ctx context.Context) error {
	return d.change(ctx, func() (record, mark any, image string) {
		image = d.container.Image
		switch {
		case d.before == nil: // the Deployment was replaced
		case d.before.isOurs(image):
			image = d.before.Image
		case image != d.before.Image:
			fmt.Fprintf(d.messages, "the image %s stays, because \"vicinity dns enable\" did not set it\n", image)
		}
		return d.deployment.Annotations[v1alpha1.AnnotationDNSBefore], nil, image
	})
}

func (d *dnsServer) addLine(ctx context.Context) error {
	if corefile.Has(d.corefile()) {
		return nil
	}
	return d.writeCorefile(ctx, corefile.With(d.corefile()), d.corefile())
}

func (d *dnsServer) removeLine(ctx context.Context) error {
	before, changed := d.config.Annotations[v1alpha1.AnnotationDNSBefore]
	if !changed && !corefile.Has(d.corefile()) {
		return nil
	}
	if d.corefile() != corefile.With(before) {
		fmt.Fprintf(d.messages, "the Corefile in %s has changed since, so only the plugin vicinity is removed\n", d.configTitle())
		before = corefile.Without(d.corefile())
	}
	return d.writeCorefile(ctx, before, nil)
}

// writeCorefile fails with a conflict if the ConfigMap has changed since it was read.
func (d *dnsServer) writeCorefile(ctx context.Context, text string, before any) error {
	metadata := annotated(v1alpha1.AnnotationDNSBefore, before)
	metadata["resourceVersion"] = d.config.ResourceVersion
	body, err := json.Marshal(map[string]any{"metadata": metadata, "data": map[string]string{dnsKey: text}})
	if err == nil {
		_, err = d.typed.CoreV1().ConfigMaps(d.namespace).Patch(ctx, d.config.Name, types.MergePatchType, body, metav1.PatchOptions{})
	}
	return d.explained("changing "+d.configTitle(), err)
}

func (d *dnsServer) grant(ctx context.Context) error {
	read := func(group string, resources ...string) *rbacac.PolicyRuleApplyConfiguration {
		return rbacac.PolicyRule().WithAPIGroups(group).WithResources(resources...).WithVerbs("list", "watch")
	}
	role := rbacac.ClusterRole(d.rights()).WithRules(
		read("", "nodes"), read("discovery.k8s.io", "endpointslices"), read(v1alpha1.GroupVersion.Group, "endpointgroups", "podlocators"))
	account := cmp.Or(d.deployment.Spec.Template.Spec.ServiceAccountName, "default")
	binding := rbacac.ClusterRoleBinding(d.rights()).
		WithRoleRef(rbacac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName(d.rights())).
		WithSubjects(rbacac.Subject().WithKind(rbacv1.ServiceAccountKind).WithNamespace(d.namespace).WithName(account))
	force := metav1.ApplyOptions{FieldManager: "vicinity", Force: true}
	_, err := d.typed.RbacV1().ClusterRoles().Apply(ctx, role, force)
	if err == nil {
		_, err = d.typed.RbacV1().ClusterRoleBindings().Apply(ctx, binding, force)
	}
	return d.explained("writing the ClusterRole and ClusterRoleBinding "+d.rights(), err)
}

func (d *dnsServer) revoke(ctx context.Context) error {
	api := d.typed.RbacV1()
	return d.explained("deleting the ClusterRole and ClusterRoleBinding "+d.rights(), errors.Join(
		ignoreNotFound(api.ClusterRoleBindings().Delete(ctx, d.rights(), metav1.DeleteOptions{})),
		ignoreNotFound(api.ClusterRoles().Delete(ctx, d.rights(), metav1.DeleteOptions{})),
	))
}
