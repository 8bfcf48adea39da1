package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/inspect"
)

// The size of a large cluster.
const (
	manyNodes    = 5000
	manyServices = 10000
	manyBudgets  = 2000
	manyZones    = 6
)

// newLarge is a console with the objects of a large cluster.
func newLarge(t testing.TB) *world {
	t.Helper()
	w := newWorld(t)
	w.console = newConsole(Options{Typed: w.typed, Dynamic: w.dynamic, Cluster: w.answers, Server: "https://cluster.test"})
	for _, k := range w.watcher.kinds {
		w.watcher.stores[k.name] = cache.NewStore(cache.MetaNamespaceKeyFunc)
		w.watcher.synced[k.name] = func() bool { return true }
	}
	add := func(kind string, object any) {
		if err := w.watcher.stores[kind].Add(object); err != nil {
			t.Fatal(err)
		}
	}
	zone := func(i int) string { return fmt.Sprintf("zone-%d", i%manyZones) }
	for i := range manyNodes {
		add(inspect.KindNodes, aNode(fmt.Sprintf("node-%d", i), zone(i), i%100 != 0))
	}
	add(kindDeployments, aController())
	for i := range manyServices {
		namespace, name := fmt.Sprintf("team-%d", i%200), fmt.Sprintf("service-%d", i)
		var annotations map[string]string
		if i%2 == 0 {
			annotations = prefer
		}
		add(kindServices, aService(namespace, name, annotations))
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
			AddressType: discoveryv1.AddressTypeIPv4,
		}
		endpoints := 12
		if i == 0 {
			endpoints = 5000
		}
		for e := range endpoints {
			node, in := fmt.Sprintf("node-%d", (i+e)%manyNodes), zone(i+e)
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{fmt.Sprintf("10.%d.%d.%d", i%250, e/250, e%250)}, NodeName: &node, Zone: &in,
				TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: fmt.Sprintf("%s-%d", name, e)},
			})
		}
		add(inspect.KindSlices, slice)
	}
	for i := range manyBudgets {
		budget := &v1alpha1.TopologyDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("team-%d", i%200), Name: fmt.Sprintf("budget-%d", i)}}
		for d := range 100 {
			budget.Status.Domains = append(budget.Status.Domains, v1alpha1.DomainStatus{Domain: fmt.Sprintf("rack-%d", d), Allowed: 1})
		}
		add(inspect.KindBudgets, budget)
	}
	w.watcher.wake(func(c *change) { c.everything, c.nodes, c.isReachable, c.disruption = true, true, true, true })
	w.watcher.refresh()
	return w
}

// page returns a page as a browser gets it.
func (w *world) page(t testing.TB, handler http.Handler, path string) string {
	t.Helper()
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
	if answer.Code != http.StatusOK {
		t.Fatalf("GET %s: %d %s", path, answer.Code, answer.Body)
	}
	return answer.Body.String()
}

// Pages of a large cluster stay small, and cost the cluster next to nothing.
func TestLargeClusters(t *testing.T) {
	before := heapInUse()
	w := newLarge(t)
	t.Logf("what is kept takes %d MiB", (heapInUse()-before)>>20)
	handler := w.routes()
	w.typed.ClearActions()
	w.dynamic.ClearActions()
	const mostBytes, mostElements = 256 << 10, 6000
	for _, path := range []string{
		"/cluster", "/cluster?per=200", "/services", "/services?per=200&sort=overload&order=descending", "/services?q=team-7/", "/services/team-0/service-0",
		"/services/team-2/service-2", "/names", "/disruption", "/whatif", "/whatif?service=team-0/service-0&zone=zone-1", apiPrefix + "/services?per=200",
	} {
		page := w.page(t, handler, path)
		elements := strings.Count(page, "<") - strings.Count(page, "</")
		t.Logf("%s: %d KiB, %d elements", path, len(page)>>10, elements)
		if len(page) > mostBytes || elements > mostElements {
			t.Errorf("%s has %d bytes and %d elements; want at most %d and %d", path, len(page), elements, mostBytes, mostElements)
		}
	}
	holds(t, w.page(t, handler, "/services"), "1 to 50 of 10,000 rows")
	for _, action := range append(w.typed.Actions(), w.dynamic.Actions()...) {
		if action.GetResource().Resource != "leases" {
			t.Errorf("pages read %s from the cluster", action.GetResource().Resource)
		}
	}
	if n := len(w.typed.Actions()); n > 2 {
		t.Errorf("pages make %d requests to the cluster", n)
	}
}

func heapInUse() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// After a change of one Service, only that Service is planned.
func TestChangeOfOneService(t *testing.T) {
	w := newLarge(t)
	before := w.watcher.newest.Load()
	changed := before.service("team-3", "service-3").DeepCopy()
	changed.Annotations = map[string]string{v1alpha1.AnnotationSameZone: v1alpha1.Require}
	if err := w.watcher.stores[kindServices].Update(changed); err != nil {
		t.Fatal(err)
	}
	w.watcher.changed(&w.watcher.kinds[0], before.service("team-3", "service-3"), changed)
	if w.watcher.refresh(); w.watcher.newest.Load() != before {
		t.Fatal("an object of the same version counts as changed")
	}
	changed.ResourceVersion = "2"
	w.watcher.changed(&w.watcher.kinds[0], before.service("team-3", "service-3"), changed)
	w.watcher.refresh()
	after, decided := w.watcher.newest.Load(), 0
	for name, statuses := range after.statuses {
		if &statuses[0] != &before.statuses[name][0] {
			decided++
		}
	}
	if decided != 1 {
		t.Errorf("%d Services were planned, want 1", decided)
	}
}
