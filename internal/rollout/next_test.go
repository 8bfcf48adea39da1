package rollout

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// database has ready pods of r1, in turn in zones a, b and c. The rollout must update them to r2.
func database(pods int) *State {
	s := &State{Revision: "r2", Spec: Spec{MaxUnavailable: Amount{Value: 1}, Deadline: 10 * time.Minute}}
	for i := range pods {
		name := fmt.Sprintf("db-%d", i)
		s.Slots = append(s.Slots, Slot{Name: name})
		s.Pods = append(s.Pods, Pod{
			UID: fmt.Sprint(i), Name: name, Slot: name, Revision: "r1", Placed: true, Domain: string("abc"[i%3]), Ready: true, Since: start.Add(-time.Hour),
		})
	}
	return s
}

// began is a database whose wave in the given zones has started.
func began(pods int, zones ...string) *State {
	s := database(pods)
	s.Memory = Memory{Phase: v1alpha1.PhaseProgressing, Revision: "r2", PreviousRevision: "r1", Wave: 1, CurrentDomains: zones}
	return s
}

func update(s *State, pods ...int) {
	for _, i := range pods {
		s.Pods[i].Revision = "r2"
	}
}

// replacing replaces the first pod by an unready one of a revision.
func replacing(s *State, revision string) {
	p := &s.Pods[0]
	s.Memory.Replacements = append(s.Memory.Replacements, v1alpha1.RolloutReplacement{Slot: p.Slot, Domain: p.Domain, Pod: p.Name, UID: "old", Stage: Replaced, Since: metav1.NewTime(start)})
	p.Revision, p.Ready, p.Since = revision, false, start
}

// released adds a new pod to the slot of the first one.
func released(s *State, ready bool) {
	p := s.Pods[0]
	s.Kind = Surge
	s.Memory.Replacements = []v1alpha1.RolloutReplacement{{Slot: p.Slot, Domain: p.Domain, Pod: p.Name, UID: types.UID(p.UID), Stage: Evicting, Since: metav1.NewTime(start)}}
	p.UID, p.Name, p.Revision, p.Ready, p.Since = "new", "db-new", "r2", ready, start
	s.Pods = append(s.Pods, p)
}

func names(targets []Target) []string {
	list := make([]string, 0, len(targets))
	for _, t := range targets {
		list = append(list, t.Pod)
	}
	return list
}

func TestPodsTakenDown(t *testing.T) {
	for _, test := range []struct {
		name   string
		state  *State
		change func(s *State)
		evict  []string
		delete []string
		wait   WaitReason
	}{
		{name: "one of the first zone, from the end", state: database(9), evict: []string{"db-6"}, wait: WaitEvicting},
		{name: "no pods", state: database(0)},
		{name: "as many as may be", state: database(9), change: func(s *State) { s.Spec.MaxUnavailable.Value = 2 }, evict: []string{"db-6", "db-3"}, wait: WaitEvicting},
		{name: "a percentage is of the zone and rounded up", state: database(9), change: func(s *State) { s.Spec.MaxUnavailable = Amount{34, true} }, evict: []string{"db-6", "db-3"}, wait: WaitEvicting},
		{name: "a percentage is one at least", state: database(3), change: func(s *State) { s.Spec.MaxUnavailable = Amount{1, true} }, evict: []string{"db-0"}, wait: WaitEvicting},
		{name: "the order is kept", state: database(9), change: func(s *State) { s.Spec.Order = []string{"x", "c"} }, evict: []string{"db-8"}, wait: WaitEvicting},
		{name: "zones of one wave", state: database(9), change: func(s *State) { s.Spec.Waves.Domains = 2 }, evict: []string{"db-7", "db-6"}, wait: WaitEvicting},
		{name: "one of each zone", state: database(9), change: func(s *State) { s.Spec.Waves.All = true }, evict: []string{"db-8", "db-7", "db-6"}, wait: WaitEvicting},
		{name: "a new revision goes on in each zone", state: began(9, "a", "b", "c"), change: func(s *State) {
			s.Spec.Waves.All, s.Revision = true, "r3"
			replacing(s, "r2")
		}, delete: []string{"db-0"}, evict: []string{"db-8", "db-7"}, wait: WaitEvicting},
		{name: "ordered takes one at a time in all zones", state: database(9), change: func(s *State) { s.Spec.Waves.Domains, s.Kind = 2, Ordered }, evict: []string{"db-6"}, wait: WaitEvicting},
		{name: "one that is down goes first", state: began(9, "a"), change: func(s *State) { s.Pods[0].Ready = false }, evict: []string{"db-0"}, wait: WaitEvicting},
		{name: "a denied one yields to another", state: began(9, "a"), change: func(s *State) {
			s.Refusals = map[string]Refusal{"6": {Reason: "budget", Denied: true, Until: start.Add(time.Minute)}}
		}, evict: []string{"db-3"}, wait: WaitRefused},
		{name: "a denied one is tried again", state: began(9, "a"), change: func(s *State) {
			s.Refusals = map[string]Refusal{"6": {Reason: "budget", Denied: true, Until: start}}
		}, evict: []string{"db-6"}, wait: WaitEvicting},
		{name: "all are denied", state: began(3, "a"), change: func(s *State) {
			s.Refusals = map[string]Refusal{"0": {Reason: "budget", Denied: true}}
		}, wait: WaitRefused},
		{name: "one that is asked for stays the one", state: began(9, "a"), change: func(s *State) {
			s.Memory.Replacements = []v1alpha1.RolloutReplacement{{Slot: "db-0", Domain: "a", Pod: "db-0", UID: "0", Stage: Evicting, Since: metav1.NewTime(start)}}
			s.Refusals = map[string]Refusal{"0": {Reason: "not asked for yet"}}
		}, evict: []string{"db-0"}, wait: WaitEvicting},
		{name: "one that was denied is not down", state: began(9, "a"), change: func(s *State) {
			s.Memory.Replacements = []v1alpha1.RolloutReplacement{{Slot: "db-0", Domain: "a", Pod: "db-0", UID: "0", Stage: Evicting, Since: metav1.NewTime(start)}}
			s.Refusals = map[string]Refusal{"0": {Denied: true}}
		}, evict: []string{"db-6"}, wait: WaitEvicting},
		{name: "one that was denied and is not ready still counts", state: began(9, "a"), change: func(s *State) {
			replacing(s, "r0")
			s.Memory.Replacements[0].Stage, s.Memory.Replacements[0].UID = Evicting, "0"
			s.Refusals = map[string]Refusal{"0": {Denied: true}}
		}, wait: WaitRefused},
		{name: "a missing pod of any zone counts in each", state: began(9, "a"), change: func(s *State) { s.Pods = slices.Delete(s.Pods, 1, 2) }, wait: WaitDown},
		{name: "a missing pod of another zone does not", state: began(9, "a"), change: func(s *State) {
			s.Pods = slices.Delete(s.Pods, 1, 2)
			s.Slots[1].Domain, s.Slots[1].HasDomain = "b", true
		}, evict: []string{"db-6"}, wait: WaitEvicting},
		{name: "a missing pod holds a wave", state: began(9), change: func(s *State) { s.Pods = slices.Delete(s.Pods, 1, 2) }, wait: WaitMissing},
		{name: "a ZoneShift holds a wave", state: database(9), change: func(s *State) { s.Shift.Until = start.Add(time.Hour) }, wait: WaitShift},
		{name: "a ZoneShift does not hold a wave that has begun", state: began(9, "a"), change: func(s *State) { s.Shift.Until = start.Add(time.Hour) }, evict: []string{"db-6"}, wait: WaitEvicting},
		{name: "a ZoneShift does not hold a rollback", state: began(9), change: func(s *State) {
			s.Shift.Until, s.Memory.RollingBack = start.Add(time.Hour), true
		}, evict: []string{"db-6"}, wait: WaitEvicting},
		{name: "a ZoneShift that is over holds nothing", state: database(9), change: func(s *State) { s.Shift.Until = start }, evict: []string{"db-6"}, wait: WaitEvicting},
		{name: "a pod without a node holds a wave", state: began(9), change: func(s *State) {
			p := &s.Pods[1]
			p.Revision, p.Placed, p.Domain, p.Ready = "r2", false, "", false
		}, wait: WaitUnplaced},
		{name: "a pod on a lost node counts", state: began(9, "a"), change: func(s *State) { s.Pods[0].Ready, s.Pods[0].Terminating = false, true }, wait: WaitDown},
		{name: "a pod of a scale-down is left alone", state: began(3, "a"), change: func(s *State) { s.Slots = s.Slots[1:] }, evict: []string{"db-1"}, wait: WaitEvicting},
		{name: "an earlier zone must be healthy", state: began(9), change: func(s *State) {
			update(s, 0, 3, 6)
			s.Pods[0].Ready = false
		}, wait: WaitEarlier},
		{name: "a bad pod is replaced again at once", state: began(9, "a"), change: func(s *State) { replacing(s, "r0") }, evict: []string{"db-0"}, wait: WaitEvicting},
		{name: "a bad pod of an abandoned revision is deleted", state: began(9, "a"), change: func(s *State) {
			s.Memory.AbandonedRevisions = []string{"r0"}
			replacing(s, "r0")
			s.Refusals = map[string]Refusal{"0": {Reason: "budget", Denied: true}}
		}, delete: []string{"db-0"}, wait: WaitEvicting},
		{name: "a ready pod of an abandoned revision is evicted", state: began(3, "a"), change: func(s *State) { s.Memory.AbandonedRevisions = []string{"r1"} }, evict: []string{"db-0"}, wait: WaitEvicting},
		{name: "ordered waits for a pod of an earlier slot", state: began(9, "b"), change: func(s *State) {
			s.Kind = Ordered
			s.Pods[0].Revision, s.Pods[0].Ready = "r2", false
		}, wait: WaitOrder},
		{name: "ordered takes a bad pod of an earlier slot first", state: began(9, "b"), change: func(s *State) { s.Kind, s.Pods[0].Ready = Ordered, false }, evict: []string{"db-0"}, wait: WaitEvicting},
		{name: "ordered takes no bad pod of a zone that is not approved", state: began(9), change: func(s *State) {
			s.Kind, s.Pods[0].Ready, s.Spec.PauseBefore = Ordered, false, []string{"a"}
		}, wait: WaitApproval},
		{name: "ordered waits for a bad pod of a zone that is not approved", state: began(9, "b"), change: func(s *State) {
			s.Kind, s.Pods[0].Ready, s.Spec.PauseBefore = Ordered, false, []string{"a"}
		}, wait: WaitOrder},
		{name: "ordered deletes a bad pod of an abandoned revision in a zone that is not approved", state: began(9, "b"), change: func(s *State) {
			s.Kind, s.Pods[0].Ready, s.Spec.PauseBefore, s.Memory.AbandonedRevisions = Ordered, false, []string{"a"}, []string{"r1"}
		}, delete: []string{"db-0"}, wait: WaitEvicting},
		{name: "a pod without a node counts where its slot was taken down", state: began(9, "a"), change: func(s *State) {
			replacing(s, "r2")
			s.Pods[0].Placed, s.Pods[0].Domain = false, ""
		}, wait: WaitUnplaced},
		{name: "a surge is asked for until the old pod goes", state: began(9, "a"), change: func(s *State) { released(s, true) }, evict: []string{"db-0"}, wait: WaitEvicting},
		{name: "a surge that is not ready", state: began(9, "a"), change: func(s *State) { released(s, false) }, evict: []string{"db-0"}, wait: WaitUnready},
		{name: "a surge goes again when the revision before comes back", state: began(9, "a"), change: func(s *State) {
			released(s, false)
			s.Revision, s.Pods[9].Revision = "r1", "r2"
		}, evict: []string{"db-new"}, wait: WaitEvicting},
		{name: "a surge deletes nothing", state: began(9, "a"), change: func(s *State) {
			s.Kind, s.Memory.AbandonedRevisions, s.Pods[0].Ready = Surge, []string{"r1"}, false
		}, evict: []string{"db-0"}, wait: WaitEvicting},
		{name: "paused", state: began(9, "a"), change: func(s *State) { s.Spec.Paused = true }, wait: WaitPaused},
		{name: "an approval of another revision", state: began(9), change: func(s *State) {
			s.Spec.PauseBefore, s.Spec.Approved = []string{"a"}, Approved{Revision: "r1", Domains: []string{"a"}}
		}, wait: WaitApproval},
		{name: "an approval", state: began(9), change: func(s *State) {
			s.Spec.PauseBefore, s.Spec.Approved = []string{"a"}, Approved{Revision: "r2", Domains: []string{"a"}}
		}, evict: []string{"db-6"}, wait: WaitEvicting},
		{name: "what has begun needs no approval", state: began(9, "a"), change: func(s *State) { s.Spec.PauseBefore = []string{"a"} }, evict: []string{"db-6"}, wait: WaitEvicting},
		{name: "a wave ends before one that needs an approval", state: began(9), change: func(s *State) {
			s.Spec.PauseBefore, s.Spec.Waves.Domains = []string{"b"}, 3
		}, evict: []string{"db-6"}, wait: WaitEvicting},
		{name: "a stop of another revision", state: began(9, "a"), change: func(s *State) { s.Spec.Stop = Stop{Revision: "r1"} }, evict: []string{"db-6"}, wait: WaitEvicting},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.change != nil {
				test.change(test.state)
			}
			memory := fmt.Sprintf("%+v", test.state.Memory)
			step := Next(test.state, start)
			if got := names(step.Evict); !slices.Equal(got, test.evict) {
				t.Errorf("evicts %v, want %v", got, test.evict)
			}
			if got := names(step.Delete); !slices.Equal(got, test.delete) {
				t.Errorf("deletes %v, want %v", got, test.delete)
			}
			if step.Wait.For != test.wait {
				t.Errorf("waits for %q, want %q", step.Wait.For, test.wait)
			}
			if got := fmt.Sprintf("%+v", test.state.Memory); got != memory {
				t.Errorf("the state is changed:\n%s\n%s", memory, got)
			}
		})
	}
}

func TestReplacementsAreBounded(t *testing.T) {
	s := began(3*(maxReplacements+1), "a")
	s.Spec.MaxUnavailable = Amount{100, true}
	if step := Next(s, start); len(step.Evict) != maxReplacements || len(step.Memory.Replacements) != maxReplacements {
		t.Errorf("%d pods are evicted and %d replacements stored, want %d", len(step.Evict), len(step.Memory.Replacements), maxReplacements)
	}
}

func TestAClockThatIsAhead(t *testing.T) {
	s := began(3, "a")
	update(s, 0)
	s.Pods[0].Since = start.Add(time.Hour)
	if step := Next(s, start); step.Memory.Failure != nil || step.Memory.Domains[0].Healthy != 1 {
		t.Errorf("a pod that is ready by a clock ahead gives %+v, %+v", step.Memory.Failure, step.Memory.Domains[0])
	}
}

func TestWavesGrowWithWhatProvedHealthy(t *testing.T) {
	for _, test := range []struct {
		waves        Waves
		proven, want int
	}{
		{Waves{}, 5, 1},
		{Waves{Domains: 3}, 0, 3},
		{Waves{Exponential: true}, 0, 1},
		{Waves{Exponential: true}, 1, 2},
		{Waves{Exponential: true}, 2, 2},
		{Waves{Exponential: true}, 3, 4},
		{Waves{Exponential: true}, 7, 8},
		{Waves{All: true}, 0, maxWave},
		{Waves{Exponential: true, Most: 3}, 7, 2},
		{Waves{Exponential: true, Most: 4}, 100, 4},
		{Waves{Exponential: true}, 100000, 256}, // 512 would not fit in the memory
	} {
		r := newRun(&State{Spec: Spec{Waves: test.waves}, Memory: Memory{ProvenDomains: int32(test.proven)}}, start)
		if got := r.waveSize(); got != test.want {
			t.Errorf("%+v with %d proven: %d, want %d", test.waves, test.proven, got, test.want)
		}
	}
}

func TestANewRevisionBeginsWhereTheLastOneStands(t *testing.T) {
	for _, test := range []struct {
		name     string
		memory   Memory
		revision string
		want     Memory // nonzero fields
	}{
		{
			name: "first", memory: Memory{}, revision: "r2",
			want: Memory{PreviousRevision: "r1", CurrentDomains: []string{"a"}},
		},
		{
			name: "after a complete one", memory: Memory{Phase: v1alpha1.PhaseComplete, Revision: "r1", PreviousRevision: "r0"}, revision: "r2",
			want: Memory{PreviousRevision: "r1", CurrentDomains: []string{"a"}},
		},
		{
			name: "in the middle", memory: Memory{Phase: v1alpha1.PhaseProgressing, Revision: "r8", PreviousRevision: "r1", CurrentDomains: []string{"b"}}, revision: "r2",
			want: Memory{PreviousRevision: "r1", CurrentDomains: []string{"b"}},
		},
		{
			name: "between waves", memory: Memory{Phase: v1alpha1.PhasePaused, Revision: "r8", PreviousRevision: "r1", LastDomains: []string{"b"}}, revision: "r2",
			want: Memory{PreviousRevision: "r1", CurrentDomains: []string{"b"}},
		},
		{
			name: "in the first zone of a wave", memory: Memory{Phase: v1alpha1.PhaseProgressing, Revision: "r8", PreviousRevision: "r1", CurrentDomains: []string{"c", "b"}, ProvenDomains: 3}, revision: "r2",
			want: Memory{PreviousRevision: "r1", CurrentDomains: []string{"b"}},
		},
		{
			name: "in all zones that are down", memory: Memory{
				Phase: v1alpha1.PhaseProgressing, Revision: "r8", PreviousRevision: "r1", CurrentDomains: []string{"a", "b", "c"},
				Replacements: []v1alpha1.RolloutReplacement{{Slot: "db-1", Domain: "b", Stage: Gone}, {Slot: "db-2", Domain: "c", Stage: Gone}},
			}, revision: "r2",
			want: Memory{PreviousRevision: "r1", CurrentDomains: []string{"b", "c"}},
		},
		{
			name: "after a failure", memory: Memory{Phase: v1alpha1.PhaseFailed, Revision: "r8", PreviousRevision: "r1", CurrentDomains: []string{"b"}, Failure: &v1alpha1.RolloutFailure{}}, revision: "r2",
			want: Memory{PreviousRevision: "r1", CurrentDomains: []string{"b"}, AbandonedRevisions: []string{"r8"}},
		},
		{
			name: "one that was abandoned", memory: Memory{Phase: v1alpha1.PhaseFailed, Revision: "r8", PreviousRevision: "r1", CurrentDomains: []string{"b"}, AbandonedRevisions: []string{"r2"}}, revision: "r2",
			want: Memory{PreviousRevision: "r1", CurrentDomains: []string{"b"}},
		},
		{
			name: "one that was abandoned, after a complete one", memory: Memory{Phase: v1alpha1.PhaseComplete, Revision: "r1", AbandonedRevisions: []string{"r2", "r3"}}, revision: "r2",
			want: Memory{PreviousRevision: "r1", CurrentDomains: []string{"a"}, AbandonedRevisions: []string{"r3"}},
		},
		{
			name: "the one before", memory: Memory{Phase: v1alpha1.PhaseProgressing, Revision: "r8", PreviousRevision: "r2", CurrentDomains: []string{"b"}}, revision: "r2",
			want: Memory{CurrentDomains: []string{"b"}, AbandonedRevisions: []string{"r8"}, RollingBack: true},
		},
		{
			name: "the one before, which is complete", memory: Memory{Phase: v1alpha1.PhaseComplete, Revision: "r8", PreviousRevision: "r2"}, revision: "r2",
			want: Memory{PreviousRevision: "r8", CurrentDomains: []string{"a"}},
		},
		{
			name: "another during a rollback", memory: Memory{Phase: v1alpha1.PhaseRollingBack, Revision: "r1", RollingBack: true, CurrentDomains: []string{"b"}, AbandonedRevisions: []string{"r8"}}, revision: "r2",
			want: Memory{PreviousRevision: "r1", CurrentDomains: []string{"b"}, AbandonedRevisions: []string{"r8"}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := database(9)
			s.Memory, s.Revision = test.memory, test.revision
			got := Next(s, start).Memory
			got = Memory{PreviousRevision: got.PreviousRevision, CurrentDomains: got.CurrentDomains, AbandonedRevisions: got.AbandonedRevisions, RollingBack: got.RollingBack}
			if want := fmt.Sprintf("%+v", test.want); fmt.Sprintf("%+v", got) != want {
				t.Errorf("got  %+v\nwant %s", got, want)
			}
		})
	}
}

// A domain whose pod was replaced out of turn does not become the first domain of a new revision.
func TestANewRevisionKeepsTheTurns(t *testing.T) {
	for _, down := range []func(*State){
		func(s *State) { // the old pod still exists
			s.Memory.Replacements = []v1alpha1.RolloutReplacement{{Slot: "db-2", Domain: "c", Pod: "db-2", UID: "2", Stage: Evicting, Since: metav1.NewTime(start), IfUnready: true}}
			s.Pods[2].Ready = false
		},
		func(s *State) {
			s.Memory.Replacements = []v1alpha1.RolloutReplacement{{Slot: "db-2", Domain: "c", Pod: "db-2", UID: "old", Stage: Replaced, Since: metav1.NewTime(start), IfUnready: true}}
			s.Pods[2].Ready, s.Pods[2].Revision = false, "r2"
		},
	} {
		s := began(9, "a")
		s.Kind, s.Revision = Ordered, "r3"
		down(s)
		step := Next(s, start)
		if got := step.Memory.CurrentDomains; !slices.Equal(got, []string{"a"}) || !slices.Equal(slices.Concat(names(step.Evict), names(step.Delete)), []string{"db-2"}) {
			t.Errorf("the wave is %v, and %v are evicted and %v deleted", got, step.Evict, step.Delete)
		}
	}
}

// Pods of a bad revision are deleted for the next one, even if that is written before the bad one fails.
func TestARevisionThatIsReplacedBeforeItFails(t *testing.T) {
	for _, test := range []struct {
		name      string
		change    func(*State)
		abandoned bool
	}{
		{"not ready", func(*State) {}, true},
		{"ready", func(s *State) { s.Pods[0].Ready = true }, false},
		{"of the revision before", func(s *State) { s.Pods[0].Revision = "r1" }, false},
		{"in a rollback", func(s *State) { s.Memory.RollingBack = true }, false},
		{"not seen yet", func(s *State) { s.Memory.Replacements[0].Stage, s.Pods = Gone, s.Pods[1:] }, true},
	} {
		s := began(3, "a")
		replacing(s, "r2")
		s.Revision = "r3"
		test.change(s)
		step := Next(s, start)
		if got := slices.Contains(step.Memory.AbandonedRevisions, "r2"); got != test.abandoned || (len(step.Delete) > 0) != (test.abandoned && len(s.Pods) == 3) {
			t.Errorf("%s: %v are abandoned, and %v deleted", test.name, step.Memory.AbandonedRevisions, step.Delete)
		}
	}
}

func TestFailures(t *testing.T) {
	late := start.Add(10 * time.Minute)
	for _, test := range []struct {
		name   string
		change func(s *State)
		now    time.Time
		want   string // no failure if empty
	}{
		{name: "not ready in time", change: func(s *State) { replacing(s, "r2") }, now: late, want: PodUnhealthy},
		{name: "not ready yet", change: func(s *State) { replacing(s, "r2") }, now: late.Add(-time.Second)},
		{name: "forgiven", change: func(s *State) {
			replacing(s, "r2")
			s.Spec.Approved = Approved{Revision: "r2", FailuresBefore: start.Add(time.Minute)}
		}, now: late},
		{name: "forgiven for another revision", change: func(s *State) {
			replacing(s, "r2")
			s.Spec.Approved = Approved{Revision: "r1", FailuresBefore: start.Add(time.Minute)}
		}, now: late, want: PodUnhealthy},
		{name: "ready and not again and again", change: func(s *State) {
			s.Spec.ReadyFor = time.Minute
			replacing(s, "r2")
			s.Pods[0].Ready, s.Pods[0].Since = true, late.Add(50*time.Second)
		}, now: late.Add(time.Minute), want: PodUnhealthy},
		{name: "ready just in time", change: func(s *State) {
			s.Spec.ReadyFor = time.Minute
			replacing(s, "r2")
			s.Pods[0].Ready, s.Pods[0].Since = true, late.Add(-time.Second)
		}, now: late.Add(30 * time.Second)},
		{name: "no pod", change: func(s *State) {
			replacing(s, "r2")
			s.Memory.Replacements[0].Stage, s.Pods = Gone, s.Pods[1:]
		}, now: late, want: PodMissing},
		{name: "does not end", change: func(s *State) {
			replacing(s, "r1")
			s.Memory.Replacements[0].Stage, s.Memory.Replacements[0].UID, s.Pods[0].Terminating = Evicting, "0", true
		}, now: late, want: PodTerminating},
		{name: "a surge is not ready in time", change: func(s *State) { released(s, false) }, now: late, want: PodUnhealthy},
		{name: "a surge that was released late", change: func(s *State) {
			released(s, false)
			s.Pods[len(s.Pods)-1].Released = late.Add(-time.Minute)
		}, now: late},
		{name: "a surge that was released late and is not ready in time", change: func(s *State) {
			released(s, false)
			s.Pods[len(s.Pods)-1].Released = start.Add(time.Minute)
		}, now: late.Add(time.Minute), want: PodUnhealthy},
		{name: "an updated pod that was held for long", change: func(s *State) {
			update(s, 0)
			s.Pods[0].Ready, s.Pods[0].Released = false, late.Add(-time.Minute)
		}, now: late},
		{name: "a surge is ready", change: func(s *State) { released(s, true) }, now: late},
		{name: "a surge is ready, and a lost node holds the old pod", change: func(s *State) {
			released(s, true)
			s.Pods[0].Terminating, s.Pods[0].Ready, s.Pods[0].Since = true, false, start
		}, now: late},
		{name: "nothing has come for an old pod that a lost node holds", change: func(s *State) {
			released(s, true)
			s.Pods[0].Terminating, s.Pods[0].Ready, s.Pods[0].Since = true, false, start
			s.Pods = s.Pods[:len(s.Pods)-1]
		}, now: late, want: PodTerminating},
		{name: "not let go", change: func(s *State) {
			s.Memory.Replacements = []v1alpha1.RolloutReplacement{{Slot: "db-0", Domain: "a", Pod: "db-0", UID: "0", Stage: Evicting, Since: metav1.NewTime(start)}}
		}, now: start.Add(24 * time.Hour)},
		{name: "not let go, and not ready all the time", change: func(s *State) {
			replacing(s, "r1")
			s.Memory.Replacements[0].Stage, s.Memory.Replacements[0].UID = Evicting, "0"
			s.Refusals = map[string]Refusal{"0": {Reason: "budget", Denied: true}}
		}, now: start.Add(24 * time.Hour)},
		{name: "finishes, and was not ready all the time", change: func(s *State) {
			replacing(s, "r1")
			s.Memory.Replacements[0].Stage, s.Memory.Replacements[0].UID, s.Memory.Replacements[0].Since = Evicting, "0", metav1.NewTime(late.Add(-time.Second))
			s.Pods[0].Terminating = true
		}, now: late},
		{name: "an updated pod breaks", change: func(s *State) { update(s, 0); s.Pods[0].Ready, s.Pods[0].Since = false, start }, now: late, want: PodUnhealthy},
		{name: "an updated pod of another zone breaks", change: func(s *State) { update(s, 1); s.Pods[1].Ready, s.Pods[1].Since = false, start }, now: late},
		{name: "an old pod is broken", change: func(s *State) { s.Pods[0].Ready, s.Pods[0].Since = false, start }, now: late},
		{name: "the deadline begins with the revision", change: func(s *State) {
			replacing(s, "r2")
			s.Revision = "r3"
		}, now: late},
		{name: "the query becomes false", change: func(s *State) { s.Spec.HasQuery, s.Query, s.Memory.QueryPassed = true, False, true }, now: start, want: GateFailed},
		{name: "the query was never true", change: func(s *State) { s.Spec.HasQuery, s.Query = true, False }, now: start},
		{name: "the query has no answer", change: func(s *State) { s.Spec.HasQuery, s.Memory.QueryPassed = true, true }, now: start},
		{name: "a rollback does not ask", change: func(s *State) {
			s.Spec.HasQuery, s.Query, s.Memory.QueryPassed, s.Memory.RollingBack = true, False, true, true
		}, now: start},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := began(9, "a")
			test.change(s)
			step := Next(s, test.now)
			got := ""
			if step.Memory.Failure != nil {
				got = step.Memory.Failure.Reason
			}
			if got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
			if (step.Memory.Phase == v1alpha1.PhaseFailed) != (test.want != "") || test.want != "" && len(step.Evict) > 0 {
				t.Errorf("phase %s, evicts %v", step.Memory.Phase, step.Evict)
			}
			if test.want != "" {
				s.Spec.RollsBack = true
				if step = Next(s, test.now); step.Restore != "r1" || step.Memory.Phase != v1alpha1.PhaseRollingBack {
					t.Errorf("phase %s, restores %q", step.Memory.Phase, step.Restore)
				}
			}
		})
	}
}

func TestAWaveBakes(t *testing.T) {
	s := began(3, "a")
	s.Spec.Bake = time.Minute
	update(s, 0)
	step := Next(s, start)
	if step.Memory.Phase != v1alpha1.PhaseBaking || !step.Again.Equal(start.Add(time.Minute)) || len(step.Evict) > 0 {
		t.Fatalf("%+v", step)
	}
	s.Memory = step.Memory
	s.Pods[0].Ready, s.Pods[0].Since = false, start.Add(30*time.Second)
	if step = Next(s, start.Add(30*time.Second)); step.Memory.Phase != v1alpha1.PhaseProgressing || !step.Memory.BakingSince.IsZero() || step.Wait.For != WaitUnready {
		t.Errorf("it bakes on while a pod is down: %+v", step)
	}
	s.Spec.Paused, s.Pods[0].Ready = true, true
	if step = Next(s, start.Add(30*time.Second)); step.Memory.Phase != v1alpha1.PhasePaused || !step.Memory.BakingSince.IsZero() {
		t.Errorf("it bakes on while it is paused: %+v", step)
	}
	s.Spec.Paused = false
	if step = Next(s, start.Add(time.Minute)); step.Memory.Phase != v1alpha1.PhaseProgressing || !slices.Equal(step.Memory.CurrentDomains, []string{"b"}) || step.Memory.ProvenDomains != 1 {
		t.Errorf("it has baked: %+v", step)
	}
	s.Memory.RollingBack, s.Memory.BakingSince = true, nil
	if step = Next(s, start.Add(time.Minute)); !slices.Equal(step.Memory.CurrentDomains, []string{"b"}) {
		t.Errorf("a rollback bakes: %+v", step)
	}
}

func TestStoppedRolloutWithdrawsRequests(t *testing.T) {
	s := began(3, "a")
	s.Memory.Replacements = []v1alpha1.RolloutReplacement{{Slot: "db-0", Domain: "a", Pod: "db-0", UID: "0", Stage: Evicting, Since: metav1.NewTime(start)}}
	s.Spec.Stop = Stop{Revision: "r2"}
	step := Next(s, start)
	if !slices.Equal(names(step.Withdraw), []string{"db-0"}) || len(step.Evict) > 0 || step.Memory.Phase != v1alpha1.PhaseAborted {
		t.Errorf("%+v", step)
	}
	s.Memory, s.Refusals = step.Memory, map[string]Refusal{"0": {Denied: true, Until: start}}
	if step = Next(s, start); len(step.Memory.Replacements) > 0 {
		t.Errorf("it counts as down: %+v", step.Memory.Replacements)
	}
}

func TestRefusalIsReportedAtOnce(t *testing.T) {
	s := began(9, "a")
	s.Spec.MaxUnavailable = Amount{Value: 1}
	s.Refusals = map[string]Refusal{"6": {Reason: "a budget", Denied: true, Until: start.Add(time.Minute)}}
	step := Next(s, start)
	if !slices.Equal(names(step.Evict), []string{"db-3"}) || step.Wait.For != WaitRefused || step.Wait.Pod != "db-6" {
		t.Fatalf("%+v waits for %+v", step.Evict, step.Wait)
	}
	// A terminating pod comes before a refused one in the wait.
	s.Memory, s.Pods[3].Terminating, s.Pods[3].Since = step.Memory, true, start
	if step = Next(s, start); step.Wait.For != WaitEvicting || step.Wait.Pod != "db-3" {
		t.Errorf("it waits for %+v", step.Wait)
	}
}

func TestEventsOccurOnce(t *testing.T) {
	s := began(3, "a")
	for _, test := range []struct {
		change func()
		want   []EventType
	}{
		{func() { s.Spec.Paused = true }, []EventType{RolloutPaused}},
		{func() {}, nil},
		{func() { s.Spec.Paused = false }, []EventType{RolloutResumed}},
		{func() {}, nil},
		{func() { s.Memory.Replacements = nil; update(s, 0); s.Spec.PauseBefore = []string{"b"} }, []EventType{WaveDone, RolloutPaused}},
		{func() {}, nil},
		{func() { s.Spec.Approved = Approved{Revision: "r2", Domains: []string{"b"}} }, []EventType{RolloutResumed, WaveBegan}},
		{func() { s.Spec.Stop = Stop{Revision: "r2"} }, []EventType{RolloutAborted}},
		{func() {}, nil},
		{func() { s.Revision = "r3" }, []EventType{RolloutRestarted}},
		{func() {
			s.Memory.Replacements = nil
			s.Spec.PauseBefore, s.Revision = nil, "r1"
			s.Memory.CurrentDomains = nil
		}, []EventType{RollbackBegan, WaveBegan}},
		{func() { s.Memory.Replacements = nil; s.Pods[0].Revision = "r1" }, []EventType{WaveDone, RolloutComplete}},
		{func() {}, nil},
	} {
		test.change()
		step := Next(s, start)
		var got []EventType
		for _, e := range step.Events {
			got = append(got, e.Type)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%v, want %v", got, test.want)
		}
		s.Memory = step.Memory
	}
}
