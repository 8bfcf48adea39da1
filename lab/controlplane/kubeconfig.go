package controlplane

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

// kubeconfig is as much of the format of kubectl's configuration as a lab writes: one
// cluster, one user who shows a certificate, and one context that joins the two.
type kubeconfig struct {
	APIVersion     string         `json:"apiVersion"`
	Kind           string         `json:"kind"`
	Clusters       []namedCluster `json:"clusters"`
	Users          []namedUser    `json:"users"`
	Contexts       []namedContext `json:"contexts"`
	CurrentContext string         `json:"current-context"`
}

type namedCluster struct {
	Name    string  `json:"name"`
	Cluster cluster `json:"cluster"`
}

type cluster struct {
	Server                   string `json:"server"`
	CertificateAuthorityData []byte `json:"certificate-authority-data"`
}

type namedUser struct {
	Name string `json:"name"`
	User user   `json:"user"`
}

type user struct {
	ClientCertificateData []byte `json:"client-certificate-data"`
	ClientKeyData         []byte `json:"client-key-data"`
}

type namedContext struct {
	Name    string         `json:"name"`
	Context clusterAndUser `json:"context"`
}

type clusterAndUser struct {
	Cluster string `json:"cluster"`
	User    string `json:"user"`
}

// newKubeconfig joins a server and a user. Cluster and context are named after the
// lab, so that the files of several labs can be merged.
func newKubeconfig(lab, server string, ca []byte, name string, client Pair) kubeconfig {
	context := "vicinity-" + lab
	return kubeconfig{
		APIVersion: "v1",
		Kind:       "Config",
		Clusters:   []namedCluster{{Name: context, Cluster: cluster{Server: server, CertificateAuthorityData: ca}}},
		Users:      []namedUser{{Name: context + "-" + name, User: user{ClientCertificateData: client.Certificate, ClientKeyData: client.Key}}},
		Contexts:   []namedContext{{Name: context, Context: clusterAndUser{Cluster: context, User: context + "-" + name}}},

		CurrentContext: context,
	}
}

func (k kubeconfig) yaml() ([]byte, error) { return yaml.Marshal(k) }

// readKubeconfig reads what newKubeconfig made.
func readKubeconfig(text []byte) (kubeconfig, error) {
	var k kubeconfig
	if err := yaml.UnmarshalStrict(text, &k); err != nil {
		return kubeconfig{}, err
	}
	if len(k.Clusters) != 1 || len(k.Users) != 1 {
		return kubeconfig{}, fmt.Errorf("has %d clusters and %d users; the lab writes one of each", len(k.Clusters), len(k.Users))
	}
	return k, nil
}
