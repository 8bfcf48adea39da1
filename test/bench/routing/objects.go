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
	// manager is who says that it manages the slices, so that Kubernetes does not.
	manager = "bench.vicinity.dev"
	// perNamespace is the number of Services in a namespace.
	perNamespace = 100
	// perSlice is the number of endpoints that Kubernetes fills a slice to.
	perSlice = 100
	// portName and portNumber are the port of all endpoints.
	portName   = "http"
	portNumber = 8080
)

// endpointsOf is the number of endpoints of the Service with an index: mostly few,
// of each tenth more and of each hundredth many, in two slices. It is 10 on average.
func endpointsOf(service int) int {
	switch {
	case service%100 == 0:
		return 190
	case service%10 == 0:
		return 30
	}
	return 6
}

// policy has all Services of a namespace kept in their zones, the small ones too, for
// which annotations alone would leave traffic balanced.
const policy = `
apiVersion: vicinity.dev/v1alpha1
kind: RoutingPolicy
metadata: {name: bench}
spec: {selector: {}, mode: Prefer, level: Zone, startingThreshold: 1, padding: 0}
`

// plan is a Service with its slices, as they are made.
type plan struct {
	service *corev1.Service
	slices  []*discoveryv1.EndpointSlice
}

func (p plan) key() types.NamespacedName {
	return types.NamespacedName{Namespace: p.service.Namespace, Name: p.service.Name}
}

// planner makes objects. The same nodes give the same objects.
type planner struct {
	nodes  []shape.Node
	random *rand.Rand
	// endpoints counts those that there are, each of which has an address of its own.
	endpoints int
}

func newPlanner(nodes []shape.Node) *planner {
	return &planner{nodes: nodes, random: rand.New(rand.NewPCG(1, 2))}
}

func namespaceOf(service int) string { return fmt.Sprintf("bench-%d", service/perNamespace) }

// plan makes the Service with an index. The endpoints of a small one are spread over
// zones as a spread constraint does it; those of others are wherever there was room.
func (p *planner) plan(index int) plan {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespaceOf(index), Name: fmt.Sprintf("service-%d", index),
	}}
	// The API server chooses one address after the other, and takes those that are
	// given side by side.
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

// newSlice is an empty slice of a Service.
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

// endpoint makes one more, on the node with an index, which may be beyond the last.
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
