package main

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"vicinity.dev/vicinity/lab/shape"
)

const (
	// manager is who says that it manages the slices, so that Kubernetes does not.
	manager = "bench.vicinity.dev"
	// perNamespace is the number of Services in a namespace, perService that of the
	// endpoints of one, perSlice that of a slice of the largest one.
	perNamespace = 100
	perService   = 10
	perSlice     = 1000
	// servicePort and endpointPort are the ports of all Services and endpoints.
	portName     = "tcp"
	servicePort  = 80
	endpointPort = 18080
)

// The Service whose endpoint listens, and the one with as many endpoints as are asked for,
// each in a namespace of its own.
const (
	liveName  = "live"
	crowdName = "crowd"
)

// annotations have vicinity-proxy serve a Service.
var annotations = map[string]string{"vicinity.dev/proxy": "true"}

func namespaceOf(service int) string { return fmt.Sprintf("bench-%d", service/perNamespace) }

// newService is a Service without a selector.
func newService(namespace, name string) *corev1.Service {
	single := corev1.IPFamilyPolicySingleStack
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations},
		Spec: corev1.ServiceSpec{
			IPFamilyPolicy: &single, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Name: portName, Port: servicePort, TargetPort: intstr.FromInt32(endpointPort)}},
		},
	}
}

// serviceAt is the Service with an index.
func serviceAt(index int) *corev1.Service {
	return newService(namespaceOf(index), fmt.Sprintf("service-%d", index))
}

// newSlice is a slice of a Service.
func newSlice(namespace, service string, index int, endpoints []discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	name, port, protocol := portName, int32(endpointPort), corev1.ProtocolTCP
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("%s-%d", service, index),
			Labels: map[string]string{discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: manager},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
		Endpoints:   endpoints,
	}
}

// endpoint is one on a node.
func endpoint(address netip.Addr, node shape.Node) discoveryv1.Endpoint {
	ready := true
	return discoveryv1.Endpoint{
		Addresses: []string{address.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		NodeName: &node.Name, Zone: &node.Zone,
	}
}

// endpointsOf are those of the Service with an index, spread over the nodes.
func endpointsOf(index int, nodes []shape.Node) []discoveryv1.Endpoint {
	var all []discoveryv1.Endpoint
	for i := range perService {
		n := index*perService + i
		all = append(all, endpoint(addressAt(10, n), nodes[n%len(nodes)]))
	}
	return all
}

// addressAt is the address with a number in the network of a first byte, below that of
// pods of the lab.
func addressAt(first byte, n int) netip.Addr {
	return netip.AddrFrom4([4]byte{first, byte(n >> 16), byte(n >> 8), byte(n)})
}

// patchOf replaces the endpoints of a slice, as JSON.
func patchOf(address netip.Addr, node shape.Node) []byte {
	return fmt.Appendf(nil, `[{"op":"replace","path":"/endpoints","value":[{"addresses":[%q],"conditions":{"ready":true},"nodeName":%q,"zone":%q}]}]`,
		address, node.Name, node.Zone)
}

// role is what vicinity-proxy needs beside what kube-proxy may do, as whom it runs here.
var role = strings.TrimSpace(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: bench-proxy}
rules:
- {apiGroups: [vicinity.dev], resources: [endpointgroups], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
- {apiGroups: [""], resources: [services], verbs: [list, watch]}
- {apiGroups: [""], resources: [nodes, configmaps], verbs: [get, list, watch]}
- {apiGroups: [networking.k8s.io], resources: [servicecidrs], verbs: [list, watch]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: bench-proxy}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: bench-proxy}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:kube-proxy"}]
`) + "\n"
