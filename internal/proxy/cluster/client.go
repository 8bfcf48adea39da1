package cluster

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/watcher"
)

// Client reads and writes the API.
type Client struct{ clients *watcher.Clients }

// NewClient returns a client for a configuration.
func NewClient(config *rest.Config) (*Client, error) {
	clients, err := watcher.NewClients(config, map[schema.GroupVersion]func(*runtime.Scheme) error{
		corev1.SchemeGroupVersion: corev1.AddToScheme, discoveryv1.SchemeGroupVersion: discoveryv1.AddToScheme,
		networkingv1.SchemeGroupVersion: networkingv1.AddToScheme, coordinationv1.SchemeGroupVersion: coordinationv1.AddToScheme,
		eventsv1.SchemeGroupVersion: eventsv1.AddToScheme, v1alpha1.GroupVersion: v1alpha1.AddToScheme,
	})
	if err != nil {
		return nil, err
	}
	return &Client{clients}, nil
}

// Leases returns a client for the Leases of a namespace.
func (c *Client) Leases(namespace string) *gentype.Client[*coordinationv1.Lease] {
	return gentype.NewClient("leases", c.clients.Group(coordinationv1.SchemeGroupVersion), c.clients.Parameters, namespace, func() *coordinationv1.Lease { return &coordinationv1.Lease{} })
}

// CreateEvent creates an event.
func (c *Client) CreateEvent(ctx context.Context, event *eventsv1.Event) error {
	return c.clients.Group(eventsv1.SchemeGroupVersion).Post().Namespace(event.Namespace).Resource("events").Body(event).Do(ctx).Error()
}

// PatchNode applies a JSON patch to a Node.
func (c *Client) PatchNode(ctx context.Context, name string, patch []byte) error {
	return c.clients.Group(corev1.SchemeGroupVersion).Patch(types.JSONPatchType).Resource(ResourceNodes).Name(name).Body(patch).Do(ctx).Error()
}

// Services lists and watches all Services.
func (c *Client) Services() cache.ListerWatcher {
	return watcher.Selected(c.clients.Group(corev1.SchemeGroupVersion), ResourceServices, "")
}

// Slices lists and watches the EndpointSlices of Services with an address.
func (c *Client) Slices() cache.ListerWatcher {
	return watcher.Selected(c.clients.Group(discoveryv1.SchemeGroupVersion), ResourceSlices, "!"+corev1.IsHeadlessService)
}

// Node lists and watches one Node.
func (c *Client) Node(name string) cache.ListerWatcher {
	return watcher.Named(c.clients.Group(corev1.SchemeGroupVersion), ResourceNodes, metav1.NamespaceAll, name)
}

// ServiceRanges lists and watches the ranges of cluster IPs.
func (c *Client) ServiceRanges() cache.ListerWatcher {
	return watcher.Selected(c.clients.Group(networkingv1.SchemeGroupVersion), ResourceRanges, "")
}

// NodeAddresses lists and watches the ConfigMap with the published node addresses.
func (c *Client) NodeAddresses(namespace string) cache.ListerWatcher {
	return watcher.Named(c.clients.Group(corev1.SchemeGroupVersion), ResourceConfigMaps, namespace, v1alpha1.ConfigMapNodeAddresses)
}

// Groups lists and watches the EndpointGroups of a label selector.
func (c *Client) Groups(selector string) cache.ListerWatcher {
	return watcher.Selected(c.clients.Group(v1alpha1.GroupVersion), ResourceGroups, selector)
}
