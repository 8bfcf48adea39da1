package routing

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing/hints"
	"vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/routing/stock"
	"vicinity.dev/vicinity/internal/topology"
)

// hintScene is a Service whose endpoints, annotations and nodes change at random. Its slices have the hints of the last
// decision. It has groups while vicinity-proxy serves it.
type hintScene struct {
	*groupWorld
	t     *rapid.T
	nodes []*corev1.Node
	next  int // the place of the next endpoint
}

var hintAnnotations = []map[string]string{
	{sameZone: v1alpha1.Prefer},
	{sameZone: v1alpha1.Prefer, v1alpha1.AnnotationSameNode: v1alpha1.Prefer},
	{sameZone: v1alpha1.Prefer, v1alpha1.AnnotationSameRegion: v1alpha1.Prefer},
	{sameZone: v1alpha1.Prefer, v1alpha1.AnnotationSameNode: v1alpha1.Prefer, v1alpha1.AnnotationSameRegion: v1alpha1.Prefer},
	{mode: "vicinity.dev/drawn"},
	{mode: "vicinity.dev/drawn", v1alpha1.AnnotationProxy: "true"},
	{sameZone: v1alpha1.Prefer, v1alpha1.AnnotationProxy: "true"},
	{keys: "rack,topology.kubernetes.io/zone,*"},
	{keys: "rack,topology.kubernetes.io/zone,topology.kubernetes.io/region,*"},
	{v1alpha1.AnnotationSameNode: v1alpha1.Prefer},
	{sameZone: v1alpha1.Require},
	{mode: "Auto"},
	{},
}

func newHintScene(t *rapid.T) *hintScene {
	s := &hintScene{t: t, groupWorld: newGroupWorld(t, inputOf(routedService(), nil, slicesOf("", "")))}
	s.in.Slices[1].AddressType = rapid.SampledFrom([]discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}).Draw(t, "family")
	s.in.Settings.TakeOverAuto = rapid.Bool().Draw(t, "take over Auto")
	s.in.Policies = []*v1alpha1.RoutingPolicy{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "drawn"}, Spec: drawPolicy(t)}}
	s.drawNodes()
	s.annotate()
	return s
}

func drawPolicy(t *rapid.T) v1alpha1.RoutingPolicySpec {
	var spec v1alpha1.RoutingPolicySpec
	spec.Mode = rapid.SampledFrom([]v1alpha1.Mode{"", v1alpha1.Prefer, v1alpha1.Require, v1alpha1.Balanced}).Draw(t, "mode")
	spec.Level = rapid.SampledFrom([]v1alpha1.Level{"", v1alpha1.Zone, v1alpha1.Node, v1alpha1.Region}).Draw(t, "level")
	spec.Algorithm = rapid.SampledFrom([]v1alpha1.Algorithm{"", "optimal", "flow", "local", "local-shared", "local-weighted"}).Draw(t, "algorithm")
	spec.OverloadThreshold = rapid.SampledFrom([]string{"", "10%", "100%", "300%", "1%"}).Draw(t, "threshold")
	spec.Capacity.Type = rapid.SampledFrom([]v1alpha1.CapacityType{"", v1alpha1.CapacityCPU}).Draw(t, "capacity")
	spec.NodeSelector = rapid.SampledFrom([]*metav1.LabelSelector{nil, nil, {MatchLabels: map[string]string{"rack": "r1"}}}).Draw(t, "nodes that count")
	spec.Selector = rapid.SampledFrom([]*metav1.LabelSelector{nil, nil, {}}).Draw(t, "selector")
	return spec
}

func (s *hintScene) drawNodes() {
	s.nodes = drawNodes(s.t, []string{"ea", "eb", "wc"})
	for _, node := range s.nodes {
		node.Labels["rack"] = rapid.SampledFrom([]string{"r1", "r2", "r3"}).Draw(s.t, "rack")
		if zone, found := node.Labels[topology.Zone]; found {
			node.Labels[topology.Region] = regionOf(zone)
		}
	}
	s.in.Cluster = intent.NewCluster(s.nodes)
}

func (s *hintScene) annotate() {
	service := s.in.Service.DeepCopy()
	service.Labels, service.Annotations = map[string]string{}, rapid.SampledFrom(hintAnnotations).Draw(s.t, "wish")
	if service.Annotations[v1alpha1.AnnotationProxy] != "" {
		service.Labels[v1alpha1.LabelServiceProxyName] = v1alpha1.ServiceProxyName
	}
	service.Spec.TrafficDistribution = rapid.SampledFrom([]*string{nil, nil, new(corev1.ServiceTrafficDistributionPreferSameZone)}).Draw(s.t, "distribution")
	s.in.Service = service
}

// changeOne changes the annotations, the nodes or some endpoints.
func (s *hintScene) changeOne() {
	s.in.Slices = deepCopies(s.in.Slices)
	slice := s.in.Slices[rapid.IntRange(0, 1).Draw(s.t, "slice")]
	some := len(slice.Endpoints) > 0
	switch what := rapid.SampledFrom([]string{"add", "add", "zone", "flip", "remove", "wish", "nodes"}).Draw(s.t, "change"); {
	case what == "wish":
		s.annotate()
	case what == "nodes":
		s.drawNodes()
	case what == "zone" && some: // all of it fails or is back
		zone, ready := rapid.SampledFrom([]string{"ea", "eb", "wc"}).Draw(s.t, "zone"), rapid.Bool().Draw(s.t, "ready")
		for i := range slice.Endpoints {
			if e := &slice.Endpoints[i]; s.in.Cluster.ZoneOf(e) == zone {
				e.Conditions = discoveryv1.EndpointConditions{Ready: &ready}
			}
		}
	case what == "flip" && some:
		slice.Endpoints[rapid.IntRange(0, len(slice.Endpoints)-1).Draw(s.t, "endpoint")].Conditions = rapid.SampledFrom([]discoveryv1.EndpointConditions{
			{}, {Ready: new(false)}, {Ready: new(true)}, {Ready: new(false), Serving: new(true), Terminating: new(true)},
		}).Draw(s.t, "conditions")
	case what == "remove" && some:
		at := rapid.IntRange(0, len(slice.Endpoints)-1).Draw(s.t, "endpoint")
		slice.Endpoints = slices.Delete(slice.Endpoints, at, at+1)
	default:
		s.add(slice)
	}
}

func (s *hintScene) add(slice *discoveryv1.EndpointSlice) {
	words := []string{"?"}
	for _, node := range s.nodes {
		words = append(words, cmp.Or(node.Labels[topology.Zone], "?")+"@"+node.Name)
	}
	words = append(words, "ea@unknown", "gone@unknown")
	for range rapid.IntRange(1, 8).Draw(s.t, "endpoints") {
		slice.Endpoints = append(slice.Endpoints, endpointsIn(s.next, rapid.SampledFrom(words).Draw(s.t, "place"))...)
		s.next++
	}
}

// deliver applies a decision, and remembers it as the controller does.
func (s *hintScene) deliver(d Decision) {
	switch d.Delivery {
	case allocate.DeliveryNone:
		s.in.Slices = applyStep(s.in.Slices, hints.Unroute(s.in.Slices))
	case allocate.DeliveryGroups:
		s.settle(d, GroupState{})
	case allocate.DeliveryHints:
		clear(s.groups)
		for range 2 { // the second step takes the held zones
			s.in.Slices = applyStep(s.in.Slices, d.Hints().Next(s.in.Slices, false))
		}
		for _, slice := range s.in.Slices {
			checkValid(s.t, slice)
		}
	}
	s.in.Last = nil
	if d.Delivery != allocate.DeliveryNone {
		s.in.Last = d.Essence()
	}
	s.in.Service = s.in.Service.DeepCopy()
	s.in.Service.Status.Conditions = []metav1.Condition{d.Condition()}
}

// After any changes of a Service, delivered hints leave nothing to do, kube-proxy follows them as the outcome says, and
// new plans on demand make nothing worse.
func TestHintsFollowDecisions(t *testing.T) {
	for range 10 { // some combinations are one in a thousand
		rapid.Check(t, func(t *rapid.T) { newHintScene(t).runChanges() })
	}
}

// runChanges changes the Service several times, and checks each decision.
func (s *hintScene) runChanges() {
	for range rapid.IntRange(1, 12).Draw(s.t, "changes") {
		s.changeOne()
		if rapid.IntRange(0, 4).Draw(s.t, "restart") == 0 {
			s.in.Last = nil
		}
		d := mustDecide(s.t, s.input())
		s.deliver(d)
		if d.Delivery != allocate.DeliveryHints {
			continue
		}
		s.checkRepeated(d)
		s.checkTraffic(d)
		if rapid.Bool().Draw(s.t, "renew") {
			s.renew(d)
		}
	}
}

// checkRepeated decides again, with the last decision and as after a restart.
func (s *hintScene) checkRepeated(d Decision) {
	s.checkSame("decided again", d, mustDecide(s.t, s.input()))
	if s.isInSlices(d) {
		in := s.input()
		in.Last = nil
		s.checkSame("decided after a restart", d, mustDecide(s.t, in))
	}
}

// isInSlices reports whether a starting controller can read the plan in force from slices. It cannot if the plan
// divides nothing or is not delivered.
func (s *hintScene) isInSlices(d Decision) bool {
	return !d.Undelivered && !slices.ContainsFunc(d.Families, func(f FamilyDecision) bool { return f.Outcome.Undivided })
}

// checkSame expects a second decision to change nothing.
func (s *hintScene) checkSame(when string, d, again Decision) {
	if writes := len(again.Hints().Next(s.in.Slices, false).Writes); writes > 0 {
		s.t.Fatalf("%s: %d more writes; from\n%sto\n%s", when, writes, s.show(d), s.show(again))
	}
	if d.IsReported() != again.IsReported() || d.Condition() != again.Condition() {
		s.t.Fatalf("%s: another condition; from\n%sto\n%s", when, s.show(d), s.show(again))
	}
}

// traffic returns the figures of the traffic that kube-proxy sends with these slices, by family.
func (s *hintScene) traffic(d Decision) map[corev1.IPFamily]allocate.Figures {
	eps := deepCopies(s.in.Slices)
	for _, slice := range eps {
		for i := range slice.Endpoints {
			slice.Endpoints[i].Zone = new(s.in.Cluster.ZoneOf(&slice.Endpoints[i])) // the node knows better
		}
	}
	seen := map[corev1.IPFamily]allocate.Figures{}
	for _, port := range stock.Ports(eps) {
		_, seen[port.Family] = port.Index().View(stock.Clients(s.in.Cluster, d.Request.Capacity))
	}
	return seen
}

// checkTraffic compares the predicted traffic with the traffic of kube-proxy.
func (s *hintScene) checkTraffic(d Decision) {
	if d.Undelivered || len(stock.Clients(s.in.Cluster, d.Request.Capacity)) == 0 {
		return
	}
	seen := s.traffic(d)
	for i := range d.Families {
		f := &d.Families[i]
		predicted, seen := f.Outcome.Figures, seen[f.Family]
		if len(f.Endpoints) > 0 && (seen.Overload > predicted.Overload+1e-6 || math.Abs(seen.InZone-predicted.InZone) > 1e-6) {
			s.t.Fatalf("proxies make of %s %+v; of\n%s", f.Family, seen, s.show(d))
		}
		if bound := d.Request.Intent.Bound; bound != nil && f.Outcome.State == allocate.Allocated && f.Outcome.Rule != allocate.RuleTiers && seen.Overload > bound.OverloadThreshold+1e-6 {
			s.t.Fatalf("the overload of %s is %g; of\n%s", f.Family, seen.Overload, s.show(d))
		}
	}
}

// renew asks for new plans until there is none.
func (s *hintScene) renew(kept Decision) {
	for range 3 {
		in := s.input()
		in.Renew = true
		d := mustDecide(s.t, in)
		if !d.HasRule(allocate.RuleRenewed) {
			s.checkSame("asked for new plans, without any", kept, d)
			return
		}
		from, before := s.show(kept), s.traffic(kept)
		s.deliver(d)
		after, weights := s.traffic(d), allocate.DefaultWeights()
		for _, f := range d.Families {
			if f.Outcome.Rule == allocate.RuleRenewed && weights.Score(after[f.Family], 1) < weights.Score(before[f.Family], 1)-1e-6 {
				s.t.Fatalf("the new plan of %s is worse: %+v instead of %+v; from\n%sto\n%s", f.Family, after[f.Family], before[f.Family], from, s.show(d))
			}
		}
		kept = d
		s.checkRepeated(kept)
		s.checkTraffic(kept)
	}
	s.t.Fatalf("new plans do not end; the last is\n%s", s.show(kept))
}

// show returns the scene and a decision about it as text.
func (s *hintScene) show(d Decision) string {
	var b strings.Builder
	fmt.Fprintf(&b, "asks %v distribution %v: tiers %v bound %+v\n", s.in.Service.Annotations, s.in.Service.Spec.TrafficDistribution != nil, d.Request.Intent.Tiers, d.Request.Intent.Bound)
	for _, n := range s.nodes {
		_, controlPlane := n.Labels[v1alpha1.LabelControlPlane]
		fmt.Fprintf(&b, "  node %s zone %q %s cpu %s ready %s control plane %t\n", n.Name, n.Labels[topology.Zone], n.Labels["rack"], n.Status.Allocatable.Cpu(), n.Status.Conditions[0].Status, controlPlane)
	}
	for _, slice := range s.in.Slices {
		fmt.Fprintf(&b, "  %s:", slice.AddressType)
		words := hintWords(slice.Endpoints)
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			mark := map[bool]string{false: "!"}[e.Conditions.Ready == nil || *e.Conditions.Ready] + map[bool]string{true: "-"}[e.Conditions.Terminating != nil && *e.Conditions.Terminating]
			fmt.Fprintf(&b, " %s@%s%s=%s", s.in.Cluster.ZoneOf(e), *cmp.Or(e.NodeName, new("")), mark, words[i])
		}
		b.WriteString("\n")
	}
	for _, f := range d.Families {
		fmt.Fprintf(&b, "  %s %s %s undivided %t %+v\n", f.Family, stateWords[f.Outcome.State], f.Outcome.Rule, f.Outcome.Undivided, f.Outcome.Figures)
	}
	condition := d.Condition()
	fmt.Fprintf(&b, "  %s %s: %s\n", condition.Status, condition.Reason, condition.Message)
	return b.String()
}
