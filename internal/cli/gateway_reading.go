package cli

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"vicinity.dev/vicinity/internal/inspect"
)

var gatewayVersion = schema.GroupVersion{Group: "gateway.networking.k8s.io", Version: "v1"}

// gatewayRoute has the fields of an HTTPRoute or GRPCRoute that name its backends and controllers.
type gatewayRoute struct {
	Spec struct {
		Rules []struct {
			BackendRefs []backendRef `json:"backendRefs"`
		} `json:"rules"`
	} `json:"spec"`
	Status struct {
		Parents []struct {
			ParentRef      corev1.ObjectReference `json:"parentRef"`
			ControllerName string                 `json:"controllerName"`
			Conditions     []metav1.Condition     `json:"conditions"`
		} `json:"parents"`
	} `json:"status"`
}

type backendRef struct {
	Group     string `json:"group"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// gateways reads the Ingresses of a namespace, or of all, and all HTTPRoutes and GRPCRoutes, which may have backends in
// other namespaces. The cluster may lack the Gateway API. With an error it returns the rest.
func (r *clusterReader) gateways(ctx context.Context, namespace string) (inspect.Gateways, error) {
	found := inspect.Gateways{}
	failed := r.ingresses(ctx, namespace, found)
	// Without the API, a request for its objects may be forbidden.
	served, err := r.typed.Discovery().ServerResourcesForGroupVersion(gatewayVersion.String())
	if err != nil {
		return found, cmp.Or(failed, ignoreNotFound(err))
	}
	for i := range served.APIResources {
		name := served.APIResources[i].Name
		if name != "httproutes" && name != "grpcroutes" {
			continue
		}
		resource := r.dynamic.Resource(gatewayVersion.WithResource(name))
		note := func(object *unstructured.Unstructured) error { return noteRoute(object, found) }
		err := eachItem(ctx, resource, metav1.ListOptions{}, note)
		if apierrors.IsForbidden(err) && namespace != "" {
			err = cmp.Or(eachItem(ctx, resource.Namespace(namespace), metav1.ListOptions{}, note), err)
		}
		failed = cmp.Or(failed, err)
	}
	return found, failed
}

// noteRoute adds a route to its backends.
func noteRoute(object *unstructured.Unstructured, found inspect.Gateways) error {
	route, err := convertTo[gatewayRoute](object)
	if err != nil {
		return err
	}
	g := inspect.Gateway{Kind: object.GetKind(), Namespace: object.GetNamespace(), Name: object.GetName(), Annotations: object.GetAnnotations()}
	for _, parent := range route.Status.Parents {
		// A Service as parent is for traffic between pods.
		if g.Controller = parent.ControllerName; parent.ParentRef.Kind == "Service" || meta.IsStatusConditionFalse(parent.Conditions, "Accepted") {
			continue
		}
		for _, rule := range route.Spec.Rules {
			for _, ref := range rule.BackendRefs {
				if ref.Group == "" && cmp.Or(ref.Kind, "Service") == "Service" {
					name := types.NamespacedName{Namespace: cmp.Or(ref.Namespace, g.Namespace), Name: ref.Name}
					found[name] = append(found[name], g)
				}
			}
		}
	}
	return nil
}

// ingresses adds those of a namespace, or of all. Their controllers are unknown if it may not read classes.
func (r *clusterReader) ingresses(ctx context.Context, namespace string, found inspect.Gateways) error {
	ingresses, err := listAll[networkingv1.Ingress](ctx, r.typed.NetworkingV1().Ingresses(namespace), metav1.ListOptions{})
	if err != nil || len(ingresses) == 0 {
		return err
	}
	classes, err := listAll[networkingv1.IngressClass](ctx, r.typed.NetworkingV1().IngressClasses(), metav1.ListOptions{})
	controllers := map[string]string{}
	for _, class := range classes {
		controllers[class.Name] = class.Spec.Controller
	}
	for _, ingress := range ingresses {
		g := inspect.Gateway{Kind: "Ingress", Namespace: ingress.Namespace, Name: ingress.Name, Annotations: ingress.Annotations}
		g.Controller = controllers[ptr.Deref(ingress.Spec.IngressClassName, ingress.Annotations["kubernetes.io/ingress.class"])]
		paths := []networkingv1.HTTPIngressPath{{Backend: ptr.Deref(ingress.Spec.DefaultBackend, networkingv1.IngressBackend{})}}
		for _, rule := range ingress.Spec.Rules {
			paths = append(paths, ptr.Deref(rule.HTTP, networkingv1.HTTPIngressRuleValue{}).Paths...)
		}
		for i := range paths {
			if backend := paths[i].Backend.Service; backend != nil {
				name := types.NamespacedName{Namespace: g.Namespace, Name: backend.Name}
				found[name] = append(found[name], g)
			}
		}
	}
	return err
}
