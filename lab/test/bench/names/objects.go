package main

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/lab/test/bench/meter"
)

const (
	namespace = "bench"
	domain    = "svc.cluster.local"
	// vips, peers and nears are the numbers of Services: with a cluster IP, headless, and headless
	// with near endpoints preferred.
	vips, peers, nears = 1000, 200, 200
	vipName            = "web"
	peerName           = "peer"
	nearName           = "near"
	// perService is the number of endpoints of a Service.
	perService = 10
	// externals is the number of external names that clients look up.
	externals = 250
	// Pods per namespace and per node.
	podsPerNamespace, podsPerNode = 1000, 50
	portName                      = "http"
	portNumber                    = 8080
)

// zones are the zones of the nodes in turn.
var zones = [...]string{"zone-a", "zone-b", "zone-c"}

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

func zoneOf(node int) string { return zones[node%len(zones)] }

// nodeLabels are the labels that PodLocators copy.
func nodeLabels(i int) map[string]string {
	return map[string]string{
		corev1.LabelTopologyRegion: "region", corev1.LabelTopologyZone: zoneOf(i), corev1.LabelHostname: nodeName(i),
	}
}

// newNode has a range without the address of any pod, so that PodLocators locate them. The range of
// each zone's first node is on this machine, for clients.
func newNode(i int) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Labels: nodeLabels(i)}}
	node.Spec.PodCIDR = fmt.Sprintf("11.%d.%d.0/24", i>>8, i&0xff)
	if i < len(zones) {
		node.Spec.PodCIDR = netip.PrefixFrom(client(i), 24).Masked().String()
	}
	node.Spec.PodCIDRs = []string{node.Spec.PodCIDR}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("172.16.%d.%d", i>>8, i&0xff)}}
	return node
}

// podAddress returns an address in 12.0.0.0/8.
func podAddress(i int) netip.Addr { return meter.Address(12, i) }

func podNamespace(i int) string { return fmt.Sprintf("pods-%d", i/podsPerNamespace) }

// newPod has the usual fields of a pod. It is not scheduled.
func newPod(i int) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: podNamespace(i), Name: fmt.Sprintf("deployment-7f9c6d5b4-%06d", i),
		Labels:      map[string]string{"app.kubernetes.io/name": "deployment", "app.kubernetes.io/instance": "bench", "pod-template-hash": "7f9c6d5b4"},
		Annotations: map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
	}}
	pod.Spec.SchedulerName = meter.Manager
	container := corev1.Container{Name: "server", Image: "registry.example/bench/server:1.0.0", Ports: []corev1.ContainerPort{{Name: portName, ContainerPort: portNumber}}}
	for n := range 8 {
		container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", n), Value: "a value of some length"})
	}
	container.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}
	container.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromString(portName)}}}
	pod.Spec.Containers = []corev1.Container{container}
	return pod
}

func newLocator(pod *corev1.Pod, node int) *v1alpha1.PodLocator {
	locator := &v1alpha1.PodLocator{IPs: []string{pod.Status.PodIP}, NodeName: nodeName(node), NodeLabels: nodeLabels(node)}
	locator.APIVersion, locator.Kind = v1alpha1.GroupVersion.String(), "PodLocator"
	locator.Namespace, locator.Name = pod.Namespace, pod.Name
	locator.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))}
	return locator
}

// client is the source address of a round's queries, on a node of each zone in turn. PodLocators
// cannot have it: loopback addresses are no pod's.
func client(round int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 77, byte(round % len(zones)), 1})
}

// newSlice makes the endpoints of a Service from pods, starting at an index.
func newSlice(service *corev1.Service, first, pods, nodes int) *discoveryv1.EndpointSlice {
	slice := meter.NewSlice(service, 0)
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		slice.Labels[corev1.IsHeadlessService] = ""
	}
	for i := range perService {
		pod := (first + i) % pods
		slice.Endpoints = append(slice.Endpoints, meter.NewEndpoint(podAddress(pod), nodeName(pod%nodes), zoneOf(pod%nodes)))
	}
	return slice
}

// newGroup returns the group of a headless Service that prefers its zone.
func newGroup(slice *discoveryv1.EndpointSlice) *v1alpha1.EndpointGroup {
	service := slice.Labels[discoveryv1.LabelServiceName]
	group := &v1alpha1.EndpointGroup{}
	group.APIVersion, group.Kind = v1alpha1.GroupVersion.String(), "EndpointGroup"
	group.Namespace, group.Name = slice.Namespace, slice.Name
	group.Labels = map[string]string{v1alpha1.LabelService: service, corev1.IsHeadlessService: ""}
	group.Spec = v1alpha1.EndpointGroupSpec{Service: service, AddressType: corev1.IPv4Protocol, Tiers: []string{corev1.LabelTopologyZone, "*"}, AnyReady: true}
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		group.Spec.Endpoints = append(group.Spec.Endpoints, v1alpha1.GroupEndpoint{Address: e.Addresses[0], Node: *e.NodeName, Zone: *e.Zone})
	}
	return group
}

// Kinds of queries.
const (
	plain    = "plain"
	headless = "headless"
	filtered = "filtered"
)

var mixes = []string{plain, headless, filtered}

func queries(mix string) string {
	var text strings.Builder
	ask := func(name string) { fmt.Fprintf(&text, "%[1]s A\n%[1]s AAAA\n", name) }
	switch mix {
	case plain:
		for i := range vips {
			// A client names a Service and its namespace. The resolver appends the first domain of the
			// search path, which is the client's namespace, and then the next.
			name := fmt.Sprintf("%s-%d.%s", vipName, i, namespace)
			ask(name + "." + namespace + "." + domain)
			ask(name + "." + domain)
			if i%(vips/externals) == 0 {
				// The name itself would be next, and is for another server.
				outside := fmt.Sprintf("api-%d.example.com", i)
				for _, search := range []string{namespace + "." + domain, domain, "cluster.local"} {
					ask(outside + "." + search)
				}
			}
		}
	case headless:
		for i := range peers {
			ask(fmt.Sprintf("%s-%d.%s.%s", peerName, i, namespace, domain))
		}
	case filtered:
		for i := range nears {
			ask(fmt.Sprintf("%s-%d.%s.%s", nearName, i, namespace, domain))
		}
	}
	return text.String()
}
