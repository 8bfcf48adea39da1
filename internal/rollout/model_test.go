package rollout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"vicinity.dev/vicinity/api/v1alpha1"
)

var start = time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)

// model is a cluster with several callers of Next. A caller may see old pods, and may crash between any two of: decide, store, act.
type model struct {
	choose func(n int) int // a number below n
	log    []event

	now      time.Time
	kind     Kind
	pinned   bool // a slot's pods are always in one domain
	spec     Spec
	revision string
	previous []string // revisions that can come again
	broken   map[string]bool
	query    Truth

	slots    []modelSlot
	pods     [][]Pod // by version
	made     int
	memories []stored
	callers  []*caller

	// down has the domain of each slot whose ready pod the rollout took down. A slot leaves it once it has a ready pod.
	down  map[string]string
	wrong string
}

type modelSlot struct{ name, home string }

// stored is a memory with the version of the pods that it was decided by.
type stored struct {
	memory  Memory
	version int
}

// caller is a process that runs steps.
type caller struct {
	view     int
	base     int // of the step
	step     *Step
	todo     []func()
	refusals map[string]Refusal
}

type event struct {
	at     time.Time
	format string
	args   []any
}

func (m *model) say(format string, args ...any) { m.log = append(m.log, event{m.now, format, args}) }

func (m *model) text() string {
	var text strings.Builder
	for _, e := range m.log {
		fmt.Fprintf(&text, "%s %s\n", e.at.Format(time.TimeOnly), fmt.Sprintf(e.format, e.args...))
	}
	return text.String()
}

func newModel(choose func(n int) int) *model {
	m := &model{
		choose: choose, now: start, kind: Kind(choose(3)), pinned: choose(3) > 0, query: True,
		broken: map[string]bool{}, down: map[string]string{}, pods: [][]Pod{nil}, memories: []stored{{}},
	}
	m.spec = Spec{
		MaxUnavailable: Amount{Value: 1 + choose(2)}, Deadline: 10 * time.Minute, Waves: Waves{All: choose(4) == 0, Exponential: choose(2) == 0, Domains: 1 + choose(2), Most: 2},
		ReadyFor: time.Duration(choose(2)) * 20 * time.Second, Bake: time.Duration(choose(2)) * time.Minute, RollsBack: choose(2) == 0, HasQuery: choose(3) == 0,
	}
	if choose(3) == 0 {
		m.spec.PauseBefore = []string{"b"}
	}
	if choose(2) == 0 {
		m.spec.Order = []string{"c", "nowhere"}
	}
	m.revision = "r0"
	for i := range 3 * (1 + choose(3)) {
		m.slots = append(m.slots, modelSlot{fmt.Sprintf("db-%d", i), string("abc"[i%3])})
	}
	var pods []Pod
	for _, s := range m.slots {
		p := m.newPod(s)
		p.Placed, p.Domain, p.Ready, p.Since = true, s.home, true, start.Add(-time.Hour)
		pods = append(pods, p)
	}
	m.commit(pods)
	for range 2 {
		m.callers = append(m.callers, &caller{view: m.version(), refusals: map[string]Refusal{}})
	}
	return m
}

func (m *model) version() int    { return len(m.pods) - 1 }
func (m *model) truth() []Pod    { return m.pods[m.version()] }
func (m *model) stored() *stored { return &m.memories[len(m.memories)-1] }

func (m *model) commit(pods []Pod) {
	m.pods = append(m.pods, pods)
	for slot := range m.down {
		if slices.ContainsFunc(pods, func(p Pod) bool {
			return p.Slot == slot && p.Ready && !p.Terminating
		}) || !slices.ContainsFunc(m.slots, func(s modelSlot) bool { return s.name == slot }) {
			delete(m.down, slot)
		}
	}
}

func (m *model) newPod(s modelSlot) Pod {
	m.made++
	return Pod{UID: fmt.Sprintf("u%03d", m.made), Name: s.name, Slot: s.name, Revision: m.revision, Since: m.now}
}

// change changes a pod, or removes it if change returns false.
func (m *model) change(uid string, change func(p *Pod) (keep bool)) {
	pods := slices.Clone(m.truth())
	if i := slices.IndexFunc(pods, func(p Pod) bool { return p.UID == uid }); i >= 0 && !change(&pods[i]) {
		pods = slices.Delete(pods, i, i+1)
	}
	m.commit(pods)
}

func (m *model) find(uid string) *Pod {
	if i := slices.IndexFunc(m.truth(), func(p Pod) bool { return p.UID == uid }); i >= 0 {
		return &m.truth()[i]
	}
	return nil
}

type action struct {
	weight int
	do     func()
}

// step does one random action of those possible now.
func (m *model) step() {
	var actions []action
	can := func(weight int, do func()) { actions = append(actions, action{weight, do}) }
	can(4, func() { m.pass(time.Duration(1+m.choose(30)) * time.Second) })
	if m.choose(40) == 0 {
		can(40, func() { m.pass(11 * time.Minute) })
	}
	m.workload(can)
	m.accidents(can)
	m.person(can)
	for _, c := range m.callers {
		m.callerActions(c, can)
	}
	total := 0
	for _, a := range actions {
		total += a.weight
	}
	n := m.choose(total)
	for _, a := range actions {
		if n -= a.weight; n < 0 {
			a.do()
			return
		}
	}
}

func (m *model) pass(d time.Duration) {
	m.now = m.now.Add(d)
	m.commit(slices.Clone(m.truth()))
}

// workload adds the actions of the workload's controller, the scheduler and the kubelets.
func (m *model) workload(can func(int, func())) {
	if m.kind == Surge {
		m.deployment(can)
	}
	lowerReady := true
	for _, s := range m.slots {
		i := slices.IndexFunc(m.truth(), func(p Pod) bool { return p.Slot == s.name })
		if i < 0 {
			if lowerReady || m.kind != Ordered {
				can(4, func() {
					p := m.newPod(s)
					m.say("%s is made as %s of %s", p.Name, p.UID, p.Revision)
					m.commit(append(slices.Clone(m.truth()), p))
				})
			}
			lowerReady = false
			continue
		}
		for _, p := range m.truth() {
			if p.Slot == s.name && p.UID != m.truth()[i].UID {
				m.kubelet(s, p, can)
			}
		}
		p := m.truth()[i]
		m.kubelet(s, p, can)
		lowerReady = lowerReady && p.Ready && !p.Terminating
	}
	for _, p := range m.truth() {
		if !slices.ContainsFunc(m.slots, func(s modelSlot) bool { return s.name == p.Slot }) {
			can(4, func() { m.change(p.UID, func(*Pod) bool { return false }) })
		}
	}
}

// kubelet adds the actions of the scheduler and a kubelet for one pod.
func (m *model) kubelet(s modelSlot, p Pod, can func(int, func())) {
	switch {
	case p.Terminating:
		can(4, func() { m.say("%s is gone", p.UID); m.change(p.UID, func(*Pod) bool { return false }) })
	case !p.Placed:
		can(4, func() {
			domain := s.home
			if !m.pinned {
				domain = string("abc"[m.choose(3)])
			}
			m.say("%s is in %s", p.UID, domain)
			m.change(p.UID, func(p *Pod) bool { p.Placed, p.Domain = true, domain; return true })
		})
	case !p.Ready && !m.broken[p.Revision]:
		can(4, func() {
			m.say("%s is ready", p.UID)
			m.change(p.UID, func(p *Pod) bool { p.Ready, p.Since = true, m.now; return true })
		})
	}
}

// deployment deletes an old pod if its slot has another pod that is ready. It deletes an unready old pod if the slot has a new one.
func (m *model) deployment(can func(int, func())) {
	for _, p := range m.truth() {
		if p.Terminating || p.Revision == m.revision {
			continue
		}
		if !slices.ContainsFunc(m.truth(), func(o Pod) bool {
			return o.Slot == p.Slot && o.UID != p.UID && !o.Terminating && (o.Ready || !p.Ready && o.Revision == m.revision)
		}) {
			continue
		}
		can(4, func() {
			m.say("%s is deleted by its ReplicaSet", p.UID)
			m.change(p.UID, func(p *Pod) bool { p.Terminating, p.Since = true, m.now.Add(30*time.Second); return true })
		})
	}
}

// accidents adds failures and changes that the rollout does not cause.
func (m *model) accidents(can func(int, func())) {
	if len(m.truth()) == 0 || m.choose(4) > 0 {
		return
	}
	p := m.truth()[m.choose(len(m.truth()))]
	if p.Ready && !p.Terminating {
		can(2, func() {
			m.say("%s becomes unready", p.UID)
			m.change(p.UID, func(p *Pod) bool { p.Ready, p.Since = false, m.now; return true })
		})
	}
	if !p.Terminating {
		can(1, func() {
			m.say("%s is deleted by another", p.UID)
			m.change(p.UID, func(p *Pod) bool { p.Terminating, p.Since = true, m.now; return true })
		})
	}
	can(1, func() {
		home := string("abc"[m.choose(3)])
		m.say("nodes of %s vanish", home)
		next := string("abc"[m.choose(3)])
		for i := range m.slots {
			if m.slots[i].home == home {
				m.slots[i].home = next
			}
		}
		m.commit(slices.DeleteFunc(slices.Clone(m.truth()), func(p Pod) bool { return p.Placed && p.Domain == home }))
	})
	can(1, func() {
		if last := len(m.slots) - 1; m.choose(2) == 0 && last > 0 {
			m.say("scaled down to %d", last)
			m.slots = slices.Clone(m.slots[:last])
		} else {
			m.slots = append(slices.Clone(m.slots), modelSlot{fmt.Sprintf("db-%d", len(m.slots)), string("abc"[m.choose(3)])})
			m.say("scaled up to %d", len(m.slots))
		}
		m.commit(slices.Clone(m.truth()))
	})
}

// person adds the actions of people who write templates and specs.
func (m *model) person(can func(int, func())) {
	if m.choose(3) > 0 {
		return
	}
	can(1, func() { m.template(fmt.Sprintf("r%d", len(m.previous)+1), m.choose(3) == 0) })
	if n := len(m.previous); n > 0 && m.choose(2) == 0 {
		can(1, func() { m.template(m.previous[n-1-m.choose(min(n, 2))], false) })
	}
	can(1, func() { m.spec.Paused = !m.spec.Paused; m.say("paused: %t", m.spec.Paused) })
	can(3, func() {
		m.spec.Paused, m.spec.Approved = false, Approved{Revision: m.revision, Domains: []string{"b"}, FailuresBefore: m.now}
		m.say("approved %s", m.revision)
	})
	can(1, func() {
		m.spec.Stop = Stop{Revision: m.revision, Action: StopAction(m.choose(2))}
		m.say("stopped %+v", m.spec.Stop)
	})
	can(1, func() { m.query = Truth(m.choose(3)); m.say("query is %d", m.query) })
}

func (m *model) template(revision string, broken bool) {
	if revision == m.revision {
		return
	}
	if !slices.Contains(m.previous, m.revision) {
		m.previous = append(m.previous, m.revision)
	}
	if !slices.Contains(m.previous, revision) {
		m.broken[revision] = broken
	}
	m.say("revision %s, broken: %t", revision, m.broken[revision])
	m.revision = revision
}

func (m *model) callerActions(c *caller, can func(int, func())) {
	if c.view < m.version() {
		can(4, func() { c.view += 1 + m.choose(m.version()-c.view) })
	}
	if m.choose(10) == 0 {
		can(2, func() {
			c.view = m.choose(m.version() + 1)
			*c = caller{view: c.view, refusals: map[string]Refusal{}}
			m.say("a caller restarts, and sees version %d of %d", c.view, m.version())
		})
	}
	switch {
	case len(c.todo) > 0:
		can(10, func() { next := c.todo[0]; c.todo = c.todo[1:]; next() })
	case c.step != nil:
		if !m.othersAct(c) {
			can(6, func() { m.store(c) })
		}
	case c.view >= m.stored().version:
		can(6, func() { m.decide(c) })
	}
}

// othersAct reports whether another caller still acts. It stands for the lease of the leader.
func (m *model) othersAct(c *caller) bool {
	return slices.ContainsFunc(m.callers, func(o *caller) bool { return o != c && len(o.todo) > 0 })
}

func (m *model) state(c *caller) *State {
	s := &State{
		Spec: m.spec, Kind: m.kind, Revision: m.revision, Pods: slices.Clone(m.pods[c.view]), Refusals: c.refusals,
		Query: m.query, Memory: m.stored().memory,
	}
	for _, slot := range m.slots {
		s.Slots = append(s.Slots, Slot{Name: slot.name})
		if m.pinned {
			s.Slots[len(s.Slots)-1].Domain, s.Slots[len(s.Slots)-1].HasDomain = slot.home, true
		}
	}
	if m.pinned {
		for i := range s.Pods {
			if p := &s.Pods[i]; !p.Placed {
				if at := slices.IndexFunc(m.slots, func(s modelSlot) bool { return s.name == p.Slot }); at >= 0 {
					p.Domain = m.slots[at].home
				}
			}
		}
	}
	return s
}

func (m *model) decide(c *caller) {
	s := m.state(c)
	step := Next(s, m.now)
	m.check(s, &step)
	c.base, c.step = len(m.memories)-1, &step
}

func (m *model) store(c *caller) {
	step := c.step
	if c.base != len(m.memories)-1 {
		c.step = nil
		return
	}
	m.say("stored %s %s in %v, waits for %s of %s, evicts %v, deletes %v", step.Memory.Phase, step.Memory.Revision, step.Memory.CurrentDomains, step.Wait.For, step.Wait.Pod, step.Evict, step.Delete)
	for _, e := range step.Memory.Replacements {
		m.say("  %s in %s, %s: %s", e.Slot, e.Domain, e.UID, e.Stage)
	}
	m.memories = append(m.memories, stored{step.Memory, c.view})
	for _, o := range m.callers {
		if o != c { // its denials are older than the requests of this caller
			o.refusals = map[string]Refusal{}
		}
	}
	m.act(c)
}

// act queues the actions of the caller's step.
func (m *model) act(c *caller) {
	step := c.step
	c.step = nil
	if step.Restore != "" {
		c.todo = append(c.todo, func() { m.template(step.Restore, false) })
	}
	for _, t := range step.Evict {
		c.todo = append(c.todo, func() { m.evict(c, t, step.Memory.CurrentDomains) })
	}
	for _, t := range step.Delete {
		c.todo = append(c.todo, func() { m.delete(t, &step.Memory) })
	}
	for _, t := range step.Withdraw {
		c.todo = append(c.todo, func() {
			if p := m.find(t.UID); p != nil && !p.Terminating {
				c.refusals[t.UID] = Refusal{Reason: "withdrawn", Until: m.now, Denied: true}
			}
		})
	}
}

func (m *model) evict(c *caller, t Target, current []string) {
	delete(c.refusals, t.UID)
	p := m.find(t.UID)
	lost := m.choose(8) == 0 // the answer is lost
	switch {
	case p == nil || p.Terminating:
	case t.IfUnready && p.Ready:
		c.refusals[t.UID] = Refusal{Reason: "ready", Until: m.now, Denied: true}
	case m.choose(4) == 0 && !m.isReleased(t):
		m.say("%s is refused, lost: %t", t.UID, lost)
		if !lost {
			c.refusals[t.UID] = Refusal{Reason: "budget", Until: m.now.Add(20 * time.Second), Denied: true}
		}
	case m.kind == Surge:
		m.release(t, current)
	default:
		m.say("%s is evicted, lost: %t", t.UID, lost)
		// A slot counts in the domain where its pod was taken down until it has a healthy pod.
		domain := p.Domain
		if e := m.stored().memory.Replacements; t.Domain != domain && slices.ContainsFunc(e, func(e v1alpha1.RolloutReplacement) bool { return e.Slot == p.Slot && e.Domain == t.Domain }) {
			domain = t.Domain
		}
		if p.Placed && !slices.Contains(current, domain) && p.Ready {
			m.fail("%s of %s is evicted, and the wave is %v", p.UID, p.Domain, current)
		}
		if p.Ready && m.down[p.Slot] == "" {
			m.down[p.Slot] = domain
		}
		m.change(t.UID, func(p *Pod) bool { p.Terminating, p.Since = true, m.now.Add(30*time.Second); return true })
		m.checkDown()
	}
}

// release creates a new pod for the slot of an old one.
func (m *model) release(t Target, current []string) {
	if !slices.Contains(current, t.Domain) {
		m.fail("a pod is released for %s, and the wave is %v", t.Domain, current)
	}
	if m.isReleased(t) {
		return
	}
	slot := m.find(t.UID).Slot
	if i := slices.IndexFunc(m.slots, func(s modelSlot) bool { return s.name == slot }); i >= 0 {
		p := m.newPod(m.slots[i])
		p.Placed, p.Domain = true, t.Domain
		m.say("%s is released for %s in %s", p.UID, t.UID, t.Domain)
		m.commit(append(slices.Clone(m.truth()), p))
	}
}

// isReleased reports whether the slot of an old pod has a new one.
func (m *model) isReleased(t Target) bool {
	slot := m.find(t.UID).Slot
	return m.kind == Surge && slices.ContainsFunc(m.truth(), func(p Pod) bool { return p.Slot == slot && p.Revision == m.revision && !p.Terminating })
}

func (m *model) delete(t Target, memory *Memory) {
	p := m.find(t.UID)
	if p == nil || p.Terminating || p.Ready {
		return
	}
	m.say("%s is deleted", t.UID)
	if !slices.Contains(memory.AbandonedRevisions, p.Revision) || p.Revision == memory.Revision {
		m.fail("%s of %s is deleted, which is not abandoned", p.UID, p.Revision)
	}
	m.change(t.UID, func(p *Pod) bool { p.Terminating, p.Since = true, m.now; return true })
}

func (m *model) fail(format string, args ...any) {
	if m.wrong == "" {
		m.wrong = fmt.Sprintf(format, args...)
	}
}

// checkDown fails if the rollout has taken down more pods of a domain than allowed.
func (m *model) checkDown() {
	count := map[string]int{}
	for _, domain := range m.down {
		if count[domain]++; count[domain] > m.spec.MaxUnavailable.Value {
			m.fail("%d pods of %s are down by the rollout: %v", count[domain], domain, m.down)
		}
		if current := m.stored().memory.CurrentDomains; !slices.Contains(current, domain) {
			m.fail("pods of %s are down by the rollout, and the wave is %v", domain, current)
		}
	}
}

// check compares a step with its own count of unavailable pods.
func (m *model) check(s *State, step *Step) {
	available := map[string]bool{}
	domains := map[string]string{}
	for _, p := range s.Pods {
		if p.Terminating {
			continue
		}
		domains[p.Slot] = p.Domain
		available[p.Slot] = p.Ready && (p.Revision != s.Revision || !m.now.Before(p.Since.Add(s.Spec.ReadyFor)))
	}
	before, after := map[string]bool{}, map[string]bool{}
	for _, e := range s.Memory.Replacements {
		before[e.Slot] = true
		if !slices.ContainsFunc(s.Pods, func(p Pod) bool { return p.Slot == e.Slot && p.Placed && !p.Terminating }) {
			domains[e.Slot] = e.Domain
		}
	}
	approved := func(domain string) bool {
		a := s.Spec.Approved
		return step.Memory.RollingBack || !slices.Contains(s.Spec.PauseBefore, domain) || a.Revision == s.Revision && slices.Contains(a.Domains, domain)
	}
	for _, e := range step.Memory.Replacements {
		after[e.Slot] = true
		bad := slices.ContainsFunc(s.Pods, func(p Pod) bool {
			return types.UID(p.UID) == e.UID && slices.Contains(step.Memory.AbandonedRevisions, p.Revision)
		})
		if !before[e.Slot] && !bad && !slices.Contains(step.Memory.CurrentDomains, e.Domain) && !approved(e.Domain) {
			m.fail("%s is replaced in %s, which is not approved", e.Slot, e.Domain)
		}
		if !slices.Contains(step.Memory.CurrentDomains, e.Domain) && s.Kind != Ordered {
			m.fail("%s is replaced in %s, and the wave is %v", e.Slot, e.Domain, step.Memory.CurrentDomains)
		}
	}
	perDomain := map[string]int{}
	for _, e := range step.Memory.Replacements {
		if perDomain[e.Domain]++; e.IfUnready {
			perDomain[e.Domain]--
		}
		if perDomain[e.Domain] > s.Spec.MaxUnavailable.Value {
			m.fail("too many of %s are replaced: %v", e.Domain, step.Memory.Replacements)
		}
	}
	for _, t := range step.Evict {
		if s.Spec.Paused {
			m.fail("%s is evicted while the rollout is paused", t.UID)
		}
		slot := t.Pod
		if before[slot] || !available[slot] || s.Kind == Surge {
			continue
		}
		down := 0
		for i := range s.Slots {
			name := s.Slots[i].Name
			here := domains[name] == t.Domain || domains[name] == "" && s.Slots[i].HasDomain && s.Slots[i].Domain == t.Domain
			_, somewhere := domains[name]
			anywhere := !s.Slots[i].HasDomain && !somewhere && !slices.ContainsFunc(s.Pods, func(p Pod) bool { return p.Slot == name })
			if anywhere || here && (!available[name] || after[name]) {
				down++
			}
		}
		if down > s.Spec.MaxUnavailable.Value {
			m.fail("%s is evicted, with which %d of %s are down: %+v, which was %+v", t.UID, down, t.Domain, step.Memory.Replacements, s.Memory.Replacements)
		}
		for i := range s.Slots {
			if s.Slots[i].Name == slot {
				break
			}
			if s.Kind == Ordered && (!available[s.Slots[i].Name] || after[s.Slots[i].Name]) {
				m.fail("%s is evicted while %s is not ready", t.UID, s.Slots[i].Name)
			}
		}
	}
}

// run takes steps until a check fails, and returns the failure.
func (m *model) run(steps int) string {
	m.template("r1", m.choose(3) == 0)
	for range steps {
		if m.step(); m.wrong != "" {
			return m.wrong
		}
	}
	return ""
}

// settle lets everything go well, and returns an error if the rollout does not complete.
func (m *model) settle() string {
	m.say("all goes well from now on")
	m.callers = m.callers[:1]
	c := m.callers[0]
	*c = caller{view: m.version(), refusals: map[string]Refusal{}}
	// Earlier revisions stay broken.
	delete(m.broken, m.revision)
	m.query, m.spec.Paused, m.spec.RollsBack, m.spec.Stop = True, false, false, Stop{}
	m.choose = func(n int) int { return n - 1 }
	var step Step
	for range 400 {
		m.pass(5 * time.Second)
		var actions []action
		m.workload(func(weight int, do func()) { actions = append(actions, action{weight, do}) })
		for _, a := range actions {
			a.do()
			if m.kind == Surge { // each deletion changes the next one
				break
			}
		}
		m.spec.Approved = Approved{Revision: m.revision, Domains: []string{"b"}}
		if f := m.stored().memory.Failure; f != nil {
			m.spec.Approved.FailuresBefore = m.now
		}
		c.view = m.version()
		m.decide(c)
		step = *c.step
		m.store(c)
		for _, do := range c.todo {
			do()
		}
		c.todo = nil
		if m.wrong != "" {
			return m.wrong
		}
		if step.Memory.Phase == v1alpha1.PhaseComplete && len(m.truth()) == len(m.slots) && !slices.ContainsFunc(m.truth(), func(p Pod) bool { return p.Revision != m.revision }) {
			return ""
		}
	}
	return fmt.Sprintf("not complete: %+v\nwith %+v", step, m.truth())
}

func TestNoInterleavingTakesDownTooMuchAndItEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") })
		if wrong := m.run(250); wrong != "" {
			t.Fatalf("%s\n%s", wrong, m.text())
		}
		if wrong := m.settle(); wrong != "" {
			t.Fatalf("%s\n%s", wrong, m.text())
		}
	})
}
