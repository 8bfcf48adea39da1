package compile

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/topology"
	"vicinity.dev/vicinity/internal/translate"
)

// planWorld is a Service with a plan, and the groups that were written for it.
type planWorld struct {
	in      routing.Input
	now     time.Time
	groups  map[string]*v1alpha1.EndpointGroup
	version int
}

// wishes are what Services ask for. The last two follow policies.
var wishes = []map[string]string{
	{},
	{v1alpha1.AnnotationSameZone: v1alpha1.Prefer},
	{v1alpha1.AnnotationSameZone: v1alpha1.Require},
	{v1alpha1.AnnotationSameNode: v1alpha1.Prefer, v1alpha1.AnnotationSameZone: v1alpha1.Prefer},
	{v1alpha1.AnnotationSameNode: v1alpha1.Require},
	{v1alpha1.AnnotationTopologyKeys: "rack,topology.kubernetes.io/zone,*"},
	{v1alpha1.AnnotationTopologyKeys: "rack"},
	{v1alpha1.AnnotationTopologyMode: "vicinity.dev/local-weighted"},
	{v1alpha1.AnnotationTopologyMode: "vicinity.dev/local-opt"},
}

func drawPlanWorld(t *rapid.T) *planWorld {
	service := testService(ours)
	service.UID = "uid"
	service.Annotations = map[string]string{v1alpha1.AnnotationProxy: "true"}
	maps.Copy(service.Annotations, rapid.SampledFrom(wishes).Draw(t, "wish"))
	w := &planWorld{now: time.Unix(1_800_000_000, 0), groups: map[string]*v1alpha1.EndpointGroup{}}
	w.in.Settings = routing.DefaultSettings()
	w.in.Settings.GroupSize = rapid.SampledFrom([]int{1, 3, 100}).Draw(t, "group size")
	w.in.Service = service
	for _, algorithm := range []string{"local-weighted", "local-opt"} {
		w.in.Policies = append(w.in.Policies, &v1alpha1.RoutingPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: algorithm},
			Spec:       v1alpha1.RoutingPolicySpec{Algorithm: v1alpha1.Algorithm(algorithm)},
		})
	}
	return w
}

// drawCluster draws nodes of some zones, and of none. A node is named after its zone.
func drawCluster(t *rapid.T) []*corev1.Node {
	var nodes []*corev1.Node
	for _, zone := range []string{"a", "b", "c", "?"} {
		for i := range rapid.IntRange(1, 4).Draw(t, "nodes of "+zone) {
			name := fmt.Sprintf("%s%d", zone, i+1)
			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
					topology.Hostname: name, topology.Zone: zone, "rack": rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "rack"),
				}},
				Status: corev1.NodeStatus{
					Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")},
					Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
				},
			}
			if zone == "?" {
				delete(node.Labels, topology.Zone)
			}
			if rapid.IntRange(0, 3).Draw(t, "other hostname") == 0 {
				node.Labels[topology.Hostname] = "host-" + name
			}
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// settle takes steps until the groups say all of the plan.
func (w *planWorld) settle(t *rapid.T) routing.Decision {
	w.in.Groups = w.list()
	d, err := routing.Decide(w.in)
	if err != nil {
		t.Fatalf("deciding: %v", err)
	}
	w.in.Last = &d
	for range 50 {
		w.in.Groups = w.list()
		changes := routing.Groups(w.in, d, routing.GroupState{Now: w.now})
		for _, g := range slices.Concat(changes.Create, changes.Update) {
			w.version++
			written := g.DeepCopy()
			if written.Name == "" {
				written.Name = fmt.Sprintf("%s%05d", written.GenerateName, w.version)
			}
			w.groups[written.Name] = written
		}
		for _, g := range changes.Delete {
			delete(w.groups, g.Name)
		}
		switch {
		case changes.Again || changes.Writes() > 0:
		case changes.After > 0:
			w.now = w.now.Add(changes.After)
		default:
			return d
		}
	}
	t.Fatalf("the groups do not settle")
	return d
}

func (w *planWorld) list() []*v1alpha1.EndpointGroup {
	var groups []*v1alpha1.EndpointGroup
	for _, name := range slices.Sorted(maps.Keys(w.groups)) {
		groups = append(groups, w.groups[name])
	}
	return groups
}

// seen are the groups that a node watches.
func (w *planWorld) seen(zone string) []*v1alpha1.EndpointGroup {
	return slices.DeleteFunc(w.list(), func(g *v1alpha1.EndpointGroup) bool {
		_, hidden := g.Labels[v1alpha1.LabelNotForPrefix+zone]
		return hidden && zone != ""
	})
}

// weightsOf are what a plan gives a zone: each ready endpoint that it may use, with what
// it counts. A zone that the plan says nothing of uses all alike.
func weightsOf(d routing.Decision, zone string, hard bool) map[string]float64 {
	f := &d.Families[0]
	weights := map[string]float64{}
	for g := range f.Plan.Groups {
		for _, c := range f.Plan.Groups[g].Consumers {
			for address, set := range f.Assigned {
				if set == f.Plan.ConsumerSet(g) && f.Plan.Zones[c.Zone] == zone && zone != "" {
					weights[address] = c.Weight
				}
			}
		}
	}
	if len(weights) == 0 && (!hard || zone == "") {
		for address := range f.Assigned {
			weights[address] = 1
		}
	}
	return weights
}

// TestNodesFollowThePlan has the controller write groups for plans of all kinds, and
// looks at what each node makes of them.
func TestNodesFollowThePlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawPlanWorld(t)
		cluster := drawCluster(t)
		w.in.Cluster = translate.NewCluster(cluster)
		slice := sliceOf("s", "")
		w.in.Slices = []*discoveryv1.EndpointSlice{slice}
		alive := rapid.SampledFrom([]int{0, 70, 100}).Draw(t, "percent ready")
		for i := range rapid.IntRange(0, 25).Draw(t, "endpoints") {
			word := fmt.Sprintf("%d@%s", i+1, rapid.SampledFrom(cluster).Draw(t, "node").Name)
			if rapid.IntRange(1, 100).Draw(t, "ready") > alive {
				word += rapid.SampledFrom([]string{"!", "-", "~"}).Draw(t, "state")
			}
			e := sliceEndpoint(word)
			if strings.HasPrefix(*e.NodeName, "?") {
				e.Zone = nil
			}
			slice.Endpoints = append(slice.Endpoints, e)
		}
		d := w.settle(t)
		if d.Delivery != allocate.DeliveryGroups {
			t.Fatalf("delivery %s", d.Delivery)
		}
		for _, node := range cluster {
			w.check(t, d, node)
		}
	})
}

// places are the labels of a node, but for those of places that the decision skips.
func (w *planWorld) places(d routing.Decision, node string) topology.Labels {
	labels := maps.Clone(w.in.Cluster.Labels(node))
	if plan := d.Families[0].Nodes; plan != nil {
		for _, skip := range plan.Skips {
			if labels[skip.Key] == skip.Domain {
				delete(labels, skip.Key)
			}
		}
	}
	return labels
}

// check compares what a node sends traffic to with the plan.
func (w *planWorld) check(t *rapid.T, d routing.Decision, node *corev1.Node) {
	zone := node.Labels[topology.Zone]
	options := Options{Node: Node{Name: node.Name, Zone: zone, Labels: node.Labels}}
	r := compiledSafely(t, Input{Service: w.in.Service, Groups: w.seen(zone)}, options)
	port := r.Families[0].Ports[0]

	hard := d.Request.Intent.Tiers.Hard()
	weights := weightsOf(d, zone, hard)
	lastResort := len(d.Families[0].Assigned) == 0
	var candidates []topology.Endpoint
	var addresses []string
	some := !lastResort
	for _, e := range w.in.Slices[0].Endpoints {
		_, ready := weights[e.Addresses[0]]
		serves := lastResort && *e.Conditions.Serving && *e.Conditions.Terminating
		if some = some || serves; ready || serves {
			candidates = append(candidates, topology.Endpoint{Node: w.places(d, *e.NodeName), Ready: true})
			addresses = append(addresses, e.Addresses[0])
		}
	}
	// With a bound the zone has been decided on, and nodes look for what is finer.
	tiers := topology.Tiers(w.list()[0].Spec.Tiers)
	_, near := tiers.Select(node.Labels, candidates)
	want := map[netip.Addr]float64{}
	sum := 0.0
	for _, i := range near {
		weight := weights[addresses[i]]
		if lastResort {
			weight = 1
		}
		want[netip.MustParseAddr(addresses[i])] = weight
		sum += weight
	}
	got := map[netip.Addr]float64{}
	shares := port.Shares()
	for i, target := range port.Cluster {
		got[target.Addr()] += shares[i]
	}
	if hard && !lastResort && len(want) == 0 {
		w.checkLeaving(t, node, tiers, got)
		want = map[netip.Addr]float64{}
		for address := range got {
			want[address] = 1
		}
		sum = float64(len(got))
	}
	for address, weight := range want {
		share := got[address]
		if got[address] == 0 || math.Abs(share-weight/sum) > 0.01 {
			t.Fatalf("node %s sends %.4f of its traffic to %s, it should be %.4f:\n%v\nof\n%s", node.Name, share, address, weight/sum, lines(r), w.text())
		}
	}
	if len(got) != len(want) {
		t.Fatalf("node %s uses %v, it should use %v:\n%s", node.Name, got, want, w.text())
	}
	if unreachable := len(r.Families[0].Unreachable) > 0; unreachable != (hard && some && len(want) == 0) {
		t.Fatalf("node %s: unreachable is %t, of %d:\n%s", node.Name, unreachable, len(want), w.text())
	}
	w.checkLocal(t, node)
}

// checkLeaving looks at what a node uses while nothing is ready that its tiers allow: what
// they allow of that which goes.
func (w *planWorld) checkLeaving(t *rapid.T, node *corev1.Node, tiers topology.Tiers, used map[netip.Addr]float64) {
	for _, e := range w.in.Slices[0].Endpoints {
		address := netip.MustParseAddr(e.Addresses[0])
		if used[address] == 0 {
			continue
		}
		_, near := tiers.Select(node.Labels, []topology.Endpoint{{Node: w.in.Cluster.Labels(*e.NodeName), Ready: true}})
		if *e.Conditions.Ready || !*e.Conditions.Serving || !*e.Conditions.Terminating || len(near) == 0 {
			t.Fatalf("node %s uses %s, which it should not:\n%s", node.Name, address, w.text())
		}
	}
}

// checkLocal compares what is on the node itself.
func (w *planWorld) checkLocal(t *rapid.T, node *corev1.Node) {
	in := Input{Service: w.in.Service.DeepCopy(), Groups: w.seen(node.Labels[topology.Zone])}
	insideLocal(in.Service)
	r := Service(in, Options{Node: Node{Name: node.Name, Zone: node.Labels[topology.Zone], Labels: node.Labels}})
	var ready, leaving, here []string
	for _, e := range w.in.Slices[0].Endpoints {
		if *e.NodeName != node.Name {
			continue
		}
		here = append(here, e.Addresses[0])
		switch {
		case *e.Conditions.Ready:
			ready = append(ready, e.Addresses[0])
		case *e.Conditions.Serving && *e.Conditions.Terminating:
			leaving = append(leaving, e.Addresses[0])
		}
	}
	if len(ready) == 0 {
		ready = leaving
	}
	var got, known []string
	for _, target := range r.Families[0].Ports[0].Local {
		got = append(got, target.Addr().String())
	}
	for _, e := range r.Families[0].Endpoints {
		if e.OnNode {
			known = append(known, e.Address.String())
		}
	}
	for _, list := range [][]string{got, known, ready, here} {
		slices.Sort(list)
	}
	if !slices.Equal(got, ready) || !slices.Equal(known, here) {
		t.Fatalf("node %s keeps traffic on %v, it should be %v; it knows %v there, it should be %v:\n%s", node.Name, got, ready, known, here, w.text())
	}
}

func (w *planWorld) text() string {
	var b strings.Builder
	for _, g := range w.list() {
		fmt.Fprintf(&b, "%s %+v %v\n", g.Name, g.Spec, g.Labels)
	}
	return b.String()
}
