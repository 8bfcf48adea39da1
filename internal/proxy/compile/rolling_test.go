package compile

import (
	"fmt"
	"maps"
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
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/topology"
)

// rollingWorld is a Service whose pods are replaced: new pods become ready, old pods terminate, serve until all nodes
// should know, and are removed.
type rollingWorld struct {
	*planWorld
	t     *rapid.T
	nodes []*corev1.Node
	pods  []*rollingPod
	next  int
	hard  bool
	// pools has the endpoints to which nodes send traffic.
	pools map[string][]string
	// synced means that all nodes know the state of the last step.
	synced bool
}

type rollingPod struct {
	address, node string
	leaves        bool
	// known means that all nodes know that it leaves.
	known bool
}

// Pods roll, with controllers that are interrupted at any point. While a pod is ready, no write of a group leads a node to
// another dead endpoint, and no node leads to any after the last write. None refuses connections while an endpoint answers.
// Nodes can lead to dead endpoints after an interruption, if the last ready pod of all has left meanwhile.
func TestRollingPodsAreServed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &rollingWorld{planWorld: drawPlanWorld(t), t: t, nodes: drawCluster(t), pools: map[string][]string{}}
		w.in.Cluster = intent.NewCluster(w.nodes)
		w.add(rapid.IntRange(1, 12).Draw(t, "pods"))
		w.publish()
		w.hard = w.settle(t).Request.Intent.Tiers.Hard()
		w.know()
		w.check("at first")
		for range rapid.IntRange(1, 12).Draw(t, "rounds") {
			w.happen()
			w.publish()
			w.now = w.now.Add(time.Duration(rapid.IntRange(0, 12).Draw(t, "seconds")) * time.Second)
			w.sync()
		}
	})
}

func (w *rollingWorld) add(n int) {
	for range n {
		w.next++
		w.pods = append(w.pods, &rollingPod{address: fmt.Sprintf("10.1.0.%d", w.next), node: w.nodes[rapid.IntRange(0, len(w.nodes)-1).Draw(w.t, "node")].Name})
	}
}

// happen creates pods, terminates pods, and removes them if all nodes know that they terminate.
func (w *rollingWorld) happen() {
	if ready := func(p *rollingPod) bool { return !p.leaves }; w.synced && slices.ContainsFunc(w.pods, ready) {
		w.pods = slices.DeleteFunc(w.pods, func(p *rollingPod) bool { return p.known && rapid.Bool().Draw(w.t, "it goes") })
		w.check("when some pods have gone")
	}
	w.add(rapid.IntRange(0, 4).Draw(w.t, "new pods"))
	for range rapid.IntRange(0, 4).Draw(w.t, "old pods") {
		if i := rapid.IntRange(0, len(w.pods)).Draw(w.t, "pod"); i < len(w.pods) {
			w.pods[i].leaves = true
		}
	}
	w.synced = false
}

// publish writes the slice.
func (w *rollingWorld) publish() {
	slice := sliceOf("s", "")
	for _, p := range w.pods {
		e := sliceEndpoint("1@" + p.node)
		e.Addresses = []string{p.address}
		e.Conditions = discoveryv1.EndpointConditions{Ready: new(!p.leaves), Serving: new(true), Terminating: new(p.leaves)}
		if p.node[0] == '?' {
			e.Zone = nil
		}
		slice.Endpoints = append(slice.Endpoints, e)
	}
	w.in.Slices = []*discoveryv1.EndpointSlice{slice}
}

// sync makes the controller take steps until it is interrupted.
func (w *rollingWorld) sync() {
	w.in.Groups = w.list()
	d, err := routing.Decide(w.in)
	if err != nil {
		w.t.Fatalf("deciding: %v", err)
	}
	w.in.Last = &d
	left := rapid.IntRange(0, 12).Draw(w.t, "writes that succeed")
	for range 20 {
		w.in.Groups = w.list()
		changes := routing.Groups(w.in, d, routing.GroupState{Now: w.now})
		for _, g := range slices.Concat(changes.Create, changes.Update) {
			if left--; left < 0 {
				return
			}
			w.version++
			written := g.DeepCopy()
			if written.Name == "" {
				written.Name = fmt.Sprintf("%s%05d", written.GenerateName, w.version)
			}
			w.groups[written.Name] = written
			w.check("after " + written.Name + " was written")
		}
		for _, g := range changes.Delete {
			if left--; left < 0 {
				return
			}
			delete(w.groups, g.Name)
			w.check("after " + g.Name + " was deleted")
		}
		if !changes.Again {
			w.know()
			w.check("after all writes")
			return
		}
	}
	w.t.Fatalf("the steps do not finish")
}

// know notes that all nodes know all there is.
func (w *rollingWorld) know() {
	w.synced = true
	for _, p := range w.pods {
		p.known = p.leaves
	}
}

// check looks at what each node does.
func (w *rollingWorld) check(when string) {
	serves, ready := map[string]bool{}, false
	for _, p := range w.pods {
		serves[p.address], ready = true, ready || !p.leaves
	}
	for _, node := range w.nodes {
		had, pool := w.pools[node.Name], w.pool(node)
		w.pools[node.Name] = pool
		gone := func(address string) bool { return !serves[address] }
		switch {
		case !w.hard && ready && slices.ContainsFunc(pool, func(address string) bool { return gone(address) && (w.synced || !slices.Contains(had, address)) }):
			w.t.Fatalf("%s: node %s sends traffic to %v, of %+v:\n%s", when, node.Name, pool, serves, w.text())
		case len(pool) > 0:
		case !w.hard && len(serves) > 0 || !slices.ContainsFunc(had, gone) && len(had) > 0:
			w.t.Fatalf("%s: node %s refuses clients of %v, of %v:\n%s", when, node.Name, had, serves, w.text())
		}
	}
}

// pool are the addresses that a node sends traffic to.
func (w *rollingWorld) pool(node *corev1.Node) []string {
	zone := node.Labels[topology.Zone]
	groups := w.seen(zone)
	if len(groups) == 0 {
		return nil // no endpoint serves it
	}
	r := compiledSafely(w.t, Input{Service: w.in.Service, Groups: groups}, Options{Node: Node{Name: node.Name, Zone: zone, Labels: node.Labels}})
	var pool []string
	for _, target := range r.Families[0].Ports[0].Cluster {
		pool = append(pool, target.Addr().String())
	}
	return pool
}

// planWorld is a Service with a plan, and the groups that were written for it.
type planWorld struct {
	in      routing.Input
	now     time.Time
	groups  map[string]*v1alpha1.EndpointGroup
	version int
}

// wishes has the requests of Services. The last two follow policies.
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

func (w *planWorld) text() string {
	var b strings.Builder
	for _, g := range w.list() {
		fmt.Fprintf(&b, "%s %+v %v\n", g.Name, g.Spec, g.Labels)
	}
	return b.String()
}
