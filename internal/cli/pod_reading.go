package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	names "k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption/coverage"
	"vicinity.dev/vicinity/internal/inspect"
)

type podReader struct {
	*clusterReader
	in inspect.PodReading
	// world is common to all budgets of the namespace.
	world coverage.World
	// unknown says why the world of budgets is unknown, or is empty. unplaced is the same for budgets
	// that choose nodes.
	unknown, unplaced string
}

func (p *podReader) read(ctx context.Context, name string) error {
	pod, err := p.typed.CoreV1().Pods(p.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return p.podNotFound(ctx, name)
	}
	if err != nil {
		return p.explained(fmt.Sprintf("reading Pod %s/%s", p.namespace, name), err)
	}
	p.in.Pod = pod
	p.in.PDBs, err = listAll[policyv1.PodDisruptionBudget](ctx, p.typed.PolicyV1().PodDisruptionBudgets(p.namespace), metav1.ListOptions{})
	if err := p.optional(inspect.KindPDBs, "whether one covers the pod is unknown", err); err != nil {
		return err
	}
	budgets, err := listOwn[v1alpha1.TopologyDisruptionBudget](ctx, p.clusterReader, ownList{budgetResource, p.namespace, ""})
	if err := p.optional(inspect.KindBudgets, "whether one covers the pod is unknown", err); err != nil {
		return err
	}
	if len(budgets) == 0 {
		return nil
	}
	if err := p.readWorld(ctx); err != nil {
		return err
	}
	for _, budget := range budgets {
		if err := p.readBudget(ctx, budget); err != nil {
			return err
		}
	}
	return p.readEnforcement(ctx, budgets)
}

func (p *podReader) readWorld(ctx context.Context) error {
	pods, err := listAll[corev1.Pod](ctx, p.typed.CoreV1().Pods(p.namespace), metav1.ListOptions{})
	if err := p.needed(&p.unknown, "Pods", err); err != nil {
		return err
	}
	p.world.Pods = pods
	nodes, err := listAll[corev1.Node](ctx, p.typed.CoreV1().Nodes(), metav1.ListOptions{})
	if err := p.needed(&p.unplaced, inspect.KindNodes, err); err != nil {
		return err
	}
	p.world.Nodes = make(map[string]*corev1.Node, len(nodes))
	for _, node := range nodes {
		p.world.Nodes[node.Name] = node
	}
	p.world.Shifts, err = listOwn[v1alpha1.ZoneShift](ctx, p.clusterReader, ownList{"zoneshifts", metav1.NamespaceAll, ""})
	if err := p.optional("ZoneShifts", "whether one disturbs a domain is unknown", err); err != nil {
		return err
	}
	return p.readWorkloads(ctx)
}

// needed notes in reason why nothing is known without a kind that may not be read. It returns other
// errors.
func (p *podReader) needed(reason *string, what string, err error) error {
	if !apierrors.IsForbidden(err) {
		return p.explained("reading "+what, err)
	}
	if *reason == "" {
		*reason = what + " may not be read"
	}
	return p.optional(what, "the numbers of budgets are unknown", err)
}

func (p *podReader) readWorkloads(ctx context.Context) error {
	apps := p.typed.AppsV1()
	if err := addWorkloads(ctx, p, "Deployments", apps.Deployments(p.namespace), coverage.OfDeployment); err != nil {
		return err
	}
	if err := addWorkloads(ctx, p, "ReplicaSets", apps.ReplicaSets(p.namespace), coverage.OfReplicaSet); err != nil {
		return err
	}
	if err := addWorkloads(ctx, p, "StatefulSets", apps.StatefulSets(p.namespace), coverage.OfStatefulSet); err != nil {
		return err
	}
	return addWorkloads(ctx, p, "DaemonSets", apps.DaemonSets(p.namespace), coverage.OfDaemonSet)
}

func addWorkloads[T any, L runtime.Object](ctx context.Context, p *podReader, kind string, from lister[L], read func(*T) coverage.Workload) error {
	objects, err := listAll[T](ctx, from, metav1.ListOptions{})
	for _, object := range objects {
		p.world.Workloads = append(p.world.Workloads, read(object))
	}
	return p.needed(&p.unknown, kind, err)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (p *podReader) readBudget(ctx context.Context, budget *v1alpha1.TopologyDisruptionBudget) error {
	b := inspect.BudgetReading{World: p.world, Unknown: p.unknown}
	b.World.Budget = budget
	if b.Unknown == "" && budget.Spec.NodeSelectorTerm != nil {
		b.Unknown = p.unplaced
	}
	if b.Unknown == "" {
		b.World.Workloads = slices.Clone(p.world.Workloads)
		for _, ref := range coverage.OwnerRefs(b.World) {
			owner, err := p.scaleOf(ctx, ref)
			switch {
			case apierrors.IsForbidden(err):
				b.Unknown = "the replicas of " + ref.ID() + " may not be read"
			case err != nil:
				return p.explained("reading the scale of "+ref.ID(), err)
			}
			b.World.Workloads = append(b.World.Workloads, owner)
		}
	}
	p.in.Budgets = append(p.in.Budgets, b)
	return nil
}

// scaleOf reads the replicas of an owner of any kind.
func (p *podReader) scaleOf(ctx context.Context, ref coverage.Ref) (coverage.Workload, error) {
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil || len(names.IsPathSegmentName(ref.Name)) > 0 { // no object has such a name
		return coverage.WithoutScale(ref), nil
	}
	plural, scales, err := p.resourceOf(ref.APIVersion, ref.Kind)
	if apierrors.IsNotFound(err) || discovery.IsGroupDiscoveryFailedError(err) {
		return coverage.WithoutScale(ref), nil
	}
	if err != nil {
		return coverage.Workload{}, err
	}
	if !scales {
		return coverage.WithoutScale(ref), nil
	}
	scale, err := p.dynamic.Resource(version.WithResource(plural)).Namespace(p.namespace).Get(ctx, ref.Name, metav1.GetOptions{}, "scale")
	switch {
	case apierrors.IsNotFound(err):
		return coverage.WithoutScale(ref), nil
	case err != nil:
		return coverage.Workload{}, err
	case scale.GetUID() != "" && scale.GetUID() != ref.UID:
		return coverage.WithoutScale(ref), nil // a new owner with the same name
	}
	replicas, _, err := unstructured.NestedInt64(scale.Object, "spec", "replicas")
	if err != nil {
		return coverage.Workload{}, err
	}
	return coverage.OfScale(ref, int32(min(max(replicas, 0), 1<<31-1))), nil
}

// resourceOf returns the name of the resource of a kind, empty without one, and whether it has the subresource scale.
func (c *connection) resourceOf(apiVersion, kind string) (plural string, scales bool, err error) {
	resources, err := c.typed.Discovery().ServerResourcesForGroupVersion(apiVersion)
	if err != nil {
		return "", false, err
	}
	scaled := map[string]bool{}
	for _, resource := range resources.APIResources {
		if name, is := strings.CutSuffix(resource.Name, "/scale"); is {
			scaled[name] = true
		} else if resource.Kind == kind && !strings.Contains(resource.Name, "/") {
			plural = resource.Name
		}
	}
	return plural, scaled[plural], nil
}

// readEnforcement finds whether evictions in the namespace are checked. For what may not be read, it
// believes the controller's status.
func (p *podReader) readEnforcement(ctx context.Context, budgets []*v1alpha1.TopologyDisruptionBudget) error {
	controller, err := p.controller(ctx)
	controllerUnread := apierrors.IsForbidden(err)
	if err := p.optional("Deployments", "whether vicinity-controller runs is unknown", err); err != nil {
		return err
	}
	own := ""
	switch {
	case controller != nil:
		own = controller.Namespace
		if controller.Status.ReadyReplicas == 0 {
			p.in.Down = fmt.Sprintf("Deployment %s/%s has no ready pod", controller.Namespace, controller.Name)
		}
	case !controllerUnread:
		p.in.Down = "no vicinity-controller is installed"
	}
	if p.namespace == metav1.NamespaceSystem || p.namespace == own {
		p.in.Unenforced = "evictions in namespace " + p.namespace + " are never checked, so that Vicinity and the cluster can recover there"
		return nil
	}
	asked, known, err := p.webhooks(ctx, own)
	if err != nil {
		return err
	}
	labelled, labelKnown, err := p.labelled(ctx)
	switch {
	case err != nil:
		return err
	case known && asked != "":
		p.in.Unenforced = asked
	case labelKnown && !labelled:
		p.in.Unenforced = fmt.Sprintf("namespace %s does not have the label %s: \"true\", which vicinity-controller sets", p.namespace, v1alpha1.LabelBudgets)
	case !known || !labelKnown:
		p.in.Unenforced = unenforced(budgets)
	}
	return nil
}

// webhooks says why the API server does not ask Vicinity about evictions, or is empty.
func (p *podReader) webhooks(ctx context.Context, own string) (missing string, known bool, err error) {
	all, err := p.webhookConfigurations(ctx)
	switch {
	case apierrors.IsForbidden(err):
		return "", false, nil
	case err != nil:
		return "", false, p.explained("reading the configurations of webhooks", err)
	}
	if !slices.ContainsFunc(all, func(c inspect.WebhookConfiguration) bool {
		return c.Kind == inspect.Mutating && c.AsksAboutEvictions(own)
	}) {
		return fmt.Sprintf("no %s asks Vicinity about pods/eviction: set disruption.enabled in the chart", inspect.Mutating), true, nil
	}
	return "", true, nil
}

// labelled reports whether the namespace has the label that the webhooks select.
func (p *podReader) labelled(ctx context.Context) (has, known bool, err error) {
	namespace, err := p.typed.CoreV1().Namespaces().Get(ctx, p.namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
		return false, false, nil
	case err != nil:
		return false, false, p.explained("reading Namespace "+p.namespace, err)
	}
	return namespace.Labels[v1alpha1.LabelBudgets] == "true", true, nil
}

// unenforced returns the controller's reason from any budget of the namespace: all have the same.
func unenforced(budgets []*v1alpha1.TopologyDisruptionBudget) string {
	for _, budget := range budgets {
		for _, c := range budget.Status.Conditions {
			if c.Type == v1alpha1.ConditionEnforced && c.Status == metav1.ConditionFalse {
				return c.Message
			}
		}
	}
	return ""
}

func (r *clusterReader) podNotFound(ctx context.Context, name string) error {
	list, err := r.typed.CoreV1().Pods(r.namespace).List(ctx, metav1.ListOptions{Limit: pageSize})
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return r.notFound(ctx, fmt.Sprintf("pod %q", name), names, err)
}
