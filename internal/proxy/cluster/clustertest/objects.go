package clustertest

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// Start is the time at which tests start.
var Start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Node returns node-a, in a zone unless it is empty.
func Node(zone string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", Labels: map[string]string{}}}
	if zone != "" {
		node.Labels[corev1.LabelTopologyZone] = zone
	}
	node.Spec.PodCIDRs = []string{"10.1.0.0/24"}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
	return node
}

// Service returns a Service with port 80 that only vicinity-proxy serves.
func Service(name, address string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Labels: map[string]string{v1alpha1.LabelServiceProxyName: v1alpha1.ServiceProxyName}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: address, ClusterIPs: []string{address}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
}

// Group returns a group for zone a with endpoints in zone a at the addresses.
func Group(service, name string, addresses ...string) *v1alpha1.EndpointGroup {
	group := &v1alpha1.EndpointGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: v1alpha1.EndpointGroupSpec{
			Service: service, AddressType: corev1.IPv4Protocol, AnyReady: true,
			Consumers: []v1alpha1.GroupConsumer{{Zone: "a", Weight: 1000}},
			Ports:     []v1alpha1.GroupPort{{Protocol: corev1.ProtocolTCP, Port: 8080}},
		},
	}
	for _, address := range addresses {
		group.Spec.Endpoints = append(group.Spec.Endpoints, v1alpha1.GroupEndpoint{Address: address, Zone: "a", Node: "node-b"})
	}
	return group
}

// NotFor excludes zones from a group's delivery.
func NotFor(group *v1alpha1.EndpointGroup, zones ...string) *v1alpha1.EndpointGroup {
	group.Labels = map[string]string{}
	for _, zone := range zones {
		group.Labels[v1alpha1.LabelNotForPrefix+zone] = "true"
	}
	return group
}

// Range returns a ServiceCIDR.
func Range(name string, prefixes ...string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: prefixes}}
}

// PublishedNodes returns the controller's ConfigMap with the addresses of all nodes.
func PublishedNodes(nodes, pods string) *corev1.ConfigMap {
	lines := func(words string) string { return strings.ReplaceAll(words, " ", "\n") }
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: v1alpha1.ConfigMapNodeAddresses},
		Data:       map[string]string{v1alpha1.KeyNodeAddresses: lines(nodes), v1alpha1.KeyPodRanges: lines(pods)},
	}
}

// Eventually waits until a condition is true.
func Eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	limit, looks := time.After(30*time.Second), time.NewTicker(time.Millisecond)
	defer looks.Stop()
	for !is() {
		select {
		case <-looks.C:
		case <-limit:
			t.Fatalf("this never happens: %s", what)
		}
	}
}

// Background runs a function until the test ends.
func Background(t *testing.T, run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	over := make(chan struct{})
	go func() {
		defer close(over)
		run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-over
	})
}
