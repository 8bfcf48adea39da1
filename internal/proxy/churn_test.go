package proxy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
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
	"vicinity.dev/vicinity/internal/proxy/pace"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/proxy/view"
)

// churnRate is how many Services and groups change in a second at most.
const churnRate = 1000

// TestChurn has Services and groups come, change and go without end. Memory stays as it is,
// and whenever there is a pause a real kernel holds what it should and nothing else.
func TestChurn(t *testing.T) {
	const pauses = 4
	each := churnRate
	switch {
	case testing.Short():
		t.Skip("takes seconds: memory is looked at again and again")
	case os.Getenv("E2E_SOAK") != "":
		each = 50 * churnRate
	}
	c := newChurn(t)
	var used []uint64
	for range pauses {
		c.change(each)
		c.rest()
		used = append(used, heap())
	}
	t.Logf("%d changes; the heap had %d bytes in the pauses", pauses*each, used)
	// The first pauses are those in which all has been as large as it gets.
	before, after := slices.Max(used[:pauses/2]), slices.Max(used[pauses/2:])
	if after > before+before/4+4<<20 {
		t.Errorf("the heap grows: it had %d bytes in the pauses", used)
	}
	c.removeAll()
	c.rest()
	for _, number := range families {
		listing, err := c.reader.Read(number)
		if err != nil {
			t.Fatal(err)
		}
		for _, set := range listing.Sets {
			if len(set.Elements) > 0 {
				t.Errorf("%s: %s has %d elements when there is no Service", familyName(number), set.Name, len(set.Elements))
			}
		}
	}
}

// churn is a programmer at work on a kernel of its own, with Services that change.
type churn struct {
	*world
	reader *nftables.Conn
	random *rand.Rand
	exists map[int]bool
}

// churners is how many Services there are at most.
const churners = 300

func newChurn(t *testing.T) *churn {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	c := &churn{world: &world{t: t}, random: rand.New(rand.NewPCG(1, 2)), exists: map[int]bool{}}
	var writer *nftables.Conn
	var tracker *nftables.Tracker
	namespacetest.New(t).Must(t, func() (err error) {
		if writer, err = nftables.Open(); err != nil {
			return err
		}
		if c.reader, err = nftables.Open(); err != nil {
			return err
		}
		tracker, err = nftables.OpenTracker(nftables.TrackerOptions{})
		return err
	})
	t.Cleanup(func() {
		for _, one := range []interface{ Close() error }{writer, c.reader, tracker} {
			if err := one.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	c.programmer = liveProgrammer(writer)
	cleaner := newCleaner(tracker, writer, c.metrics, logr.Discard())
	c.writer.stale, c.writer.forget, c.programmer.flows = cleaner.disconnect, cleaner.forget, cleaner
	cleaner.forgotten, cleaner.stillStale = c.setForgotten, c.stillStale
	c.catalogue.Fill(func() {
		c.catalogue.SetNode(aNode("a"))
		c.catalogue.ReplaceGroups(nil, "", "a")
	})
	running.Go(func() { cleaner.run(ctx) })
	running.Go(func() { c.programmer.run(ctx) })
	return c
}

// liveProgrammer is one in real time.
func liveProgrammer(k kernel) *programmer {
	wake := make(chan struct{}, 1)
	known := cluster.NewCatalogue(clock.RealClock{}, func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	numbers := newMetrics(known.Count)
	p := &programmer{
		flows:    &fakeFlows{reconciled: map[ruleset.Family]map[ruleset.Front][]netip.AddrPort{}},
		settings: view.Settings{MasqueradeMark: ruleset.DefaultMasqueradeMark}, bounds: newBounds(view.Bounds{}), catalogue: known, clock: clock.RealClock{}, metrics: numbers,
		log: logr.Discard(), health: health.NewState(clock.RealClock{}), told: func(lease.Acknowledgement) {}, index: newIndex(),
		pace: pace.Pace{Period: DefaultMinSyncPeriod}, checks: checks{period: time.Second, aside: func(do func()) { go do() }}, wake: wake,
		doors:    &doors{answerer: &fakeDoors{}, clock: clock.RealClock{}, metrics: numbers, log: logr.Discard()},
		warnings: events.NewWarnings((&fakeRecorder{}).record, clock.RealClock{}, "node-a", func(types.NamespacedName) *corev1.ObjectReference { return nil }),
	}
	p.writer = &writer{
		kernel: k, clock: clock.RealClock{}, metrics: numbers, log: logr.Discard(), refused: func(string, error) {},
		stale: func([]ruleset.Stale) {}, forget: func(ruleset.Family, []ruleset.Forget) {},
	}
	p.begin()
	return p
}

// change changes something so many times.
func (c *churn) change(times int) {
	tick := time.NewTicker(time.Second / churnRate)
	defer tick.Stop()
	for range times {
		c.changeOne()
		<-tick.C
	}
}

func (c *churn) changeOne() {
	n := c.random.IntN(churners)
	switch {
	case !c.exists[n]:
		c.put(c.aService(n), c.aGroup(n))
		c.exists[n] = true
	case c.random.IntN(20) == 0:
		c.remove(n)
	case c.random.IntN(10) == 0:
		c.put(c.aService(n))
	default:
		c.put(c.aGroup(n))
	}
}

func (c *churn) name(n int) string { return fmt.Sprintf("s%d", n) }

func (c *churn) remove(n int) {
	c.drop(aService(c.name(n), "10.96.0.1"), aGroup(c.name(n), c.name(n)+"-1"))
	delete(c.exists, n)
}

func (c *churn) removeAll() {
	for n := range c.exists {
		c.remove(n)
	}
}

// aService is one with some of all that a Service can ask for.
func (c *churn) aService(n int) *corev1.Service {
	service := aService(c.name(n), netip.AddrFrom4([4]byte{10, 96, byte(n >> 8), byte(n)}).String())
	spec := &service.Spec
	if c.random.IntN(3) == 0 {
		seconds := int32(60 + 60*c.random.IntN(3))
		spec.SessionAffinity = corev1.ServiceAffinityClientIP
		spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
	if c.random.IntN(3) == 0 {
		spec.Type = corev1.ServiceTypeLoadBalancer
		spec.LoadBalancerSourceRanges = []string{fmt.Sprintf("10.%d.0.0/16", c.random.IntN(200))}
		service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: netip.AddrFrom4([4]byte{198, 18, byte(n >> 8), byte(n)}).String()}}
		if c.random.IntN(2) == 0 {
			spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}
	}
	return service
}

// aGroup has any endpoints, of which there are many more than there are at a time.
func (c *churn) aGroup(n int) *v1alpha1.EndpointGroup {
	var addresses []string
	for range c.random.IntN(12) {
		addresses = append(addresses, netip.AddrFrom4([4]byte{10, byte(128 + c.random.IntN(100)), byte(c.random.IntN(256)), byte(1 + c.random.IntN(250))}).String())
	}
	group := aGroup(c.name(n), c.name(n)+"-1", addresses...)
	for i := range group.Spec.Endpoints {
		if c.random.IntN(4) == 0 {
			group.Spec.Endpoints[i].Node = "node-a"
		}
	}
	return group
}

// rest waits until the kernel holds what it should and nothing else: nothing lingers.
func (c *churn) rest() {
	c.t.Helper()
	wanted := c.wanted()
	var last string
	eventually(c.t, "the kernel holds what it should and nothing else", func() bool {
		last = ""
		for number, table := range wanted {
			listing, err := c.reader.Read(number)
			if err != nil {
				last = err.Error() // it may change still
				continue
			}
			if !listing.Exists && number == ruleset.IPv6 {
				continue // nothing asks for it
			}
			if found := table.Differences(listing); len(found) > 0 {
				last = fmt.Sprintf("%d differences, the first %s", len(found), found[0])
			}
		}
		return last == ""
	})
}

// heap is how many bytes are in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
