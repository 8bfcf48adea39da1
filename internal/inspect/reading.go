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

// Reading is the input of a decision about a Service, as it was read of a cluster.
type Reading struct {
	routing.Input
	// LeftAlone is why vicinity-controller ignores the Service, empty for most.
	LeftAlone string
	// Stopped is why no vicinity-controller routes, if that is known.
	Stopped string
	// Unread are the kinds of objects that may not be read.
	Unread []string
	// Now is when it was read.
	Now time.Time
}

// lacksNodes reports whether the nodes are unknown. Then plans are, too, and only stored objects can be shown.
func (in *Reading) lacksNodes() bool { return slices.Contains(in.Unread, KindNodes) }

// Decide decides as the controller does. For a Service that the controller ignores, the request is that of Kubernetes
// alone.
func (in *Reading) Decide() (routing.Decision, error) {
	if in.LeftAlone == "" {
		return routing.Decide(in.Input)
	}
	d := routing.Decision{Delivery: allocate.DeliveryNone, Request: intent.RequestOf(forKubernetes(in.Service), nil, intent.Options{})}
	asked := intent.RequestOf(in.Service, in.Policies, intent.Options{})
	if asked.Source != d.Request.Source || asked.Groups {
		d.Notes = append(d.Notes, fmt.Sprintf("%s has no effect: vicinity-controller ignores the Service, because %s",
			cmp.Or(asked.Source, asked.GroupsBy), in.LeftAlone))
	}
	return d, nil
}

// abandoned warns that vicinity-proxy serves a Service whose groups no longer follow its pods. It is empty for most
// Services.
func (in *Reading) abandoned() string {
	if in.Stopped == "" || !intent.IsHandedOver(in.Service) {
		return ""
	}
	return fmt.Sprintf("vicinity-proxy serves it from groups that no longer follow its pods, because %s; remove the label %s to return it to kube-proxy",
		in.Stopped, v1alpha1.LabelServiceProxyName)
}

// awaitsProxy reports whether stock proxies serve a Service whose plan is for vicinity-proxy.
func awaitsProxy(service *corev1.Service, delivery allocate.Delivery) bool {
	return delivery == allocate.DeliveryGroups && !intent.IsHeadless(service) && !intent.IsHandedOver(service)
}

// The states of a headless Service with a plan. Whether the plan is in force is unknown: that depends on the DNS
// servers that clients ask.
const (
	stateDelivered = "delivered"
	// statePlanned means that no group is written.
	statePlanned = "planned"
)

// stateShifted is the state of a Service that asks for nothing, and whose endpoints leave a shifted domain.
const stateShifted = "shifted"

// stateOf returns the state of a family with this decision.
func (in *Reading) stateOf(d *routing.Decision, outcome allocate.Outcome) string {
	switch {
	case d.Shifting.Moves && d.Request.AsksNothing():
		return stateShifted
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

// forKubernetes returns the Service without settings for Vicinity.
func forKubernetes(service *corev1.Service) *corev1.Service {
	bare := service.DeepCopy()
	for _, name := range []string{
		v1alpha1.AnnotationSameNode, v1alpha1.AnnotationSameZone, v1alpha1.AnnotationSameRegion,
		v1alpha1.AnnotationTopologyKeys, v1alpha1.AnnotationProxy,
	} {
		delete(bare.Annotations, name)
	}
	for _, name := range []string{v1alpha1.AnnotationTopologyMode, v1alpha1.AnnotationTopologyAwareHints} {
		// An unknown value of the older name still counts: it keeps Kubernetes from reading the newer one.
		if strings.HasPrefix(bare.Annotations[name], v1alpha1.PolicyPrefix) {
			bare.Annotations[name] = "Disabled"
		}
	}
	delete(bare.Labels, v1alpha1.LabelOwnZone)
	return bare
}
