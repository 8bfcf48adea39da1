package events

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"vicinity.dev/vicinity/internal/proxy/cluster"
	"vicinity.dev/vicinity/internal/proxy/pace"
)

type recordFunc func(about *corev1.ObjectReference, kind, reason, note string)

// Warnings tell users about Services that do not work on this node, by events: once when
// that begins, once when it is over. A cluster has many nodes, so a node tells little at a
// time.
type Warnings struct {
	record recordFunc
	clock  clock.PassiveClock
	node   string
	// reference finds the object that an event is about.
	reference func(types.NamespacedName) *corev1.ObjectReference

	states  map[types.NamespacedName]*warning
	claimed map[types.NamespacedName]*claimWarning
	// families are what is to be told about the rules of the node, by the family.
	families map[string]*familyWarning
	// budgets are those of each reason, so that what one Service does to have events written
	// leaves room for those of another kind.
	budgets map[string]*pace.Budget
}

// warning is what is to be told of a Service.
type warning struct {
	ports []string // that are out of reach
	since time.Time
	told  bool
}

// claimWarning is what is to be told of a Service that does not get its addresses.
type claimWarning struct {
	refused []string // a sentence for each address
	since   time.Time
	told    []string
	// at is when it was told, zero if it was not. It is kept for refusedEvery, also when
	// nothing is refused any more.
	at time.Time
}

// familyWarning is whether packets of a family do not come through the rules.
type familyWarning struct {
	service types.NamespacedName
	cause   string // empty if they do
	due     bool
	told    string
}

const (
	// WarnAfter is how long something lasts that is worth an event.
	WarnAfter = 3 * time.Second
	// A node writes so many events at once, and one more each time.
	warnBurst = 25
	warnEvery = 10 * time.Second
	// RefusedEvery is the time between two events about refused addresses of a Service.
	RefusedEvery = 10 * time.Minute
)

// NewWarnings makes warnings of a node, which are given to a function that writes an event, and
// another that finds the object that one is about, nil if there is none.
func NewWarnings(record recordFunc, c clock.PassiveClock, node string, reference func(types.NamespacedName) *corev1.ObjectReference) *Warnings {
	return &Warnings{
		record: record, clock: c, node: node, reference: reference, states: map[types.NamespacedName]*warning{},
		claimed:  map[types.NamespacedName]*claimWarning{},
		families: map[string]*familyWarning{}, budgets: map[string]*pace.Budget{},
	}
}

// Unreachable notes which ports of a Service are out of reach.
func (w *Warnings) Unreachable(service types.NamespacedName, ports []string, now time.Time) {
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

// Claims notes which addresses a Service claims and does not get, a sentence for each.
func (w *Warnings) Claims(service types.NamespacedName, refused []string, now time.Time) {
	one := w.claimed[service]
	switch {
	case len(refused) == 0 && (one == nil || one.at.IsZero()):
		delete(w.claimed, service)
	case one == nil:
		w.claimed[service] = &claimWarning{refused: refused, since: now}
	case !slices.Equal(one.refused, refused):
		one.refused, one.since = refused, now
	}
}

// Node is the name of the node.
func (w *Warnings) Node() string { return w.node }

// Count is about how many Services something is known that was told or is to be.
func (w *Warnings) Count() int { return len(w.states) + len(w.claimed) }

// Tell writes the events that are due.
func (w *Warnings) Tell(now time.Time) {
	w.tellFamilies(now)
	w.tellClaims(now)
	due := map[types.NamespacedName]time.Time{}
	for service, one := range w.states {
		if one.told != (len(one.ports) > 0) && now.Sub(one.since) >= WarnAfter {
			due[service] = one.since
		}
	}
	for _, service := range LongestFirst(due) {
		one := w.states[service]
		if len(one.ports) > 0 {
			one.told = w.Event(service, corev1.EventTypeWarning, "TopologyUnreachable", fmt.Sprintf(
				"clients on node %s do not reach %s: the Service allows none of the places that its endpoints are in", w.node, portsText(one.ports)), now)
			continue
		}
		if w.Event(service, corev1.EventTypeNormal, "TopologyReachable", fmt.Sprintf("clients on node %s reach the Service again", w.node), now) {
			delete(w.states, service)
		}
	}
}

func (w *Warnings) tellClaims(now time.Time) {
	due := map[types.NamespacedName]time.Time{}
	for service, one := range w.claimed {
		switch {
		case !one.at.IsZero() && now.Sub(one.at) < RefusedEvery:
		case len(one.refused) == 0:
			delete(w.claimed, service)
		case !slices.Equal(one.told, one.refused) && now.Sub(one.since) >= WarnAfter:
			due[service] = one.since
		}
	}
	for _, service := range LongestFirst(due) {
		one := w.claimed[service]
		if w.Event(service, corev1.EventTypeWarning, "AddressRefused", fmt.Sprintf("node %s: %s", w.node, refusedText(one.refused)), now) {
			one.told, one.at = one.refused, now
		}
	}
}

// LongestFirst are Services in the order in which they began to wait.
func LongestFirst(since map[types.NamespacedName]time.Time) []types.NamespacedName {
	return slices.SortedFunc(maps.Keys(since), func(a, b types.NamespacedName) int {
		return cmp.Or(since[a].Compare(since[b]), cluster.CompareNames(a, b))
	})
}

// refusedText has the first two sentences: an event has room for little more.
func refusedText(sentences []string) string {
	const most = 2
	if more := len(sentences) - most; more > 0 {
		return fmt.Sprintf("%s. And %d more", strings.Join(sentences[:most], ". "), more)
	}
	return strings.Join(sentences, ". ")
}

// Refused tells that the kernel refuses a port.
func (w *Warnings) Refused(port string, cause error) {
	w.Event(ServiceOf(port), corev1.EventTypeWarning, "PortNotProgrammed", fmt.Sprintf(
		"node %s goes on with what it had for %s: the kernel refuses the change: %v", w.node, port, cause), w.clock.Now())
}

// Shut tells that load balancers cannot ask.
func (w *Warnings) Shut(service types.NamespacedName, port uint16, cause error) {
	w.Event(service, corev1.EventTypeWarning, "FailedToStartServiceHealthcheck", fmt.Sprintf(
		"node %s does not answer health checks of load balancers on port %d: %v", w.node, port, cause), w.clock.Now())
}

// Bypassed notes that packets of the node do not come through the rules.
func (w *Warnings) Bypassed(service types.NamespacedName, family, cause string) {
	w.traverses(service, family, cause)
}

// Traversed notes that they do again.
func (w *Warnings) Traversed(service types.NamespacedName, family string) {
	w.traverses(service, family, "")
}

func (w *Warnings) traverses(service types.NamespacedName, family, cause string) {
	one := w.families[family]
	if one == nil {
		one = &familyWarning{}
		w.families[family] = one
	}
	one.service, one.cause, one.due = service, cause, cause != one.told
	w.tellFamilies(w.clock.Now())
}

// tellFamilies writes the events about the rules of the node.
func (w *Warnings) tellFamilies(now time.Time) {
	for _, family := range slices.Sorted(maps.Keys(w.families)) {
		one := w.families[family]
		if !one.due {
			continue
		}
		var written bool
		if one.cause == "" {
			written = w.Event(one.service, corev1.EventTypeNormal, "RulesTraversed", fmt.Sprintf(
				"%s packets of node %s come through the rules of vicinity-proxy again", family, w.node), now)
		} else {
			written = w.Event(one.service, corev1.EventTypeWarning, "RulesBypassed", fmt.Sprintf(
				"no Service is handed over to node %s, whose %s packets do not come through the rules of vicinity-proxy: %s; see docs/coexistence.md",
				w.node, family, one.cause), now)
		}
		if written {
			one.due, one.told = false, one.cause
		}
	}
}

// Event writes an event if the node may write one more of that reason now, and reports
// whether it may.
func (w *Warnings) Event(service types.NamespacedName, kind, reason, note string, now time.Time) bool {
	b := w.budgets[reason]
	if b == nil {
		b = &pace.Budget{Burst: warnBurst, Every: warnEvery}
		w.budgets[reason] = b
	}
	if !b.Take(now) {
		return false
	}
	if about := w.reference(service); about != nil {
		w.record(about, kind, reason, note)
	}
	return true
}

// ServiceOf is the Service of a port with a name such as "namespace/name:port".
func ServiceOf(port string) types.NamespacedName {
	service, _, _ := strings.Cut(port, ":")
	namespace, name, _ := strings.Cut(service, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func portsText(ports []string) string {
	const most = 3
	if len(ports) > most {
		return fmt.Sprintf("%s and %d more ports", strings.Join(ports[:most], ", "), len(ports)-most)
	}
	return strings.Join(ports, ", ")
}
