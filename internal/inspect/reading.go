package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// Reading is all that the decision about a Service depends on, as it was read of a cluster.
type Reading struct {
	routing.Input
	// LeftAlone is why vicinity-controller leaves the Service alone; it is empty for most.
	LeftAlone string
	// Stopped is why no vicinity-controller runs, as far as that is known.
	Stopped string
	// Unread are the kinds of objects that may not be read.
	Unread []string
	// Now is when it was read.
	Now time.Time
}

// blind reports whether the nodes are not known. Then no plan is, and what is stored is all
// that there is to show.
func (in *Reading) blind() bool { return slices.Contains(in.Unread, KindNodes) }

// Decide decides as the controller does. Of a Service that it leaves alone the request is
// what Kubernetes does by itself.
func (in *Reading) Decide() (routing.Decision, error) {
	if in.LeftAlone == "" {
		return routing.Decide(in.Input)
	}
	d := routing.Decision{Delivery: allocate.DeliveryNone, Request: intent.RequestOf(forKubernetes(in.Service), nil, intent.Options{})}
	asked := intent.RequestOf(in.Service, in.Policies, intent.Options{})
	if asked.Source != d.Request.Source || asked.Groups {
		d.Notes = append(d.Notes, fmt.Sprintf("%s has no effect: vicinity-controller ignores the Service, because %s",
			cmp.Or(asked.Source, "annotation "+v1alpha1.AnnotationProxy), in.LeftAlone))
	}
	return d, nil
}

// abandoned says, of a Service that kube-proxy leaves to vicinity-proxy, that its groups
// follow nothing any more. It is empty for most.
func (in *Reading) abandoned() string {
	if in.Stopped == "" || in.Service.Labels[v1alpha1.LabelServiceProxyName] != v1alpha1.ServiceProxyName {
		return ""
	}
	return fmt.Sprintf("vicinity-proxy serves it from groups that no longer follow its pods, because %s; remove the label %s to return it to kube-proxy",
		in.Stopped, v1alpha1.LabelServiceProxyName)
}

// awaitsProxy reports whether stock proxies serve a Service whose plan is for
// vicinity-proxy.
func awaitsProxy(service *corev1.Service, delivery allocate.Delivery) bool {
	return delivery == allocate.DeliveryGroups && !intent.IsHeadless(service) && service.Labels[v1alpha1.LabelServiceProxyName] != v1alpha1.ServiceProxyName
}

// The states of a headless Service with a plan. Whether it is in force, as "allocated" says of others,
// cannot be known: that depends on the DNS servers that clients ask.
const (
	stateDelivered = "delivered"
	// statePlanned is while no group is written.
	statePlanned = "planned"
)

// stateOf is the state of a family of which this is decided.
func (in *Reading) stateOf(d *routing.Decision, outcome allocate.Outcome) string {
	switch {
	case !d.Request.Headless || d.Delivery != allocate.DeliveryGroups || outcome.IsBalanced():
		return outcome.State.String()
	case len(in.Groups) == 0:
		return statePlanned
	}
	return stateDelivered
}

func (in *Reading) withoutAddresses() string {
	if len(in.Slices) > 0 {
		return "no EndpointSlice of the Service has addresses"
	}
	return "no EndpointSlice of the Service is known"
}

// forKubernetes is the Service with nothing written on it that is for Vicinity.
func forKubernetes(service *corev1.Service) *corev1.Service {
	bare := service.DeepCopy()
	for _, name := range []string{
		v1alpha1.AnnotationSameNode, v1alpha1.AnnotationSameZone, v1alpha1.AnnotationSameRegion,
		v1alpha1.AnnotationTopologyKeys, v1alpha1.AnnotationProxy,
	} {
		delete(bare.Annotations, name)
	}
	for _, name := range []string{v1alpha1.AnnotationTopologyMode, v1alpha1.AnnotationTopologyAwareHints} {
		// A value of the older name that Kubernetes does not know counts all the same: it
		// keeps Kubernetes from looking at the newer one.
		if strings.HasPrefix(bare.Annotations[name], v1alpha1.PolicyPrefix) {
			bare.Annotations[name] = "Disabled"
		}
	}
	delete(bare.Labels, v1alpha1.LabelOwnZone)
	return bare
}
