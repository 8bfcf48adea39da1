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

// Warnings decide which events to write about Services that do not work on this node: one when a condition has lasted
// for a while, and one when it has been over for a while. A cluster has many nodes, so events of each reason have a
// budget. Events beyond the budget are written later.
type Warnings struct {
	Options
	conditions map[*kind]map[subject]*condition
	// budgets are by reason, so that many events of one reason leave room for others.
	budgets map[string]*rate.Limiter
}

// Options configure Warnings.
type Options struct {
	Node string
	// Record writes an event.
	Record func(about *corev1.ObjectReference, eventType, reason, note string)
	// Reference returns the Service that an event is about, nil if it does not exist.
	Reference func(types.NamespacedName) *corev1.ObjectReference
}

// ReasonHealthPortTaken is the reason of warnings about ports for health checks, the same as kube-proxy's.
const ReasonHealthPortTaken = "FailedToStartServiceHealthcheck"

const (
	// WarnAfter is how long most conditions last before the warning.
	WarnAfter = 3 * time.Second
	// HealthPortWarnAfter is how long a port for health checks may be taken before the warning: kube-proxy closes
	// its own only after it has noticed that it no longer serves the Service.
	HealthPortWarnAfter = 15 * time.Second
	// repeatAfter is the least time between two warnings about the same port.
	repeatAfter = 6 * time.Minute
	// RefusedEvery is the least time between two events about refused addresses of a Service.
	RefusedEvery = 10 * time.Minute

	// The budget of a reason: warnBurst events at once, and one more every warnEvery.
	warnBurst = 25
	warnEvery = 10 * time.Second
)

type kind struct {
	reason string
	// endReason and end describe the event at the end of the condition. Without them there is none.
	endReason string
	end       func(node, family string) string
	// delay is how long the condition lasts, or has been over, before the event.
	delay time.Duration
	// repeatsChanges means that a changed note gets another event while the condition lasts.
	repeatsChanges bool
	// interval is the least time between two warnings.
	interval time.Duration
}

var (
	bypassed = &kind{
		reason: "RulesBypassed", endReason: "RulesTraversed", repeatsChanges: true,
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
	addressRefused  = &kind{reason: "AddressRefused", delay: WarnAfter, repeatsChanges: true, interval: RefusedEvery}
	portRefused     = &kind{reason: "PortNotProgrammed", interval: repeatAfter}
	healthPortTaken = &kind{reason: ReasonHealthPortTaken, delay: HealthPortWarnAfter, interval: repeatAfter}

	kinds = []*kind{bypassed, portRefused, unreachable, tooManyElements, addressRefused, healthPortTaken}
)

// subject names the object of a condition: a Service and, for one part of it, the port or family.
type subject struct {
	service types.NamespacedName
	part    string
}

type condition struct {
	note     string    // empty when the condition is over
	since    time.Time // when the condition began, or ended
	lastNote string    // the note of the last event, empty before the first
	lastTime time.Time // when the last event was written
}

// NewWarnings returns Warnings without any condition.
func NewWarnings(o Options) *Warnings {
	w := &Warnings{Options: o, conditions: map[*kind]map[subject]*condition{}, budgets: map[string]*rate.Limiter{}}
	for _, k := range kinds {
		w.conditions[k] = map[subject]*condition{}
	}
	return w
}

// Unreachable sets the ports of a Service that clients on the node cannot reach.
func (w *Warnings) Unreachable(service types.NamespacedName, ports []string, now time.Time) {
	note := ""
	if len(ports) > 0 {
		note = fmt.Sprintf("clients on node %s cannot reach %s: the Service's topology excludes all endpoints for this node",
			w.Node, portsText(ports))
	}
	w.set(unreachable, subject{service: service}, note, now)
}

// AddressesRefused sets the sentences about the refused addresses of a Service.
func (w *Warnings) AddressesRefused(service types.NamespacedName, sentences []string, now time.Time) {
	note := ""
	if len(sentences) > 0 {
		note = fmt.Sprintf("node %s: %s", w.Node, strings.Join(sentences, ". "))
	}
	w.set(addressRefused, subject{service: service}, note, now)
}

// TooManyElements sets all Services that are programmed in part or not at all, each with its note.
func (w *Warnings) TooManyElements(missing map[types.NamespacedName]string, now time.Time) {
	w.setAll(tooManyElements, ofServices(missing), now)
}

// NotServed removes a Service that the node no longer serves, without an event.
func (w *Warnings) NotServed(service types.NamespacedName) {
	delete(w.conditions[tooManyElements], subject{service: service})
}

// HealthPortsTaken sets all Services whose ports for health checks cannot be opened, each with its note.
func (w *Warnings) HealthPortsTaken(failures map[types.NamespacedName]string, now time.Time) {
	w.setAll(healthPortTaken, ofServices(failures), now)
}

// Bypassed sets the reason why packets of a family bypass the node's rules, empty if they do not. The event is about
// the probed Service.
func (w *Warnings) Bypassed(service types.NamespacedName, family, cause string, now time.Time) {
	note := ""
	if cause != "" {
		note = fmt.Sprintf("no Service is handed over to node %s: its %s packets bypass the rules of vicinity-proxy: %s; see docs/coexistence.md",
			w.Node, family, cause)
	}
	w.set(bypassed, subject{service, family}, note, now)
}

// PortsRefused sets all ports of Services that the kernel refuses, each with the cause.
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
	case note == "" && (one == nil || one.lastNote == ""):
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

// setAll sets all conditions of a kind. The others of the kind are over.
func (w *Warnings) setAll(k *kind, notes map[subject]string, now time.Time) {
	for about := range w.conditions[k] {
		w.set(k, about, notes[about], now)
	}
	for about, note := range notes {
		w.set(k, about, note, now)
	}
}

// ofServices converts notes about whole Services.
func ofServices(notes map[types.NamespacedName]string) map[subject]string {
	made := make(map[subject]string, len(notes))
	for service, note := range notes {
		made[subject{service: service}] = note
	}
	return made
}

// WriteDue writes the due events of each kind, the longest waiting first.
func (w *Warnings) WriteDue(now time.Time) {
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
			w.write(k, about, now)
		}
	}
}

// isDone reports whether a condition is over and gets no further event.
func (c *condition) isDone(k *kind, now time.Time) bool {
	return c.note == "" && k.end == nil && now.Sub(c.lastTime) >= k.interval
}

func (c *condition) isDue(k *kind, now time.Time) bool {
	switch {
	case c.note == "" && k.end == nil:
		return false
	case c.note != "" && c.lastNote != "":
		beganAgain := k.end == nil && c.since.After(c.lastTime) && now.Sub(c.since) >= k.delay
		changed := k.repeatsChanges && c.note != c.lastNote
		return (beganAgain || changed) && now.Sub(c.lastTime) >= k.interval
	}
	return now.Sub(c.since) >= k.delay
}

func (w *Warnings) write(k *kind, about subject, now time.Time) {
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
	one.lastNote, one.lastTime = one.note, now
}

// event writes an event if the budget of its reason allows it, and reports whether it wrote one.
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

// ServiceOf returns the Service of a port named "namespace/name:port".
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
