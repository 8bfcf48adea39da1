package main

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"vicinity.dev/vicinity/lab/shape"
)

const (
	// manager manages the slices, so that Kubernetes does not.
	manager = "bench.vicinity.dev"
	// perNamespace is the number of Services per namespace.
	perNamespace = 100
	// perSlice is the number of endpoints per slice, as in Kubernetes.
	perSlice   = 100
	portName   = "http"
	portNumber = 8080
)

// endpointsOf is the number of endpoints of a Service: mostly 6, for every tenth 30, and
// for every hundredth 190 in two slices; 10 on average.
func endpointsOf(service int) int {
	switch {
	case service%100 == 0:
		return 190
	case service%10 == 0:
		return 30
	}
	return 6
}

// policy keeps all Services of a namespace in their zones. Annotations alone would leave
// the small ones balanced.
const policy = `
apiVersion: vicinity.dev/v1alpha1
kind: RoutingPolicy
metadata: {name: bench}
spec: {selector: {}, mode: Prefer, level: Zone, startingThreshold: 1, padding: 0}
`

// plan is a Service with its slices.
type plan struct {
	service *corev1.Service
	slices  []*discoveryv1.EndpointSlice
}

func (p plan) key() types.NamespacedName {
	return types.NamespacedName{Namespace: p.service.Namespace, Name: p.service.Name}
}

// planner makes objects, the same for the same nodes.
type planner struct {
	nodes  []shape.Node
	random *rand.Rand
	// endpoints is the number of endpoints made, each of which has an address of its own.
	endpoints int
}

func newPlanner(nodes []shape.Node) *planner {
	return &planner{nodes: nodes, random: rand.New(rand.NewPCG(1, 2))}
}

func namespaceOf(service int) string { return fmt.Sprintf("bench-%d", service/perNamespace) }

// plan makes the Service with an index. Endpoints of small Services are spread over zones,
// those of others are placed at random.
func (p *planner) plan(index int) plan {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespaceOf(index), Name: fmt.Sprintf("service-%d", index),
	}}
	// The API server is much slower if it has to choose the addresses.
	service.Spec.ClusterIP = netip.AddrFrom4([4]byte{10, 96, byte(16 + index/250), byte(1 + index%250)}).String()
	service.Spec.Ports = []corev1.ServicePort{{Name: portName, Port: 80, TargetPort: intstr.FromInt32(portNumber)}}
	made := plan{service: service}
	first := p.random.IntN(len(p.nodes))
	for i := range endpointsOf(index) {
		if i%perSlice == 0 {
			made.slices = append(made.slices, newSlice(service, len(made.slices)))
		}
		at := first + i
		if index%10 == 0 {
			at = p.random.IntN(len(p.nodes))
		}
		slice := made.slices[len(made.slices)-1]
		slice.Endpoints = append(slice.Endpoints, p.endpoint(at))
	}
	return made
}

// newSlice makes an empty slice of a Service.
func newSlice(service *corev1.Service, index int) *discoveryv1.EndpointSlice {
	name, port, protocol := portName, int32(portNumber), corev1.ProtocolTCP
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.Namespace, Name: fmt.Sprintf("%s-%d", service.Name, index),
			Labels: map[string]string{discoveryv1.LabelServiceName: service.Name, discoveryv1.LabelManagedBy: manager},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
	}
}

// endpoint makes an endpoint on the node with an index, modulo the number of nodes.
func (p *planner) endpoint(index int) discoveryv1.Endpoint {
	node, ready := p.nodes[index%len(p.nodes)], true
	p.endpoints++
	n := p.endpoints
	return discoveryv1.Endpoint{
		Addresses:  []string{netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}).String()},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		NodeName:   &node.Name,
		Zone:       &node.Zone,
	}
}
