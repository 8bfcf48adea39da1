// Package watcher lists and watches kinds of objects for programs that keep of each what they need: the proxy and
// the DNS server. Reflectors of client-go do the work; informers would keep whole objects.
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

// Clients has a client for each API group that a program uses. A client of all groups takes 9 MiB of memory on
// each node.
type Clients struct {
	groups map[schema.GroupVersion]rest.Interface
	// Parameters encodes the options of requests.
	Parameters runtime.ParameterCodec
}

// NewClients makes clients of API groups, by functions that add the types of each to a scheme. They share
// connections and a rate limit.
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
		if version != v1alpha1.GroupVersion {
			// Protobuf is smaller than JSON, and quicker to read. Custom resources do not have it.
			one.ContentType, one.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
		}
		if clients.groups[version], err = rest.RESTClientForConfigAndClient(one, connections); err != nil {
			return nil, fmt.Errorf("making a client of %s: %w", version, err)
		}
	}
	return clients, nil
}

// Group is the client of an API group.
func (c *Clients) Group(version schema.GroupVersion) rest.Interface { return c.groups[version] }
