package inspect

import (
	"net/netip"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/view"
	"vicinity.dev/vicinity/internal/routing/kubeproxy"
)

// NodeReading is the input for a node's service of a Service.
type NodeReading struct {
	Node    *corev1.Node
	Zone    string
	Service *corev1.Service
	// Groups are all groups of the Service. The node's proxy watches only the Seen ones.
	Groups, Seen []*v1alpha1.EndpointGroup
	Slices       []*discoveryv1.EndpointSlice
	Settings     view.Settings
	// Wanted says that groups deliver the Service's plan.
	Wanted bool
	// Local are the addresses of the node's interfaces.
	Local []netip.Addr
	// Installed says that vicinity-proxy is installed, and Kept why it does not run on the node.
	Installed bool
	Kept      string
	// Book has the cluster's addresses that Services must not claim.
	Book  *compile.AddressBook
	Lease *coordinationv1.Lease
	// Rivals are other Services that want an address of this one.
	Rivals []compile.Input
	// Unread are the kinds of objects that may not be read.
	Unread []string
	// Now is when it was read.
	Now time.Time
}

// NodeExplanation says what the rules of a node do for a Service. Shares are percentages from 0 to 100.
type NodeExplanation struct {
	Namespace string      `json:"namespace"`
	Service   string      `json:"service"`
	Node      string      `json:"node"`
	Zone      string      `json:"zone,omitempty"`
	ServedBy  string      `json:"servedBy"`
	Why       string      `json:"why"`
	HandOver  string      `json:"handOver,omitempty"`
	Proxy     *ProxyLease `json:"proxy,omitempty"`
	// From is the source of vicinity-proxy's endpoints.
	From            string          `json:"from,omitempty"`
	Groups          int             `json:"groups"`
	GroupsSeen      int             `json:"groupsSeen"`
	AffinitySeconds int             `json:"affinitySeconds,omitempty"`
	Families        []NodeFamily    `json:"families"`
	KubeProxy       []NodeStockPort `json:"kubeProxy,omitempty"`
	Warnings        []string        `json:"warnings,omitempty"`
	Kernel          Kernel          `json:"kernel"`
	NotKnown        []string        `json:"notKnown,omitempty"`

	view *nodeView
}

// ProxyLease is the content of the Lease of the node's proxy.
type ProxyLease struct {
	Renewed    time.Time `json:"renewed"`
	Fresh      bool      `json:"fresh"`
	Programmed string    `json:"programmed,omitempty"`

	Age time.Duration `json:"-"`
}

// NodeFamily is the part for an address family.
type NodeFamily struct {
	Family string      `json:"family"`
	Ports  []NodePort  `json:"ports"`
	Health *HealthPort `json:"health,omitempty"`
}

// HealthPort is the port where load balancers ask whether the node has endpoints.
type HealthPort struct {
	Port           uint16 `json:"port"`
	LocalEndpoints int    `json:"localEndpoints"`
}

// NodePort says what rules do for a port.
type NodePort struct {
	Name     string   `json:"name"`
	Protocol string   `json:"protocol"`
	Rule     NodeRule `json:"rule"`
	// Unreachable says that the Service has endpoints, but allows the node none.
	Unreachable bool           `json:"unreachable,omitempty"`
	Fronts      []Front        `json:"fronts"`
	Endpoints   []NodeEndpoint `json:"endpoints"`
	// Local are the endpoints for traffic that must stay on the node, nil if none must.
	Local []NodeEndpoint `json:"local,omitempty"`

	HasLocal bool `json:"-"` // some traffic must stay on the node
}

// NodeRule says how endpoints are chosen.
type NodeRule struct {
	Text  string   `json:"text"`
	Why   string   `json:"why,omitempty"`
	Tiers []string `json:"tiers,omitempty"`
	Tier  string   `json:"tier,omitempty"`
}

// Front is an address that clients connect to.
type Front struct {
	Address string `json:"address"`
	Kind    string `json:"kind"`
	To      string `json:"to"`
	Source  string `json:"source"`
	Empty   string `json:"otherwise"`
	// Sources are the ranges that may connect, nil if all may.
	Sources []string `json:"sources,omitempty"`
	// Lost is the Service that has the address instead.
	Lost string `json:"lost,omitempty"`
}

// NodeEndpoint is an endpoint with its share of connections.
type NodeEndpoint struct {
	Address string  `json:"address"`
	Zone    string  `json:"zone"`
	Node    string  `json:"node,omitempty"`
	Share   float64 `json:"share"`
}

// NodeStockPort says what the node's kube-proxy does for a port.
type NodeStockPort struct {
	Family    corev1.IPFamily `json:"family"`
	Name      string          `json:"name"`
	Protocol  string          `json:"protocol"`
	Mode      kubeproxy.Mode  `json:"mode"`
	Rule      string          `json:"rule"`
	Why       string          `json:"why,omitempty"`
	Endpoints []NodeEndpoint  `json:"endpoints"`
}

// Kernel compares the kernel's rules with the expected ones.
type Kernel struct {
	Compared    bool     `json:"compared"`
	Why         string   `json:"why,omitempty"`
	Differences []string `json:"differences,omitempty"`
}

// ExplainNode says what the rules of the node do.
func ExplainNode(in NodeReading) *NodeExplanation {
	e := newNodeView(in)
	d := &NodeExplanation{
		Namespace: e.Service.Namespace, Service: e.Service.Name, Node: e.Node.Name, Zone: e.Zone,
		HandOver: e.handOver(), Groups: len(e.Groups), GroupsSeen: len(e.Seen), Families: []NodeFamily{},
		Warnings: slices.Concat(e.result.Notes, e.leftOut(), e.refused(), e.keptLocal()), view: e,
	}
	d.ServedBy, d.Why = e.servedBy()
	if e.Lease != nil && e.Lease.Spec.RenewTime != nil {
		renewed := e.Lease.Spec.RenewTime.Time
		ago := e.Now.Sub(renewed)
		d.Proxy = &ProxyLease{renewed.UTC(), ago < v1alpha1.LeaseFresh, plaintext.Of(e.Lease.Annotations[v1alpha1.AnnotationProgrammed]), ago}
	}
	if e.served() {
		d.From = "EndpointSlices"
		if e.fromGroups() {
			d.From = "EndpointGroups"
		}
	}
	for i := range e.result.Families {
		f := &e.result.Families[i]
		family := NodeFamily{Family: string(FamilyName(f.Family)), Ports: []NodePort{}}
		for j := range f.Ports {
			family.Ports = append(family.Ports, e.port(f, &f.Ports[j]))
			d.AffinitySeconds = int(f.Ports[j].Affinity / time.Second)
		}
		if f.Health != nil {
			family.Health = &HealthPort{f.Health.Port, f.Health.LocalEndpoints}
		}
		d.Families = append(d.Families, family)
	}
	d.KubeProxy = e.kubeProxy()
	return d
}
