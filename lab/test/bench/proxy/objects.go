package main

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/test/bench/meter"
)

const (
	// perNamespace is the number of Services in a namespace, perService that of the endpoints of one,
	// perSlice that of a slice of the largest one.
	perNamespace = 100
	perService   = 10
	perSlice     = 1000
	servicePort  = 80
	endpointPort = 18080
)

// The Service whose endpoint listens, and the large one, each in its own namespace.
const (
	liveName  = "live"
	crowdName = "crowd"
)

// annotations make vicinity-proxy serve a Service.
var annotations = map[string]string{"vicinity.dev/proxy": "true"}

func namespaceOf(service int) string { return fmt.Sprintf("bench-%d", service/perNamespace) }

// newService returns a Service without a selector.
func newService(namespace, name string) *corev1.Service {
	service, single := meter.NewService(namespace, name, "", endpointPort), corev1.IPFamilyPolicySingleStack
	service.Annotations = annotations
	service.Spec.IPFamilyPolicy, service.Spec.IPFamilies = &single, []corev1.IPFamily{corev1.IPv4Protocol}
	return service
}

func serviceAt(index int) *corev1.Service {
	return newService(namespaceOf(index), fmt.Sprintf("service-%d", index))
}

// endpointsOf returns endpoints by number in the network of a first byte, which is below that of the
// lab's pods, spread over the nodes.
func endpointsOf(network byte, from, to int, nodes []shape.Node) []discoveryv1.Endpoint {
	var all []discoveryv1.Endpoint
	for n := from; n < to; n++ {
		node := nodes[n%len(nodes)]
		all = append(all, meter.NewEndpoint(meter.Address(network, n), node.Name, node.Zone))
	}
	return all
}

func patchOf(address netip.Addr, node shape.Node) []byte {
	return fmt.Appendf(nil, `[{"op":"replace","path":"/endpoints","value":[{"addresses":[%q],"conditions":{"ready":true},"nodeName":%q,"zone":%q}]}]`,
		address, node.Name, node.Zone)
}

// role has the permissions that vicinity-proxy needs beside those of kube-proxy, as whose user it runs
// here.
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
