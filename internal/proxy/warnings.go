package proxy

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// recordFunc writes an event about a Service.
type recordFunc func(about *corev1.ObjectReference, kind, reason, note string)

// warnings tell users about Services that do not work on this node, by events: once when
// that begins, once when it is over. A cluster has many nodes, so a node tells little at a
// time.
type warnings struct {
	record recordFunc
	clock  clock.PassiveClock
	node   string
	// reference finds the object that an event is about.
	reference func(types.NamespacedName) *corev1.ObjectReference

	states map[types.NamespacedName]*warning
	budget budget
}

// warning is what is to be told of a Service.
type warning struct {
	ports []string // that are out of reach
	since time.Time
	told  bool
}

const (
	// warnAfter is how long something lasts that is worth an event.
	warnAfter = 3 * time.Second
	// A node writes so many events at once, and one more each time.
	warnBurst = 25
	warnEvery = 10 * time.Second
)

func newWarnings(record recordFunc, c clock.PassiveClock, node string, reference func(types.NamespacedName) *corev1.ObjectReference) *warnings {
	return &warnings{
		record: record, clock: c, node: node, reference: reference, states: map[types.NamespacedName]*warning{},
		budget: budget{burst: warnBurst, every: warnEvery},
	}
}

// unreachable notes which ports of a Service are out of reach.
func (w *warnings) unreachable(service types.NamespacedName, ports []string, now time.Time) {
	one := w.states[service]
	switch {
	case len(ports) > 0 && one == nil:
		w.states[service] = &warning{ports: ports, since: now}
	case len(ports) > 0 && len(one.ports) == 0:
		one.ports, one.since = ports, now
	case len(ports) > 0:
		one.ports = ports
	case one != nil && !one.told:
		delete(w.states, service)
	case one != nil && len(one.ports) > 0:
		one.ports, one.since = nil, now
	}
}

// tell writes the events that are due.
func (w *warnings) tell(now time.Time) {
	for service, one := range w.states {
		begins := len(one.ports) > 0
		if one.told == begins || now.Sub(one.since) < warnAfter {
			continue
		}
		if !w.budget.take(now) {
			return
		}
		if begins {
			one.told = true
			w.event(service, corev1.EventTypeWarning, "TopologyUnreachable", fmt.Sprintf(
				"clients on node %s do not reach %s: the Service allows none of the places that its endpoints are in", w.node, portsText(one.ports)))
			continue
		}
		delete(w.states, service)
		w.event(service, corev1.EventTypeNormal, "TopologyReachable", fmt.Sprintf("clients on node %s reach the Service again", w.node))
	}
}

// refused tells that the kernel refuses a port.
func (w *warnings) refused(port string, cause error) {
	if w.budget.take(w.clock.Now()) {
		w.event(serviceOf(port), corev1.EventTypeWarning, "PortNotProgrammed", fmt.Sprintf(
			"node %s goes on with what it had for %s: the kernel refuses the change: %v", w.node, port, cause))
	}
}

// shut tells that load balancers cannot ask.
func (w *warnings) shut(service types.NamespacedName, port uint16, cause error) {
	if w.budget.take(w.clock.Now()) {
		w.event(service, corev1.EventTypeWarning, "FailedToStartServiceHealthcheck", fmt.Sprintf(
			"node %s does not answer health checks of load balancers on port %d: %v", w.node, port, cause))
	}
}

func (w *warnings) event(service types.NamespacedName, kind, reason, note string) {
	if about := w.reference(service); about != nil {
		w.record(about, kind, reason, note)
	}
}

// serviceOf is the Service of a port with a name such as "namespace/name:port".
func serviceOf(port string) types.NamespacedName {
	service, _, _ := strings.Cut(port, ":")
	namespace, name, _ := strings.Cut(service, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// portsText names the first few ports.
func portsText(ports []string) string {
	const most = 3
	if len(ports) > most {
		return fmt.Sprintf("%s and %d more ports", strings.Join(ports[:most], ", "), len(ports)-most)
	}
	return strings.Join(ports, ", ")
}

// budget bounds how often something is done: a few times at once, then once each time.
type budget struct {
	burst int
	every time.Duration

	spent int
	since time.Time // of what was spent and is not given back
}

// take reports whether it may be done now, and takes that from what is left.
func (b *budget) take(now time.Time) bool {
	if b.empty(now) {
		return false
	}
	b.spent++
	return true
}

// empty reports whether nothing is left.
func (b *budget) empty(now time.Time) bool {
	if b.spent == 0 {
		b.since = now
	}
	if back := int(now.Sub(b.since) / b.every); back > 0 {
		b.spent = max(0, b.spent-back)
		b.since = b.since.Add(time.Duration(back) * b.every)
	}
	return b.spent >= b.burst
}

// next is when there is something left again, if nothing is left now.
func (b *budget) next() time.Time { return b.since.Add(b.every) }
