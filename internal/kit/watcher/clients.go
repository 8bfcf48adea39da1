// Package watcher lists and watches objects for the proxy and the DNS server, which keep only parts of them. It uses reflectors of
// client-go: informers would keep whole objects.
package watcher

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// Clients has a client for each used API group. A client of all groups would take 9 MiB of memory on each node.
type Clients struct {
	groups map[schema.GroupVersion]rest.Interface
	// Parameters encodes the options of requests.
	Parameters runtime.ParameterCodec
}

// NewClients returns clients for API groups, each with the function that adds its types to a scheme. The clients share connections
// and a rate limit.
func NewClients(config *rest.Config, groups map[schema.GroupVersion]func(*runtime.Scheme) error) (*Clients, error) {
	config = rest.CopyConfig(config)
	scheme := runtime.NewScheme()
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	if config.RateLimiter == nil && config.QPS > 0 {
		config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(config.QPS, config.Burst)
	}
	connections, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	clients := &Clients{groups: map[schema.GroupVersion]rest.Interface{}, Parameters: runtime.NewParameterCodec(scheme)}
	for version, add := range groups {
		if err := add(scheme); err != nil {
			return nil, err
		}
		one := rest.CopyConfig(config)
		one.GroupVersion, one.APIPath = &version, "/apis"
		if version.Group == "" {
			one.APIPath = "/api"
		}
		if version == v1alpha1.GroupVersion {
			one.NegotiatedSerializer = groupCodecs{config.NegotiatedSerializer}
		} else {
			// Protobuf is smaller and faster than JSON. Custom resources do not support it.
			one.ContentType, one.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
		}
		if clients.groups[version], err = rest.RESTClientForConfigAndClient(one, connections); err != nil {
			return nil, fmt.Errorf("making a client of %s: %w", version, err)
		}
	}
	return clients, nil
}

// Group returns the client of an API group.
func (c *Clients) Group(version schema.GroupVersion) rest.Interface { return c.groups[version] }
