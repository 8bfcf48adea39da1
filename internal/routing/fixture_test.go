package routing

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing/capacity"
	"vicinity.dev/vicinity/internal/routing/hints"
	"vicinity.dev/vicinity/internal/topology"
)

// testNode describes a node. Its labels are additional to zone and region.
type testNode struct {
	name, zone, region string
	labels             map[string]string
}

// nodesIn makes nodes named after their zones: a-1, a-2, ... A zone whose name has several letters is in the region of
// its first letter.
func nodesIn(counts map[string]int) []*corev1.Node {
	var nodes []*corev1.Node
	for zone, n := range counts {
		for i := range n {
			nodes = append(nodes, testNode{name: fmt.Sprintf("%s-%d", zone, i+1), zone: zone, region: regionOf(zone)}.object())
		}
	}
	return nodes
}

func regionOf(zone string) string {
	if len(zone) > 1 {
		return zone[:1]
	}
	return "r"
}

func (n testNode) object() *corev1.Node {
	labels := map[string]string{topology.Hostname: n.name}
	for key, value := range n.labels {
		labels[key] = value
	}
	if n.zone != "" {
		labels[topology.Zone] = n.zone
	}
	if n.region != "" {
		labels[topology.Region] = n.region
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: labels},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

// routedService takes annotations as key and value in turn.
func routedService(annotations ...string) *corev1.Service {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: map[string]string{}},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.0.0.1"},
	}
	for i := 0; i+1 < len(annotations); i += 2 {
		service.Annotations[annotations[i]] = annotations[i+1]
	}
	return service
}

// endpointsIn reads endpoints from words such as "a b@b-2!=a+b": the zone ("?" without one), a node other than the first
// of the zone, "!" for unready or "-" for terminating, and the hinted zones. Addresses are numbered from first.
func endpointsIn(first int, text string) []discoveryv1.Endpoint {
	var endpoints []discoveryv1.Endpoint
	for i, word := range strings.Fields(text) {
		word, zones, hinted := strings.Cut(word, "=")
		leaving := strings.HasSuffix(word, "-")
		ready := !leaving && !strings.HasSuffix(word, "!")
		zone := strings.TrimRight(word, "!-")
		zone, node, named := strings.Cut(zone, "@")
		if !named {
			node = zone + "-1"
		}
		e := discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.1.%d.%d", (first+i)/200, (first+i)%200+1)},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Terminating: &leaving},
			NodeName:   &node,
		}
		if zone != "?" {
			e.Zone = &zone
		} else {
			e.NodeName = nil
		}
		if hinted {
			e.Hints = hintsFor(strings.Split(zones, "+"))
		}
		endpoints = append(endpoints, e)
	}
	return endpoints
}

func hintsFor(zones []string, nodes ...string) *discoveryv1.EndpointHints {
	made := &discoveryv1.EndpointHints{}
	for _, zone := range zones {
		made.ForZones = append(made.ForZones, discoveryv1.ForZone{Name: zone})
	}
	for _, node := range nodes {
		made.ForNodes = append(made.ForNodes, discoveryv1.ForNode{Name: node})
	}
	return made
}

// slicesOf makes a slice of each text, which endpointsIn reads.
func slicesOf(texts ...string) []*discoveryv1.EndpointSlice {
	port, name := int32(80), "http"
	var list []*discoveryv1.EndpointSlice
	first := 0
	for i, text := range texts {
		endpoints := endpointsIn(first, text)
		first += len(endpoints)
		list = append(list, &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: fmt.Sprintf("web-%02d", i), ResourceVersion: "1",
				Labels: map[string]string{discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: v1alpha1.ManagedByKubernetes},
			},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
			Endpoints:   endpoints,
		})
	}
	return list
}

func inputOf(service *corev1.Service, nodes []*corev1.Node, eps []*discoveryv1.EndpointSlice) Input {
	return Input{Service: service, Slices: eps, Cluster: capacity.NewCluster(nodes), Settings: DefaultSettings(), Planner: new(allocate.Planner)}
}

// localPolicy returns a policy with an algorithm that needs 3 endpoints for each zone to start.
func localPolicy() *v1alpha1.RoutingPolicy {
	return &v1alpha1.RoutingPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "local"},
		Spec:       v1alpha1.RoutingPolicySpec{Algorithm: "local"},
	}
}

func mustDecide(t fataler, in Input) Decision {
	t.Helper()
	d, err := Decide(in)
	if err != nil {
		t.Fatalf("deciding: %v", err)
	}
	return d
}

// hintText returns the hints of a decision for all endpoints, slice by slice: zones, then nodes after a slash, "-" for
// none.
func hintText(eps []*discoveryv1.EndpointSlice, d Decision) string {
	var parts []string
	for _, slice := range eps {
		endpoints, _ := d.Hints().Apply(slice)
		parts = append(parts, strings.Join(hintWords(endpoints), " "))
	}
	return strings.Join(parts, " | ")
}

func hintWords(endpoints []discoveryv1.Endpoint) []string {
	var words []string
	for i := range endpoints {
		word := strings.Join(hints.Zones(&endpoints[i]), "+")
		var nodes []string
		if endpoints[i].Hints != nil {
			for _, node := range endpoints[i].Hints.ForNodes {
				nodes = append(nodes, node.Name)
			}
		}
		slices.Sort(nodes)
		if len(nodes) > 0 {
			word += "/" + strings.Join(nodes, "+")
		}
		if word == "" {
			word = "-"
		}
		words = append(words, word)
	}
	return words
}

// applyStep returns the slices after the writes of a step.
func applyStep(eps []*discoveryv1.EndpointSlice, step hints.Step) []*discoveryv1.EndpointSlice {
	after := slices.Clone(eps)
	for _, write := range step.Writes {
		at := slices.IndexFunc(after, func(s *discoveryv1.EndpointSlice) bool { return s.Name == write.Slice.Name })
		written := after[at].DeepCopy()
		written.Endpoints = write.Endpoints
		delete(written.Annotations, v1alpha1.AnnotationHeld)
		if write.Held != "" {
			metav1.SetMetaDataAnnotation(&written.ObjectMeta, v1alpha1.AnnotationHeld, write.Held)
		}
		after[at] = written
	}
	return after
}
