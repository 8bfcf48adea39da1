package proxy

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// client asks an API server.
type client struct {
	core kubernetes.Interface
	// own is for the resources of Vicinity.
	own rest.Interface
}

const contentProtobuf = "application/vnd.kubernetes.protobuf"

func newClient(config *rest.Config) (*client, error) {
	// Protobuf is smaller than JSON, and quicker to read. Resources of Vicinity's kind do
	// not have it.
	builtIn := rest.CopyConfig(config)
	builtIn.ContentType, builtIn.AcceptContentTypes = contentProtobuf, contentProtobuf+",application/json"
	core, err := kubernetes.NewForConfig(builtIn)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	custom := rest.CopyConfig(config)
	custom.GroupVersion, custom.APIPath = &v1alpha1.GroupVersion, "/apis"
	custom.NegotiatedSerializer = groupCodecs{serializer.NewCodecFactory(scheme).WithoutConversion()}
	own, err := rest.RESTClientFor(custom)
	if err != nil {
		return nil, fmt.Errorf("making a client of EndpointGroups: %w", err)
	}
	return &client{core: core, own: own}, nil
}

func (c *client) services() cache.ListerWatcher {
	return selected(c.core.CoreV1().RESTClient(), resourceServices, "")
}

// slices are those of Services that have an address.
func (c *client) slices() cache.ListerWatcher {
	return selected(c.core.DiscoveryV1().RESTClient(), resourceSlices, "!"+corev1.IsHeadlessService)
}

func (c *client) node(name string) cache.ListerWatcher {
	return cache.NewListWatchFromClient(c.core.CoreV1().RESTClient(), resourceNodes, metav1.NamespaceAll, fields.OneTermEqualSelector(metav1.ObjectNameField, name))
}

func (c *client) serviceRanges() cache.ListerWatcher {
	return selected(c.core.NetworkingV1().RESTClient(), resourceRanges, "")
}

func (c *client) nodeAddresses(namespace string) cache.ListerWatcher {
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, v1alpha1.ConfigMapNodeAddresses)
	return listFirst{cache.NewListWatchFromClient(c.core.CoreV1().RESTClient(), resourceConfigMaps, namespace, only)}
}

func (c *client) groups(selector string) cache.ListerWatcher {
	source := selected(c.own, resourceGroups, selector)
	source.ListWithContextFunc = func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		options.LabelSelector = selector
		return listGroups(ctx, c.own, options)
	}
	return source
}

// selected are the objects of a resource that a label selector selects.
func selected(c rest.Interface, resource, selector string) listFirst {
	return listFirst{cache.NewFilteredListWatchFromClient(c, resource, metav1.NamespaceAll, func(options *metav1.ListOptions) {
		options.LabelSelector = selector
	})}
}

// listFirst is a source of objects that are listed before they are watched. To have them by
// the watch, as the client library prefers, takes twice the time and CPU of either side,
// since each of them is a message then.
type listFirst struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is what the client library asks about.
func (listFirst) IsWatchListSemanticsUnSupported() bool { return true }

// ListWithContext lists all there is now. The client library begins with what an API server
// remembers, however old that is: the kernel may hold what is newer, of an earlier proxy.
func (l listFirst) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if options.ResourceVersion == "0" {
		// API servers answer this from memory, too, once they know that it is up to date.
		options.ResourceVersion, options.Limit = "", 0
	}
	return l.ListWatch.ListWithContext(ctx, options)
}
