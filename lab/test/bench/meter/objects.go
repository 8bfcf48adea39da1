package meter

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Manager is the label value that keeps Kubernetes from managing the slices.
const Manager = "bench.vicinity.dev"

// Writers is the number of concurrent requests that make objects: enough to keep the API server busy.
const Writers = 100

// NewService returns a Service without a selector, whose port 80 leads to a port of its endpoints. A
// given cluster IP makes the API server much faster.
func NewService(namespace, name, clusterIP string, port int) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.ServiceSpec{
			ClusterIP: clusterIP, Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt(port)}},
		},
	}
}

// ClusterIP returns the cluster IP of a Service by number, of 50,000.
func ClusterIP(n int) string {
	return netip.AddrFrom4([4]byte{10, 96, byte(16 + n/250), byte(1 + n%250)}).String()
}

// NewSlice returns the slice of a Service with an index.
func NewSlice(service *corev1.Service, index int, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	port, protocol := service.Spec.Ports[0], corev1.ProtocolTCP
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.Namespace, Name: fmt.Sprintf("%s-%d", service.Name, index),
			Labels: map[string]string{discoveryv1.LabelServiceName: service.Name, discoveryv1.LabelManagedBy: Manager},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &port.Name, Port: &port.TargetPort.IntVal, Protocol: &protocol}},
		Endpoints:   endpoints,
	}
}

// NewEndpoint returns a ready endpoint.
func NewEndpoint(address netip.Addr, node, zone string) discoveryv1.Endpoint {
	ready := true
	return discoveryv1.Endpoint{
		Addresses: []string{address.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}, NodeName: &node, Zone: &zone,
	}
}

// Address returns the address with a number in the network of a first byte.
func Address(first byte, n int) netip.Addr {
	return netip.AddrFrom4([4]byte{first, byte(n >> 16), byte(n >> 8), byte(n)})
}
