package cluster

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// Client asks an API server. It has a client for each API group that a proxy uses: the
// library's client of all groups takes 9 MiB of memory on each node.
type Client struct {
	core, discovery, networking, coordination, events rest.Interface
	// own is for the resources of Vicinity.
	own rest.Interface
	// parameters encodes the options of requests.
	parameters runtime.ParameterCodec
}

const contentProtobuf = "application/vnd.kubernetes.protobuf"

// NewClient makes a client that asks as a configuration says.
func NewClient(config *rest.Config) (*Client, error) {
	c := &Client{}
	scheme := runtime.NewScheme()
	builtIn := rest.CopyConfig(config)
	// Protobuf is smaller than JSON, and quicker to read. Resources of Vicinity's kind do
	// not have it.
	builtIn.ContentType, builtIn.AcceptContentTypes = contentProtobuf, contentProtobuf+",application/json"
	builtIn.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	if builtIn.RateLimiter == nil && builtIn.QPS > 0 { // one for all groups
		builtIn.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(builtIn.QPS, builtIn.Burst)
	}
	connections, err := rest.HTTPClientFor(builtIn)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	for _, group := range []struct {
		client  *rest.Interface
		path    string
		version schema.GroupVersion
		add     func(*runtime.Scheme) error
	}{
		{&c.core, "/api", corev1.SchemeGroupVersion, corev1.AddToScheme},
		{&c.discovery, "/apis", discoveryv1.SchemeGroupVersion, discoveryv1.AddToScheme},
		{&c.networking, "/apis", networkingv1.SchemeGroupVersion, networkingv1.AddToScheme},
		{&c.coordination, "/apis", coordinationv1.SchemeGroupVersion, coordinationv1.AddToScheme},
		{&c.events, "/apis", eventsv1.SchemeGroupVersion, eventsv1.AddToScheme},
	} {
		if err := group.add(scheme); err != nil {
			return nil, err
		}
		groupConfig := rest.CopyConfig(builtIn)
		groupConfig.APIPath, groupConfig.GroupVersion = group.path, &group.version
		if *group.client, err = rest.RESTClientForConfigAndClient(groupConfig, connections); err != nil {
			return nil, fmt.Errorf("making a client of %s: %w", group.version, err)
		}
	}
	c.parameters = runtime.NewParameterCodec(scheme)

	ownScheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(ownScheme); err != nil {
		return nil, err
	}
	custom := rest.CopyConfig(config)
	custom.GroupVersion, custom.APIPath = &v1alpha1.GroupVersion, "/apis"
	custom.NegotiatedSerializer = serializer.NewCodecFactory(ownScheme).WithoutConversion()
	if c.own, err = rest.RESTClientFor(custom); err != nil {
		return nil, fmt.Errorf("making a client of EndpointGroups: %w", err)
	}
	return c, nil
}

// Leases are those of a namespace.
func (c *Client) Leases(namespace string) *gentype.Client[*coordinationv1.Lease] {
	return gentype.NewClient("leases", c.coordination, c.parameters, namespace, func() *coordinationv1.Lease { return &coordinationv1.Lease{} })
}

// CreateEvent makes an event in its namespace.
func (c *Client) CreateEvent(ctx context.Context, event *eventsv1.Event) error {
	return c.events.Post().Namespace(event.Namespace).Resource("events").Body(event).Do(ctx).Error()
}

// Services are all of the cluster.
func (c *Client) Services() cache.ListerWatcher {
	return selected(c.core, ResourceServices, "")
}

// Slices are those of Services that have an address.
func (c *Client) Slices() cache.ListerWatcher {
	return selected(c.discovery, ResourceSlices, "!"+corev1.IsHeadlessService)
}

// Node is one, by its name.
func (c *Client) Node(name string) cache.ListerWatcher {
	return cache.NewListWatchFromClient(c.core, ResourceNodes, metav1.NamespaceAll, fields.OneTermEqualSelector(metav1.ObjectNameField, name))
}

// ServiceRanges are where cluster IPs are from.
func (c *Client) ServiceRanges() cache.ListerWatcher {
	return selected(c.networking, ResourceRanges, "")
}

// NodeAddresses is the object that vicinity-controller has in its namespace.
func (c *Client) NodeAddresses(namespace string) cache.ListerWatcher {
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, v1alpha1.ConfigMapNodeAddresses)
	return listFirst{cache.NewListWatchFromClient(c.core, ResourceConfigMaps, namespace, only)}
}

// Groups are those that a label selector selects.
func (c *Client) Groups(selector string) cache.ListerWatcher {
	return selected(c.own, ResourceGroups, selector)
}

func selected(c rest.Interface, resource, selector string) listFirst {
	return listFirst{cache.NewFilteredListWatchFromClient(c, resource, metav1.NamespaceAll, func(options *metav1.ListOptions) {
		options.LabelSelector = selector
	})}
}

// listFirst lists objects before it watches them. A list by watch, which the client library
// prefers, takes twice the time and CPU on both sides.
type listFirst struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is what the client library asks about.
func (listFirst) IsWatchListSemanticsUnSupported() bool { return true }

// ListWithContext lists what exists now. The client library would begin with what an API server
// remembers, however old: the kernel may hold newer state of an earlier proxy.
func (l listFirst) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if options.ResourceVersion == "0" {
		// API servers answer this from memory, too, once they know that it is up to date.
		options.ResourceVersion, options.Limit = "", 0
	}
	return l.ListWatch.ListWithContext(ctx, options)
}
