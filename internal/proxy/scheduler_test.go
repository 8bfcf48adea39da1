package proxy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/cluster"
	"vicinity.dev/vicinity/internal/proxy/events"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/proxy/view"
)

// A Service that changes constantly and takes long to program does not delay others: their changes are in the next
// sync, without it. It gets at most a quarter of the time, and has its turn.
func TestFlappingServicesAreDelayed(t *testing.T) {
	const each = 500 * time.Millisecond
	w := newWorld(t)
	flapping := func(n int) []string {
		var addresses []string
		for i := range 100 {
			addresses = append(addresses, fmt.Sprintf("10.2.%d.%d", n%250, i))
		}
		return addresses
	}
	quietly := func(n int) string { return fmt.Sprintf("10.4.%d.%d", n/250, n%250) }
	w.put(aService("flapper", "10.96.0.1"), aService("quiet", "10.96.0.2"), aGroup("flapper", "flapper-1", flapping(0)...), aGroup("quiet", "quiet-1", "10.1.1.1"))
	w.run(time.Minute)
	var busy time.Duration
	quiet := 0
	var waiting time.Time
	var longest time.Duration
	changeQuietly := func() {
		if waiting.IsZero() {
			quiet++
			waiting = w.clock.Now()
			w.put(aGroup("quiet", "quiet-1", quietly(quiet)))
		}
	}
	// The kernel is slow for large writes. A quiet Service changes when such a write begins.
	w.kernel.refuses = func(transaction ruleset.Transaction) error {
		w.kernel.takes = func() {}
		if sizeOf(transaction) > 50 {
			w.kernel.takes = func() {
				changeQuietly()
				w.clock.Step(each)
				busy += each
			}
		}
		return nil
	}
	began := w.clock.Now()
	n := 0
	for w.clock.Since(began) < time.Minute {
		n++
		w.put(aGroup("flapper", "flapper-1", flapping(n)...))
		if n%70 == 0 {
			changeQuietly()
		}
		before := w.clock.Now()
		w.step(t.Context())
		if !waiting.IsZero() && w.kernel.leads(quietly(quiet)) {
			waited := w.clock.Since(waiting)
			if waited > 2*each+w.scheduler.period {
				t.Errorf("a quiet change waited for %s", waited)
			}
			longest = max(longest, waited)
			waiting = time.Time{}
		}
		if w.clock.Now().Equal(before) {
			w.clock.Step(time.Millisecond)
		}
	}
	if longest < 2*each {
		t.Errorf("a quiet change waited for %s at most: none came as a write began", longest)
	}
	if quiet < 100 {
		t.Errorf("there were %d quiet changes: this test shows nothing", quiet)
	}
	if busy > time.Minute/4+each {
		t.Errorf("the flapping Service took %s of a minute", busy)
	}
	if busy < time.Minute/8 {
		t.Errorf("the flapping Service took %s of a minute: it was not written when due", busy)
	}
	// It is not acknowledged before its write, which needs no further change.
	w.put(aGroup("flapper", "flapper-1", "10.3.0.1"))
	w.run(maxServiceDelay)
	if !w.kernel.leads("10.3.0.1") {
		t.Error("the last change is not programmed")
	}
}

// slowToCompile is a log that lets time pass when a Service with parts that make no sense is
// compiled.
func (w *world) slowToCompile(took time.Duration) logr.Logger {
	return funcr.New(func(_, line string) {
		if strings.Contains(line, "Left out parts of a Service") {
			w.clock.Step(took)
		}
	}, funcr.Options{})
}

// A delayed Service is acknowledged after its write.
func TestDelayedServicesAreNotAcknowledged(t *testing.T) {
	w := newWorld(t)
	w.run(time.Second)
	w.kernel.takes = func() { w.clock.Step(time.Second) }
	w.put(inHandOver("web", "10.96.0.1"), handedOver(aGroup("web", "web-1", "10.1.1.1"))) // 1, 2
	w.step(t.Context())
	w.put(handedOver(aGroup("web", "web-1", "10.1.1.2"))) // 3
	w.clock.Step(1500 * time.Millisecond)
	w.step(t.Context())
	if w.version != 2 || len(w.except) != 1 || w.kernel.leads("10.1.1.2") {
		t.Errorf("while it is delayed, %d is acknowledged except %v", w.version, w.except)
	}
	w.run(3 * time.Second)
	if w.version != 3 || len(w.except) > 0 || !w.kernel.leads("10.1.1.2") {
		t.Errorf("after its write, %d is acknowledged except %v", w.version, w.except)
	}
	// One that goes does not wait: another may have its address.
	w.put(handedOver(aGroup("web", "web-1", "10.1.1.3")))
	w.run(20 * time.Millisecond)
	w.put(handedOver(aGroup("web", "web-1", "10.1.1.4")))
	w.drop(inHandOver("web", "10.96.0.1"))
	w.step(t.Context())
	w.run(1100 * time.Millisecond)
	w.step(t.Context())
	if w.serves("10.96.0.1") {
		t.Error("a deleted Service is served")
	}
}

// flapper is the i-th Service of 50 addresses, with the n-th of its sets of 20 endpoints.
func flapper(i, n int) (*corev1.Service, *v1alpha1.EndpointGroup) {
	name := fmt.Sprintf("s%d", i)
	service := withExternal(aService(name, fmt.Sprintf("10.96.1.%d", i+1)), 50)
	for j := range service.Spec.ExternalIPs {
		service.Spec.ExternalIPs[j] = fmt.Sprintf("198.18.%d.%d", i, j)
	}
	var endpoints []string
	for j := range 20 {
		endpoints = append(endpoints, fmt.Sprintf("10.2.%d.%d", n, j))
	}
	return service, aGroup(name, name+"-1", endpoints...)
}

// Large Services that change together are programmed one after the other, so that no transaction exceeds the memory. A
// small one does not wait.
func TestLargeServicesAreWrittenAlone(t *testing.T) {
	const large = 3
	w := bounded(t, view.Bounds{Total: 1 << 20})
	service, group := flapper(0, 0)
	w.put(service, group)
	w.run(time.Second)
	each := w.bounds.used
	w = bounded(t, view.Bounds{Service: each, Total: (large + 1) * each})
	var sizes []int
	w.kernel.refuses = func(transaction ruleset.Transaction) error {
		sizes = append(sizes, sizeOf(transaction))
		return nil
	}
	change := func(n int) {
		for i := range large {
			service, group := flapper(i, n)
			w.put(service, handedOver(group))
		}
		w.put(aService("small", "10.96.0.1"), handedOver(aGroup("small", "small-1", fmt.Sprintf("10.3.%d.1", n))))
	}
	change(0)
	w.step(t.Context())
	if len(sizes) != 1 {
		t.Errorf("the start needs %d transactions", len(sizes))
	}
	w.right("at first")
	acknowledged := w.version
	w.bounds.Total, sizes = 2*each, nil // what two of them take, as by default
	change(1)
	w.step(t.Context())
	if !w.kernel.leads("10.3.1.1") {
		t.Error("the small one waits")
	}
	if len(w.except) != large-1 {
		t.Errorf("%d is acknowledged except %v, before it was %d", w.version, w.except, acknowledged)
	}
	w.run(time.Second)
	if most := w.bounds.maxPerSync(); slices.Max(sizes) > most || slices.Max(sizes) < each || len(sizes) != large {
		t.Errorf("the transactions have %v changes, allowed are %d", sizes, most)
	}
	w.right("after their turns")
	if len(w.except) > 0 {
		t.Errorf("not acknowledged is %v", w.except)
	}
}

// Of Services that change together, the smaller ones come first. With constant changes, postponed ones come before
// later ones.
func TestLargeServicesAreWrittenEventually(t *testing.T) {
	const services = 10
	w := bounded(t, view.Bounds{Total: 1 << 20})
	for i := range services {
		service, group := flapper(i, 0)
		w.put(service, group)
	}
	large := withExternal(aService("large", "10.96.0.1"), 550)
	w.put(large, aGroup("large", "large-1", "10.1.1.1"))
	w.run(time.Minute)
	size := w.elements(cluster.KeyOf(large))
	w.bounds.Total = 2 * size
	if all := services * w.elements(cluster.KeyOf(aService("s0", ""))); all < 4*size {
		t.Fatalf("the small ones have %d elements, and the large one %d: the test shows nothing", all, size)
	}
	w.put(aGroup("large", "large-1", "10.1.1.2"))
	for n := range 10 {
		for i := range services {
			_, group := flapper(i, n+1)
			w.put(group)
		}
		w.step(t.Context())
		w.clock.Step(w.scheduler.period)
		if w.kernel.leads("10.1.1.2") {
			if n == 0 || n > services/2 {
				t.Errorf("it is written in sync %d", n)
			}
			return
		}
	}
	t.Error("it is not written")
}

// withDelayedService returns a world with a delayed Service that has 10.96.0.1 and external IPs.
func withDelayedService(t *testing.T, external ...string) (*world, *corev1.Service) {
	w := newWorld(t)
	w.log = w.slowToCompile(3 * time.Second)
	slow := born(aService("slow", "10.96.0.1"), 0)
	slow.Spec.Type, slow.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30001
	slow.Spec.ExternalIPs = external
	w.put(slow, aGroup("slow", "slow-1", "10.1.1.1", "127.0.0.1")) // the second is invalid
	w.step(t.Context())
	if w.scheduler.delayedUntil[cluster.KeyOf(slow)].IsZero() || !w.serves("10.96.0.1") {
		t.Fatal("it is not programmed, or not delayed: the test shows nothing")
	}
	return w, slow
}

// addressesOf returns the addresses of a Service that the kernel has.
func (w *world) addressesOf(service *corev1.Service) (addresses []string) {
	for _, f := range w.families {
		for _, port := range f.table.Programmed() {
			for _, front := range port.Fronts {
				if events.ServiceOf(port.Name) == cluster.KeyOf(service) {
					addresses = append(addresses, front.String())
				}
			}
		}
	}
	slices.Sort(addresses)
	return addresses
}

// A delayed Service gives up at once the addresses that others may have: addresses of an earlier Service of the same
// name, and addresses that it may no longer claim.
func TestDelayedServicesReleaseAddresses(t *testing.T) {
	t.Run("younger", func(t *testing.T) {
		// The older of two Services that claim an address has it.
		w, slow := withDelayedService(t, "203.0.113.1")
		other := born(withExternal(aService("other", "10.96.0.2"), 0), time.Minute)
		other.Spec.ExternalIPs = []string{"203.0.113.1"}
		w.put(other, aGroup("other", "other-1", "10.1.7.7"))
		w.run(maxSyncDelay)
		if got := w.family(ruleset.IPv4).table.Disputed(); len(got) != 1 || got[0].Loser != "shop/other" {
			t.Fatalf("the address is disputed by %+v: this test shows nothing", got)
		}
		w.drop(slow)
		w.put(born(slow.DeepCopy(), 2*time.Minute))
		w.run(maxSyncDelay)
		if got := w.family(ruleset.IPv4).table.Disputed(); len(got) != 1 || got[0].Loser != "shop/slow" {
			t.Errorf("the address is disputed by %+v, and the younger one should lose it", got)
		}
	})
	t.Run("refused by the kernel", func(t *testing.T) {
		w, slow := withDelayedService(t, "10.96.0.7")
		w.run(maxServiceDelay)
		w.refusing("10.1.1.2")
		w.put(aGroup("slow", "slow-1", "10.1.1.2"))
		w.run(time.Second)
		w.scheduler.delayedUntil[cluster.KeyOf(slow)] = w.clock.Now().Add(maxServiceDelay)
		if len(w.family(ruleset.IPv4).refused) != 1 {
			t.Fatal("it is not refused: the test shows nothing")
		}
		w.put(born(aService("victim", "10.96.0.7"), time.Minute), aGroup("victim", "victim-1", "10.1.7.7"))
		for range 8 {
			w.run(time.Second)
			if got := w.addressesOf(slow); slices.Contains(got, "10.96.0.7:80/tcp") || len(got) == 0 {
				t.Fatalf("it has %v", got)
			}
		}
	})
}

func TestTurns(t *testing.T) {
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	small, large := types.NamespacedName{Name: "small"}, types.NamespacedName{Name: "large"}
	s := newScheduler(0)
	due := func(now int, changed ...types.NamespacedName) int {
		all := map[types.NamespacedName]bool{}
		for _, name := range changed {
			all[name] = true
		}
		return len(s.due(all, func(types.NamespacedName) candidate { return candidate{} }, at(now)))
	}
	charge := func(now int, wrote writing, efforts map[types.NamespacedName]effort) {
		s.begin(0)
		s.efforts = efforts
		s.charge(wrote, at(now))
	}
	charge(100, writing{time: 100 * time.Millisecond}, map[types.NamespacedName]effort{small: {has: 10}, large: {had: 600, has: 390}})
	if got := due(101, small, large); got != 1 || !s.waits(large) || s.waits(small) {
		t.Errorf("%d are written, want the small one", got)
	}
	if got := s.nextDue(); !got.Equal(at(100 + 3*99)) {
		t.Errorf("the next write is after %s", got.Sub(start))
	}
	if got := due(396); got != 0 {
		t.Errorf("%d are written too early", got)
	}
	if got := due(397); got != 1 || s.waits(large) || !s.nextDue().IsZero() || len(s.delayedUntil) > 0 {
		t.Errorf("%d are written in the end, and %d are delayed", got, len(s.delayedUntil))
	}
	charge(0, writing{1, time.Hour}, map[types.NamespacedName]effort{large: {has: 1}})
	if got := s.delayedUntil[large]; !got.Equal(at(0).Add(maxServiceDelay)) {
		t.Errorf("it is delayed for %s", got.Sub(start))
	}
	// Each Service is charged for its own compilation, even without elements.
	s = newScheduler(0)
	charge(0, writing{time: time.Millisecond}, map[types.NamespacedName]effort{small: {time: 100 * time.Millisecond}, large: {has: 990, time: time.Millisecond}})
	if got := s.delayedUntil[small]; !got.Equal(at(300)) || len(s.delayedUntil) != 1 {
		t.Errorf("it is delayed for %s, and %d are", got.Sub(start), len(s.delayedUntil))
	}
	// No Service is charged for other work of the kernel.
	s = newScheduler(0)
	charge(0, writing{1000, time.Second}, map[types.NamespacedName]effort{small: {had: 5, has: 5}})
	if got := s.delayedUntil[small]; !got.Equal(at(30)) {
		t.Errorf("it is delayed for %s", got.Sub(start))
	}
}

func TestDelayOfSyncs(t *testing.T) {
	s := newScheduler(20 * time.Millisecond)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	ready := func(now, want int) {
		t.Helper()
		if got := s.ready(at(now)); !got.Equal(at(want)) {
			t.Errorf("at %d ready at %s, want %d", now, got.Sub(start), want)
		}
	}
	ready(0, 0)
	s.synced(at(0), at(5), false)
	ready(6, 20) // a quick sync
	ready(25, 25)
	s.synced(at(25), at(75), false)
	ready(76, 125) // a slow sync delays the next one as long
	s.synced(at(125), at(10125), false)
	ready(10126, 11125) // of a second at most
	s.synced(at(12000), at(12001), true)
	ready(12001, 12002) // a sync that wrote nothing new delays nothing
	s.synced(at(13000), at(13050), true)
	ready(13050, 13100) // but a slow one does
}

// A delayed Service that another proxy takes over is removed at once.
func TestServicesOfOtherProxiesAreNotDelayed(t *testing.T) {
	for name, change := range map[string]func(*corev1.Service){
		"another's": func(s *corev1.Service) { s.Labels[v1alpha1.LabelServiceProxyName] = "other" },
		"a name":    func(s *corev1.Service) { s.Spec.Type, s.Spec.ClusterIP = corev1.ServiceTypeExternalName, "" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.log = w.slowToCompile(3 * time.Second)
			slow := aService("slow", "10.96.0.1")
			w.put(slow, aGroup("slow", "slow-1", "10.1.1.1", "127.0.0.1")) // the second is invalid
			w.step(t.Context())
			if w.scheduler.delayedUntil[cluster.KeyOf(slow)].IsZero() {
				t.Fatal("it is not delayed: the test shows nothing")
			}
			change(slow)
			w.put(slow)
			w.run(3 * ruleset.Linger)
			if w.kernel.leads("10.1.1.1") {
				t.Error("its rules exist")
			}
		})
	}
}
