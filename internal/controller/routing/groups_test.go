package routing

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/controller/shell"
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

// TestGroupsWhileTheCacheIsBehind delivers again and again before the cache shows what
// was written.
func TestGroupsWhileTheCacheIsBehind(t *testing.T) {
	b := newGroupBench(t)
	for range 3 {
		b.mustDeliver()
	}
	if n := len(b.stored()); n != 2 || b.writes != 2 {
		t.Fatalf("%d groups by %d writes, want 2 by 2", n, b.writes)
	}
	// An endpoint changes, still unseen, and once more when the cache shows the first
	// state of the groups.
	old := b.stored()
	b.in.Slices[0] = b.in.Slices[0].DeepCopy()
	b.in.Slices[0].Endpoints[0].Conditions.Serving = new(false)
	b.mustDeliver()
	b.in.Groups = old
	b.mustDeliver()
	if b.writes != 3 {
		t.Errorf("%d writes, want one more", b.writes)
	}
	b.refresh()
	b.mustDeliver()
	if b.writes != 3 {
		t.Errorf("%d writes, though the cache shows them", b.writes)
	}
	// Somebody deletes a group behind our back.
	if err := b.client.Delete(t.Context(), b.stored()[0]); err != nil {
		t.Fatal(err)
	}
	b.refresh()
	b.mustDeliver()
	if n := len(b.stored()); n != 2 {
		t.Errorf("%d groups after one was deleted", n)
	}
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

// TestGroupWriteFails stops at a failure, and reads again after a conflict.
func TestGroupWriteFails(t *testing.T) {
	b := newGroupBench(t)
	b.fail = errors.New("no")
	if _, err := b.deliver(); err == nil || shell.IsChanged(err) || !strings.Contains(err.Error(), "creating a group of shop/web: no") {
		t.Errorf("error %v", err)
	}
	b.fail = nil
	b.mustDeliver()
	b.refresh()

	// Another writer comes first.
	other := b.stored()[0]
	other.Spec.AnyReady = false
	if err := b.client.Update(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	b.forget()
	b.in.Slices[0] = b.in.Slices[0].DeepCopy()
	for i := range b.in.Slices[0].Endpoints {
		b.in.Slices[0].Endpoints[i].Conditions.Serving = new(false)
	}
	if _, err := b.deliver(); !shell.IsChanged(err) {
		t.Errorf("error %v, want that the object has changed", err)
	}
	b.refresh()
	b.mustDeliver()
	for _, g := range b.stored() {
		if !g.Spec.AnyReady || !g.Spec.Endpoints[0].NotServing {
			t.Errorf("not repaired: %+v", g.Spec)
		}
	}
}

// TestHandOver plays proxies beside the writer.
func TestHandOver(t *testing.T) {
	b := newGroupBench(t)
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	leases := b.writer.proxies.handler()
	lease := func(node, programmed string) {
		leases.Update(t.Context(), event.UpdateEvent{ObjectNew: proxyLeaseOf(node, programmed, b.clock.Now())}, q)
	}
	progress := b.mustDeliver()
	if progress.given || len(progress.notes) != 1 || !strings.Contains(progress.notes[0], "nodes a1, b1") || progress.again != 0 {
		t.Errorf("progress %+v", progress)
	}
	for _, g := range b.stored() {
		if g.Labels[v1alpha1.LabelHandOver] != "true" {
			t.Errorf("group without the label: %v", g.Labels)
		}
	}
	version := func(zone string) string {
		for _, g := range b.stored() {
			if g.Labels[v1alpha1.LabelNotForPrefix+zone] == "" {
				return g.ResourceVersion
			}
		}
		t.Fatalf("no group for zone %s", zone)
		return ""
	}
	// Renewals that change nothing, nodes that nobody asks and all but the last
	// acknowledgement wake nobody.
	for range 100 {
		lease("a1", "")
		lease("stranger", "999")
	}
	lease("a1", version("a"))
	lease("a1", version("a"))
	if q.Len() != 0 {
		t.Errorf("%d Services are woken up", q.Len())
	}
	lease("b1", version("b"))
	if q.Len() != 1 {
		t.Errorf("%d Services are woken up, want the one that waits", q.Len())
	}
	b.mustDeliver()
	b.refresh()
	if b.in.Service.Labels[v1alpha1.LabelServiceProxyName] != v1alpha1.ServiceProxyName {
		t.Fatalf("not handed over: %v", b.in.Service.Labels)
	}
	if progress = b.mustDeliver(); len(b.writer.proxies.served) != 1 || len(progress.notes) > 0 {
		t.Errorf("progress %+v", progress)
	}
	b.silence(q, lease)
	for _, g := range b.stored() {
		if g.Labels[v1alpha1.LabelHandOver] != "" {
			t.Errorf("the label stays: %v", g.Labels)
		}
	}
	// The Service goes back: first the label, groups later.
	b.in.Service = b.in.Service.DeepCopy()
	delete(b.in.Service.Annotations, v1alpha1.AnnotationProxy)
	if err := b.client.Update(t.Context(), b.in.Service); err != nil {
		t.Fatal(err)
	}
	b.refresh()
	if progress = b.mustDeliver(); progress.again != 10*time.Second {
		t.Errorf("progress %+v", progress)
	}
	b.refresh()
	if b.in.Service.Labels[v1alpha1.LabelServiceProxyName] != "" || len(b.in.Groups) != 2 {
		t.Fatalf("labels %v, %d groups", b.in.Service.Labels, len(b.in.Groups))
	}
	b.clock.SetTime(b.clock.Now().Add(9 * time.Second))
	if progress = b.mustDeliver(); progress.again != time.Second || len(b.stored()) != 2 {
		t.Errorf("progress %+v, %d groups", progress, len(b.stored()))
	}
	b.clock.SetTime(b.clock.Now().Add(time.Second))
	b.mustDeliver()
	b.refresh()
	if len(b.in.Groups) != 0 {
		t.Errorf("%d groups are left", len(b.in.Groups))
	}
	b.mustDeliver()
	known := &b.record.groups
	if known.written.Pending() || len(known.memory.Begun) > 0 || !known.memory.Returned.IsZero() {
		t.Errorf("something is remembered: %+v", known)
	}
	if proxies := b.writer.proxies; len(proxies.waiting) > 0 || len(proxies.served) > 0 {
		t.Errorf("something is remembered of proxies: %v, %v", proxies.waiting, proxies.served)
	}
}

// silence has a proxy stop and start again, and looks whether the Service that was
// handed over comes to know.
func (b *groupBench) silence(q queue, lease func(node, programmed string)) {
	b.t.Helper()
	woken := func(when string, want bool) {
		b.t.Helper()
		if err := b.writer.proxies.look(b.t.Context(), q); err != nil {
			b.t.Fatal(err)
		}
		if got := len(drain(q)) > 0; got != want {
			b.t.Errorf("%s: woken %t, want %t", when, got, want)
		}
	}
	pass := func() {
		b.clock.SetTime(b.clock.Now().Add(lookEvery))
		lease("a1", "")
	}
	drain(q)
	b.refresh()
	lease("b1", "")
	woken("all are there", false)
	for range int(v1alpha1.LeaseFresh/lookEvery) - 1 {
		pass()
	}
	woken("b1 may come back still", false)
	pass()
	woken("b1 is silent for the first time", false)
	pass()
	woken("b1 is silent", true)
	if progress := b.mustDeliver(); len(progress.notes) != 1 || !strings.Contains(progress.notes[0], "node b1") {
		b.t.Errorf("progress %+v", progress)
	}
	pass()
	woken("b1 is named", false)
	lease("b1", "")
	woken("b1 speaks", false)
	woken("b1 goes on", true)
	if progress := b.mustDeliver(); len(progress.notes) != 0 {
		b.t.Errorf("progress %+v", progress)
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
