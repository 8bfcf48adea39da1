package disruption

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// model is a cluster with several deciders of evictions. Their steps happen in any order: they read old pods and budgets, decide, write,
// answer, and crash between any two of these.
type model struct {
	choose func(n int) int // a number below n
	log    []event

	now       time.Time
	perDomain int
	// pinned pods come back in the domain where they were. Else only totals are kept: a pod
	// of another domain that is not ready yet is not down through an eviction there.
	pinned bool
	// eager replacements are made while the old pod still ends.
	eager bool

	slots     []slot // each is a replica
	pods      [][]modelPod
	budgets   []*modelBudget
	deciders  []*decider
	requests  []*request
	evictions []*eviction
	made      int // pods and requests, for their names
	commits   int
}

// slot is a replica, whose pods replace one another.
type slot struct{ home string }

type modelPod struct {
	Pod
	slot    int
	version int
}

type modelBudget struct {
	versions []storedBudget // the last is current
	// since is by which commit a reservation was made.
	since map[string]int
}

type storedBudget struct {
	limits       Budget
	reservations []Reservation
	podsObserved int
	disturbed    []DomainKey
}

func (b *modelBudget) current() *storedBudget { return &b.versions[len(b.versions)-1] }

type decider struct {
	name    string
	skew    time.Duration
	view    int   // version of pods
	seen    []int // versions of budgets
	writing []*write
}

// write is an unstored decision about some requests.
type write struct {
	base    int
	next    storedBudget
	changed bool
	decided []decided
}

type decided struct {
	r        *request
	d        Decision
	reserved Reservation
}

// request is an undecided eviction.
type request struct {
	id      string
	pod     modelPod // as it was read live
	by      *decider
	started time.Time
	budget  int // that has to decide next
	held    []Reservation
	undoing bool
	commits []int
	limits  []*Budget // that admitted it as a healthy pod
}

// eviction is an admitted eviction that may be carried out.
type eviction struct {
	pod      modelPod
	deadline time.Time
	done     bool
	commits  []int
	limits   []*Budget
}

func newModel(choose func(n int) int) *model {
	m := &model{
		choose: choose, now: start, perDomain: 2 + choose(2), pinned: choose(4) > 0, eager: choose(2) == 0, pods: [][]modelPod{nil},
	}
	for _, home := range []string{"a", "b", "c"} {
		for range m.perDomain {
			m.slots = append(m.slots, slot{home: home})
		}
	}
	var pods []modelPod
	for i := range m.slots {
		p := m.newPod(i)
		p.Place, p.Domain, p.Pending, p.Ready, p.ReadySince = Covered, m.slots[i].home, false, true, start.Add(-time.Hour)
		pods = append(pods, p)
	}
	m.commitPods(pods)
	for i := range 1 + choose(2) {
		m.budgets = append(m.budgets, &modelBudget{versions: []storedBudget{{limits: m.drawLimits(i)}}, since: map[string]int{}})
	}
	for i := range 2 + choose(2) {
		d := &decider{name: fmt.Sprintf("decider %d", i), skew: time.Duration(choose(3)-1) * ClockSkew / 2}
		d.seen, d.writing = make([]int, len(m.budgets)), make([]*write, len(m.budgets))
		d.view = m.version()
		m.deciders = append(m.deciders, d)
	}
	return m
}

func (m *model) drawLimits(budget int) Budget {
	b := Budget{Name: fmt.Sprintf("shop/%d", budget)}
	most := 1
	if m.choose(3) == 0 {
		most = 1 + m.choose(m.perDomain)
	}
	if m.choose(2) == 0 {
		b.MaxUnavailable = number(most)
	} else {
		b.MinAvailable = number(m.perDomain - most)
	}
	if m.choose(3) == 0 || !m.pinned {
		b.MaxTotal = number(1 + m.choose(2))
	}
	if m.choose(3) == 0 {
		b.MaxDomains = limit(1 + m.choose(2))
	}
	b.Settle = time.Duration(m.choose(2)) * 20 * time.Second
	return b
}

// event is a format with arguments, because only failed runs are printed.
type event struct {
	at     time.Time
	format string
	args   []any
}

func (m *model) say(format string, args ...any) {
	m.log = append(m.log, event{m.now, format, args})
}

func (m *model) text() string {
	var text strings.Builder
	for _, e := range m.log {
		fmt.Fprintf(&text, "%s %s\n", e.at.Format(time.TimeOnly), fmt.Sprintf(e.format, e.args...))
	}
	return text.String()
}

// version returns the present version of the pods, and truth returns the pods.
func (m *model) version() int      { return len(m.pods) - 1 }
func (m *model) truth() []modelPod { return m.pods[m.version()] }

// commitPods stores pods with a new version.
func (m *model) commitPods(pods []modelPod) {
	slices.SortFunc(pods, func(a, b modelPod) int { return cmp.Compare(a.Name, b.Name) })
	m.pods = append(m.pods, pods)
	for i := range pods {
		if pods[i].version == 0 {
			pods[i].version = m.version()
		}
	}
}

func (m *model) newPod(slot int) modelPod {
	m.made++
	name := fmt.Sprintf("web-%d-%03d", slot, m.made)
	return modelPod{Pod: Pod{UID: name, Name: name, Owner: "web", Pending: true}, slot: slot}
}

// change changes a pod, or removes it if the change returns so.
func (m *model) change(uid string, change func(p *modelPod) (keep bool)) {
	pods := slices.Clone(m.truth())
	for i := range pods {
		if pods[i].UID == uid {
			pods[i].version = 0
			if !change(&pods[i]) {
				pods = slices.Delete(pods, i, i+1)
			}
			break
		}
	}
	m.commitPods(pods)
}

// step takes one of the possible steps.
func (m *model) step() {
	type action struct {
		weight int
		do     func()
	}
	var actions []action
	can := func(weight int, do func()) { actions = append(actions, action{weight, do}) }

	can(2, func() { m.now = m.now.Add(time.Duration(m.choose(30)) * time.Second) })
	for _, p := range m.truth() {
		m.podActions(p, can)
	}
	for i := range m.slots {
		if m.lacksPod(i) {
			can(2, func() { m.commitPods(append(slices.Clone(m.truth()), m.newPod(i))) })
		}
	}
	if len(m.requests) < 6 {
		can(8, m.request)
	}
	for _, e := range m.evictions {
		if !e.done {
			can(3, func() { m.evict(e) })
		}
	}
	for _, d := range m.deciders {
		if d.view < m.version() {
			can(2, func() { d.view += 1 + m.choose(m.version()-d.view) })
		}
		can(1, func() { m.crash(d) })
		for b := range m.budgets {
			if last := len(m.budgets[b].versions) - 1; d.seen[b] < last {
				can(1, func() { d.seen[b] += 1 + m.choose(last-d.seen[b]) })
			}
			if d.writing[b] == nil {
				can(4, func() { m.decide(d, b) })
			} else {
				can(4, func() { m.store(d, b) })
			}
		}
	}
	for _, r := range m.requests {
		if r.undoing {
			can(3, func() { m.undo(r) })
		}
	}
	if m.choose(40) == 0 {
		b := m.choose(len(m.budgets))
		next := *m.budgets[b].current()
		next.limits = m.drawLimits(b)
		m.budgets[b].versions = append(m.budgets[b].versions, next)
		m.say("budget %d is edited", b)
	}

	total := 0
	for _, a := range actions {
		total += a.weight
	}
	at := m.choose(total)
	for _, a := range actions {
		if at -= a.weight; at < 0 {
			a.do()
			return
		}
	}
}

// podActions returns what can happen to a pod by itself.
func (m *model) podActions(p modelPod, can func(weight int, do func())) {
	set := func(weight int, what string, change func(p *modelPod)) {
		can(weight, func() {
			m.change(p.UID, func(p *modelPod) bool { change(p); return true })
			m.say("%s %s", p.Name, what)
		})
	}
	switch {
	case p.Terminating:
		can(3, func() {
			m.change(p.UID, func(*modelPod) bool { return false })
			m.say("%s is gone", p.Name)
		})
	case p.Place == Unplaced:
		set(3, "is scheduled", func(p *modelPod) {
			p.Place, p.Domain = Covered, m.slots[p.slot].home
			if !m.pinned {
				p.Domain = m.slots[m.choose(len(m.slots))].home
			}
		})
	case p.Pending:
		set(3, "runs", func(p *modelPod) { p.Pending = false })
	case !p.Ready:
		set(3, "is ready", func(p *modelPod) { p.Ready, p.ReadySince = true, m.now })
	case m.choose(20) == 0:
		set(1, "is not ready", func(p *modelPod) { p.Ready = false })
	}
}

// lacksPod reports whether a controller creates a pod for a slot.
func (m *model) lacksPod(slot int) bool {
	return !slices.ContainsFunc(m.truth(), func(p modelPod) bool { return p.slot == slot && (!m.eager || !p.Terminating) })
}

// request requests an eviction, which reads the pod.
func (m *model) request() {
	pods := m.truth()
	if len(pods) == 0 {
		return
	}
	pod := pods[m.choose(len(pods))]
	if len(m.requests) > 0 && m.choose(2) == 0 { // two evict the same pod, or one tries again
		same := m.requests[m.choose(len(m.requests))].pod.UID
		if at := slices.IndexFunc(pods, func(p modelPod) bool { return p.UID == same }); at >= 0 {
			pod = pods[at]
		}
	}
	m.requestTo(m.deciders[m.choose(len(m.deciders))], pod)
}

func (m *model) requestTo(d *decider, pod modelPod) *request {
	m.made++
	r := &request{
		id: fmt.Sprintf("request %d", m.made), pod: pod, by: d, started: m.now,
		commits: make([]int, len(m.budgets)), limits: make([]*Budget, len(m.budgets)), held: make([]Reservation, len(m.budgets)),
	}
	m.requests = append(m.requests, r)
	m.say("%s to evict %s goes to %s", r.id, r.pod.Name, r.by.name)
	return r
}

// state returns the knowledge of a decider about a budget.
func (m *model) state(d *decider, stored *storedBudget, requests []*request) *State {
	s := &State{
		Budget: stored.limits, Domains: []string{"a", "b", "c"}, Owners: []Owner{{ID: "web", Replicas: len(m.slots)}},
		Reservations: stored.reservations, Disturbed: stored.disturbed,
	}
	pods := slices.Clone(m.pods[d.view])
	for _, r := range requests {
		if !m.hasSeen(d, r.pod) {
			pods = append(pods, r.pod)
		}
	}
	slices.SortFunc(pods, func(a, b modelPod) int { return cmp.Compare(a.Name, b.Name) })
	for _, p := range pods {
		s.Pods = append(s.Pods, p.Pod)
	}
	return s
}

// decide makes a decider decide all requests that wait for a budget.
func (m *model) decide(d *decider, b int) {
	base := m.budgets[b].versions[d.seen[b]]
	if d.view < base.podsObserved {
		return
	}
	var waiting []*request
	for _, r := range m.requests {
		if r.by == d && r.budget == b && !r.undoing && m.hasSeen(d, r.pod) {
			waiting = append(waiting, r)
		}
	}
	s, clock := m.state(d, &base, waiting), m.now.Add(d.skew)
	s.Reservations = m.confirm(s, clock)
	kept, gone := Release(s, clock)
	w := &write{base: d.seen[b], next: base, changed: len(kept) != len(s.Reservations)}
	s.Reservations = kept
	if len(gone) > 0 {
		w.next.podsObserved = max(w.next.podsObserved, d.view)
	}
	tally := NewTally(s, clock)
	for _, r := range waiting {
		done := decided{r: r, d: tally.Decide(r.pod.UID)}
		if done.d.Reserve {
			reserved, changed := tally.Reserve(r.pod.UID, r.id)
			done.reserved = reserved
			if changed {
				kept, w.changed = stored(kept, reserved), true
				w.next.podsObserved = max(w.next.podsObserved, m.versionOf(r.pod, d))
			}
		}
		w.decided = append(w.decided, done)
	}
	w.next.reservations = kept
	w.next.disturbed = nil
	for _, measured := range tally.Measures().Domains {
		if measured.Disturbed {
			w.next.disturbed = append(w.next.disturbed, DomainKey{Domain: measured.Domain})
		}
	}
	d.writing[b] = w
}

// confirm reads live the pods with expired reservations that still seem to exist. The reservations of existing pods get a second more.
func (m *model) confirm(s *State, clock time.Time) []Reservation {
	confirmed := slices.Clone(s.Reservations)
	for i := range confirmed {
		r := &confirmed[i]
		isThere := func(p modelPod) bool { return p.UID == r.UID && !p.Terminating }
		if !r.isActive(clock) && !slices.ContainsFunc(m.truth(), isThere) {
			r.Expires = clock.Add(time.Second)
		}
	}
	return confirmed
}

// hasSeen reports whether a decider knows what became of a pod by a time when it existed.
func (m *model) hasSeen(d *decider, pod modelPod) bool {
	return d.view >= pod.version || slices.ContainsFunc(m.pods[d.view], func(p modelPod) bool { return p.UID == pod.UID })
}

// versionOf returns the version of a pod that a decider has seen.
func (m *model) versionOf(pod modelPod, d *decider) int {
	for _, p := range m.pods[d.view] {
		if p.UID == pod.UID {
			return p.version
		}
	}
	return pod.version
}

// store writes the decisions about a budget, unless another decider has written meanwhile, and answers. The decider may crash after the
// write, or not learn that it succeeded.
func (m *model) store(d *decider, b int) {
	w, budget := d.writing[b], m.budgets[b]
	d.writing[b] = nil
	last := len(budget.versions) - 1
	if w.base != last {
		d.seen[b] = last
		return
	}
	if w.changed || !slices.Equal(w.next.disturbed, budget.current().disturbed) {
		w.next.limits = budget.current().limits
		budget.versions = append(budget.versions, w.next)
		d.seen[b] = len(budget.versions) - 1
		m.commits++
		for _, done := range w.decided {
			if done.d.Rule != RuleReserved && done.d.Reserve {
				budget.since[done.reserved.UID] = m.commits
			}
		}
	}
	switch m.choose(10) {
	case 0:
		m.crash(d)
		return
	case 1:
		return
	}
	m.settle(b, w, m.commits)
}

// settle continues or denies the requests of a write.
func (m *model) settle(b int, w *write, commit int) {
	for _, done := range w.decided {
		r := done.r
		if !slices.Contains(m.requests, r) {
			continue
		}
		m.say("%s at budget %d: %s", r.id, b, string(done.d.Rule))
		if !done.d.Allowed {
			r.undoing = true
			continue
		}
		r.held[b] = done.reserved
		if since, found := m.budgets[b].since[r.pod.UID]; found {
			r.commits[b] = since
		} else {
			r.commits[b] = commit
		}
		if done.d.Rule == RuleWithin {
			limits := w.next.limits
			r.limits[b] = &limits
		}
		if r.budget++; r.budget == len(m.budgets) {
			m.answer(r)
		}
	}
}

// answer admits an eviction, unless the answer is lost.
func (m *model) answer(r *request) {
	m.drop(r)
	if m.choose(8) == 0 {
		return
	}
	m.say("%s is admitted", r.id)
	m.evictions = append(m.evictions, &eviction{pod: r.pod, deadline: r.started.Add(EvictionTime), commits: r.commits, limits: r.limits})
}

func (m *model) drop(r *request) {
	m.requests = slices.DeleteFunc(m.requests, func(other *request) bool { return other == r })
}

// undo gives up the reservation of a denied request.
func (m *model) undo(r *request) {
	for b := range m.budgets {
		held := r.held[b]
		if held.UID == "" {
			continue
		}
		r.held[b] = Reservation{}
		budget := m.budgets[b]
		next := *budget.current()
		next.reservations = slices.DeleteFunc(slices.Clone(next.reservations), func(stored Reservation) bool {
			return stored.UID == held.UID && stored.Holder == r.id
		})
		if len(next.reservations) != len(budget.current().reservations) {
			budget.versions = append(budget.versions, next)
			m.say("%s gives up its reservation of budget %d", r.id, b)
		}
		return
	}
	m.drop(r)
}

// crash loses the memory and the plans of a decider, except for caches.
func (m *model) crash(d *decider) {
	for b := range m.budgets {
		d.writing[b] = nil
	}
	m.requests = slices.DeleteFunc(m.requests, func(r *request) bool { return r.by == d })
}

// evict carries out an eviction, or something else prevents it.
func (m *model) evict(e *eviction) {
	e.done = true
	at := slices.IndexFunc(m.truth(), func(p modelPod) bool { return p.UID == e.pod.UID })
	if m.now.After(e.deadline) || at < 0 || m.choose(8) == 0 {
		e.deadline = time.Time{}
		return
	}
	m.change(e.pod.UID, func(p *modelPod) bool { p.Terminating = true; return true })
	m.say("%s is evicted", e.pod.Name)
}

// isOutstanding reports whether the pod of an eviction is down through it, or may become so.
func (m *model) isOutstanding(e *eviction) bool {
	if !e.done {
		return !m.now.After(e.deadline) && slices.ContainsFunc(m.truth(), func(p modelPod) bool { return p.UID == e.pod.UID && !p.Terminating })
	}
	return !e.deadline.IsZero() && !slices.ContainsFunc(m.truth(), func(p modelPod) bool {
		return p.slot == e.pod.slot && p.UID != e.pod.UID && p.Ready && !p.Terminating
	})
}

// violation names an eviction that should not have been admitted. It counts every eviction that was committed earlier and was still
// outstanding.
func (m *model) violation() string {
	m.evictions = slices.DeleteFunc(m.evictions, func(e *eviction) bool { return !m.isOutstanding(e) })
	for b := range m.budgets {
		for _, e := range m.evictions {
			if e.limits[b] == nil {
				continue
			}
			slotsDown := map[int]bool{}
			for _, other := range m.evictions {
				if other.commits[b] <= e.commits[b] {
					slotsDown[other.pod.slot] = true
				}
			}
			if over := m.exceeded(e.limits[b], slices.Sorted(maps.Keys(slotsDown)), m.slots[e.pod.slot].home); over != "" {
				return fmt.Sprintf("the eviction of %s was admitted by budget %d: %s", e.pod.Name, b, over)
			}
		}
	}
	return ""
}

func (m *model) exceeded(b *Budget, slotsDown []int, home string) string {
	if b.MaxTotal != nil && len(slotsDown) > b.MaxTotal.Value {
		return fmt.Sprintf("%d are down in all, and at most %d may be", len(slotsDown), b.MaxTotal.Value)
	}
	if !m.pinned {
		return ""
	}
	down, domains := 0, map[string]bool{}
	for _, s := range slotsDown {
		domains[m.slots[s].home] = true
		if m.slots[s].home == home {
			down++
		}
	}
	if b.MaxUnavailable != nil && down > b.MaxUnavailable.Value {
		return fmt.Sprintf("%d are down in domain %s, and at most %d may be", down, home, b.MaxUnavailable.Value)
	}
	if b.MinAvailable != nil && m.perDomain-down < b.MinAvailable.Value {
		return fmt.Sprintf("%d are down in domain %s, and %d must be healthy", down, home, b.MinAvailable.Value)
	}
	if b.MaxDomains != nil && len(domains) > *b.MaxDomains {
		return fmt.Sprintf("%d domains are disturbed, and at most %d may be", len(domains), *b.MaxDomains)
	}
	return ""
}

// run takes steps until an invariant is violated.
func (m *model) run(steps int) string {
	for range steps {
		m.step()
		if wrong := m.violation(); wrong != "" {
			return wrong
		}
	}
	return ""
}

func TestNoInterleavingAdmitsMoreThanTheBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") })
		if wrong := m.run(400); wrong != "" {
			t.Fatalf("%s\n%s", wrong, m.text())
		}
	})
}
