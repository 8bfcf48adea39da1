package controlplane

import (
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// newKubeconfig returns a kubeconfig with a client certificate. The names of cluster, context
// and user contain the lab's, so that files of several labs can be merged.
func newKubeconfig(lab, server string, ca []byte, name string, client Pair) clientcmdapi.Config {
	cluster, user := "vicinity-"+lab, "vicinity-"+lab+"-"+name
	return clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{cluster: {Server: server, CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: client.Certificate, ClientKeyData: client.Key}},
		Contexts:       map[string]*clientcmdapi.Context{cluster: {Cluster: cluster, AuthInfo: user}},
		CurrentContext: cluster,
	}
}
