package console

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/routing/routingflags"
)

type kind struct {
	name string // as in messages and inspect.Reading
	// right is the resource with its API group, as in roles.
	right string
	// wide means that the right is needed in the whole cluster, whatever the namespace.
	wide bool
	// own means that the kind is of Vicinity's API, which may not be installed.
	own bool
	// without is the consequence of not reading it, or empty.
	without string

	object runtime.Object
	list   func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch  func(context.Context, metav1.ListOptions) (watch.Interface, error)
	// slim drops unused fields, so that a large cluster fits in memory.
	slim   cache.TransformFunc
	client any
}

// Kinds that have no name in package inspect.
const (
	kindServices        = "Services"
	kindNamespaces      = "Namespaces"
	kindDeployments     = "Deployments"
	kindMutating        = "MutatingWebhookConfigurations"
	kindValidating      = "ValidatingWebhookConfigurations"
	kindPolicies        = "RoutingPolicies"
	kindClusterPolicies = "ClusterRoutingPolicies"
	kindRollouts        = "DomainRollouts"
)

type client[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// reads sets the client that lists and watches a kind.
func reads[L runtime.Object](k kind, c client[L]) kind {
	k.list = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return c.List(ctx, o) }
	k.watch = c.Watch
	return k
}

func kinds(o Options) []kind {
	core := o.Typed.CoreV1()
	typed := []kind{
		reads(kind{
			name: kindServices, right: "services", without: "no Service is shown", object: &corev1.Service{}, slim: slimObject,
		}, core.Services(o.Namespace)),
		reads(kind{
			name: inspect.KindNodes, right: "nodes", wide: true, object: &corev1.Node{}, slim: slimNode,
			without: "the origin of traffic is unknown, and so are plans",
		}, core.Nodes()),
		reads(kind{
			name: inspect.KindSlices, right: "endpointslices.discovery.k8s.io", object: &discoveryv1.EndpointSlice{}, slim: slimObject,
			without: "no endpoint is known",
		}, o.Typed.DiscoveryV1().EndpointSlices(o.Namespace)),
		reads(kind{
			name: kindNamespaces, right: "namespaces", wide: true, object: &corev1.Namespace{}, slim: slimNamespace,
			without: "defaults for the Services of namespaces are left out",
		}, core.Namespaces()),
	}
	ours := o.Typed.AdmissionregistrationV1()
	typed = append(typed,
		labelled(routingflags.ControllerSelector, reads(kind{
			name: kindDeployments, right: "deployments.apps", wide: true, object: &appsv1.Deployment{}, slim: slimObject,
			without: "vicinity-controller is assumed to have its default flags",
		}, o.Typed.AppsV1().Deployments(metav1.NamespaceAll))),
		labelled(inspect.PartSelector, reads(kind{
			name: kindMutating, right: "mutatingwebhookconfigurations.admissionregistration.k8s.io", wide: true,
			object: &admissionregistrationv1.MutatingWebhookConfiguration{}, slim: slimObject,
		}, ours.MutatingWebhookConfigurations())),
		labelled(inspect.PartSelector, reads(kind{
			name: kindValidating, right: "validatingwebhookconfigurations.admissionregistration.k8s.io", wide: true,
			object: &admissionregistrationv1.ValidatingWebhookConfiguration{}, slim: slimObject,
		}, ours.ValidatingWebhookConfigurations())),
	)
	for i := range typed {
		typed[i].client = o.Typed
	}
	return append(typed,
		ownKind[v1alpha1.RoutingPolicy](o, kind{name: kindPolicies, right: "routingpolicies", without: "only a Service's own settings count here"}),
		ownKind[v1alpha1.ClusterRoutingPolicy](o, kind{
			name: kindClusterPolicies, right: "clusterroutingpolicies", wide: true,
			without: "defaults for the Services of namespaces are left out",
		}),
		ownKind[v1alpha1.ZoneShift](o, kind{name: inspect.KindShifts, right: "zoneshifts", wide: true, without: "none counts here"}),
		ownKind[v1alpha1.EndpointGroup](o, kind{name: inspect.KindGroups, right: "endpointgroups", without: "the groups for vicinity-proxy are unknown"}),
		ownKind[v1alpha1.TopologyDisruptionBudget](o, kind{name: inspect.KindBudgets, right: "topologydisruptionbudgets", without: "no budget is shown"}),
		ownKind[v1alpha1.DomainRollout](o, kind{name: kindRollouts, right: "domainrollouts", without: "no rollout is shown"}),
	)
}

// labelled limits a kind to objects with labels.
func labelled(selector string, k kind) kind {
	list, watches := k.list, k.watch
	k.list = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		o.LabelSelector = selector
		return list(ctx, o)
	}
	k.watch = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		o.LabelSelector = selector
		return watches(ctx, o)
	}
	return k
}

func ownKind[T any](o Options, k kind) kind {
	resource := o.Dynamic.Resource(v1alpha1.GroupVersion.WithResource(k.right))
	namespace := o.Namespace
	if k.wide {
		namespace = metav1.NamespaceAll
	}
	k.right += "." + v1alpha1.GroupVersion.Group
	k.own, k.object, k.client = true, &unstructured.Unstructured{}, o.Dynamic
	k.slim = slimOwn[T]
	return reads(k, resource.Namespace(namespace))
}

// broken stands in for an object that cannot be decoded, so that it can be named.
type broken struct {
	metav1.ObjectMeta
	err error
}

// slimOwn decodes an object of Vicinity's API.
func slimOwn[T any](object any) (any, error) {
	found, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	own := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, own); err != nil {
		return &broken{metav1.ObjectMeta{Namespace: found.GetNamespace(), Name: found.GetName(), ResourceVersion: found.GetResourceVersion()}, err}, nil
	}
	return slimObject(own)
}

func slimObject(object any) (any, error) {
	if m, ok := object.(metav1.Object); ok {
		m.SetManagedFields(nil)
		if annotations := m.GetAnnotations(); annotations[corev1.LastAppliedConfigAnnotation] != "" {
			annotations = maps.Clone(annotations)
			delete(annotations, corev1.LastAppliedConfigAnnotation)
			m.SetAnnotations(annotations)
		}
	}
	return object, nil
}

// slimNode keeps the fields that plans depend on. It drops what a kubelet reports every few minutes,
// so that such a report changes nothing.
func slimNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	slim := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: node.Labels,
			CreationTimestamp: node.CreationTimestamp, DeletionTimestamp: node.DeletionTimestamp,
		},
		Spec: corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable, Taints: node.Spec.Taints},
	}
	slim.Status.Allocatable = node.Status.Allocatable
	slim.Status.NodeInfo.KubeletVersion = node.Status.NodeInfo.KubeletVersion
	slim.Status.NodeInfo.OperatingSystem = node.Status.NodeInfo.OperatingSystem
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			condition.LastHeartbeatTime = metav1.Time{}
			slim.Status.Conditions = append(slim.Status.Conditions, condition)
		}
	}
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			slim.Status.Addresses = append(slim.Status.Addresses, address)
		}
	}
	return slim, nil
}

func slimNamespace(object any) (any, error) {
	namespace, ok := object.(*corev1.Namespace)
	if !ok {
		return object, nil
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: namespace.Name, UID: namespace.UID, ResourceVersion: namespace.ResourceVersion, Labels: namespace.Labels,
	}}, nil
}

// fault says why a kind cannot be read.
type fault struct {
	verb string
	err  error
}

// missing describes a kind that cannot be read. Its older objects are still shown.
func (k *kind) missing(f fault, namespace string, wasRead bool) string {
	more, stale, follows := "", "", ", so "+k.without
	if wasRead {
		more, stale = " any more", "; older data is shown"
		follows = stale
	}
	switch {
	case apierrors.IsForbidden(f.err):
		where := "in the whole cluster"
		if namespace != "" && !k.wide {
			where = fmt.Sprintf("in namespace %q", namespace)
		}
		if f.verb == "watch" {
			return fmt.Sprintf("%s may not be watched, so changes of them are seen late. Missing right: watch %s %s; see %s", k.name, k.right, where, inspect.PermissionsDocument)
		}
		return fmt.Sprintf("%s may not be read%s%s. Missing right: list and watch %s %s; see %s", k.name, more, follows, k.right, where, inspect.PermissionsDocument)
	case apierrors.IsNotFound(f.err) && k.own:
		return fmt.Sprintf("the cluster has no %s%s, since Vicinity's CRDs are not installed%s", k.name, more, follows)
	case apierrors.IsUnauthorized(f.err):
		return fmt.Sprintf("%s cannot be read: the cluster does not accept the credentials of the kubeconfig%s", k.name, stale)
	}
	return fmt.Sprintf("%s cannot be read now: %v%s", k.name, f.err, stale)
}

// isOffline reports whether the cluster does not answer at all.
func (f fault) isOffline() bool {
	var status apierrors.APIStatus
	return f.err != nil && !errors.As(f.err, &status)
}

// reason says why the cluster does not answer, without the URL.
func (f fault) reason() string {
	var asked *url.Error
	if errors.As(f.err, &asked) {
		return asked.Err.Error()
	}
	return f.err.Error()
}
