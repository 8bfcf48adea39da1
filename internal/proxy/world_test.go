package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/cluster"
	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/events"
	"vicinity.dev/vicinity/internal/proxy/health"
	"vicinity.dev/vicinity/internal/proxy/lease"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/proxy/view"
)

// world is a programmer with all that it works on, in a time of its own.
type world struct {
	*programmer
	t      *testing.T
	trim   cluster.Trimmer
	clock  *clocktesting.FakeClock
	flows  *fakeFlows
	kernel *fakeKernel
	events *fakeRecorder
	stale  []ruleset.Stale
	// forgotten has the requests to forget clients.
	forgotten []ruleset.Forget
	version   uint64 // acknowledged last
	except    []types.NamespacedName
	next      int // resource version
}

// fakeRecorder keeps events as they are written.
type fakeRecorder struct{ events []string }

func (r *fakeRecorder) record(about *corev1.ObjectReference, kind, reason, note string) {
	r.events = append(r.events, fmt.Sprintf("%s/%s %s %s: %s", about.Namespace, about.Name, kind, reason, note))
}

// fakeHealthPorts keeps which ports are wanted.
type fakeHealthPorts struct {
	addresses []netip.Addr
	services  map[types.NamespacedName]health.Service
	fail      map[types.NamespacedName]error
	broken    bool
	calls     int
}

func (h *fakeHealthPorts) Set(_ context.Context, addresses []netip.Addr, services map[types.NamespacedName]health.Service) map[types.NamespacedName]error {
	h.addresses, h.services, h.broken = addresses, services, false
	h.calls++
	return h.fail
}

func (h *fakeHealthPorts) Broken() bool { return h.broken }

func (*fakeHealthPorts) Close() {}

// fakeFlows keeps where connections may go.
type fakeFlows struct {
	reconciled map[ruleset.Family]map[ruleset.Front][]netip.AddrPort
}

func (f *fakeFlows) unreconciled(number ruleset.Family) bool { return f.reconciled[number] == nil }

func (f *fakeFlows) reconcile(number ruleset.Family, live map[ruleset.Front][]netip.AddrPort) {
	f.reconciled[number] = live
}

// newWorld is a world with a node in zone a.
func newWorld(t *testing.T) *world {
	w := &world{t: t, clock: clocktesting.NewFakeClock(start), kernel: newFakeKernel(), events: &fakeRecorder{}}
	w.restart()
	w.catalogue.Fill(func() {
		w.catalogue.SetNode(aNode("a"))
		w.catalogue.ReplaceGroups(nil, "", "a")
	})
	return w
}

// restart makes a programmer that knows nothing, in front of the same kernel.
func (w *world) restart() {
	known := cluster.NewCatalogue(w.clock, func() {})
	numbers := newMetrics(nil, known.Count)
	w.flows = &fakeFlows{reconciled: map[ruleset.Family]map[ruleset.Front][]netip.AddrPort{}}
	p := &programmer{
		flows:    w.flows,
		settings: view.Settings{MasqueradeMark: ruleset.DefaultMasqueradeMark}, bounds: newBounds(view.Bounds{}), catalogue: known, clock: w.clock, metrics: numbers,
		log: logr.Discard(), health: health.NewState(w.clock), onProgrammed: func(a lease.Acknowledgement) { w.version, w.except = a.Version, a.Except },
		scheduler: newScheduler(20 * time.Millisecond), checks: checks{period: time.Hour, background: func(do func()) { do() }}, started: w.clock.Now(),
		healthPorts: &healthPorts{answerer: &fakeHealthPorts{}, metrics: numbers, log: logr.Discard()},
		writer: &writer{
			kernel: w.kernel, clock: w.clock, metrics: numbers, log: logr.Discard(),
			stale: func(stale []ruleset.Stale) { w.stale = append(w.stale, stale...) },
			forget: func(number ruleset.Family, all []ruleset.Forget) {
				w.forgotten = append(w.forgotten, all...)
				for _, one := range all {
					w.setForgotten(number, one.Set, w.clock.Now())
				}
			},
		},
	}
	p.warnings = events.NewWarnings(events.Options{
		Node: "node-a", Record: p.healthPorts.countWarnings(w.events.record),
		Reference: func(name types.NamespacedName) *corev1.ObjectReference {
			return &corev1.ObjectReference{Namespace: name.Namespace, Name: name.Name}
		},
	})
	p.begin()
	w.programmer = p
}

func handedOver(group *v1alpha1.EndpointGroup) *v1alpha1.EndpointGroup {
	group.Labels = map[string]string{v1alpha1.LabelHandOver: "true"}
	return group
}

func (w *world) stamp(object metav1.Object) {
	w.next++
	object.SetResourceVersion(strconv.Itoa(w.next))
}

// trimmed returns an object as the programmer gets it.
func (w *world) trimmed(object metav1.Object) any {
	trim := func(any) (any, error) { return object, nil }
	switch object.(type) {
	case *corev1.Service:
		trim = w.trim.Service
	case *v1alpha1.EndpointGroup:
		trim = w.trim.Group
	case *discoveryv1.EndpointSlice:
		trim = w.trim.Slice
	case *corev1.Node:
		trim = w.trim.Node
	}
	made, err := trim(object)
	if err != nil {
		w.t.Fatal(err)
	}
	return made
}

// put adds or changes objects of the API.
func (w *world) put(objects ...metav1.Object) {
	w.catalogue.Fill(func() {
		for _, object := range objects {
			w.stamp(object)
			switch o := w.trimmed(object).(type) {
			case *corev1.Service:
				w.catalogue.SetService(o)
			case *v1alpha1.EndpointGroup:
				w.catalogue.SetGroup(o)
			case *discoveryv1.EndpointSlice:
				w.catalogue.SetSlice(o)
			case *corev1.Node:
				w.catalogue.SetNode(o)
			case *networkingv1.ServiceCIDR:
				w.catalogue.SetRange(o)
			case *corev1.ConfigMap:
				if err := w.catalogue.SetNodeAddresses(o); err != nil {
					w.t.Error(err)
				}
			}
		}
	})
}

// drop deletes objects of the API.
func (w *world) drop(objects ...metav1.Object) {
	w.catalogue.Fill(func() {
		for _, object := range objects {
			switch o := object.(type) {
			case *corev1.Service:
				w.catalogue.RemoveService(cluster.KeyOf(o))
			case *v1alpha1.EndpointGroup:
				gone := o.DeepCopy()
				w.stamp(gone)
				w.catalogue.RemoveGroup(gone)
			case *discoveryv1.EndpointSlice:
				w.catalogue.RemoveSlice(cluster.KeyOf(o))
			case *networkingv1.ServiceCIDR:
				w.catalogue.RemoveRange(o)
			}
		}
	})
}

// settleIn makes the known groups those of zone a.
func (w *world) settleIn() {
	var groups []*v1alpha1.EndpointGroup
	for name := range w.catalogue.Names() {
		groups = append(groups, w.catalogue.Entry(name).Groups...)
	}
	w.catalogue.Fill(func() { w.catalogue.ReplaceGroups(groups, "", "a") })
}

// run lets time pass and does all steps that become due.
func (w *world) run(d time.Duration) {
	w.t.Helper()
	end := w.clock.Now().Add(d)
	for range 10000 {
		wait := w.step(w.t.Context())
		at := w.clock.Now().Add(wait)
		if at.After(end) {
			w.clock.SetTime(end)
			return
		}
		w.clock.SetTime(at)
	}
	w.t.Fatal("something is always due at once")
}

// wanted returns the rules that the kernel should have, computed from the objects.
func (w *world) wanted() map[ruleset.Family]*ruleset.Table {
	w.t.Helper()
	node, zone := w.catalogue.Position()
	settings := w.settings
	settings.ServiceRanges = w.catalogue.Reserved(settings).ServiceRanges
	options := settings.Options(node, zone, w.local)
	options.Addresses = addressBook(w.catalogue, w.settings)
	var compiled []compile.Family
	for name := range w.catalogue.Names() {
		e := w.catalogue.Entry(name)
		compiled = append(compiled, compile.Service(compile.Input{Service: e.Service, Groups: e.Groups, Slices: e.Slices}, options).Families...)
	}
	tables := map[ruleset.Family]*ruleset.Table{}
	for _, number := range ruleset.Families {
		table := view.Table(settings.Config(number, node), compiled)
		tables[number] = table
	}
	return tables
}

// right fails the test unless the kernel has exactly the expected rules.
func (w *world) right(when string) {
	w.t.Helper()
	w.run(3 * ruleset.Linger) // lingering rules are removed
	for number, table := range w.wanted() {
		listing, err := w.kernel.list(number, true)
		if err != nil {
			w.t.Fatal(err)
		}
		if !listing.Exists && len(w.family(number).table.Programmed()) == 0 && !strings.Contains(table.Text(), "elements") {
			continue // nothing asks for it
		}
		if differences := table.Differences(listing); len(differences) > 0 {
			w.t.Errorf("%s: %s: %s", when, number.Name(), strings.Join(differences, "\n\t"))
		}
	}
}

func (w *world) family(number ruleset.Family) *family {
	return w.families[slices.Index(ruleset.Families, number)]
}

// counter is the value of a metric.
func (w *world) counter(name string, labels ...string) float64 {
	w.t.Helper()
	switch name {
	case "transactions":
		return testutil.ToFloat64(w.metrics.results.WithLabelValues(labels...))
	case "failures":
		return testutil.ToFloat64(w.metrics.failures.WithLabelValues(labels...))
	case "foreign":
		return testutil.ToFloat64(w.metrics.foreign.WithLabelValues(labels...))
	case "rewrites":
		return testutil.ToFloat64(w.metrics.rewrites.WithLabelValues(labels...))
	case "refused":
		return testutil.ToFloat64(w.metrics.refused.WithLabelValues(labels...))
	}
	w.t.Fatalf("no metric %q", name)
	return 0
}

// touches reports whether a transaction changes anything of an address.
func touches(t ruleset.Transaction, address string) bool {
	raw := string(netip.MustParseAddr(address).AsSlice())
	return slices.ContainsFunc(t.Changes, func(c ruleset.Change) bool {
		return slices.ContainsFunc(c.Elements, func(e ruleset.Element) bool {
			return strings.Contains(e.Key, raw) || strings.Contains(e.Data, raw)
		})
	})
}
