package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/rollout"
)

type cleanupFlags struct {
	cluster clusterFlags
	yes     bool
	crds    bool
	output  outputFlag
}

func newCleanupCommand(s command.Streams, reach connector) *cobra.Command {
	var f cleanupFlags
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "List what Vicinity left in a cluster, and remove it",
		Long: `Cleanup lists what Vicinity left in all namespaces: labels, annotations, conditions, hints,
scheduling gates of pods, Leases, and objects that it made. With --yes it removes them.
It keeps what users wrote, except labels of namespaces that switch Vicinity on.

Run it after "helm uninstall". With --yes it fails while a Deployment or DaemonSet of Vicinity
exists. For leftovers that need new pods it prints the next step after "left to you".`,
		Example: `  vicinity cleanup
  vicinity cleanup --yes
  vicinity cleanup --yes --crds`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), s, reach)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.yes, "yes", false, "remove the leftovers")
	flags.BoolVar(&f.crds, "crds", false, "include Vicinity's CRDs, and so every policy, budget and rollout that users wrote")
	f.output.add(flags, "text", "json", "yaml")
	f.cluster.addConnection(flags)
	return cmd
}

func (f *cleanupFlags) run(ctx context.Context, s command.Streams, reach connector) error {
	r, err := reach.reader(&f.cluster)
	if err != nil {
		return err
	}
	if f.yes {
		if err := r.expectUninstalled(ctx); err != nil {
			return err
		}
	}
	updated, err := r.updatedWorkloads(ctx)
	if err != nil {
		return err
	}
	c := cleaner{clusterReader: r, page: &page{w: printable{s.Out}}, remove: f.yes, lines: []map[string]string{}}
	if f.output.form != "text" {
		c.page.w = io.Discard
	}
	for _, t := range cleanupTargets(updated, f.crds) {
		if err = c.clean(ctx, t); err != nil {
			c.failures = append(c.failures, err)
			break
		}
	}
	switch {
	case f.output.form != "text":
		c.page.err = f.output.write(s.Out, c.lines, nil)
	case err != nil:
	case len(c.lines) == 0:
		c.page.printf("Vicinity left nothing in this cluster.\n")
	case c.removable && !f.yes:
		c.page.printf("\nNothing was changed. Add --yes to remove the leftovers.\n")
	}
	return errors.Join(append(c.failures, c.page.err)...)
}

// expectUninstalled fails while a Deployment or DaemonSet of Vicinity exists.
func (r *clusterReader) expectUninstalled(ctx context.Context) error {
	for _, resource := range []string{"deployments", "daemonsets"} {
		api := r.dynamic.Resource(appsv1.SchemeGroupVersion.WithResource(resource))
		parts, err := listAll[unstructured.Unstructured](ctx, api, metav1.ListOptions{LabelSelector: inspect.PartSelector})
		if err != nil {
			return r.explained("reading "+resource, err)
		}
		if len(parts) > 0 {
			return fmt.Errorf("%s is installed, and Vicinity would write everything again: uninstall it first, as docs/runbooks/uninstall.md says", objectTitle(parts[0]))
		}
	}
	return nil
}

// updatedWorkloads returns the workloads that DomainRollouts update, by objectTitle.
func (r *clusterReader) updatedWorkloads(ctx context.Context) (map[string]bool, error) {
	list, err := listOwn[v1alpha1.DomainRollout](ctx, r, ownList{rolloutResource, metav1.NamespaceAll, ""})
	if ignoreNotFound(err) != nil {
		return nil, r.explained("reading DomainRollouts", err)
	}
	updated := map[string]bool{}
	for _, d := range list {
		if rollout.IsCustom(d.Spec.TargetRef) {
			continue
		}
		updated[fmt.Sprintf("%s %s/%s", d.Spec.TargetRef.Kind, d.Namespace, d.Spec.TargetRef.Name)] = true
	}
	return updated, nil
}

// objectTitle names an object by kind, namespace and name.
func objectTitle(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetKind() + " " + o.GetName()
	}
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// cleaner lists leftovers, and removes them if remove is set.
type cleaner struct {
	*clusterReader
	page   *page
	remove bool
	lines  []map[string]string // of the output, for JSON
	// removable is set once a leftover is listed that cleanup can remove.
	removable bool
	removed   int // objects that were cleaned
	failures  []error
}

func (c *cleaner) say(result, object, detail string) {
	c.lines = append(c.lines, map[string]string{"result": result, "object": object, "detail": detail})
	c.page.printf("%s\n", strings.TrimSuffix(result+": "+object+": "+detail, ": "))
}

// clean goes on after an object that it cannot clean, and keeps the failure. The token of the next page can expire while
// it removes; it then lists the rest again.
func (c *cleaner) clean(ctx context.Context, t cleanupTarget) error {
	api := c.dynamic.Resource(t.resource)
	for {
		before := c.removed
		err := eachItem(ctx, api, metav1.ListOptions{LabelSelector: t.selector}, func(o *unstructured.Unstructured) error {
			return c.cleanObject(ctx, t, o)
		})
		switch {
		case apierrors.IsNotFound(err):
			return nil // the cluster does not serve this kind
		case !apierrors.IsResourceExpired(err) || c.removed == before:
			return c.explained("reading "+t.resource.Resource, err)
		}
	}
}

func (c *cleaner) cleanObject(ctx context.Context, t cleanupTarget, o *unstructured.Unstructured) error {
	title, left := objectTitle(o), t.look(o)
	if left.next != "" {
		c.say("left to you", title, left.next)
	}
	if !left.whole && len(left.parts) == 0 {
		return nil
	}
	c.removable = true
	parts := strings.Join(left.parts, ", ") // none of a whole object
	if !c.remove {
		c.say("would remove", title, parts)
		return nil
	}
	err := t.remove(ctx, c.dynamic.Resource(t.resource).Namespace(o.GetNamespace()), o, left.whole)
	switch {
	case err == nil:
		c.removed++
		c.say("removed", title, parts)
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		c.failures = append(c.failures, c.explained("cleaning "+title, err))
	}
	return nil
}

// cleanupTarget is a kind of object that can have leftovers.
type cleanupTarget struct {
	resource schema.GroupVersionResource
	// subresource has the name of the subresource that an update writes, if any.
	subresource []string
	// selector limits the objects by labels.
	selector string
	// look finds the leftovers of an object, and removes them from its argument.
	look func(*unstructured.Unstructured) leftover
}

// leftover describes the writes of Vicinity that one object still has.
type leftover struct {
	// whole is set if the object is Vicinity's own.
	whole bool
	// parts name the leftovers in an object of another owner.
	parts []string
	// next is the next step for a leftover that cleanup does not remove.
	next string
}

// remove deletes the object if whole is set. Otherwise it updates the object, from which look has removed the leftovers.
func (t *cleanupTarget) remove(ctx context.Context, api dynamic.ResourceInterface, o *unstructured.Unstructured, whole bool) error {
	if whole {
		return ignoreNotFound(api.Delete(ctx, o.GetName(), metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(o.GetUID()))}))
	}
	return ignoreNotFound(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		_, err := api.Update(ctx, o, metav1.UpdateOptions{}, t.subresource...)
		if !apierrors.IsConflict(err) {
			return err
		}
		newer, readErr := api.Get(ctx, o.GetName(), metav1.GetOptions{})
		if readErr != nil {
			return readErr
		}
		t.look(newer)
		o = newer
		return err
	}))
}

// cleanupTargets returns the kinds in the order of removal. Webhooks and admission policies come first, because they can
// refuse the writes that follow.
func cleanupTargets(updated map[string]bool, crds bool) []cleanupTarget {
	const made = v1alpha1.LabelManagedBy + "=" + v1alpha1.ManagedByController
	targets := []cleanupTarget{
		{resource: admissionregistrationv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations"), selector: inspect.PartSelector, look: wholeObject},
		{resource: admissionregistrationv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations"), selector: inspect.PartSelector, look: wholeObject},
		{resource: admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicybindings"), selector: inspect.PartSelector, look: wholeObject},
		{resource: admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies"), selector: inspect.PartSelector, look: wholeObject},
		{resource: rbacv1.SchemeGroupVersion.WithResource("rolebindings"), selector: inspect.PartSelector, look: wholeObject},
		{resource: rbacv1.SchemeGroupVersion.WithResource("roles"), selector: inspect.PartSelector, look: wholeObject},
		{resource: rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings"), selector: inspect.PartSelector, look: wholeObject},
		{resource: rbacv1.SchemeGroupVersion.WithResource("clusterroles"), selector: inspect.PartSelector, look: wholeObject},
		// When a Service loses the label, Kubernetes removes label and hints from the slices that it writes itself.
		{resource: corev1.SchemeGroupVersion.WithResource("services"), look: serviceLeftovers},
		{resource: corev1.SchemeGroupVersion.WithResource("services"), subresource: []string{"status"}, look: conditionLeftovers},
		{resource: discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), look: sliceLeftovers},
		{resource: appsv1.SchemeGroupVersion.WithResource("deployments"), look: workloadLeftovers(updated)},
		{resource: appsv1.SchemeGroupVersion.WithResource("statefulsets"), look: workloadLeftovers(updated)},
		{resource: appsv1.SchemeGroupVersion.WithResource("daemonsets"), look: workloadLeftovers(updated)},
		{resource: appsv1.SchemeGroupVersion.WithResource("replicasets"), look: workloadLeftovers(updated)},
		{resource: corev1.SchemeGroupVersion.WithResource("pods"), look: podLeftovers},
		{resource: corev1.SchemeGroupVersion.WithResource("namespaces"), look: namespaceLeftovers},
		{resource: policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"), selector: made, look: wholeObject},
		{resource: v1alpha1.GroupVersion.WithResource("podlocators"), selector: made, look: wholeObject},
		{resource: v1alpha1.GroupVersion.WithResource("endpointgroups"), look: wholeObject},
		{resource: lifecyclev1alpha1.SchemeGroupVersion.WithResource("evictionrequests"), look: requestLeftovers},
		{resource: coordinationv1.SchemeGroupVersion.WithResource("leases"), look: leaseLeftovers},
	}
	if crds {
		targets = append(targets, cleanupTarget{resource: definitionResource, look: definitionLeftovers})
	}
	return targets
}

func wholeObject(*unstructured.Unstructured) leftover { return leftover{whole: true} }

func serviceLeftovers(o *unstructured.Unstructured) leftover {
	names := []string{v1alpha1.LabelRouted}
	if o.GetLabels()[v1alpha1.LabelServiceProxyName] == v1alpha1.ServiceProxyName {
		names = append(names, v1alpha1.LabelServiceProxyName)
	}
	left := leftover{parts: takeLabels(o, names...)}
	if o.GetAnnotations()[v1alpha1.AnnotationTopologyMode] == v1alpha1.MarkRouted {
		left.parts = append(left.parts, takeAnnotations(o, v1alpha1.AnnotationTopologyMode)...)
	}
	return left
}

func conditionLeftovers(o *unstructured.Unstructured) leftover {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	kept := slices.DeleteFunc(slices.Clone(conditions), hasField("type", v1alpha1.ConditionTopologyRouting))
	if len(kept) == len(conditions) {
		return leftover{}
	}
	_ = unstructured.SetNestedSlice(o.Object, kept, "status", "conditions") // cannot fail: the path was read
	return leftover{parts: []string{"condition " + v1alpha1.ConditionTopologyRouting}}
}

func sliceLeftovers(o *unstructured.Unstructured) leftover {
	parts := takeAnnotations(o, v1alpha1.AnnotationHeld)
	if o.GetLabels()[discoveryv1.LabelManagedBy] == v1alpha1.ManagedByKubernetes {
		return leftover{parts: parts}
	}
	routed := takeLabels(o, v1alpha1.LabelRouted)
	if len(routed) == 0 {
		return leftover{parts: parts}
	}
	endpoints, _, _ := unstructured.NestedSlice(o.Object, "endpoints")
	for _, e := range endpoints {
		if endpoint, isMap := e.(map[string]any); isMap {
			delete(endpoint, "hints")
		}
	}
	_ = unstructured.SetNestedSlice(o.Object, endpoints, "endpoints") // cannot fail: it is a field of the object itself
	return leftover{parts: append(append(parts, routed...), "hints of its endpoints")}
}

func workloadLeftovers(updated map[string]bool) func(*unstructured.Unstructured) leftover {
	return func(o *unstructured.Unstructured) leftover {
		left := leftover{parts: takeAnnotations(o, v1alpha1.AnnotationWantedReplicas, v1alpha1.AnnotationPacedReplicas)}
		strategy, _, _ := unstructured.NestedString(o.Object, "spec", "updateStrategy", "type")
		gates, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "schedulingGates")
		patch := ""
		_, isAdopted := o.GetAnnotations()[v1alpha1.AnnotationAdopted]
		switch {
		case o.GetKind() == "Deployment" && o.GetAnnotations()[v1alpha1.AnnotationDNSBefore] != "":
			left.next = fmt.Sprintf("vicinity-dns runs there as the cluster's DNS server; this gives it back to CoreDNS: vicinity dns disable -n %s --deployment %s", o.GetNamespace(), o.GetName())
		case o.GetKind() == "Deployment" && slices.ContainsFunc(gates, hasField("name", v1alpha1.RolloutGate)):
			left.next = fmt.Sprintf("its template has the scheduling gate %s, so without Vicinity its new pods never start; this removes the gate and replaces the pods", v1alpha1.RolloutGate)
			patch = fmt.Sprintf(`{"spec":{"template":{"spec":{"schedulingGates":[{"name":%q,"$patch":"delete"}]}}}}`, v1alpha1.RolloutGate)
		case strategy == string(appsv1.OnDeleteStatefulSetStrategyType) && (isAdopted || updated[objectTitle(o)]):
			left.next = "a DomainRollout updates it, and without Vicinity its strategy OnDelete keeps old pods; this replaces them"
			patch = `{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}`
		}
		switch {
		case patch != "" && isAdopted:
			left.next += fmt.Sprintf(": vicinity rollout adopt %s/%s -n %s --undo --apply", strings.ToLower(o.GetKind()), o.GetName(), o.GetNamespace())
		case patch != "":
			left.next += fmt.Sprintf(": kubectl patch %s %s -n %s -p '%s'", strings.ToLower(o.GetKind()), o.GetName(), o.GetNamespace(), patch)
		}
		return left
	}
}

func podLeftovers(o *unstructured.Unstructured) leftover {
	var left leftover
	// A cost that differs from the one in Vicinity's annotation has another owner.
	annotations := o.GetAnnotations()
	if cost := annotations[v1alpha1.AnnotationDeletionCost]; cost != "" && cost == annotations[corev1.PodDeletionCost] {
		left.parts = takeAnnotations(o, corev1.PodDeletionCost)
	}
	left.parts = append(left.parts, takeAnnotations(o, v1alpha1.AnnotationDeletionCost, v1alpha1.AnnotationGoesUntil,
		v1alpha1.AnnotationReleasedFor, v1alpha1.AnnotationReleasedAt, v1alpha1.AnnotationAbandonedRevision)...)
	gates, _, _ := unstructured.NestedSlice(o.Object, "spec", "schedulingGates")
	kept := slices.DeleteFunc(slices.Clone(gates), hasField("name", v1alpha1.RolloutGate))
	if len(kept) < len(gates) {
		_ = unstructured.SetNestedSlice(o.Object, kept, "spec", "schedulingGates") // cannot fail: the path was read
		left.parts = append(left.parts, "scheduling gate "+v1alpha1.RolloutGate)
	}
	phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
	responders, _, _ := unstructured.NestedSlice(o.Object, "spec", "evictionResponders")
	if phase != string(corev1.PodSucceeded) && phase != string(corev1.PodFailed) && slices.ContainsFunc(responders, hasField("name", v1alpha1.EvictionResponder)) {
		left.next = fmt.Sprintf("without Vicinity each EvictionRequest for it waits 20 minutes for the responder %s; restart its workload with kubectl rollout restart, or delete the pod",
			v1alpha1.EvictionResponder)
	}
	return left
}

func namespaceLeftovers(o *unstructured.Unstructured) leftover {
	return leftover{parts: takeLabels(o, v1alpha1.LabelBudgets, v1alpha1.LabelEvictionRequests, v1alpha1.PaceScaleDown)}
}

func requestLeftovers(o *unstructured.Unstructured) leftover {
	requester, _, _ := unstructured.NestedString(o.Object, "spec", "requester")
	return leftover{whole: requester == v1alpha1.RequesterRollout || requester == v1alpha1.RequesterSpread}
}

// leaseLeftovers finds the Leases of vicinity-proxy, one for each node, and of vicinity-controller.
func leaseLeftovers(o *unstructured.Unstructured) leftover {
	return leftover{whole: o.GetLabels()[v1alpha1.LabelProxyLease] == "true" || o.GetName() == "vicinity-controller"}
}

func definitionLeftovers(o *unstructured.Unstructured) leftover {
	group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
	return leftover{whole: group == v1alpha1.GroupVersion.Group}
}

// hasField reports whether an item of a list has a value in a field.
func hasField(field, value string) func(item any) bool {
	return func(item any) bool {
		fields, _ := item.(map[string]any)
		return fields[field] == value
	}
}

// takeLabels removes labels by name, and describes the removed ones.
func takeLabels(o *unstructured.Unstructured, names ...string) []string {
	return take("label", names, o.GetLabels(), o.SetLabels)
}

// takeAnnotations removes annotations by name, and describes the removed ones.
func takeAnnotations(o *unstructured.Unstructured, names ...string) []string {
	return take("annotation", names, o.GetAnnotations(), o.SetAnnotations)
}

func take(kind string, names []string, from map[string]string, store func(map[string]string)) (taken []string) {
	for _, name := range names {
		if _, has := from[name]; has {
			taken = append(taken, kind+" "+name)
			delete(from, name)
		}
	}
	if len(taken) > 0 {
		store(from)
	}
	return taken
}
