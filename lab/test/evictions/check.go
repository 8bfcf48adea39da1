package evictions

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// budget has the fields of a TopologyDisruptionBudget that the check needs.
type budget struct {
	name string
	// selector has only labels: tests write no expressions.
	selector map[string]string
	// These are maxUnavailable, minAvailable, maxUnavailableTotal and maxUnavailableDomains.
	perDomain, available, total *intstr.IntOrString
	domains                     *int32
	reserved                    map[types.UID]time.Time // until when
	observed                    uint64
}

// reservedFor is how long a reservation lasts if it is not extended.
const reservedFor = 2 * time.Minute

func readBudget(object runtime.Object) (budget, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return budget{}, err
	}
	var tdb v1alpha1.TopologyDisruptionBudget
	if err := json.Unmarshal(text, &tdb); err != nil {
		return budget{}, err
	}
	b := budget{
		name: tdb.Name, perDomain: tdb.Spec.MaxUnavailable, available: tdb.Spec.MinAvailable, total: tdb.Spec.MaxUnavailableTotal,
		domains: tdb.Spec.MaxUnavailableDomains, reserved: map[types.UID]time.Time{},
	}
	if tdb.Spec.Selector != nil {
		b.selector = tdb.Spec.Selector.MatchLabels
	}
	if tdb.Status.PodsObserved != "" {
		if b.observed, err = strconv.ParseUint(tdb.Status.PodsObserved, 10, 64); err != nil {
			return budget{}, fmt.Errorf("podsObserved of %s: %w", tdb.Name, err)
		}
	}
	for _, r := range tdb.Status.Reservations {
		b.reserved[r.UID] = r.Expires.Time
	}
	return b, nil
}

func (b budget) has(pod types.UID) bool {
	_, found := b.reserved[pod]
	return found
}

// madeAt is the time of the decision with the newest reservations, by the decider's clock.
func (b budget) madeAt(before budget) (at time.Time) {
	for uid, expires := range b.reserved {
		if made := expires.Add(-reservedFor); !before.has(uid) && made.After(at) {
			at = made
		}
	}
	return at
}

// World has the facts that Check needs beside the history.
type World struct {
	// Domains maps nodes to domains. Other nodes are not covered.
	Domains map[string]string
	// Expected is the constant number of pods that a budget expects. Only these budgets are checked.
	Expected map[string]int
	// Lag is how long a decision may lack what pods did by themselves after the version that the
	// budget names, by the clocks of the decider and of the API server.
	Lag time.Duration
}

// Report is the result of a check.
type Report struct {
	// Evictions is the number of evicted pods.
	Evictions int
	// OverBudget is the number of evictions beyond a budget, and Unreserved that of healthy pods that
	// were evicted without a reservation in a budget that covers them.
	OverBudget, Unreserved int
	// Gaps counts how often the watch missed versions because the API server had forgotten them.
	Gaps int
	// Unseen is the longest time that a decision lacked a change of a pod, in whole seconds. Changes
	// between the decision and its write count as 0.
	Unseen time.Duration
	// Disturbed is the highest number of a budget's domains that had a pod down at a time.
	Disturbed int
	// Examples describe faults.
	Examples []string
}

// Err returns an error if an eviction was admitted beyond a budget.
func (r Report) Err() error {
	if r.OverBudget+r.Unreserved == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d evictions exceeded a budget and %d had no reservation, with %d gaps in the history: %q", r.OverBudget, r.Evictions, r.Unreserved, r.Gaps, r.Examples)
}

const maxExamples = 5

// Check replays the history.
func (h *History) Check(world World) Report {
	h.mu.Lock()
	events := slices.Clone(h.events)
	h.mu.Unlock()
	return check(events, world)
}

func check(events []event, world World) Report {
	known := knownUntil(events)
	// Both watches read the same store: its versions have one order.
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.version, b.version) })
	r := replay{World: world, pods: map[types.UID]pod{}, budgets: map[types.UID]budget{}, committed: map[types.UID]map[string]bool{}, known: known}
	for _, e := range events {
		r.step(e)
	}
	return r.Report
}

// knownUntil returns the version of the last budget before the first gap. Events are in the order in which they came. The list after a
// gap has a later version than evictions during the gap.
func knownUntil(events []event) uint64 {
	var last uint64
	listed := false
	for _, e := range events {
		if e.of != budgets {
			continue
		}
		if e.list && listed {
			return last
		}
		listed, last = listed || e.list, max(last, e.version)
	}
	return math.MaxUint64
}

type replay struct {
	World
	Report
	pods    map[types.UID]pod
	budgets map[types.UID]budget
	lists   [2]int
	// committed has, for each pod, the budgets that ever had a reservation of it.
	committed map[types.UID]map[string]bool
	// known is the version until which all reservations are known.
	known uint64
	// changes are changes of pods other than evictions, and pods that were down and are gone since.
	changes []change
}

// change is a change of a pod at a version: it went down, is gone, or came to a domain without being
// ready.
type change struct {
	pod     pod // before the change, unless it arrived
	arrived bool
	version uint64
	at      time.Time // of changes by pods themselves
}

// undo restores the pods before the change.
func (c change) undo(standing map[types.UID]pod) map[types.UID]pod {
	standing = maps.Clone(standing)
	switch {
	case !c.arrived:
		standing[c.pod.uid] = c.pod
	case !standing[c.pod.uid].healthy():
		delete(standing, c.pod.uid)
	}
	return standing
}

func (r *replay) step(e event) {
	switch {
	case e.list:
		if r.lists[e.of]++; r.lists[e.of] > 1 {
			r.Gaps++
		}
		if e.of == pods {
			clear(r.pods)
		} else {
			clear(r.budgets)
		}
	case e.of == pods:
		r.stepPod(e)
	case e.gone:
		delete(r.budgets, e.uid)
	default:
		r.stepBudget(e)
	}
}

func (r *replay) stepPod(e event) {
	before, known := r.pods[e.uid]
	if known && before.healthy() && !before.evicted && (e.gone || !e.pod.healthy()) && !e.pod.evicted {
		r.changes = append(r.changes, change{pod: before, version: e.version, at: e.fellAt()})
	}
	if !e.gone && !e.pod.healthy() && r.Domains[e.pod.node] != "" && r.Domains[before.node] == "" {
		r.changes = append(r.changes, change{pod: e.pod, arrived: true, version: e.version, at: e.seen})
	}
	if e.pod.evicted && (!known || !before.evicted) {
		r.Evictions++
		if known && before.healthy() {
			r.reservedIn(before, e.version)
		}
	}
	if e.gone {
		if known && !before.healthy() {
			r.changes = append(r.changes, change{pod: before, version: e.version})
		}
		delete(r.pods, e.uid)
		return
	}
	r.pods[e.uid] = e.pod
}

// reservedIn records budgets that cover a pod and had no reservation of it at a version.
func (r *replay) reservedIn(p pod, version uint64) {
	for _, b := range r.budgets {
		if r.Expected[b.name] == 0 || !r.covers(b, p) || r.committed[p.uid][b.name] || version > r.known {
			continue
		}
		r.Unreserved++
		r.example("%s was evicted without a reservation in %s", p.name, b.name)
	}
}

func (r *replay) covers(b budget, p pod) bool {
	return r.Domains[p.node] != "" && matches(b.selector, p.labels)
}

func (r *replay) example(format string, args ...any) {
	if len(r.Examples) < maxExamples {
		r.Examples = append(r.Examples, fmt.Sprintf(format, args...))
	}
}

// stepBudget checks the state after a write of reservations.
func (r *replay) stepBudget(e event) {
	before, known := r.budgets[e.uid]
	r.budgets[e.uid] = e.budget
	made := map[string]int{} // by domain, for pods that were healthy
	reserves := false
	for uid := range e.budget.reserved {
		if before.has(uid) {
			continue
		}
		if r.committed[uid] == nil {
			r.committed[uid] = map[string]bool{}
		}
		r.committed[uid][e.budget.name] = true
		reserves = true
		if p, ok := r.pods[uid]; ok && p.healthy() {
			made[r.Domains[p.node]]++
		}
	}
	if !known || !reserves || r.Expected[e.budget.name] == 0 {
		return
	}
	r.judge(before, e, made)
}

// judge counts what exceeds the budget. The writer may not know pods that went down by themselves,
// were gone, or came without being ready, after the version that it had seen. Where that makes the
// difference, they count as before.
func (r *replay) judge(before budget, e event, made map[string]int) {
	standing := r.pods
	found := r.compare(e, standing, made)
	observed, decided := max(before.observed, e.budget.observed), e.budget.madeAt(before)
	for i := len(r.changes) - 1; found.over > 0 && i >= 0 && r.changes[i].version > observed; i-- {
		c, since := r.changes[i], time.Duration(0)
		if !c.at.IsZero() {
			since = decided.Sub(c.at)
		}
		if since >= r.Lag || !r.covers(e.budget, c.pod) {
			continue
		}
		standing = c.undo(standing)
		without := r.compare(e, standing, made)
		if without.over < found.over {
			r.Unseen = max(r.Unseen, since)
		}
		found = without
	}
	r.Disturbed = max(r.Disturbed, found.disturbed)
	r.OverBudget += found.over
	for _, says := range found.says {
		r.example("at version %d budget %s lets %s: pods were observed up to %d, and now %d%s", e.version, e.budget.name, says, before.observed, e.budget.observed, r.since(e.budget, decided, observed))
	}
}

type comparison struct {
	over, disturbed int
	says            []string
}

// compare compares pods with the budget after a write of reservations.
func (r *replay) compare(e event, standing map[types.UID]pod, made map[string]int) (c comparison) {
	b, domains := e.budget, r.domains()
	down, anywhere := r.down(b, standing, domains)
	total, healthy := anywhere, 0
	for domain, n := range down {
		total += n
		healthy += made[domain]
		if n > 0 {
			c.disturbed++
		}
	}
	expected := r.Expected[b.name]
	for _, domain := range domains {
		most, limited := b.most(expected, len(domains))
		if over := min(made[domain], down[domain]+anywhere-most); limited && over > 0 {
			c.over += over
			c.says = append(c.says, fmt.Sprintf("%d pods of %q be down, more than %d", down[domain]+anywhere, domain, most))
		}
	}
	if b.total != nil {
		if over := min(healthy, total-amount(*b.total, expected, 1)); over > 0 {
			c.over += over
			c.says = append(c.says, fmt.Sprintf("%d pods be down in all", total))
		}
	}
	if b.domains != nil && c.disturbed > int(*b.domains) && healthy > 0 {
		c.over += healthy
		c.says = append(c.says, fmt.Sprintf("%d domains be disturbed (%v)", c.disturbed, down))
	}
	return c
}

// since describes what pods did by themselves after a version.
func (r *replay) since(b budget, decided time.Time, observed uint64) string {
	var parts strings.Builder
	for _, c := range r.changes {
		if c.version > observed && !c.at.IsZero() && r.covers(b, c.pod) {
			did := "fell"
			if c.arrived {
				did = "came"
			}
			fmt.Fprintf(&parts, "; %s of %q %s at version %d, %.1f s before", c.pod.name, r.Domains[c.pod.node], did, c.version, decided.Sub(c.at).Seconds())
		}
	}
	return parts.String()
}

func (r *replay) domains() []string {
	return slices.Compact(slices.Sorted(maps.Values(r.Domains)))
}

func (b budget) most(expected, domains int) (most int, limited bool) {
	switch {
	case b.perDomain != nil:
		return amount(*b.perDomain, expected, domains), true
	case b.available != nil:
		return (expected+domains-1)/domains - amount(*b.available, expected, domains), true
	}
	return 0, false
}

// down counts the down pods in each domain. A missing pod belongs to the domain that lacks the most;
// if no domain lacks pods, it can be missing anywhere.
func (r *replay) down(b budget, standing map[types.UID]pod, domains []string) (down map[string]int, anywhere int) {
	down = map[string]int{}
	there, unhealthy, missing := map[string]int{}, map[string]int{}, r.Expected[b.name]
	for uid, p := range standing {
		if !r.covers(b, p) || p.finished {
			continue
		}
		domain := r.Domains[p.node]
		missing--
		there[domain]++
		switch {
		case !p.healthy():
			unhealthy[domain]++
			down[domain]++
		case b.has(uid):
			down[domain]++
		}
	}
	// While more pods exist than are expected, such as a terminating pod beside its replacement, that
	// many unhealthy pods do not count, in any domain.
	for domain, n := range unhealthy {
		down[domain] -= min(n, max(0, -missing))
	}
	for ; missing > 0; missing-- {
		emptiest, most := "", 0
		for _, domain := range domains {
			// Times the number of domains, because the expected pods may not divide evenly.
			lacks := r.Expected[b.name] - there[domain]*len(domains)
			if lacks > most || lacks == most && lacks > 0 && down[domain] > 0 && down[emptiest] == 0 {
				emptiest, most = domain, lacks
			}
		}
		if emptiest == "" {
			anywhere += missing
			break
		}
		there[emptiest]++
		down[emptiest]++
	}
	return down, anywhere
}

// amount returns a number of pods. A percentage is rounded up.
func amount(a intstr.IntOrString, expected, domains int) int {
	if a.Type == intstr.Int {
		return int(a.IntVal)
	}
	percent, err := intstr.GetScaledValueFromIntOrPercent(&a, 100, true)
	if err != nil {
		return 0
	}
	parts := 100 * domains
	return (percent*expected + parts - 1) / parts
}
