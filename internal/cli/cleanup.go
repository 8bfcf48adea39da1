package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/command"
)

type cleanupFlags struct {
	cluster clusterFlags
	yes     bool
	crds    bool
}

func newCleanupCommand(s command.Streams, reach connector) *cobra.Command {
	var f cleanupFlags
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "List what Vicinity left in a cluster, and remove it",
		Long: `Cleanup lists what Vicinity wrote to a cluster: labels, annotations, conditions, hints,
scheduling gates of pods, Leases, and objects that it made. With --yes it removes them.
It keeps what users wrote, except labels of namespaces that switch Vicinity on.

Run it after "helm uninstall". While a Deployment or DaemonSet of Vicinity exists, cleanup
only lists, because Vicinity would write everything again.

Some leftovers cannot go without replacing pods. Cleanup lists them with the next command.
It can run again at any time.`,
		Example: `  vicinity cleanup
  vicinity cleanup --yes
  vicinity cleanup --yes --crds`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), s, reach)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.yes, "yes", false, "remove what is listed")
	flags.BoolVar(&f.crds, "crds", false, "include Vicinity's CRDs, and so every policy, budget and rollout that users wrote")
	f.cluster.add(flags, "not used: cleanup looks at all namespaces")
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
	c := cleaner{clusterReader: r, remove: f.yes, page: &page{w: printable{s.Out}}}
	for _, t := range traces(updated, f.crds) {
		if err := c.clean(ctx, t); err != nil {
			return err
		}
	}
	switch {
	case c.removable == 0 && c.manual == 0:
		c.page.printf("Vicinity left nothing in this cluster.\n")
	case c.removable > 0 && !f.yes:
		c.page.printf("\nNothing was changed. --yes removes the leftovers of %s.\n", count(int64(c.removable), "object", "objects"))
	}
	return errors.Join(append(c.failures, c.page.err)...)
}

// expectUninstalled fails while a part of Vicinity runs.
func (r *clusterReader) expectUninstalled(ctx context.Context) error {
	for _, resource := range []string{"deployments", "daemonsets"} {
		err := eachItem(ctx, r.dynamic.Resource(appsv1.SchemeGroupVersion.WithResource(resource)), metav1.ListOptions{LabelSelector: inspect.PartSelector}, func(o *unstructured.Unstructured) error {
			return fmt.Errorf("%s %s/%s is installed, and Vicinity would write everything again: uninstall it first, as docs/runbooks/uninstall.md says; without --yes cleanup only lists",
				o.GetKind(), o.GetNamespace(), o.GetName())
		})
		if err != nil {
			return r.explained("looking for Vicinity's "+resource, err)
		}
	}
	return nil
}

// workload names an object by kind, namespace and name.
type workload struct{ kind, namespace, name string }

// updatedWorkloads returns the workloads that DomainRollouts update.
func (r *clusterReader) updatedWorkloads(ctx context.Context) (map[workload]bool, error) {
	updated := map[workload]bool{}
	rollouts, err := r.listRollouts(ctx, metav1.NamespaceAll)
	if errors.Is(err, errNoRollouts) {
		return updated, nil
	}
	for _, d := range rollouts {
		updated[workload{string(d.Spec.TargetRef.Kind), d.Namespace, d.Spec.TargetRef.Name}] = true
	}
	return updated, err
}

// cleaner lists traces, and removes them if remove is set.
type cleaner struct {
	*clusterReader
	remove bool
	page   *page
	// removable counts the objects that cleanup cleans, and manual those that a person has to clean.
	removable, manual int
	failures          []error
}

func (c *cleaner) clean(ctx context.Context, t trace) error {
	api := c.dynamic.Resource(t.resource)
	err := eachItem(ctx, api, t.options, func(o *unstructured.Unstructured) error {
		found := t.look(o)
		object := o.GetKind() + " " + o.GetName()
		if o.GetNamespace() != "" {
			object = o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
		}
		if found.next != "" {
			c.manual++
			c.page.printf("left to you: %s: %s\n", object, found.next)
		}
		if !found.whole && len(found.parts) == 0 {
			return nil
		}
		c.removable++
		what := object
		if !found.whole {
			what += ": " + strings.Join(found.parts, ", ")
		}
		if !c.remove {
			c.page.printf("would remove: %s\n", what)
			return nil
		}
		if err := t.remove(ctx, api.Namespace(o.GetNamespace()), o, found.whole); err != nil {
			if ctx.Err() != nil {
				return err
			}
			c.failures = append(c.failures, c.explained("cleaning "+object, err))
			return nil
		}
		c.page.printf("removed: %s\n", what)
		return nil
	})
	if apierrors.IsNotFound(err) {
		return nil // the cluster does not serve this kind
	}
	return c.explained("listing "+t.resource.Resource, err)
}

// trace is a kind of object on which Vicinity leaves something.
type trace struct {
	resource schema.GroupVersionResource
	options  metav1.ListOptions
	// subresource is the one that look changes.
	subresource string
	// look finds the leftovers of an object, and takes them out of its argument.
	look func(*unstructured.Unstructured) leftover
}

// leftover is what Vicinity left of one object.
type leftover struct {
	// whole is set if the object is Vicinity's own.
	whole bool
	// parts name the leftovers in an object of another owner.
	parts []string
	// next tells how a person removes a leftover that cleanup does not remove.
	next string
}

// remove deletes the object if it is Vicinity's own, and writes it without leftovers otherwise.
func (t *trace) remove(ctx context.Context, api dynamic.ResourceInterface, o *unstructured.Unstructured, whole bool) error {
	if whole {
		uid := o.GetUID()
		err := api.Delete(ctx, o.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		return ignoreNotFound(err)
	}
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var written error
		if t.subresource == "status" {
			_, written = api.UpdateStatus(ctx, o, metav1.UpdateOptions{})
		} else {
			_, written = api.Update(ctx, o, metav1.UpdateOptions{})
		}
		if apierrors.IsConflict(written) {
			newer, err := api.Get(ctx, o.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			t.look(newer)
			o = newer
		}
		return written
	})
	return ignoreNotFound(err)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func whole(*unstructured.Unstructured) leftover { return leftover{whole: true} }

const controllerLease = "vicinity-controller"

// traces lists the kinds of leftovers in the order of their removal. Webhooks and policies of admission come first,
// because they can refuse the writes that follow.
func traces(updated map[workload]bool, crds bool) []trace {
	resource := func(group, version, resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
	}
	labelled := func(selector string) metav1.ListOptions { return metav1.ListOptions{LabelSelector: selector} }
	const managed = v1alpha1.LabelManagedBy + "=" + v1alpha1.ManagedByController
	all := []trace{
		{resource: resource("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations"), options: labelled(inspect.PartSelector), look: whole},
		{resource: resource("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations"), options: labelled(inspect.PartSelector), look: whole},
		{resource: resource("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings"), options: labelled(inspect.PartSelector), look: whole},
		{resource: resource("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies"), options: labelled(inspect.PartSelector), look: whole},
		{resource: resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings"), options: labelled(inspect.PartSelector), look: whole},
		{resource: resource("rbac.authorization.k8s.io", "v1", "clusterroles"), options: labelled(inspect.PartSelector), look: whole},
		// Once a Service has lost the label, Kubernetes takes label and hints from the slices that it writes itself.
		{resource: resource("", "v1", "services"), look: serviceLeftovers},
		{resource: resource("", "v1", "services"), subresource: "status", look: conditionLeftovers},
		{resource: resource("discovery.k8s.io", "v1", "endpointslices"), look: sliceLeftovers},
		{resource: resource("apps", "v1", "deployments"), look: workloadLeftovers(updated)},
		{resource: resource("apps", "v1", "statefulsets"), look: workloadLeftovers(updated)},
		{resource: resource("apps", "v1", "daemonsets"), look: workloadLeftovers(updated)},
		{resource: resource("apps", "v1", "replicasets"), look: workloadLeftovers(updated)},
		{resource: resource("", "v1", "pods"), look: podLeftovers},
		{resource: resource("", "v1", "namespaces"), look: namespaceLeftovers},
		{resource: resource("policy", "v1", "poddisruptionbudgets"), options: labelled(managed), look: whole},
		{resource: v1alpha1.GroupVersion.WithResource("podlocators"), options: labelled(managed), look: whole},
		{resource: v1alpha1.GroupVersion.WithResource("endpointgroups"), look: whole},
		{resource: lifecyclev1alpha1.SchemeGroupVersion.WithResource("evictionrequests"), look: requestLeftovers},
		{resource: resource("coordination.k8s.io", "v1", "leases"), options: labelled(v1alpha1.LabelProxyLease + "=true"), look: whole},
		{
			resource: resource("coordination.k8s.io", "v1", "leases"),
			options:  metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, controllerLease).String()},
			look:     func(o *unstructured.Unstructured) leftover { return leftover{whole: o.GetName() == controllerLease} },
		},
	}
	if crds {
		all = append(all, trace{resource: definitionResource, look: func(o *unstructured.Unstructured) leftover {
			group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
			return leftover{whole: group == v1alpha1.GroupVersion.Group}
		}})
	}
	return all
}

func serviceLeftovers(o *unstructured.Unstructured) leftover {
	names := []string{v1alpha1.LabelRouted}
	if o.GetLabels()[v1alpha1.LabelServiceProxyName] == v1alpha1.ServiceProxyName {
		names = append(names, v1alpha1.LabelServiceProxyName)
	}
	return leftover{parts: takeLabels(o, names...)}
}

func conditionLeftovers(o *unstructured.Unstructured) leftover {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	kept := slices.DeleteFunc(slices.Clone(conditions), func(condition any) bool {
		c, _ := condition.(map[string]any)
		return c["type"] == v1alpha1.ConditionTopologyRouting
	})
	if len(kept) == len(conditions) {
		return leftover{}
	}
	_ = unstructured.SetNestedSlice(o.Object, kept, "status", "conditions") // the parents are maps, or NestedSlice had found nothing
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
	_ = unstructured.SetNestedSlice(o.Object, endpoints, "endpoints") // the parents are maps, or NestedSlice had found nothing
	return leftover{parts: append(append(parts, routed...), "hints of its endpoints")}
}

func workloadLeftovers(updated map[workload]bool) func(*unstructured.Unstructured) leftover {
	return func(o *unstructured.Unstructured) leftover {
		found := leftover{parts: takeAnnotations(o, v1alpha1.AnnotationWantedReplicas, v1alpha1.AnnotationPacedReplicas)}
		where := o.GetName() + " -n " + o.GetNamespace()
		strategy, _, _ := unstructured.NestedString(o.Object, "spec", "updateStrategy", "type")
		gates, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "schedulingGates")
		switch {
		case o.GetKind() == "Deployment" && len(withoutGate(gates)) < len(gates):
			found.next = fmt.Sprintf(`Kubernetes schedules no new pod of it, because its template has the gate %s; this removes the gate and replaces the pods: `+
				`kubectl patch deployment %s -p '{"spec":{"template":{"spec":{"schedulingGates":[{"name":%q,"$patch":"delete"}]}}}}'`,
				v1alpha1.RolloutGate, where, v1alpha1.RolloutGate)
		case strategy == "OnDelete" && updated[workload{o.GetKind(), o.GetNamespace(), o.GetName()}]:
			found.next = fmt.Sprintf(`a DomainRollout updated it, and its strategy OnDelete now keeps old pods; this replaces them: `+
				`kubectl patch %s %s -p '{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}'`, strings.ToLower(o.GetKind()), where)
		}
		return found
	}
}

func podLeftovers(o *unstructured.Unstructured) leftover {
	var found leftover
	own := o.GetAnnotations()
	// A cost that differs from the one that Vicinity noted has another owner.
	if cost := own[v1alpha1.AnnotationDeletionCost]; cost != "" && cost == own[corev1.PodDeletionCost] {
		found.parts = takeAnnotations(o, corev1.PodDeletionCost)
	}
	found.parts = append(found.parts, takeAnnotations(o, v1alpha1.AnnotationDeletionCost, v1alpha1.AnnotationGoesUntil,
		v1alpha1.AnnotationReleasedFor, v1alpha1.AnnotationReleasedAt, v1alpha1.AnnotationAbandonedRevision)...)
	gates, _, _ := unstructured.NestedSlice(o.Object, "spec", "schedulingGates")
	if kept := withoutGate(gates); len(kept) < len(gates) {
		_ = unstructured.SetNestedSlice(o.Object, kept, "spec", "schedulingGates") // the parents are maps, or NestedSlice had found nothing
		found.parts = append(found.parts, "scheduling gate "+v1alpha1.RolloutGate)
	}
	phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
	responders, _, _ := unstructured.NestedSlice(o.Object, "spec", "evictionResponders")
	if phase != string(corev1.PodSucceeded) && phase != string(corev1.PodFailed) && slices.ContainsFunc(responders, isNamed(v1alpha1.EvictionResponder)) {
		found.next = fmt.Sprintf("each EvictionRequest for it waits 20 minutes for the responder %s; restart its workload with kubectl rollout restart, or delete the pod",
			v1alpha1.EvictionResponder)
	}
	return found
}

func namespaceLeftovers(o *unstructured.Unstructured) leftover {
	return leftover{parts: takeLabels(o, v1alpha1.LabelBudgets, v1alpha1.LabelEvictionRequests, v1alpha1.PaceScaleDown)}
}

func requestLeftovers(o *unstructured.Unstructured) leftover {
	requester, _, _ := unstructured.NestedString(o.Object, "spec", "requester")
	return leftover{whole: requester == v1alpha1.RequesterRollout || requester == v1alpha1.RequesterSpread}
}

func isNamed(name string) func(any) bool {
	return func(item any) bool {
		fields, _ := item.(map[string]any)
		return fields["name"] == name
	}
}

// withoutGate returns the gates of others.
func withoutGate(gates []any) []any {
	return slices.DeleteFunc(slices.Clone(gates), isNamed(v1alpha1.RolloutGate))
}

// takeLabels removes labels, and names those that the object had.
func takeLabels(o *unstructured.Unstructured, names ...string) []string {
	taken, kept := take("label", o.GetLabels(), names)
	if len(taken) > 0 {
		o.SetLabels(kept)
	}
	return taken
}

// takeAnnotations removes annotations, and names those that the object had.
func takeAnnotations(o *unstructured.Unstructured, names ...string) []string {
	taken, kept := take("annotation", o.GetAnnotations(), names)
	if len(taken) > 0 {
		o.SetAnnotations(kept)
	}
	return taken
}

func take(what string, from map[string]string, names []string) (taken []string, kept map[string]string) {
	for _, name := range names {
		if _, has := from[name]; has {
			taken = append(taken, what+" "+name)
			delete(from, name)
		}
	}
	return taken, from
}
