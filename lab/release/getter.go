package release

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// getter is how Helm reaches a cluster. Unlike kubectl's, which Helm uses otherwise, it
// reads no kubeconfig of the user's and keeps nothing in the user's home.
type getter struct {
	config *rest.Config
	mapper *restmapper.DeferredDiscoveryRESTMapper
	cached discovery.CachedDiscoveryInterface
}

func newGetter(config *rest.Config) (*getter, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	cached := memory.NewMemCacheClient(client)
	return &getter{config: config, mapper: restmapper.NewDeferredDiscoveryRESTMapper(cached), cached: cached}, nil
}

// ToRESTConfig is how to connect to the API.
func (g *getter) ToRESTConfig() (*rest.Config, error) { return rest.CopyConfig(g.config), nil }

// ToDiscoveryClient asks what the API has.
func (g *getter) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	return g.cached, nil
}

// ToRESTMapper finds where the API keeps objects.
func (g *getter) ToRESTMapper() (meta.RESTMapper, error) { return g.mapper, nil }

// ToRawKubeConfigLoader says the namespace of objects that name none.
func (g *getter) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	return clientcmd.NewDefaultClientConfig(*clientcmdapi.NewConfig(), &clientcmd.ConfigOverrides{
		Context: clientcmdapi.Context{Namespace: Namespace},
	})
}
