package proxy

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	samples "runtime/metrics"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/cluster"
	"vicinity.dev/vicinity/internal/proxy/events"
	"vicinity.dev/vicinity/internal/proxy/health"
	nftables "vicinity.dev/vicinity/internal/proxy/kernel"
	"vicinity.dev/vicinity/internal/proxy/lease"
	"vicinity.dev/vicinity/internal/proxy/namespacetest"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/proxy/view"
)

// liveWorld is a world in real time, with a real kernel in a network namespace of its own.
type liveWorld struct {
	*world
	cleaner *cleaner
	// reader reads the rules of that kernel.
	reader *nftables.Conn
}

func newLiveWorld(t *testing.T) *liveWorld {
	t.Helper()
	var k, reader *nftables.Conn
	var tracker *nftables.Tracker
	namespacetest.New(t).Must(t, func() (err error) {
		if k, err = nftables.Open(); err != nil {
			return err
		}
		if reader, err = nftables.Open(); err != nil {
			return err
		}
		tracker, err = nftables.OpenTracker(nftables.TrackerOptions{})
		return err
	})
	t.Cleanup(func() {
		for _, one := range []interface{ Close() error }{k, reader, tracker} {
			if err := one.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	wake := make(chan struct{}, 1)
	known := cluster.NewCatalogue(clock.RealClock{}, func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	numbers := newMetrics(nil, known.Count)
	c := newCleaner(tracker, k, numbers, logr.Discard())
	p := &programmer{
		flows: c, settings: view.Settings{MasqueradeMark: ruleset.DefaultMasqueradeMark}, bounds: newBounds(view.Bounds{}), catalogue: known, clock: clock.RealClock{}, metrics: numbers,
		log: logr.Discard(), health: health.NewState(clock.RealClock{}), onProgrammed: func(lease.Acknowledgement) {}, index: newIndex(clock.RealClock{}),
		scheduler: newScheduler(DefaultMinSyncPeriod), checks: checks{period: time.Second, background: func(do func()) { go do() }}, wake: wake,
		healthPorts: &healthPorts{answerer: &fakeHealthPorts{}},
		warnings:    events.NewWarnings(events.Options{Node: "node-a", Reference: func(types.NamespacedName) *corev1.ObjectReference { return nil }}),
		writer: &writer{
			kernel: k, clock: clock.RealClock{}, metrics: numbers, log: logr.Discard(),
			stale: c.disconnect, forget: c.forget,
		},
	}
	p.begin()
	c.forgotten, c.stillStale = p.setForgotten, p.stillStale
	known.Fill(func() {
		known.SetNode(aNode("a"))
		known.ReplaceGroups(nil, "", "a")
	})
	return &liveWorld{&world{programmer: p, t: t}, c, reader}
}

// shape has the dimensions of a large Service, except its ports.
type shape struct {
	external, endpoints int
	six, sticky         bool
}

// wideService is the i-th Service of a shape with 100 ports, and the n-th of its sets of endpoints.
func (s shape) wideService(i, n int) (*corev1.Service, *v1alpha1.EndpointGroup) {
	const ports = 100
	name := fmt.Sprintf("wide%d", i)
	service := aService(name, fmt.Sprintf("10.96.0.%d", i+1))
	address := func(kind, i, j int) string { return fmt.Sprintf("10.%d.%d.%d", kind+i, j/250, j%250+1) }
	family := corev1.IPv4Protocol
	if s.six {
		family = corev1.IPv6Protocol
		address = func(kind, i, j int) string { return fmt.Sprintf("2001:db8:%d::%x:%x", kind, i, j+1) }
		service.Spec.ClusterIP = fmt.Sprintf("fd00::%d", i+1)
		service.Spec.ClusterIPs, service.Spec.IPFamilies = []string{service.Spec.ClusterIP}, []corev1.IPFamily{family}
	}
	if s.sticky {
		service.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	}
	for j := range s.external {
		service.Spec.ExternalIPs = append(service.Spec.ExternalIPs, address(100, i, j))
	}
	var endpoints []string
	for j := range s.endpoints {
		endpoints = append(endpoints, address(20, i, j))
	}
	group := aGroup(name, name+"-1", endpoints...)
	group.Spec.AddressType = family
	service.Spec.Ports, group.Spec.Ports = nil, nil
	for j := range ports {
		name := fmt.Sprintf("p%d", j)
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: name, Port: int32(1000 + j), Protocol: corev1.ProtocolTCP})
		group.Spec.Ports = append(group.Spec.Ports, v1alpha1.GroupPort{Name: name, Port: int32(1000 + ports*n + j), Protocol: corev1.ProtocolTCP})
	}
	return service, group
}

// heap returns the bytes in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// largestHeap follows how large the heap is at most, without garbage, until it is asked.
func largestHeap() (largest func() uint64) {
	before := debug.SetGCPercent(5)
	var most atomic.Uint64
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		sample := []samples.Sample{{Name: "/gc/heap/live:bytes"}}
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			samples.Read(sample)
			most.Store(max(most.Load(), sample[0].Value.Uint64()))
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	})
	return func() uint64 {
		close(done)
		running.Wait()
		debug.SetGCPercent(before)
		return most.Load()
	}
}

// While two Services at their bound change whole at once, the program's memory for each element, with garbage and the
// kernel's part, stays within the assumption of the bound.
func TestMemoryOfElements(t *testing.T) {
	if os.Getenv("E2E_SOAK") == "" {
		t.Skip("is measured by make soak, on a machine that does nothing else")
	}
	const total, garbage = 100_000, 1.4
	for name, s := range map[string]shape{
		"endpoints":      {external: 9, endpoints: 345},
		"addresses":      {external: 1000, endpoints: 6},
		"IPv6 endpoints": {external: 9, endpoints: 345, six: true},
		"affinity":       {external: 1000, endpoints: 6, sticky: true},
	} {
		t.Run(name, func(t *testing.T) {
			const memory = 1 << 30
			bounds := view.BoundsWithin(memory, view.Bounds{})
			// A quarter of the memory is for what the API says.
			most := float64(memory/4*3-bounds.KernelMemory()) / float64(bounds.Total) / garbage
			// On a busy machine the collector takes longer, and later allocations count as used.
			each := math.Inf(1)
			for try := 0; try < 4 && each > most; try++ {
				each = min(each, s.bytesOfElement(t, total))
			}
			if each > most {
				t.Errorf("an element uses %.0f bytes of the heap, counted are %.0f", each, most)
			}
		})
	}
}

// bytesOfElement returns the maximal heap bytes of an element while two Services of a shape, which together reach the
// bound, are created and changed.
func (s shape) bytesOfElement(t *testing.T, total int) float64 {
	w := newLiveWorld(t)
	w.bounds = newBounds(view.BoundsWithin(0, view.Bounds{Total: total}))
	before := heap()
	largest := largestHeap()
	for n := range 2 {
		for i := range 2 {
			service, group := s.wideService(i, n)
			w.put(service, group)
		}
		for begun := time.Now(); w.catalogue.Changed() || !w.scheduler.nextDue().IsZero(); {
			if time.Since(begun) > time.Minute {
				t.Fatal("not all of them are written")
			}
			<-time.After(w.step(t.Context()))
		}
	}
	w.cleaner.finish(t.Context())
	each := (float64(largest()) - float64(before)) / float64(w.bounds.used)
	t.Logf("each of %d elements takes %.0f bytes at most", w.bounds.used, each)
	if w.bounds.used < total*9/10 {
		t.Errorf("there are %d elements: this test shows nothing", w.bounds.used)
	}
	return each
}
