package routing

import (
	"context"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/handover"
	"vicinity.dev/vicinity/internal/topology"
	"vicinity.dev/vicinity/internal/translate"
)

// groupBench is a Service with one endpoint in each of two zones, and a writer of its
// groups.
type groupBench struct {
	t      *testing.T
	client client.WithWatch
	clock  *clocktesting.FakePassiveClock
	writer *groupWriter
	record *record
	in     routing.Input
	// fail, if set, answers a write instead of the API server.
	fail   error
	writes int
}

func newGroupBench(t *testing.T) *groupBench {
	t.Helper()
	b := &groupBench{t: t, clock: clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))}
	var nodes []*corev1.Node
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web-uid", Annotations: map[string]string{
			v1alpha1.AnnotationProxy: "true", v1alpha1.AnnotationSameZone: v1alpha1.Require,
		}},
		Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}},
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: new(int32(80))}},
	}
	builder := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(service)
	for i, zone := range []string{"a", "b"} {
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: zone + "1", Labels: map[string]string{topology.Zone: zone}},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}
		nodes = append(nodes, node)
		builder = builder.WithObjects(node)
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{"10.1.0." + string(rune('1'+i))}, NodeName: &node.Name, Zone: new(zone),
		})
	}
	b.client = builder.WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, o ...client.CreateOption) error {
			return b.write(func() error { return c.Create(ctx, object, o...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, o ...client.UpdateOption) error {
			return b.write(func() error { return c.Update(ctx, object, o...) })
		},
	}).Build()
	b.writer = newGroupWriter(b.client, b.clock, Options{HandBackGrace: 10 * time.Second, ProxyNodes: mustRule(t, "!example.com/virtual")})
	b.forget()
	b.in = routing.Input{Slices: []*discoveryv1.EndpointSlice{slice}, Cluster: translate.NewCluster(nodes), Settings: routing.DefaultSettings()}
	b.refresh()
	return b
}

func (b *groupBench) write(do func() error) error {
	if b.fail != nil {
		return b.fail
	}
	b.writes++
	return do()
}

// forget is what a restart does.
func (b *groupBench) forget() {
	b.record = &record{}
}

// refresh has the cache show what there is.
func (b *groupBench) refresh() {
	b.t.Helper()
	service := &corev1.Service{}
	if err := b.client.Get(b.t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, service); err != nil {
		b.t.Fatal(err)
	}
	b.in.Service = service
	b.in.Groups = b.stored()
}

func (b *groupBench) stored() []*v1alpha1.EndpointGroup {
	b.t.Helper()
	var list v1alpha1.EndpointGroupList
	if err := b.client.List(b.t.Context(), &list); err != nil {
		b.t.Fatal(err)
	}
	return pointers(list.Items)
}

func (b *groupBench) deliver() (groupProgress, error) {
	b.t.Helper()
	in := b.in
	in.Groups = b.record.groups.written.Current(in.Groups, b.clock.Now())
	d, err := routing.Decide(in)
	if err != nil {
		b.t.Fatal(err)
	}
	b.in.Last = &d
	return b.writer.deliver(b.t.Context(), b.record, in, d)
}

func (b *groupBench) mustDeliver() groupProgress {
	b.t.Helper()
	progress, err := b.deliver()
	if err != nil {
		b.t.Fatal(err)
	}
	return progress
}

// A slice that somebody wrote by hand is as good as any: its endpoints are in groups, also an
// address that is a pod's of another namespace.
func TestEndpointsByHandAreInGroups(t *testing.T) {
	b := newGroupBench(t)
	slice := b.in.Slices[0]
	delete(slice.Labels, discoveryv1.LabelManagedBy)
	slice.Endpoints[0].Addresses = []string{"10.9.9.9"}
	slice.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: "bank", Name: "accounts"}
	b.mustDeliver()
	found := false
	for _, group := range b.stored() {
		if group.Namespace != "shop" || group.Spec.Service != "web" {
			t.Errorf("group %s/%s is of Service %s", group.Namespace, group.Name, group.Spec.Service)
		}
		for _, endpoint := range group.Spec.Endpoints {
			found = found || endpoint.Address == "10.9.9.9"
		}
	}
	if !found {
		t.Error("no group has the endpoint")
	}
}

// mustRule is a rule of the nodes that run the proxy.
func mustRule(t *testing.T, selectors ...string) NodeRule {
	t.Helper()
	var rule NodeRule
	for _, selector := range selectors {
		if err := rule.Set(selector); err != nil {
			t.Fatal(err)
		}
	}
	return rule
}

// TestProxiesOfNodes lists the nodes that have to be ready to serve: all whose pods may make
// connections, but for those that run no proxy by rule.
func TestProxiesOfNodes(t *testing.T) {
	b := newGroupBench(t)
	since := metav1.NewTime(b.clock.Now().Add(-time.Hour))
	cordoned := readyNode("c1")
	cordoned.Spec = corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoExecute}}}
	silent := readyNode("d1")
	silent.Status.Conditions[0].Status, silent.Status.Conditions[0].LastTransitionTime = corev1.ConditionUnknown, since
	unknown := readyNode("e1")
	unknown.Status.Conditions, unknown.CreationTimestamp = nil, since
	leaving := readyNode("f1")
	leaving.Finalizers = []string{"example.com/drain"}
	virtual := readyNode("g1")
	virtual.Labels["example.com/virtual"] = "true"
	for _, node := range []*corev1.Node{cordoned, silent, unknown, leaving, virtual} {
		if err := b.client.Create(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.client.Delete(t.Context(), leaving); err != nil {
		t.Fatal(err)
	}
	// A Lease that is old when it is seen first is that of a node which is no more.
	old := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "vicinity-proxy-b1"}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new("b1"), RenewTime: &metav1.MicroTime{Time: b.clock.Now().Add(-time.Minute)},
	}}
	old.Annotations = map[string]string{v1alpha1.AnnotationProgrammed: "7", v1alpha1.AnnotationExcept: "shop/web"}
	b.writer.proxies.observe(old, nil)
	proxies, err := b.writer.proxies.nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range proxies {
		proxies[i].NotReady = proxies[i].NotReady.UTC()
	}
	want := []handover.NodeProxy{
		{Node: "a1", Zone: "a"},
		{Node: "b1", Zone: "b", Seen: b.clock.Now().Add(-time.Minute), Programmed: "7", Except: "shop/web"},
		{Node: "c1", Zone: "a"},
		{Node: "d1", Zone: "a", NotReady: since.UTC()},
		{Node: "e1", Zone: "a", NotReady: since.UTC()},
		{Node: "f1", Zone: "a"},
	}
	if !slices.Equal(proxies, want) {
		t.Errorf("got %+v, want %+v", proxies, want)
	}
	// A clock that is late does not matter once it goes on.
	old = old.DeepCopy()
	old.Spec.RenewTime.Time = old.Spec.RenewTime.Add(time.Second)
	b.writer.proxies.observe(old, nil)
	if proxies, err = b.writer.proxies.nodes(t.Context()); err != nil || !proxies[1].Seen.Equal(b.clock.Now()) {
		t.Errorf("got %+v, %v", proxies, err)
	}
}
