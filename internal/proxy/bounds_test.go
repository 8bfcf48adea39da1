package proxy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/cluster"
	"vicinity.dev/vicinity/internal/proxy/events"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/proxy/view"
)

// bounded is a world whose programmer keeps to bounds.
func bounded(t *testing.T, b view.Bounds) *world {
	w := newWorld(t)
	w.bounds = newBounds(b)
	return w
}

// withExternal gives a Service n external IPs.
func withExternal(service *corev1.Service, n int) *corev1.Service {
	service = service.DeepCopy()
	service.Spec.ExternalIPs = nil
	for i := range n {
		service.Spec.ExternalIPs = append(service.Spec.ExternalIPs, fmt.Sprintf("198.18.%d.%d", i/256, i%256))
	}
	return service
}

// held counts the elements that the kernel has.
func (w *world) held() int {
	n := 0
	for _, table := range w.kernel.tables {
		for _, set := range table.sets {
			n += len(set.elements)
		}
	}
	return n
}

// serves reports whether the kernel has an address of a Service.
func (w *world) serves(address string) bool {
	table := w.kernel.tables[ruleset.IPv4]
	if table == nil {
		return false
	}
	for key := range table.sets["services"].elements {
		if touches(ruleset.Transaction{Changes: []ruleset.Change{{Elements: []ruleset.Element{{Key: key}}}}}, address) {
			return true
		}
	}
	return false
}

// A Service beyond its bound is programmed in part, and its endpoints follow changes. Its groups are not acknowledged.
// Other groups are. Events report the beginning and the end.
func TestServiceBeyondItsBound(t *testing.T) {
	w := bounded(t, view.Bounds{Service: 300, Total: 100_000})
	web, other := inHandOver("web", "10.96.0.1"), inHandOver("other", "10.96.0.2")
	w.put(web, other, handedOver(aGroup("web", "web-1", "10.1.1.1", "10.1.1.2")), handedOver(aGroup("other", "other-1", "10.1.1.9"))) // 1 to 4
	w.right("within its bound")
	if w.version != 4 || len(w.except) > 0 {
		t.Fatalf("%d is acknowledged except %v", w.version, w.except)
	}
	w.put(withExternal(web, 1000), handedOver(aGroup("web", "web-1", "10.1.1.1", "10.1.1.2"))) // 5, 6
	w.put(handedOver(aGroup("other", "other-1", "10.1.1.8")))                                  // 7
	w.run(events.WarnAfter + time.Second)
	if held := w.held(); held > 300+100 {
		t.Errorf("the kernel holds %d elements", held)
	}
	for _, address := range []string{"10.96.0.1", "198.18.0.0"} {
		if !w.serves(address) {
			t.Errorf("%s is not programmed", address)
		}
	}
	if !w.kernel.leads("10.1.1.8") {
		t.Error("another Service is not programmed")
	}
	if w.serves("198.18.3.231") {
		t.Error("the last of 1,000 external IPs is programmed")
	}
	if len(w.except) != 1 || w.except[0].Name != "web" || w.version != 7 {
		t.Errorf("%d is acknowledged except %v, want 7 except web", w.version, w.except)
	}
	if got := testutil.ToFloat64(w.metrics.waiting); got != 1 {
		t.Errorf("%g Services wait", got)
	}
	if got := testutil.ToFloat64(w.metrics.elements.WithLabelValues("IPv4")); got < 100 || got > 400 {
		t.Errorf("the metric has %g elements", got)
	}
	if len(w.events.events) != 1 || !strings.Contains(w.events.events[0], "shop/web Warning TooManyElements: node node-a programs a part of the Service: the whole Service needs 50") ||
		!strings.Contains(w.events.events[0], "--max-service-elements allows 300") {
		t.Errorf("events %q", w.events.events)
	}

	// Endpoints that go leave the kernel, and others take their place.
	w.put(handedOver(aGroup("web", "web-1", "10.1.1.3", "10.1.1.4")))
	w.run(3 * ruleset.Linger)
	if w.kernel.leads("10.1.1.1") || w.kernel.leads("10.1.1.2") || !w.kernel.leads("10.1.1.3") && !w.kernel.leads("10.1.1.4") {
		t.Error("the kernel has the earlier endpoints")
	}

	// A Service that shrinks is programmed at once.
	w.put(withExternal(web, 5))
	w.step(t.Context())
	if !w.serves("198.18.0.4") {
		t.Error("it is not programmed at once")
	}
	w.right("with fewer addresses")
	w.run(2 * events.WarnAfter)
	if len(w.except) > 0 || testutil.ToFloat64(w.metrics.waiting) != 0 {
		t.Errorf("still waiting: %v", w.except)
	}
	if len(w.events.events) != 2 || !strings.Contains(w.events.events[1], "shop/web Normal ElementsProgrammed") {
		t.Errorf("events %q", w.events.events)
	}
	if len(w.bounds.shortages) > 0 {
		t.Errorf("shortages %v", w.bounds.shortages)
	}
}

// If Services of equal size do not all fit, the oldest are served, in any order of arrival. The others are served as
// soon as they fit.
func TestTotalIsGivenByAge(t *testing.T) {
	const services = 20
	each := func() int {
		w := bounded(t, view.Bounds{Total: 1 << 30})
		w.put(aService("s0", "10.96.0.1"), aGroup("s0", "s0-1", "10.1.1.1", "10.1.1.2"))
		w.run(time.Second)
		return w.bounds.used
	}()
	// By name they would be in the other order.
	name := func(i int) string { return fmt.Sprintf("s%d", 99-i) }
	for seed := range uint64(5) {
		w := bounded(t, view.Bounds{Service: 10 * each, Total: 12*each + each/2})
		var all []*corev1.Service
		for i := range services {
			service := aService(name(i), fmt.Sprintf("10.96.0.%d", i+1))
			service.CreationTimestamp = metav1.NewTime(start.Add(time.Duration(i) * time.Second))
			all = append(all, service)
		}
		for _, i := range rand.New(rand.NewPCG(seed, 1)).Perm(services) {
			w.put(all[i], aGroup(all[i].Name, all[i].Name+"-1", fmt.Sprintf("10.1.1.%d", i), fmt.Sprintf("10.1.2.%d", i)))
		}
		served := func() (names []int) {
			for i, service := range all {
				if w.serves(service.Spec.ClusterIP) {
					names = append(names, i)
				}
			}
			return names
		}
		w.run(events.WarnAfter + time.Second)
		if want := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}; !slices.Equal(served(), want) {
			t.Fatalf("served are %v, want %v", served(), want)
		}
		if got := testutil.ToFloat64(w.metrics.waiting); got != services-12 {
			t.Errorf("%g Services wait", got)
		}
		if !strings.Contains(strings.Join(w.events.events, "\n"), "shop/"+name(12)+" Warning TooManyElements: node node-a programs nothing of the Service") {
			t.Errorf("events %q", w.events.events)
		}
		// A Service with enough elements changes freely.
		w.put(aGroup(name(3), name(3)+"-1", "10.1.3.1", "10.1.3.2"))
		w.run(time.Second)
		if !w.kernel.leads("10.1.3.1") {
			t.Error("a Service that has room is not changed")
		}
		// A Service that grows keeps its number of endpoints.
		var many []string
		for i := range 60 {
			many = append(many, fmt.Sprintf("10.1.4.%d", i+1))
		}
		w.put(aGroup(name(4), name(4)+"-1", many...))
		w.run(3 * ruleset.Linger)
		slots := 0
		for _, address := range many {
			if w.kernel.leads(address) {
				slots++
			}
		}
		if slots != 2 || w.kernel.leads("10.1.1.4") {
			t.Errorf("%d endpoints of the larger Service are used, want the same 2", slots)
		}
		// Room is given in the sync that makes it, to the first.
		w.drop(all[0], aGroup(name(0), name(0)+"-1"))
		w.step(t.Context())
		if want := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}; !slices.Equal(served(), want) {
			t.Errorf("served are %v, want %v", served(), want)
		}
		if w.bounds.used > w.bounds.Total {
			t.Errorf("%d elements are granted, there are %d", w.bounds.used, w.bounds.Total)
		}
	}
}

// Without free elements, a Service that gets another port keeps its previous ports, and one that gets another endpoint
// keeps its addresses.
func TestGrowthWithoutRoom(t *testing.T) {
	with := func(ports int, endpoints ...string) (*corev1.Service, *v1alpha1.EndpointGroup) {
		service, group := withExternal(aService("web", "10.96.0.1"), 1), aGroup("web", "web-1", endpoints...)
		service.Spec.Ports, group.Spec.Ports = nil, nil
		for i := range ports {
			name := fmt.Sprintf("p%d", i)
			service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: name, Port: int32(80 + i), Protocol: corev1.ProtocolTCP})
			group.Spec.Ports = append(group.Spec.Ports, v1alpha1.GroupPort{Name: name, Port: int32(8080 + i), Protocol: corev1.ProtocolTCP})
		}
		return service, group
	}
	used := func() int {
		w := bounded(t, view.Bounds{Total: 1 << 30})
		w.put(with(3, "10.1.1.1", "10.1.1.2"))
		w.run(time.Second)
		return w.bounds.used
	}()
	leads := func(w *world) (n int) {
		for i := range 3 {
			if w.kernel.leads(fmt.Sprintf("10.1.1.%d", i+1)) {
				n++
			}
		}
		return n
	}
	w := bounded(t, view.Bounds{Service: 1000, Total: used + 5})
	w.put(with(3, "10.1.1.1", "10.1.1.2"))
	w.run(time.Second)
	w.put(with(4, "10.1.1.1", "10.1.1.2"))
	w.run(3 * ruleset.Linger)
	if !w.serves("10.96.0.1") || leads(w) == 0 {
		t.Errorf("with another port it leads to %d endpoints", leads(w))
	}
	w.put(with(3, "10.1.1.1", "10.1.1.2", "10.1.1.3"))
	w.run(3 * ruleset.Linger)
	if !w.serves("10.96.0.1") || !w.serves("198.18.0.0") || leads(w) < 2 || !w.bounds.waits(cluster.KeyOf(aService("web", ""))) {
		t.Errorf("with another endpoint it leads to %d, and it has its external IP: %t", leads(w), w.serves("198.18.0.0"))
	}
}

// born sets a Service's creation time.
func born(service *corev1.Service, after time.Duration) *corev1.Service {
	service.CreationTimestamp = metav1.NewTime(start.Add(after))
	return service
}

// New Services that do not fit whole get the minimum for all ports at the cluster IP, one after the other, while it
// fits. The next one waits.
func TestNewServicesGetTheMinimum(t *testing.T) {
	const ports = 2
	least := ports * (ruleset.PortCost(0, false, 0, 0) + ruleset.FrontCost(1, false, false))
	w := bounded(t, view.Bounds{Service: 500, Total: 500 + 2*least + least/2})
	w.put(withExternal(aService("first", "10.96.0.9"), 2000), aGroup("first", "first-1", "10.1.1.9"))
	w.run(time.Second)
	for i := range 3 {
		service, group := aService(fmt.Sprintf("new-%d", i), fmt.Sprintf("10.96.0.%d", i)), aGroup(fmt.Sprintf("new-%d", i), fmt.Sprintf("new-%d-1", i), "10.1.1.1", "10.1.1.2")
		service.Spec.ExternalIPs = nil
		for n := range 100 {
			service.Spec.ExternalIPs = append(service.Spec.ExternalIPs, fmt.Sprintf("198.19.%d.%d", i, n))
		}
		service.Spec.Ports, group.Spec.Ports = nil, nil
		for n := range ports {
			service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d", n), Port: int32(80 + n), Protocol: corev1.ProtocolTCP})
			group.Spec.Ports = append(group.Spec.Ports, v1alpha1.GroupPort{Name: fmt.Sprintf("p%d", n), Port: int32(8080 + n), Protocol: corev1.ProtocolTCP})
		}
		w.put(service, group)
		w.run(time.Minute)
	}
	for i := range 3 {
		service := aService(fmt.Sprintf("new-%d", i), "")
		want := map[bool]int{true: least}[i < 2]
		if got := w.bounds.granted[cluster.KeyOf(service)]; got != want || !w.bounds.waits(cluster.KeyOf(service)) {
			t.Errorf("%s has %d elements, want %d; it waits for more: %t", service.Name, got, want, w.bounds.waits(cluster.KeyOf(service)))
		}
		for n := range ports {
			port := w.families[0].table.Programmed()[fmt.Sprintf("shop/%s:p%d", service.Name, n)]
			if (port != nil) != (i < 2) {
				t.Errorf("%s: port %d is programmed: %t", service.Name, n, port != nil)
			} else if port != nil && (len(port.Fronts) != 1 || !port.Fronts[0].ClusterIP || len(port.Cluster) != 1) {
				t.Errorf("%s: port %d is %+v", service.Name, n, port)
			}
		}
	}
}

// Of Services that arrive together, the smallest are served whole while they fit. The first of the others gets its
// minimum if that fits.
func TestOrderOfAStart(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(0, 40), 1, 8).Draw(r, "external IPs")
		ages := rapid.Permutation(sizes).Draw(r, "ages")
		total := rapid.IntRange(50, 1000).Draw(r, "total")
		comes := func(b view.Bounds) *world {
			w := bounded(t, b)
			for i, n := range sizes {
				name := fmt.Sprintf("s%d", i)
				w.put(born(withExternal(aService(name, fmt.Sprintf("10.96.0.%d", i+1)), n), time.Duration(ages[i])*time.Hour), aGroup(name, name+"-1", "10.1.1.1"))
			}
			w.run(time.Second)
			return w
		}
		takes := comes(view.Bounds{Total: 1 << 30}).bounds.granted
		w := comes(view.Bounds{Service: 300, Total: total})
		left, waits := total, false
		for _, wanted := range slices.Sorted(maps.Values(takes)) {
			if wanted = min(wanted, 300); wanted <= left {
				left -= wanted
			} else {
				waits = true
			}
		}
		if least := ruleset.PortCost(0, false, 0, 0) + ruleset.FrontCost(1, false, false); waits && left >= least {
			left -= least
		}
		if w.bounds.room() != left {
			r.Fatalf("of %d for %v, %d remain, want %d: granted are %v", total, takes, w.bounds.room(), left, w.bounds.granted)
		}
		for i := range sizes {
			address, given := fmt.Sprintf("10.96.0.%d", i+1), w.bounds.granted[cluster.KeyOf(aService(fmt.Sprintf("s%d", i), ""))]
			if w.serves(address) != (given > 0) {
				r.Errorf("%s has %d elements, served: %t", address, given, w.serves(address))
			}
		}
		parts := 0
		for name, one := range w.bounds.shortages {
			if one.granted > 0 && one.granted < w.bounds.ForOne(one.wanted) {
				if parts++; parts > 1 {
					r.Errorf("%s has %d of %d, and so has another", name, one.granted, one.wanted)
				}
			}
			for other, given := range w.bounds.granted {
				if wanted := w.bounds.ForOne(one.wanted); one.granted == 0 && given > wanted {
					r.Errorf("%s waits for %d, and %s has %d", name, wanted, other, given)
				}
			}
		}
	})
}

// Whatever Services are added, changed and removed: granted elements stay within the bound, the kernel has no more than
// the granted ones, no Service that fits waits, and in the end all that fit are served.
func TestBoundsHold(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := bounded(t, view.Bounds{Service: 400, Total: 1000})
		w.put(aService("fixed", "10.96.9.9"))
		w.run(time.Second)
		for range rapid.IntRange(1, 25).Draw(r, "changes") {
			n := rapid.IntRange(0, 5).Draw(r, "Service")
			name := fmt.Sprintf("s%d", n)
			if rapid.IntRange(0, 4).Draw(r, "gone") == 0 {
				w.drop(aService(name, ""), aGroup(name, name+"-1"))
			} else {
				var addresses []string
				for i := range rapid.IntRange(0, 30).Draw(r, "endpoints") {
					addresses = append(addresses, fmt.Sprintf("10.1.%d.%d", n, i))
				}
				service := withExternal(aService(name, fmt.Sprintf("10.96.0.%d", n)), 0)
				for i := range rapid.IntRange(0, 12).Draw(r, "external") {
					service.Spec.ExternalIPs = append(service.Spec.ExternalIPs, fmt.Sprintf("198.18.%d.%d", n, i))
				}
				service.CreationTimestamp = metav1.NewTime(start.Add(time.Duration(n) * time.Second))
				w.put(service, aGroup(name, name+"-1", addresses...))
			}
			w.run(3 * ruleset.Linger)
			sum, room := 0, w.bounds.room()
			for _, given := range w.bounds.granted {
				sum += given
			}
			if sum != w.bounds.used || sum > 1000 {
				r.Fatalf("Services get %d elements, %d in all, of 1000", sum, w.bounds.used)
			}
			if held := w.held(); held > sum {
				r.Fatalf("the kernel holds %d elements, and Services may have %d", held, sum)
			}
			for name, one := range w.bounds.shortages {
				if more := w.bounds.ForOne(one.wanted) - one.granted; more > 0 && more <= room {
					r.Fatalf("%s waits for %d elements, and %d are left", name, more, room)
				}
			}
		}
	})
}
