package events

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/proxy/cluster"
)

// Warnings tell users by events about Services that do not work on this node: once when a condition
// has lasted for a while, and once when it has been over for a while. A cluster has many nodes, so
// each kind of event has a budget. What the budget does not allow now is told later.
type Warnings struct {
	Options
	conditions map[*kind]map[subject]*condition
	// budgets are those of each reason, so that many events of one reason leave room for others.
	budgets map[string]*rate.Limiter
}

// Options are what Warnings go by.
type Options struct {
	// Node is the name of the node.
	Node string
	// Record writes an event.
	Record func(about *corev1.ObjectReference, eventType, reason, note string)
	// Reference finds the object that an event is about, nil if there is none.
	Reference func(types.NamespacedName) *corev1.ObjectReference
}

// ReasonHealthPortTaken is the reason of warnings about ports for health checks, the same as kube-proxy's.
const ReasonHealthPortTaken = "FailedToStartServiceHealthcheck"

const (
	// WarnAfter is how long most conditions last that are worth an event.
	WarnAfter = 3 * time.Second
	// HealthPortWarnAfter is how long a port for health checks may be taken: kube-proxy closes it
	// when it has noticed that it does not serve a Service any more.
	HealthPortWarnAfter = 15 * time.Second
	// repeatAfter is the least time between two warnings of the same condition of a port.
	repeatAfter = 6 * time.Minute
	// RefusedEvery is the least time between two events about refused addresses of a Service.
	RefusedEvery = 10 * time.Minute

	// A node writes so many events of a reason at once, and one more each time.
	warnBurst = 25
	warnEvery = 10 * time.Second
)

// kind is a kind of condition.
type kind struct {
	reason string
	// endReason and end are of the event at the end. Without them the end is not told.
	endReason string
	end       func(node, family string) string
	// delay is how long the condition lasts, or is over, before that is told.
	delay time.Duration
	// tellsChanges says that another note is told too while the condition lasts.
	tellsChanges bool
	// interval is the least time between two warnings.
	interval time.Duration
}

var (
	bypassed = &kind{
		reason: "RulesBypassed", endReason: "RulesTraversed", tellsChanges: true,
		end: func(node, family string) string {
			return fmt.Sprintf("%s packets of node %s pass the rules of vicinity-proxy again", family, node)
		},
	}
	unreachable = &kind{
		reason: "TopologyUnreachable", endReason: "TopologyReachable", delay: WarnAfter,
		end: func(node, _ string) string { return fmt.Sprintf("clients on node %s reach the Service again", node) },
	}
	tooManyElements = &kind{
		reason: "TooManyElements", endReason: "ElementsProgrammed", delay: WarnAfter,
		end: func(node, _ string) string { return fmt.Sprintf("node %s programs the whole Service again", node) },
	}
	addressRefused  = &kind{reason: "AddressRefused", delay: WarnAfter, tellsChanges: true, interval: RefusedEvery}
	portRefused     = &kind{reason: "PortNotProgrammed", interval: repeatAfter}
	healthPortTaken = &kind{reason: ReasonHealthPortTaken, delay: HealthPortWarnAfter, interval: repeatAfter}

	kinds = []*kind{bypassed, portRefused, unreachable, tooManyElements, addressRefused, healthPortTaken}
)

// subject is what a condition is about: a Service, and a part of it, which is a port or a family.
type subject struct {
	service types.NamespacedName
	part    string
}

// condition is what is known of one condition.
type condition struct {
	note  string    // empty when it is over
	since time.Time // when it began, or ended
	told  string    // the note of the last event, empty before the first
	at    time.Time // of that event
}

// NewWarnings makes warnings of a node where everything works.
func NewWarnings(o Options) *Warnings {
	w := &Warnings{Options: o, conditions: map[*kind]map[subject]*condition{}, budgets: map[string]*rate.Limiter{}}
	for _, k := range kinds {
		w.conditions[k] = map[subject]*condition{}
	}
	return w
}

// Unreachable notes which ports of a Service clients do not reach.
func (w *Warnings) Unreachable(service types.NamespacedName, ports []string, now time.Time) {
	note := ""
	if len(ports) > 0 {
		note = fmt.Sprintf("clients on node %s cannot reach %s: the Service's topology excludes all endpoints for this node",
			w.Node, portsText(ports))
	}
	w.set(unreachable, subject{service: service}, note, now)
}

// AddressesRefused notes which addresses a Service claims and does not get, in sentences.
func (w *Warnings) AddressesRefused(service types.NamespacedName, sentences []string, now time.Time) {
	note := ""
	if len(sentences) > 0 {
		note = fmt.Sprintf("node %s: %s", w.Node, strings.Join(sentences, ". "))
	}
	w.set(addressRefused, subject{service: service}, note, now)
}

// TooManyElements notes all Services that are not programmed as a whole, and what is missing of each.
func (w *Warnings) TooManyElements(missing map[types.NamespacedName]string, now time.Time) {
	w.setAll(tooManyElements, ofServices(missing), now)
}

// NotServed notes that the node has nothing of a Service to program any more, and tells no end.
func (w *Warnings) NotServed(service types.NamespacedName) {
	delete(w.conditions[tooManyElements], subject{service: service})
}

// HealthPortsTaken notes all Services whose ports for health checks cannot be opened, and why.
func (w *Warnings) HealthPortsTaken(failures map[types.NamespacedName]string, now time.Time) {
	w.setAll(healthPortTaken, ofServices(failures), now)
}

// Bypassed notes that packets of a family do not come through the node's rules, or that they do if
// the cause is empty. The event is about the Service by which the node is probed.
func (w *Warnings) Bypassed(service types.NamespacedName, family, cause string, now time.Time) {
	note := ""
	if cause != "" {
		note = fmt.Sprintf("no Service is handed over to node %s: its %s packets bypass the rules of vicinity-proxy: %s; see docs/coexistence.md",
			w.Node, family, cause)
	}
	w.set(bypassed, subject{service, family}, note, now)
}

// PortsRefused notes all ports of Services that the kernel refuses, and why.
func (w *Warnings) PortsRefused(causes map[string]error, now time.Time) {
	notes := make(map[subject]string, len(causes))
	for port, cause := range causes {
		notes[subject{ServiceOf(port), port}] = fmt.Sprintf(
			"node %s keeps its current rules for %s: the kernel refuses the change: %v", w.Node, port, cause)
	}
	w.setAll(portRefused, notes, now)
}

func (w *Warnings) set(k *kind, about subject, note string, now time.Time) {
	one := w.conditions[k][about]
	switch {
	case note == "" && (one == nil || one.told == ""):
		delete(w.conditions[k], about)
	case one == nil:
		w.conditions[k][about] = &condition{note: note, since: now}
	default:
		if (note == "") != (one.note == "") {
			one.since = now
		}
		one.note = note
	}
}

// setAll notes all conditions of a kind. Conditions that it does not name are over.
func (w *Warnings) setAll(k *kind, notes map[subject]string, now time.Time) {
	for about := range w.conditions[k] {
		w.set(k, about, notes[about], now)
	}
	for about, note := range notes {
		w.set(k, about, note, now)
	}
}

// ofServices are notes of which each is about a Service as a whole.
func ofServices(notes map[types.NamespacedName]string) map[subject]string {
	made := make(map[subject]string, len(notes))
	for service, note := range notes {
		made[subject{service: service}] = note
	}
	return made
}

// Count is how many conditions are known.
func (w *Warnings) Count() (n int) {
	for _, all := range w.conditions {
		n += len(all)
	}
	return n
}

// Tell writes the events that are due, of each kind those that wait longest first.
func (w *Warnings) Tell(now time.Time) {
	for _, k := range kinds {
		all := w.conditions[k]
		var due []subject
		for about, one := range all {
			if one.isDone(k, now) {
				delete(all, about)
			} else if one.isDue(k, now) {
				due = append(due, about)
			}
		}
		slices.SortFunc(due, func(a, b subject) int {
			return cmp.Or(all[a].since.Compare(all[b].since), cluster.CompareNames(a.service, b.service), cmp.Compare(a.part, b.part))
		})
		for _, about := range due {
			w.tell(k, about, now)
		}
	}
}

// isDone reports whether a condition is over, and its end is not told.
func (c *condition) isDone(k *kind, now time.Time) bool {
	return c.note == "" && k.end == nil && now.Sub(c.at) >= k.interval
}

func (c *condition) isDue(k *kind, now time.Time) bool {
	switch {
	case c.note == "" && k.end == nil:
		return false
	case c.note != "" && c.told != "":
		beganAgain := k.end == nil && c.since.After(c.at) && now.Sub(c.since) >= k.delay
		changed := k.tellsChanges && c.note != c.told
		return (beganAgain || changed) && now.Sub(c.at) >= k.interval
	}
	return now.Sub(c.since) >= k.delay
}

func (w *Warnings) tell(k *kind, about subject, now time.Time) {
	one := w.conditions[k][about]
	if one.note == "" {
		if w.event(about.service, corev1.EventTypeNormal, k.endReason, k.end(w.Node, about.part), now) {
			delete(w.conditions[k], about)
		}
		return
	}
	if !w.event(about.service, corev1.EventTypeWarning, k.reason, one.note, now) {
		return
	}
	one.told, one.at = one.note, now
}

// event writes an event if the budget of its reason allows it, and reports whether it does.
func (w *Warnings) event(service types.NamespacedName, eventType, reason, note string, now time.Time) bool {
	budget := w.budgets[reason]
	if budget == nil {
		budget = rate.NewLimiter(rate.Every(warnEvery), warnBurst)
		w.budgets[reason] = budget
	}
	if !budget.AllowN(now, 1) {
		return false
	}
	if about := w.Reference(service); about != nil {
		w.Record(about, eventType, reason, note)
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
