// Package controlplane runs the control plane of a lab: etcd, the API server, the
// controller-manager, the scheduler, a kube-proxy for each node, and the gateway from the
// host to the API. It makes their certificates, kubeconfigs and command lines, starts them
// in order, knows when each is ready, and stops, kills, pauses and resumes them by name.
//
// The setup is that of real clusters: certificates of the lab's own authority, RBAC and the
// node authorizer, service account tokens, a user for each controller.
//
// The control plane runs in the fabric namespace. All ports are free there, and all nodes and
// pods have a route to it. The host has none, so the gateway listens on the host's 127.0.0.1 and
// connects to the API server in the namespace. kube-proxies and kubelets run in the namespaces of
// their nodes. A lab that is only a control plane has no namespaces and uses ports of 127.0.0.1.
//
// The processes outlive the command that started them. A ControlPlane has no other state
// than its Config.
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

// The names of components. The name of a kubelet or kube-proxy gets its node's name as a suffix.
const (
	Etcd              = "etcd"
	KubeAPIServer     = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	KubeProxy         = "kube-proxy"
	Gateway           = "gateway"
	Runtime           = "runtime"
	Kubelet           = "kubelet"
	Agent             = "agent"

	// Storage runs inside the runtime, but has its own kubeconfig.
	Storage = "storage"
)

// Config describes a control plane.
type Config struct {
	Dir   state.Dir
	Shape shape.Shape
	// Port is the port of the API on the host's 127.0.0.1. A lab that is only a control plane
	// uses Ports consecutive ports from it.
	Port int
	// Program is the built lab/kubernetes.
	Program string
	// Gateway is the command that runs ServeGateway.
	Gateway []string
	// Runtime is the command that runs the containers of all nodes, cri.Run.
	Runtime []string
	// Agent is the command that stands in for nodes without network. AgentReady returns an error until
	// it works.
	Agent      []string
	AgentReady func(context.Context) error
}

// ControlPlane is the control plane of a lab.
type ControlPlane struct {
	config    Config
	addrs     endpoints
	flags     flags
	namespace string

	ca []byte
	// admin has all rights; anonymous has no certificate and may read health.
	admin, anonymous *client
}

// New makes the control plane of a lab, and its missing certificates and configuration files. It
// starts nothing.
func New(config Config) (*ControlPlane, error) {
	c := &ControlPlane{config: config, addrs: endpointsOf(config.Shape, config.Port)}
	c.flags = flags{shape: config.Shape, dir: config.Dir, addrs: c.addrs}
	if !config.Shape.ControlPlaneOnly {
		c.namespace = shape.FabricNamespace(config.Shape.Name)
	}
	if err := c.prepare(); err != nil {
		return nil, fmt.Errorf("preparing the control plane of lab %q: %w", config.Shape.Name, err)
	}
	return c, nil
}

func (c *ControlPlane) prepare() error {
	dir := c.config.Dir
	if err := makePKI(dir.PKI(""), c.config.Shape); err != nil {
		return err
	}
	ca, err := OpenAuthority(dir.PKI(""))
	if err != nil {
		return err
	}
	inside, outside := c.api(""), "https://"+c.addrs.outside.String()
	for _, file := range []struct {
		path, server string
		identity     Identity
	}{
		{dir.Kubeconfig(), outside, Identity{Name: userAdmin, Groups: []string{groupMasters}}},
		{dir.ComponentKubeconfig(ControllerManager), inside, Identity{Name: userControllerManager}},
		{dir.ComponentKubeconfig(Scheduler), inside, Identity{Name: userScheduler}},
		{dir.ComponentKubeconfig(KubeProxy), inside, Identity{Name: userProxy}},
		{dir.ComponentKubeconfig(Kubelet), inside, Identity{Name: userKubelet, Groups: []string{groupNodes}}},
		{dir.ComponentKubeconfig(Agent), inside, Identity{Name: userAgent, Groups: []string{groupNodes}}},
		{dir.ComponentKubeconfig(Storage), inside, Identity{Name: userStorage}},
	} {
		if err := c.writeKubeconfig(file.path, file.server, ca, file.identity); err != nil {
			return err
		}
	}
	if err := state.WriteFile(dir.Conf(schedulerConfigFile), c.flags.schedulerConfig(), 0o600); err != nil {
		return err
	}
	if err := c.flags.prepareKubelets(ca); err != nil {
		return err
	}
	return c.connect(ca)
}

// writeKubeconfig makes a kubeconfig unless it exists: an existing one may be in use.
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

func (c *ControlPlane) connect(ca *Authority) error {
	admin, err := clientcmd.BuildConfigFromFlags("", c.config.Dir.Kubeconfig())
	if err != nil {
		return fmt.Errorf("%s: %w", c.config.Dir.Kubeconfig(), err)
	}
	c.ca = ca.PEM
	if c.admin, err = newClient(c.dial(c.namespace), ca.PEM, &Pair{Certificate: admin.CertData, Key: admin.KeyData}); err != nil {
		return err
	}
	c.anonymous, err = newClient(c.dial(c.namespace), ca.PEM, nil)
	return err
}

// Inside returns the address of the API server itself, which components and nodes use.
func (c *ControlPlane) Inside() netip.AddrPort { return c.addrs.apiServer }

func (c *ControlPlane) api(path string) string { return "https://" + c.addrs.apiServer.String() + path }

// dial dials in a network namespace, or in the host's if it is empty.
func (c *ControlPlane) dial(namespace string) dialer {
	if namespace == "" {
		return new(net.Dialer).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return fabric.Dial(ctx, namespace, network, address)
	}
}
