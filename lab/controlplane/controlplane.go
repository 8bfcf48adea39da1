// Package controlplane runs the control plane of a lab: etcd, one or two API servers,
// the controller-manager, the scheduler, a kube-proxy for each node, and the gateway by
// which the host reaches the API. It makes their certificates, kubeconfigs and command
// lines, starts them in the order they need, knows when each is ready, and stops,
// kills, pauses and resumes each by name.
//
// It is set up as real clusters are: certificates from an authority of the lab's own,
// RBAC and the node authorizer, service account tokens, a user for each controller.
//
// Everything but kube-proxy lives in the fabric namespace, where all ports are free and
// every node and pod has a route to it. The host has none, and gets none: the gateway
// listens on 127.0.0.1 of the host and dials inside. With two API servers it is their
// balancer as well, inside too. A lab that is only a control plane has no namespaces,
// and lives on ports of 127.0.0.1.
//
// The processes outlive the command that started them. A ControlPlane holds nothing
// but what it was made from, so any command can make one for a lab that runs.
package controlplane

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"

	"k8s.io/client-go/tools/clientcmd"

	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

// The names of components. The second API server and each kube-proxy have a suffix.
const (
	Etcd              = "etcd"
	KubeAPIServer     = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	KubeProxy         = "kube-proxy"
	Gateway           = "gateway"

	// Agent is no component of this package, but has a kubeconfig of that name.
	Agent = "agent"
)

// Config is what a control plane is made from.
type Config struct {
	Dir   state.Dir
	Shape shape.Shape
	// Port is where the API is reached on 127.0.0.1 of the host. A lab that is only a
	// control plane takes the following ones too, Ports in all.
	Port int
	// Program is the path of the built lab/kubernetes.
	Program string
	// Gateway is the command that runs ServeGateway for this control plane.
	Gateway []string
}

// ControlPlane is the control plane of a lab.
type ControlPlane struct {
	config    Config
	at        endpoints
	flags     flags
	namespace string

	ca []byte
	// admin may do all; anyone shows no certificate, and may ask for health.
	admin, anyone *client
}

// New makes the control plane of a lab, and what is missing of its certificates and
// files of configuration. It starts nothing.
func New(config Config) (*ControlPlane, error) {
	c := &ControlPlane{config: config, at: endpointsOf(config.Shape, config.Port)}
	c.flags = flags{shape: config.Shape, dir: config.Dir, at: c.at}
	if !config.Shape.ControlPlaneOnly {
		c.namespace = shape.FabricNamespace(config.Shape.Name)
	}
	if err := c.prepare(); err != nil {
		return nil, fmt.Errorf("preparing the control plane of lab %q: %w", config.Shape.Name, err)
	}
	return c, nil
}

// prepare writes the files that components read.
func (c *ControlPlane) prepare() error {
	dir := c.config.Dir
	if err := makePKI(dir.PKI(""), c.config.Shape); err != nil {
		return err
	}
	ca, err := OpenAuthority(dir.PKI(""))
	if err != nil {
		return err
	}
	inside, outside := "https://"+c.at.inside.String(), "https://"+c.at.outside.String()
	for _, file := range []struct {
		path, server string
		identity     Identity
	}{
		{dir.Kubeconfig(), outside, Identity{Name: userAdmin, Groups: []string{groupMasters}}},
		{dir.ComponentKubeconfig(ControllerManager), inside, Identity{Name: userControllerManager}},
		{dir.ComponentKubeconfig(Scheduler), inside, Identity{Name: userScheduler}},
		{dir.ComponentKubeconfig(KubeProxy), inside, Identity{Name: userProxy}},
		{dir.ComponentKubeconfig(Agent), inside, Identity{Name: userAgent, Groups: []string{groupNodes}}},
	} {
		if err := c.writeKubeconfig(file.path, file.server, ca, file.identity); err != nil {
			return err
		}
	}
	if err := state.WriteFile(dir.Conf(schedulerConfigFile), c.flags.schedulerConfig(), 0o600); err != nil {
		return err
	}
	return c.connect(ca)
}

// writeKubeconfig makes a kubeconfig if there is none. One that is there may be in use.
func (c *ControlPlane) writeKubeconfig(path, server string, ca *Authority, id Identity) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	pair, err := ca.Issue(id)
	if err != nil {
		return err
	}
	text, err := clientcmd.Write(newKubeconfig(c.config.Shape.Name, server, ca.PEM, id.Name, pair))
	if err != nil {
		return err
	}
	return state.WriteFile(path, text, 0o600)
}

// connect makes the clients.
func (c *ControlPlane) connect(ca *Authority) error {
	admin, err := clientcmd.BuildConfigFromFlags("", c.config.Dir.Kubeconfig())
	if err != nil {
		return fmt.Errorf("%s: %w", c.config.Dir.Kubeconfig(), err)
	}
	c.ca = ca.PEM
	if c.admin, err = newClient(c.dial(c.namespace), ca.PEM, &Pair{Certificate: admin.CertData, Key: admin.KeyData}); err != nil {
		return err
	}
	c.anyone, err = newClient(c.dial(c.namespace), ca.PEM, nil)
	return err
}

// Inside is where components and nodes find the API, without any Service.
func (c *ControlPlane) Inside() netip.AddrPort { return c.at.inside }

// dial dials in a network namespace, or in the host's when it has no name.
func (c *ControlPlane) dial(namespace string) dialer {
	if namespace == "" {
		return new(net.Dialer).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return fabric.Dial(ctx, namespace, network, address)
	}
}
