package routing

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/endpointslice/topologycache"
	"pgregory.net/rapid"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/endpoint"
	"vicinity.dev/vicinity/internal/routing/hints"
	"vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/topology"
)

// The tests of this file compare our decisions with Kubernetes' own functions. Intended differences have a reason.

// drawNodes makes nodes that may lack a zone, CPU or readiness, or run the control plane.
func drawNodes(t *rapid.T, zones []string) []*corev1.Node {
	var nodes []*corev1.Node
	odd := rapid.IntRange(0, 5).Draw(t, "odd nodes") == 0
	for i := range rapid.IntRange(1, 8).Draw(t, "nodes") {
		n := testNode{name: fmt.Sprintf("n%d", i), zone: rapid.SampledFrom(zones).Draw(t, "zone")}.object()
		milli := rapid.SampledFrom([]int64{500, 1000, 1930, 4000, 15890}).Draw(t, "cpu")
		n.Status.Allocatable[corev1.ResourceCPU] = *resource.NewMilliQuantity(milli, resource.DecimalSI)
		if odd {
			switch rapid.IntRange(0, 5).Draw(t, "oddity") {
			case 0:
				delete(n.Labels, topology.Zone)
			case 1:
				delete(n.Status.Allocatable, corev1.ResourceCPU)
			case 2:
				n.Status.Conditions[0].Status = corev1.ConditionUnknown
			case 3:
				n.Labels[v1alpha1.LabelControlPlane] = ""
			}
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// drawSlices makes slices whose endpoints all have the condition ready. Without it, upstream's Auto takes an endpoint for
// unready, but every proxy and our code take it for ready.
func drawSlices(t *rapid.T, zones []string) []*discoveryv1.EndpointSlice {
	var texts []string
	lost := rapid.IntRange(0, 9).Draw(t, "lost zones") == 0
	for range rapid.IntRange(1, 3).Draw(t, "slices") {
		var words []string
		for range rapid.IntRange(0, 12).Draw(t, "endpoints") {
			word := rapid.SampledFrom(zones).Draw(t, "zone")
			switch rapid.IntRange(0, 6).Draw(t, "kind") {
			case 0:
				word += "!"
			case 1:
				if lost {
					word = "?"
				}
			}
			words = append(words, word)
		}
		texts = append(texts, strings.Join(words, " "))
	}
	eps := slicesOf(texts...)
	for _, slice := range eps {
		for i := range slice.Endpoints {
			slice.Endpoints[i].NodeName = nil // its zone is what the slice says
		}
	}
	return eps
}

// upstreamAuto lets upstream's controller add hints to slices that are all new to it.
func upstreamAuto(nodes []*corev1.Node, eps []*discoveryv1.EndpointSlice) (after []*discoveryv1.EndpointSlice, event *topologycache.EventBuilder) {
	cache := topologycache.NewTopologyCache()
	cache.SetNodes(logr.Discard(), nodes)
	created, updated, events := cache.AddHints(logr.Discard(), &topologycache.SliceInfo{
		ServiceKey: "shop/web", AddressType: discoveryv1.AddressTypeIPv4, ToCreate: deepCopies(eps),
	})
	for _, e := range events {
		event = e
	}
	return append(created, updated...), event
}

// reasons are upstream's words for the rules. Upstream has one sentence for three defects of nodes, because it drops
// all node data at the first defect.
var reasons = map[allocate.Rule]string{
	allocate.RuleNodeNoZone:     topologycache.InsufficientNodeInfo,
	allocate.RuleNodeNoCapacity: topologycache.InsufficientNodeInfo,
	allocate.RuleNoCapacity:     topologycache.InsufficientNodeInfo,
	allocate.RuleOneZone:        topologycache.InsufficientNodeInfo,
	allocate.RuleFewEndpoints:   topologycache.InsufficientNumberOfEndpoints,
	allocate.RuleMinimums:       topologycache.MinAllocationExceedsOverloadThreshold,
	allocate.RuleEndpointNoZone: topologycache.NoZoneSpecified,
}

// hintsByZone counts ready endpoints by the zone that they are hinted to.
func hintsByZone(eps []*discoveryv1.EndpointSlice) map[string]int {
	zones := map[string]int{}
	for _, slice := range eps {
		for i := range slice.Endpoints {
			if e := &slice.Endpoints[i]; endpoint.StateOf(e).IsReady() {
				for _, zone := range hints.Zones(e) {
					zones[zone]++
				}
			}
		}
	}
	return zones
}

func TestAutoAgreesWithUpstream(t *testing.T) {
	rapid.Check(t, autoAgrees)
}

func autoAgrees(t *rapid.T) {
	zones := []string{"a", "b", "c", "d"}[:rapid.IntRange(1, 4).Draw(t, "zones")]
	nodes := drawNodes(t, zones)
	eps := drawSlices(t, zones)
	theirs, event := upstreamAuto(copiesOf(nodes), eps)

	in := inputOf(routedService(mode, "Auto"), nodes, eps)
	in.Settings.TakeOverAuto = true
	d := mustDecide(t, in)
	outcome := d.Families[0].Outcome
	ours := applyStep(eps, d.Hints().Next(eps, false))

	enabled := event != nil && event.Reason == "TopologyAwareHintsEnabled"
	if enabled == outcome.IsBalanced() {
		if outcome.Rule == allocate.RuleNoEndpoints {
			return // upstream asks for one in each zone first, and says so if there is none at all
		}
		t.Fatalf("upstream: %+v; ours: %s by rule %s", event, outcome.State, outcome.Rule)
	}
	if !enabled {
		want, known := reasons[outcome.Rule]
		switch {
		case outcome.Rule == allocate.RuleNoEndpoints:
			// Without nodes, upstream reports the nodes first. Ours reports that no endpoint is ready, which its user can
			// change.
		case !known || !strings.HasPrefix(event.Message, want):
			t.Fatalf("upstream: %q; ours: rule %s, which is %q", event.Message, outcome.Rule, want)
		}
		if n := hintsByZone(ours); len(n) > 0 {
			t.Fatalf("disabled with hints: %v", n)
		}
		return
	}
	upstreamAccepts(t, nodes, ours)
	// Upstream breaks ties by the order of a map, and ours by name: a difference of one endpoint.
	got, want := hintsByZone(ours), hintsByZone(theirs)
	for zone := range want {
		if capacityOf(in, zone) == 0 || upstreamIsShort(nodes, theirs) {
			return // see upstreamIsShort
		}
	}
	for zone, n := range want {
		if got[zone] < n-1 || got[zone] > n+1 {
			t.Fatalf("upstream has %v, ours is %v", want, got)
		}
	}
}

// capacityOf returns the CPU of a zone.
func capacityOf(in Input, zone string) float64 {
	for _, z := range in.Cluster.Region(intent.AutoCapacity(), nil).Zones {
		if z.Name == zone {
			return z.Capacity
		}
	}
	return 0
}

// upstreamAccepts expects upstream to keep our hints, as if it had written them before: no zone exceeds its maximum, and
// each has its minimum.
func upstreamAccepts(t *rapid.T, nodes []*corev1.Node, eps []*discoveryv1.EndpointSlice) {
	t.Helper()
	if upstreamIsShort(nodes, eps) {
		t.Fatalf("upstream finds a zone short in %v", hintsByZone(eps))
	}
	cache := topologycache.NewTopologyCache()
	cache.SetNodes(logr.Discard(), copiesOf(nodes))
	_, updated, _ := cache.AddHints(logr.Discard(), &topologycache.SliceInfo{
		ServiceKey: "shop/web", AddressType: discoveryv1.AddressTypeIPv4, Unchanged: deepCopies(eps),
	})
	if len(updated) > 0 {
		t.Fatalf("upstream would change hints that give zones %v", hintsByZone(eps))
	}
}

// upstreamIsShort reports whether upstream finds a zone below its minimum. Its own hints can have that: it does not
// combine fractions that several zones can spare, and leaves endpoints in zones without nodes unused. Ours repairs both.
func upstreamIsShort(nodes []*corev1.Node, eps []*discoveryv1.EndpointSlice) bool {
	cache := topologycache.NewTopologyCache()
	cache.SetNodes(logr.Discard(), copiesOf(nodes))
	cache.SetHints("shop/web", discoveryv1.AddressTypeIPv4, topologycache.EndpointZoneInfo(hintsByZone(eps)))
	return len(cache.GetOverloadedServices()) > 0
}

func copiesOf(nodes []*corev1.Node) []*corev1.Node {
	var copies []*corev1.Node
	for _, node := range nodes {
		copies = append(copies, node.DeepCopy())
	}
	return copies
}
