package lab

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/load"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/test/kube"
)

// Via is the way to a Service.
type Via string

// The values of Via.
const (
	// ViaClusterIP uses the cluster IP, or the endpoints of a headless Service.
	ViaClusterIP Via = "cluster-ip"
	// ViaNodePort uses the node port of every node.
	ViaNodePort Via = "node-port"
	// ViaEndpoints uses the ready endpoints in turn, without a proxy.
	ViaEndpoints Via = "endpoints"
)

// Vias returns all values of Via.
func Vias() []Via { return []Via{ViaClusterIP, ViaNodePort, ViaEndpoints} }

// LoadOptions say what to send, from where, to which Service.
type LoadOptions struct {
	Namespace, Service string
	// Port is the name or number of a port; empty means the first that fits the protocol.
	Port string
	// IPv6 uses the Service's IPv6 address.
	IPv6 bool
	Via  Via
	// Zones, Nodes and Selector choose the pods to send from, by default all pods with the
	// image lab/client. From is their namespace, by default the Service's.
	Zones, Nodes []string
	Selector     string
	From         string

	// Plan describes the requests. PlanLoad sets its targets and its Service.
	Plan load.Plan
}

const clientImage = "lab/client"

// LoadJob is a plan with its sources.
type LoadJob struct {
	Plan    load.Plan
	Sources []load.Source
}

// Run executes the job.
func (j LoadJob) Run(ctx context.Context, watch load.Watch) (load.Result, error) {
	return load.Run(ctx, j.Plan, j.Sources, watch)
}

// Load sends requests from pods to a Service and measures which endpoints answer.
func (c *Cluster) Load(ctx context.Context, o LoadOptions) (load.Result, error) {
	job, err := c.PlanLoad(ctx, o)
	if err != nil {
		return load.Result{}, err
	}
	return job.Run(ctx, load.Watch{})
}

// PlanLoad finds the targets and sources of requests. Connections are opened in the network
// namespaces of the pods.
func (c *Cluster) PlanLoad(ctx context.Context, o LoadOptions) (LoadJob, error) {
	if c.Shape().ControlPlaneOnly {
		return LoadJob{}, fmt.Errorf("lab %q is only a control plane, and its pods have no network to send from", c.Shape().Name)
	}
	client, err := c.Client()
	if err != nil {
		return LoadJob{}, err
	}
	service, err := client.CoreV1().Services(o.Namespace).Get(ctx, o.Service, metav1.GetOptions{})
	if err != nil {
		return LoadJob{}, fmt.Errorf("looking for Service %s/%s: %w", o.Namespace, o.Service, err)
	}
	job := LoadJob{Plan: o.Plan}
	job.Plan.Service = o.Namespace + "/" + o.Service
	if job.Plan.Targets, err = c.targets(ctx, service, o); err != nil {
		return LoadJob{}, err
	}
	job.Sources, err = c.sources(ctx, o)
	return job, err
}

func (c *Cluster) targets(ctx context.Context, service *corev1.Service, o LoadOptions) ([]netip.AddrPort, error) {
	port, err := portOf(service, o)
	if err != nil {
		return nil, err
	}
	via := cmp.Or(o.Via, ViaClusterIP)
	if via == ViaClusterIP && service.Spec.ClusterIP == corev1.ClusterIPNone {
		via = ViaEndpoints
	}
	var targets []netip.AddrPort
	switch via {
	case ViaClusterIP:
		for _, text := range service.Spec.ClusterIPs {
			targets = append(targets, addressesOf(o.IPv6, uint16(port.Port), text)...)
		}
	case ViaNodePort:
		if port.NodePort == 0 {
			return nil, fmt.Errorf("the Service %s/%s has no node port; its type is %s", o.Namespace, o.Service, service.Spec.Type)
		}
		for _, node := range c.Shape().Nodes() {
			for _, addr := range c.Shape().NodeAddrs(node) {
				targets = append(targets, addressesOf(o.IPv6, uint16(port.NodePort), addr.String())...)
			}
		}
	case ViaEndpoints:
		if targets, err = c.endpointTargets(ctx, port, o); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("via %q is unknown; write one of %v", o.Via, Vias())
	}
	if len(targets) == 0 {
		return nil, fmt.Errorf("the Service %s/%s has no %s address to send to via %s", o.Namespace, o.Service, familyName(o.IPv6), via)
	}
	return targets, nil
}

// portOf finds the port of a Service: by name or number, else the one named like the protocol, else
// the first.
func portOf(service *corev1.Service, o LoadOptions) (corev1.ServicePort, error) {
	transport, protocol := corev1.ProtocolTCP, o.Plan.Protocol
	switch protocol {
	case load.UDP:
		transport = corev1.ProtocolUDP
	case "":
		protocol = load.HTTP
	}
	var names []string
	var fitting []corev1.ServicePort
	for _, port := range service.Spec.Ports {
		number := strconv.Itoa(int(port.Port))
		names = append(names, strings.TrimSpace(port.Name+" "+number+"/"+string(port.Protocol)))
		if port.Protocol == transport && (o.Port == "" || o.Port == port.Name || o.Port == number) {
			fitting = append(fitting, port)
		}
	}
	if len(fitting) == 0 {
		return corev1.ServicePort{}, fmt.Errorf("the Service %s/%s has no %s port %q; it has %s",
			o.Namespace, o.Service, transport, o.Port, strings.Join(names, ", "))
	}
	named := slices.IndexFunc(fitting, func(port corev1.ServicePort) bool { return port.Name == string(protocol) })
	return fitting[max(named, 0)], nil
}

func familyName(ipv6 bool) string {
	if ipv6 {
		return "IPv6"
	}
	return "IPv4"
}

// addressesOf returns an address with a port, or nothing if it has the other family.
func addressesOf(ipv6 bool, port uint16, text string) []netip.AddrPort {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Is6() != ipv6 {
		return nil
	}
	return []netip.AddrPort{netip.AddrPortFrom(addr, port)}
}

func (c *Cluster) endpointTargets(ctx context.Context, port corev1.ServicePort, o LoadOptions) ([]netip.AddrPort, error) {
	client, err := c.Client()
	if err != nil {
		return nil, err
	}
	list, err := client.DiscoveryV1().EndpointSlices(o.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + o.Service,
	})
	if err != nil {
		return nil, fmt.Errorf("listing the slices of Service %s/%s: %w", o.Namespace, o.Service, err)
	}
	var targets []netip.AddrPort
	for _, slice := range list.Items {
		for _, slicePort := range slice.Ports {
			if slicePort.Name == nil || *slicePort.Name != port.Name || slicePort.Port == nil {
				continue
			}
			for _, endpoint := range slice.Endpoints {
				if ptr.Deref(endpoint.Conditions.Ready, false) {
					targets = append(targets, addressesOf(o.IPv6, uint16(*slicePort.Port), endpoint.Addresses[0])...)
				}
			}
		}
	}
	slices.SortFunc(targets, netip.AddrPort.Compare)
	return targets, nil
}

func (c *Cluster) sources(ctx context.Context, o LoadOptions) ([]load.Source, error) {
	client, err := c.Client()
	if err != nil {
		return nil, err
	}
	namespace := cmp.Or(o.From, o.Namespace)
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: o.Selector})
	if err != nil {
		return nil, fmt.Errorf("looking for pods to send from: %w", err)
	}
	var sources []load.Source
	for i := range pods.Items {
		pod := &pods.Items[i]
		node, ok := c.Shape().Node(pod.Spec.NodeName)
		switch {
		case !ok || !kube.PodReady(pod) || pod.DeletionTimestamp != nil:
		case o.Selector == "" && !isClient(pod):
		case len(o.Zones) > 0 && !slices.Contains(o.Zones, node.Zone):
		case len(o.Nodes) > 0 && !slices.Contains(o.Nodes, node.Name):
		default:
			sources = append(sources, load.Source{
				Place: load.Place{Pod: pod.Name, Node: node.Name, Zone: node.Zone},
				Dial:  c.dialFrom(pod, node),
			})
		}
	}
	if len(sources) == 0 {
		return nil, fmt.Errorf("no pod in namespace %q can send requests; run pods with the image %s, or select others", namespace, clientImage)
	}
	return sources, nil
}

func isClient(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return shape.Image(c.Image) == clientImage })
}

func (c *Cluster) dialFrom(pod *corev1.Pod, node shape.Node) load.DialFunc {
	namespace := shape.PodNamespace(c.Shape().Name, string(pod.UID))
	if pod.Spec.HostNetwork {
		namespace = shape.NodeNamespace(c.Shape().Name, node.Index)
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return fabric.Dial(ctx, namespace, network, address)
	}
}
