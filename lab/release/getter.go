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

// getter connects Helm to a cluster. Unlike Helm's default getter, it neither reads the user's
// kubeconfig nor writes to the user's home.
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

// ToRESTConfig returns the connection to the API.
func (g *getter) ToRESTConfig() (*rest.Config, error) { return rest.CopyConfig(g.config), nil }

// ToDiscoveryClient discovers the API.
func (g *getter) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	return g.cached, nil
}

// ToRESTMapper maps kinds to resources.
func (g *getter) ToRESTMapper() (meta.RESTMapper, error) { return g.mapper, nil }

// ToRawKubeConfigLoader returns the default namespace.
func (g *getter) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	return clientcmd.NewDefaultClientConfig(*clientcmdapi.NewConfig(), &clientcmd.ConfigOverrides{
		Context: clientcmdapi.Context{Namespace: Namespace},
	})
}
