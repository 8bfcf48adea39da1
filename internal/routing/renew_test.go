package routing

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing/hints"
	"vicinity.dev/vicinity/internal/routing/stock"
	"vicinity.dev/vicinity/internal/topology"
)

// hinted writes the zones of each endpoint's hints into a slice, as "a b a+b".
func hinted(slice *discoveryv1.EndpointSlice, words string) {
	for i, word := range strings.Fields(words) {
		slice.Endpoints[i].Hints = hintsFor(strings.Split(word, "+"))
	}
}

// A plan that is better by itself does not take the place of one of which more arrives:
// nodes may make less of it, and hints may not express it.
func TestRenewalIsComparedAsItIsDelivered(t *testing.T) {
	for _, test := range []struct {
		name, endpoints, hints string
		nodes                  map[string]int
		service                []string
	}{
		{
			"nodes use their own endpoints", "a@a-1 a@a-2 a@a-2 c@unknown", "a a a b",
			map[string]int{"a": 2, "b": 1},
			[]string{v1alpha1.AnnotationSameNode, "Prefer", v1alpha1.AnnotationSameZone, "Prefer"},
		},
		{
			"an endpoint without a zone", "? ? ? b c ? ? c b", "c b+c b b+c c b+c b+c b b",
			map[string]int{"b": 1, "c": 3},
			[]string{v1alpha1.AnnotationTopologyMode, "vicinity.dev/local"},
		},
	} {
		in := inputOf(routedService(test.service...), nodesIn(test.nodes), slicesOf(test.endpoints))
		in.Policies = []*v1alpha1.RoutingPolicy{localPolicy()}
		hinted(in.Slices[0], test.hints)
		in.Service.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionTopologyRouting, Reason: stateWords[allocate.Allocated]}}
		before := decided(t, in)
		in.Last = before.Essence()
		if rule := before.Families[0].Outcome.Rule; rule != allocate.RuleKept {
			t.Fatalf("%s: %s", test.name, rule)
		}
		in.Renew = true
		alone, err := decide(in)
		if err != nil {
			t.Fatal(err)
		}
		if rule := alone.Families[0].Outcome.Rule; rule != allocate.RuleRenewed {
			t.Fatalf("%s: by itself %s", test.name, rule)
		}
		after := decided(t, in)
		if rule := after.Families[0].Outcome.Rule; rule != allocate.RuleKept || hintText(in.Slices, after) != hintText(in.Slices, before) {
			t.Errorf("%s: %s, hints %s instead of %s", test.name, rule, hintText(in.Slices, after), hintText(in.Slices, before))
		}
	}
}

// Both sides of what a renewal says are of what nodes make of the plans.
func TestRenewalCountsNodesOnBothSides(t *testing.T) {
	in := inputOf(routedService(v1alpha1.AnnotationSameNode, "Prefer", v1alpha1.AnnotationSameZone, "Prefer"),
		nodesIn(map[string]int{"a": 2, "b": 2, "c": 2}), slicesOf("a@a-1 a@a-2 a@a-1 a@a-2 b@b-1 b@b-2 b@b-1 b@b-2 c@c-1 c@c-2 c@c-1 c@c-2"))
	hinted(in.Slices[0], "b a a a b b b b c c c c")
	in.Service.Status.Conditions = append(in.Service.Status.Conditions, decided(t, in).Condition())
	kept := decided(t, in).Families[0].Outcome
	in.Renew = true
	d := decided(t, in)
	renewed := d.Families[0].Outcome
	if kept.Rule != allocate.RuleKept || renewed.Rule != allocate.RuleRenewed || renewed.Before != kept.Figures || renewed.Figures.SameNode <= kept.Figures.SameNode {
		t.Errorf("kept by %s %+v, then by %s %+v, before %+v", kept.Rule, kept.Figures, renewed.Rule, renewed.Figures, renewed.Before)
	}
	d.LeaveOutNodes()
	if zones := d.Families[0].Outcome; zones.Before.SameNode != 0 || zones.Figures.SameNode != 0 || zones.Before == renewed.Before {
		t.Errorf("without nodes %+v, before %+v", zones.Figures, zones.Before)
	}
}

// Weights that vicinity-proxy carried are nothing that hints could keep: of a Service that
// kube-proxy gets back the plan is made anew, and proxies do what is said of it.
func TestHintsAfterWeights(t *testing.T) {
	for _, endpoints := range []string{"a b c c c c", "a a a a b b b b c c c c c c", "a a a a a a a b b b c c", "a a a a a a b b b b c c"} {
		for _, restarted := range []bool{false, true} {
			service := routedService(sameZone, "Prefer", v1alpha1.AnnotationProxy, "true")
			service.Labels = map[string]string{v1alpha1.LabelServiceProxyName: v1alpha1.ServiceProxyName}
			w := newGroupWorld(t, inputOf(service, nodesIn(map[string]int{"a": 2, "b": 2, "c": 2}), slicesOf(endpoints)))
			d := w.decide()
			w.settle(d, GroupState{})
			in := w.input()
			in.Service = service.DeepCopy()
			delete(in.Service.Annotations, v1alpha1.AnnotationProxy)
			in.Service.Status.Conditions = append(in.Service.Status.Conditions, d.Condition())
			if in.Last = d.Essence(); restarted {
				in.Last = nil
			}
			back := decided(t, in)
			after := carriedOut(in.Slices, back.Hints().Next(in.Slices, false))
			said := back.Families[0].Outcome.Figures
			_, seen := stock.Ports(after)[0].Index().View(stock.Clients(in.Cluster, back.Request.Capacity))
			if seen.Overload > said.Overload+1e-9 || seen.InZone < said.InZone-1e-9 || seen.Overload >= 0.5 {
				t.Errorf("%s, restarted %t: said %+v, in force %+v", endpoints, restarted, said, seen)
			}
		}
	}
}

// A plan that groups carried may leave an endpoint without a zone to nobody. Hints cannot say
// that, so that a plan is made which they can.
func TestPlanThatHintsCannotExpressIsNotKept(t *testing.T) {
	in := inputOf(routedService(sameZone, "Prefer"), nodesIn(map[string]int{"b": 1, "c": 1}), slicesOf("? b b b c c c"))
	carried := FamilyDecision{Family: corev1.IPv4Protocol, Outcome: allocate.Outcome{State: allocate.Allocated}, Assigned: map[string]allocate.ConsumerSet{}}
	for i := range in.Slices[0].Endpoints {
		e := &in.Slices[0].Endpoints[i]
		carried.Assigned[e.Addresses[0]] = allocate.NewConsumerSet(in.Cluster.ZoneOf(e))
	}
	in.Last = &Decision{Delivery: allocate.DeliveryGroups, Families: []FamilyDecision{carried}}
	d := decided(t, in)
	if d.Undelivered || d.Families[0].Outcome.Rule != allocate.RulePlanned || strings.Contains(hintText(in.Slices, d), "-") {
		t.Errorf("undelivered: %t, %s, hints %s", d.Undelivered, d.Families[0].Outcome.Rule, hintText(in.Slices, d))
	}
}

// What could not be delivered is nothing that the next plan could keep: nobody uses it.
func TestPlanAfterOneThatWasNotDelivered(t *testing.T) {
	in := inputOf(routedService(sameZone, "Prefer", v1alpha1.AnnotationSameRegion, "Require"), nodesIn(map[string]int{"a": 1, "b": 1}), slicesOf("? a a a b b b"))
	d := decided(t, in)
	if !d.Undelivered {
		t.Fatal("hints express a hard region")
	}
	in.Last = d.Essence()
	in.Service = routedService(sameZone, "Prefer")
	in.Service.Status.Conditions = append(in.Service.Status.Conditions, d.Condition())
	after := decided(t, in)
	in.Last = nil
	restarted := decided(t, in)
	if got, want := hintText(in.Slices, after), hintText(in.Slices, restarted); after.Undelivered || got != want {
		t.Errorf("undelivered: %t, hints %s, after a restart %s", after.Undelivered, got, want)
	}
}

// Hints of an endpoint that is leaving stay as they are, whatever has been decided since.
func TestLeavingEndpointsSkipNoNode(t *testing.T) {
	in := inputOf(routedService(v1alpha1.AnnotationSameNode, "Prefer", v1alpha1.AnnotationSameZone, "Prefer"),
		nodesIn(map[string]int{"a": 2, "b": 2}), slicesOf("a@a-1 a@a-2 b@b-1 b@b-2 a@a-1"))
	leaving := &in.Slices[0].Endpoints[4]
	leaving.Conditions = discoveryv1.EndpointConditions{Ready: new(false), Terminating: new(true)}
	leaving.Hints = hintsFor([]string{"a"}, hints.NoNode)
	if skips := skippedBefore(in, corev1.IPv4Protocol, []string{topology.Hostname}); len(skips) > 0 {
		t.Errorf("skipped %v", skips)
	}
}

// A family is renewed whatever becomes of the other one.
func TestRenewalOfOneFamily(t *testing.T) {
	in := inputOf(routedService(v1alpha1.AnnotationTopologyMode, "vicinity.dev/local"), nodesIn(map[string]int{"b": 1, "c": 3}),
		slicesOf("b b b b c c c c c c c c c c c c", "? ? ? b c ? ? c b"))
	in.Policies = []*v1alpha1.RoutingPolicy{localPolicy()}
	in.Slices[1].AddressType = discoveryv1.AddressTypeIPv6
	hinted(in.Slices[0], "c b b b c c c c c c c c c c c c")
	hinted(in.Slices[1], "c b+c b b+c c b+c b+c b b")
	in.Service.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionTopologyRouting, Reason: stateWords[allocate.Allocated]}}
	in.Renew = true
	alone, err := decide(in)
	if err != nil {
		t.Fatal(err)
	}
	d := decided(t, in)
	first, second := d.Families[0].Outcome.Rule, d.Families[1].Outcome.Rule
	if alone.Families[1].Outcome.Rule != allocate.RuleRenewed || first != allocate.RuleRenewed || second != allocate.RuleKept || d.Undelivered ||
		hintText(in.Slices, d) != "b b b b c c c c c c c c c c c c | c b+c b b+c c b+c b+c b b" {
		t.Errorf("by themselves the second %s; the first %s, the second %s, hints %s", alone.Families[1].Outcome.Rule, first, second, hintText(in.Slices, d))
	}
}
