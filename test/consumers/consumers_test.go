// Package consumers_test has programs that serve Services choose endpoints from slices with our hints, by their own code.
// It keeps the table of docs/consumers.md. Only "make consumers" and "make soak" run it, since it compiles those programs.
package consumers_test

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/capacity"
	"vicinity.dev/vicinity/internal/shift"
	"vicinity.dev/vicinity/internal/topology"
	"vicinity.dev/vicinity/test/golden"
)

// Answers about a plan.
const (
	yes       = "yes"        // every node uses the endpoints of the plan, or with a shift, only some outside the zone
	no        = "no"         // every node uses all endpoints
	zonesOnly = "zones only" // every node uses the endpoints of its zone, and none prefers those of its own
	nodesOnly = "nodes only" // every node with endpoints uses its own, and the others all
	notKnown  = "not known"
)

// consumer is a program that serves Services.
type consumer struct {
	name string
	// folder has the program that runs the consumer's code, which is in module. Without a folder, read is the version
	// whose source was read, and zones and nodes are the answers about plans with hints for zones only and for nodes.
	folder, module     string
	read, zones, nodes string
	// because says why a plan is not honoured in spite of the mark, by the kind of plans.
	because map[string]string
}

func consumers() []consumer {
	return []consumer{
		{name: "kube-proxy", folder: "kubeproxy", module: "k8s.io/kubernetes"},
		{name: "Cilium", folder: "cilium", module: "github.com/cilium/cilium", because: map[string]string{
			prefersNode: "it reads no hints for nodes.",
			sameNode:    "it reads the distribution before the mark, and chooses by node, without hints. Before 1.20 it did not know `PreferSameZone` and `PreferSameNode`.",
			noZone:      "it drops the hints of that endpoint, and follows hints only where all endpoints have some.",
		}},
		{name: "Calico 3.28.5 (eBPF)", folder: "calico", module: "github.com/projectcalico/calico", because: map[string]string{
			everyPlan: "it follows hints only where the annotation is `Auto`, and then leaves zones that no hint names without endpoints. Update to 3.31.5.",
		}},
		{name: "Calico 3.31.5 (eBPF)", read: "pull request 11859, 2026-04", zones: yes, nodes: yes},
		{name: "Antrea", read: "v2.5.0", zones: yes, nodes: notKnown, because: map[string]string{
			shifts:      "endpoints that leave have a hint for no node, too. Whether it reads hints for nodes is not known.",
			prefersNode: "its feature gate `PreferSameTrafficDistribution` must be on. Its default is not known.",
		}},
		{name: "OVN-Kubernetes", read: "pull request 6888, 2026-09", zones: no, nodes: no, because: map[string]string{
			everyPlan: "it reads no hints: [pull request 6888](https://github.com/ovn-kubernetes/ovn-kubernetes/pull/6888) is open.",
		}},
	}
}

// plan is a Service that asks for routing, with endpoints on nodes. "?" is an endpoint in no zone.
type plan struct {
	name, endpoints     string
	nodes               string // threeZones if empty
	shifted             string // the zone of a ZoneShift
	distribution        string // spec.trafficDistribution
	annotations, labels map[string]string
	// because says why no consumer can honour the plan.
	because string
}

func plans() []plan {
	const even, uneven = "a-1 a-1 a-2 b-1 b-2 b-2 c-1 c-1 c-2", "a-1 a-1 a-1 a-2 a-2 a-2 b-1 b-2 c-1"
	const nineZones = "a-1 b-1 c-1 d-1 e-1 f-1 g-1 h-1 i-1"
	annotated := func(pairs ...string) map[string]string {
		annotations := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			annotations[pairs[i]] = pairs[i+1]
		}
		return annotations
	}
	return []plan{
		{name: "`same-zone: Prefer`", endpoints: even, annotations: annotated(v1alpha1.AnnotationSameZone, v1alpha1.Prefer)},
		{name: "`same-zone: Prefer`, moving endpoints by its bound", endpoints: uneven, annotations: annotated(v1alpha1.AnnotationSameZone, v1alpha1.Prefer)},
		{name: "`same-zone: Prefer`, an endpoint in no zone", endpoints: even + " ?", annotations: annotated(v1alpha1.AnnotationSameZone, v1alpha1.Prefer)},
		{name: "`same-zone: Prefer`, `PreferClose`", endpoints: even, distribution: corev1.ServiceTrafficDistributionPreferClose, annotations: annotated(v1alpha1.AnnotationSameZone, v1alpha1.Prefer)},
		{name: "`same-zone: Prefer`, `PreferSameZone`", endpoints: even, distribution: corev1.ServiceTrafficDistributionPreferSameZone, annotations: annotated(v1alpha1.AnnotationSameZone, v1alpha1.Prefer)},
		{name: "`same-zone: Prefer`, `PreferSameNode`", endpoints: even, distribution: corev1.ServiceTrafficDistributionPreferSameNode, annotations: annotated(v1alpha1.AnnotationSameZone, v1alpha1.Prefer)},
		{
			name: "`same-zone: Require`", endpoints: even, annotations: annotated(v1alpha1.AnnotationSameZone, v1alpha1.Require),
			because: "hints cannot express it, so Vicinity writes none. Let [vicinity-proxy](proxy.md) serve the Service.",
		},
		{name: "`same-node: Prefer`", endpoints: even, annotations: annotated(v1alpha1.AnnotationSameNode, v1alpha1.Prefer)},
		{name: "`same-node: Prefer`, `same-zone: Prefer`", endpoints: even, annotations: annotated(v1alpha1.AnnotationSameNode, v1alpha1.Prefer, v1alpha1.AnnotationSameZone, v1alpha1.Prefer)},
		{name: "`topology-keys` node, zone, `*`", endpoints: even, annotations: annotated(v1alpha1.AnnotationTopologyKeys, strings.Join([]string{topology.Hostname, topology.Zone, topology.Anywhere}, ","))},
		{name: "`topology-keys` zone, `*`", endpoints: even, annotations: annotated(v1alpha1.AnnotationTopologyKeys, topology.Zone+","+topology.Anywhere)},
		{name: "Gardener's label", endpoints: even, labels: map[string]string{v1alpha1.LabelOwnZone: "true"}},
		{name: "no plan", endpoints: even},
		{name: "ZoneShift", endpoints: even, shifted: "a"},
		{name: "ZoneShift, nine zones", endpoints: nineZones, nodes: nineZones, shifted: "a"},
		{name: "ZoneShift, an endpoint in no zone", endpoints: even + " ?", shifted: "a"},
		{name: "ZoneShift, `PreferClose`", endpoints: even, shifted: "a", distribution: corev1.ServiceTrafficDistributionPreferClose},
		{name: "ZoneShift, `PreferSameNode`", endpoints: even, shifted: "a", distribution: corev1.ServiceTrafficDistributionPreferSameNode},
		{name: "ZoneShift, `same-zone: Prefer`", endpoints: even, shifted: "a", annotations: annotated(v1alpha1.AnnotationSameZone, v1alpha1.Prefer)},
		{name: "ZoneShift, `same-zone: Require`", endpoints: even, shifted: "a", annotations: annotated(v1alpha1.AnnotationSameZone, v1alpha1.Require)},
		{name: "ZoneShift, `same-node: Prefer`", endpoints: even, shifted: "a", annotations: annotated(v1alpha1.AnnotationSameNode, v1alpha1.Prefer)},
		{name: "ZoneShift, Gardener's label", endpoints: even, shifted: "a", labels: map[string]string{v1alpha1.LabelOwnZone: "true"}},
	}
}

// hasHomeless reports whether the plan has an endpoint in no zone.
func (p plan) hasHomeless() bool { return strings.Contains(p.endpoints, "?") }

// document has the objects that the programs read, as JSON.
type document struct {
	Service *corev1.Service              `json:"service"`
	Slices  []*discoveryv1.EndpointSlice `json:"slices"`
	Nodes   []*corev1.Node               `json:"nodes"`
}

// threeZones are two nodes in each of three zones, and one in a zone without endpoints.
const threeZones = "a-1 a-2 b-1 b-2 c-1 c-2 d-1"

func nodes(names string) []*corev1.Node {
	var list []*corev1.Node
	for _, name := range strings.Fields(names) {
		zone, _, _ := strings.Cut(name, "-")
		list = append(list, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{topology.Hostname: name, topology.Zone: zone}},
			Status: corev1.NodeStatus{
				Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")},
				Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			},
		})
	}
	return list
}

// document returns the objects of the plan, without hints.
func (p plan) document() document {
	port := corev1.ServicePort{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}
	number := int32(8080)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-1",
			Labels: map[string]string{discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: v1alpha1.ManagedByKubernetes},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &port.Name, Protocol: &port.Protocol, Port: &number}},
	}
	for i, node := range strings.Fields(p.endpoints) {
		e := discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.1.0.%d", i+11)}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}
		if zone, _, found := strings.Cut(node, "-"); found {
			e.NodeName, e.Zone = &node, &zone
		}
		slice.Endpoints = append(slice.Endpoints, e)
	}
	doc := document{
		Service: &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: p.annotations, Labels: p.labels},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1"},
				IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, Ports: []corev1.ServicePort{port},
			},
		},
		Slices: []*discoveryv1.EndpointSlice{slice}, Nodes: nodes(cmp.Or(p.nodes, threeZones)),
	}
	if p.distribution != "" {
		doc.Service.Spec.TrafficDistribution = &p.distribution
	}
	return doc
}

// uses has the addresses that each node uses, in order.
type uses map[string][]string

func (u uses) equal(other uses) bool { return maps.EqualFunc(u, other, slices.Equal) }

// wanted has the uses that a plan means: all of it, its part for zones, all endpoints, and those of each node.
type wanted struct {
	plan, zones, all, nodes uses
	hintsNodes              bool
	leaving                 []string // addresses in the shifted zone
}

// decide lets Vicinity hint the slices of a document.
func (p plan) decide(t *testing.T, doc document) wanted {
	t.Helper()
	in := routing.Input{Service: doc.Service, Slices: doc.Slices, Cluster: capacity.NewCluster(doc.Nodes), Settings: routing.DefaultSettings()}
	if p.shifted != "" {
		in.Shifts = []shift.Shift{{Key: topology.Zone, Value: p.shifted, MaxOverload: 100}}
	}
	decision, err := routing.Decide(in)
	if err != nil {
		t.Fatal(err)
	}
	slice := doc.Slices[0]
	want := wanted{plan: uses{}, zones: uses{}, all: uses{}, nodes: uses{}}
	for _, node := range doc.Nodes {
		zone := node.Labels[topology.Zone]
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			want.all[node.Name] = append(want.all[node.Name], e.Addresses[0])
			if e.NodeName != nil && *e.NodeName == node.Name {
				want.nodes[node.Name] = append(want.nodes[node.Name], e.Addresses[0])
			}
			if len(decision.Families) == 1 && decision.Families[0].Assigned[e.Addresses[0]].Weight(zone) > 0 {
				want.zones[node.Name] = append(want.zones[node.Name], e.Addresses[0])
			}
		}
		if len(want.zones[node.Name]) == 0 {
			want.zones[node.Name] = want.all[node.Name]
		}
		if len(want.nodes[node.Name]) == 0 {
			want.nodes[node.Name] = want.all[node.Name]
		}
		want.plan[node.Name] = want.zones[node.Name]
		if own := ownEndpoints(decision, slice, node.Name, want.zones[node.Name]); len(own) > 0 {
			want.plan[node.Name] = own
		}
	}
	if decision.Delivery == allocate.DeliveryHints {
		slice.Endpoints, _ = decision.Hints().Apply(slice)
	}
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		want.hintsNodes = want.hintsNodes || e.Hints != nil && len(e.Hints.ForNodes) > 0
		if p.shifted != "" && e.Zone != nil && *e.Zone == p.shifted {
			want.leaving = append(want.leaving, e.Addresses[0])
		}
	}
	return want
}

// ownEndpoints returns the endpoints of a node that the plan has it prefer.
func ownEndpoints(decision routing.Decision, slice *discoveryv1.EndpointSlice, node string, zone []string) []string {
	if len(decision.Families) == 0 || decision.Families[0].Nodes == nil ||
		slices.ContainsFunc(decision.Families[0].Nodes.Skips, func(s allocate.Skip) bool { return s.Domain == node }) {
		return nil
	}
	var own []string
	for _, e := range slice.Endpoints {
		if e.NodeName != nil && *e.NodeName == node && slices.Contains(zone, e.Addresses[0]) {
			own = append(own, e.Addresses[0])
		}
	}
	return own
}

func (w wanted) answer(t *testing.T, got uses) string {
	t.Helper()
	switch {
	case w.isMet(got):
		return yes
	case got.equal(w.all):
		return no
	case got.equal(w.zones):
		return zonesOnly
	case got.equal(w.nodes):
		return nodesOnly
	}
	t.Fatalf("nodes use %v; the plan is %v, its part for zones %v", got, w.plan, w.zones)
	return ""
}

// isMet reports whether nodes use the endpoints of the plan. With a shift, any will do outside the shifted zone.
func (w wanted) isMet(got uses) bool {
	if len(w.leaving) == 0 {
		return got.equal(w.plan)
	}
	for node := range w.all {
		if len(got[node]) == 0 || slices.ContainsFunc(got[node], func(address string) bool { return slices.Contains(w.leaving, address) }) {
			return false
		}
	}
	return true
}

// build compiles the program of a consumer, and returns the version of the consumer in it.
func (c consumer) build(t *testing.T, program string) string {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "go", "-C", c.folder, "build", "-buildvcs=false", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", c.folder, err, out)
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range info.Deps {
		if module.Path == c.module {
			return module.Version
		}
	}
	t.Fatalf("%s links no %s", c.folder, c.module)
	return ""
}

// mustFollowHints fails unless the consumer follows hints with Kubernetes' own annotation: otherwise a "no" would mean nothing.
func (c consumer) mustFollowHints(t *testing.T, program string) {
	t.Helper()
	p := plans()[0]
	doc := p.document()
	want := p.decide(t, doc)
	metav1.SetMetaDataAnnotation(&doc.Service.ObjectMeta, v1alpha1.AnnotationTopologyMode, "Auto")
	if got := want.answer(t, choose(t, program, doc)); got != yes {
		t.Fatalf("%s does not follow hints with %s: Auto", c.name, v1alpha1.AnnotationTopologyMode)
	}
}

// choose runs the program of a consumer.
func choose(t *testing.T, program string, doc document) uses {
	t.Helper()
	in, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program)
	var out, problems bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &problems
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", program, err, &problems)
	}
	chosen := uses{}
	if err := json.Unmarshal(out.Bytes(), &chosen); err != nil {
		t.Fatalf("%s: %v\n%s", program, err, &problems)
	}
	for node, addresses := range chosen {
		slices.Sort(addresses)
		chosen[node] = slices.Compact(addresses)
	}
	return chosen
}

// Kinds of plans that one reason can be about.
const (
	everyPlan   = "every plan"
	prefersNode = "plans that prefer a node"
	noZone      = "an endpoint in no zone"
	sameNode    = "`PreferSameNode`"
	shifts      = "ZoneShift"
)

// reason returns why the consumer does not honour a plan, and which plans it is about.
func (c consumer) reason(p plan, want wanted) (about, reason string) {
	kinds := map[string]bool{
		noZone: p.hasHomeless(), sameNode: p.distribution == corev1.ServiceTrafficDistributionPreferSameNode,
		shifts: p.shifted != "", prefersNode: want.hintsNodes, everyPlan: true,
	}
	for _, about := range []string{noZone, sameNode, shifts, prefersNode, everyPlan} {
		if kinds[about] && c.because[about] != "" {
			return about, c.because[about]
		}
	}
	return "", p.because
}

func TestConsumers(t *testing.T) {
	if os.Getenv("E2E_SOAK") == "" {
		t.Skip("only make consumers compiles the programs that serve Services")
	}
	lines := []string{"| plan |", "| --- |", "| known by |"}
	var reasons []string
	explain := func(about, reason string) {
		if line := "- " + about + ": " + reason; !slices.Contains(reasons, line) {
			reasons = append(reasons, line)
		}
	}
	for _, p := range plans() {
		lines = append(lines, "| "+p.name+" |")
		if p.because != "" {
			explain(p.name, p.because)
		}
	}
	for _, c := range consumers() {
		known, program := "read: "+c.read, ""
		if c.folder != "" {
			program = filepath.Join(t.TempDir(), c.folder)
			known = "run: " + c.build(t, program)
			c.mustFollowHints(t, program)
		}
		cells := []string{c.name, "---", known}
		for _, p := range plans() {
			doc := p.document()
			want := p.decide(t, doc)
			without, with := c.readAnswer(p, want), c.readAnswer(p, want)
			if program != "" {
				without = want.answer(t, choose(t, program, doc))
				metav1.SetMetaDataAnnotation(&doc.Service.ObjectMeta, v1alpha1.AnnotationTopologyMode, v1alpha1.MarkRouted)
				with = want.answer(t, choose(t, program, doc))
			}
			if without == with {
				cells = append(cells, with)
			} else {
				cells = append(cells, without+" / "+with)
			}
			if with == yes {
				continue
			}
			about, reason := c.reason(p, want)
			switch {
			case reason == "" && with != notKnown:
				t.Errorf("%s, %s: with the mark the answer is %q, without a reason", c.name, p.name, with)
			case about != "":
				explain(c.name+", "+about, reason)
			}
		}
		for i, cell := range cells {
			lines[i] += " " + cell + " |"
		}
	}
	text := strings.Join(mergeRows(lines), "\n") + "\n\n" + strings.Join(reasons, "\n") + "\n"
	defer func() {
		if t.Failed() {
			t.Log("make consumers UPDATE=1 writes the answers to the page")
		}
	}()
	golden.CompareBetween(t, "../../docs/consumers.md", "<!-- consumers -->\n", "<!-- end -->\n", text)
}

// mergeRows makes one row of all rows with the same cells after the first.
func mergeRows(rows []string) []string {
	var merged []string
	for _, row := range rows {
		name, answers, _ := strings.Cut(row[len("| "):], " |")
		at := slices.IndexFunc(merged, func(other string) bool { return strings.HasSuffix(other, " |"+answers) })
		if at < 0 {
			merged = append(merged, row)
			continue
		}
		merged[at] = strings.TrimSuffix(merged[at], " |"+answers) + "; " + name + " |" + answers
	}
	return merged
}

// readAnswer is the answer about a plan of a consumer whose source was read.
func (c consumer) readAnswer(p plan, want wanted) string {
	switch {
	case want.plan.equal(want.all):
		return yes
	case p.because != "":
		return no
	case c.zones == yes && (p.hasHomeless() || p.distribution != ""):
		return notKnown
	case want.hintsNodes:
		return c.nodes
	}
	return c.zones
}
