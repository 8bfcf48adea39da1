package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/routing"
)

// clusterReader reads the objects for a decision. It notes what the cluster does not have or the user
// may not read, and goes on without it.
type clusterReader struct {
	*connection
	// notKnown has a sentence for each thing that is left out, with the consequence.
	notKnown []string
	// unread has the kinds that the user may not read.
	unread []string
	now    time.Time
}

type lister[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
}

const pageSize = 500 // objects per request

// eachItem lists in pages, so that a large list burdens neither side.
func eachItem[T any, L runtime.Object](ctx context.Context, from lister[L], options metav1.ListOptions, visit func(*T) error) error {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return from.List(ctx, o) })
	pages.PageSize = pageSize
	return pages.EachListItem(ctx, options, func(object runtime.Object) error {
		item, ok := any(object).(*T)
		if !ok {
			return fmt.Errorf("the list holds a %T", object)
		}
		return visit(item)
	})
}

func listAll[T any, L runtime.Object](ctx context.Context, from lister[L], options metav1.ListOptions) ([]*T, error) {
	var list []*T
	err := eachItem(ctx, from, options, func(item *T) error {
		list = append(list, item)
		return nil
	})
	return list, err
}

// expectNamespace fails if the namespace does not exist, as far as the user may read it.
func (r *clusterReader) expectNamespace(ctx context.Context, name string) error {
	if _, err := r.typed.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no namespace %q", name)
	}
	return nil
}

// services lists a namespace, or all namespaces if it is empty.
func (r *clusterReader) services(ctx context.Context, namespace string) ([]*corev1.Service, error) {
	list, err := listAll[corev1.Service](ctx, r.typed.CoreV1().Services(namespace), metav1.ListOptions{})
	if apierrors.IsForbidden(err) && namespace == metav1.NamespaceAll {
		return nil, fmt.Errorf("%w; use -n for one namespace", r.explained("reading Services", err))
	}
	return list, r.explained("reading Services", err)
}

func (r *clusterReader) nodes(ctx context.Context) ([]*corev1.Node, error) {
	list, err := listAll[corev1.Node](ctx, r.typed.CoreV1().Nodes(), metav1.ListOptions{})
	return list, r.optional(inspect.KindNodes, "the origin of traffic is unknown, and so is the plan", err)
}

func (r *clusterReader) slices(ctx context.Context, namespace, selector string) ([]*discoveryv1.EndpointSlice, error) {
	list, err := listAll[discoveryv1.EndpointSlice](ctx, r.typed.DiscoveryV1().EndpointSlices(namespace), metav1.ListOptions{LabelSelector: selector})
	return list, r.optional(inspect.KindSlices, "no endpoint is known", err)
}

func (r *clusterReader) policies(ctx context.Context, namespace string) ([]*v1alpha1.RoutingPolicy, error) {
	list, err := listOwn[v1alpha1.RoutingPolicy](ctx, r, ownList{"routingpolicies", namespace, ""})
	return list, r.optional("RoutingPolicies", "only the Service's own settings count here", err)
}

// clusterSettings are the objects for Services of a namespace, or of all.
type clusterSettings struct {
	inspect.ClusterSettings
	// namespaces are empty if nothing needs their labels.
	namespaces map[string]*corev1.Namespace
}

// selectFor sets the objects that count for the Service of an input.
func (c *clusterSettings) selectFor(in *routing.Input, now time.Time) {
	c.SelectFor(in, c.namespaces[in.Service.Namespace], now)
}

const withoutDefaults = "defaults for the Services of namespaces are left out"

func (r *clusterReader) clusterSettings(ctx context.Context, namespace string) (c clusterSettings, err error) {
	c.Defaults, err = listOwn[v1alpha1.ClusterRoutingPolicy](ctx, r, ownList{"clusterroutingpolicies", metav1.NamespaceAll, ""})
	if err := r.optional("ClusterRoutingPolicies", withoutDefaults, err); err != nil {
		return c, err
	}
	c.Shifts, err = listOwn[v1alpha1.ZoneShift](ctx, r, ownList{"zoneshifts", metav1.NamespaceAll, ""})
	if err := r.optional(inspect.KindShifts, "none counts here", err); err != nil || !c.NeedsNamespaces() {
		return c, err
	}
	c.namespaces = map[string]*corev1.Namespace{}
	if namespace != metav1.NamespaceAll {
		found, err := r.typed.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return c, nil
		case err == nil:
			c.namespaces[namespace] = found
		}
		return c, r.optional("Namespaces", withoutDefaults, err)
	}
	list, err := listAll[corev1.Namespace](ctx, r.typed.CoreV1().Namespaces(), metav1.ListOptions{})
	for _, found := range list {
		c.namespaces[found.Name] = found
	}
	return c, r.optional("Namespaces", withoutDefaults, err)
}

func (r *clusterReader) groups(ctx context.Context, namespace, selector string) ([]*v1alpha1.EndpointGroup, error) {
	list, err := listOwn[v1alpha1.EndpointGroup](ctx, r, ownList{"endpointgroups", namespace, selector})
	return list, r.optional(inspect.KindGroups, "the groups for vicinity-proxy are unknown", err)
}

// ownList names objects of Vicinity's API to list.
type ownList struct {
	resource, namespace, selector string
}

func listOwn[T any](ctx context.Context, r *clusterReader, what ownList) ([]*T, error) {
	resource := r.dynamic.Resource(v1alpha1.GroupVersion.WithResource(what.resource)).Namespace(what.namespace)
	var list []*T
	err := eachItem(ctx, resource, metav1.ListOptions{LabelSelector: what.selector}, func(object *unstructured.Unstructured) error {
		item, err := convertTo[T](object)
		if err == nil {
			list = append(list, item)
		}
		return err
	})
	return list, err
}

func convertTo[T any](object *unstructured.Unstructured) (*T, error) {
	item := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, item); err != nil {
		return nil, fmt.Errorf("%s %s/%s: %w", object.GetKind(), object.GetNamespace(), object.GetName(), err)
	}
	return item, nil
}

// autoscalers returns the names of the HorizontalPodAutoscalers that scale the pods of a Service.
func (r *clusterReader) autoscalers(ctx context.Context, service *corev1.Service) ([]string, error) {
	const consequence = "whether an autoscaler sets the number of endpoints is unknown"
	if len(service.Spec.Selector) == 0 {
		return nil, nil
	}
	list, err := listAll[autoscalingv2.HorizontalPodAutoscaler](ctx, r.typed.AutoscalingV2().HorizontalPodAutoscalers(service.Namespace), metav1.ListOptions{})
	if err != nil {
		return nil, r.optional("HorizontalPodAutoscalers", consequence, err)
	}
	var names []string
	for _, autoscaler := range list {
		template, err := r.template(ctx, service.Namespace, autoscaler.Spec.ScaleTargetRef)
		if apierrors.IsNotFound(err) {
			continue // its target does not exist
		}
		if err := r.optional(autoscaler.Spec.ScaleTargetRef.Kind+"s", consequence, err); err != nil {
			return nil, err
		}
		if template != nil && labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(template)) {
			names = append(names, "HorizontalPodAutoscaler "+autoscaler.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// template returns the labels of the pods of a workload, or nil for an unknown kind.
func (r *clusterReader) template(ctx context.Context, namespace string, target autoscalingv2.CrossVersionObjectReference) (map[string]string, error) {
	if !strings.HasPrefix(target.APIVersion, appsv1.GroupName+"/") {
		return nil, nil
	}
	apps := r.typed.AppsV1()
	switch target.Kind {
	case "Deployment":
		object, err := apps.Deployments(namespace).Get(ctx, target.Name, metav1.GetOptions{})
		return object.Spec.Template.Labels, err
	case "StatefulSet":
		object, err := apps.StatefulSets(namespace).Get(ctx, target.Name, metav1.GetOptions{})
		return object.Spec.Template.Labels, err
	case "ReplicaSet":
		object, err := apps.ReplicaSets(namespace).Get(ctx, target.Name, metav1.GetOptions{})
		return object.Spec.Template.Labels, err
	}
	return nil, nil
}

// optional notes that a kind is left out if the user may not read it or the cluster does not have it.
// It returns other errors.
func (r *clusterReader) optional(what, consequence string, err error) error {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err) && errors.As(err, &status):
		r.unread = append(r.unread, what)
		r.leaveOut(fmt.Sprintf("%s may not be read (%s), so %s; see %s", what, reasonOf(status), consequence, inspect.PermissionsDocument))
		return nil
	case apierrors.IsNotFound(err):
		r.leaveOut(fmt.Sprintf("the cluster has no %s, since Vicinity's CRDs are not installed, so %s", what, consequence))
		return nil
	}
	return r.explained("reading "+what, err)
}

func (r *clusterReader) leaveOut(sentence string) {
	if !slices.Contains(r.notKnown, sentence) {
		r.notKnown = append(r.notKnown, sentence)
	}
}

// readInterval is the time between two reads of an object that the command follows.
const readInterval = time.Second

// await reads until a read is done, and returns its error. It reports other errors once, and reads again.
func await(ctx context.Context, messages io.Writer, read func() (done bool, err error)) error {
	last := ""
	for {
		done, err := read()
		switch {
		case done:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			last = ""
		case err.Error() != last:
			last = err.Error()
			fmt.Fprintf(messages, "%s; trying again\n", command.OneLine(err))
		}
		if err := command.Pause(ctx, readInterval); err != nil {
			return err
		}
	}
}

// isLasting reports whether a read fails again later: a user without the permission does not get it while waiting.
func isLasting(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// reasonOf returns the message of the API without the part that repeats the resource.
func reasonOf(status apierrors.APIStatus) string {
	message := status.Status().Message
	if _, reason, found := strings.Cut(message, " is forbidden: "); found {
		return reason
	}
	return message
}

// explained turns an error of the API into one sentence for a user.
func (r *clusterReader) explained(doing string, err error) error {
	var status apierrors.APIStatus
	var timeout net.Error
	var connecting *url.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return err
	case apierrors.IsForbidden(err) && errors.As(err, &status):
		return fmt.Errorf("%s is not allowed: %s; see %s", doing, reasonOf(status), inspect.PermissionsDocument)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the cluster at %s does not accept the credentials of the kubeconfig", r.server)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("the cluster at %s does not answer in time; --request-timeout gives it more time", r.server)
	case errors.As(err, &connecting):
		return fmt.Errorf("the cluster at %s cannot be reached: %w", r.server, connecting.Err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}
