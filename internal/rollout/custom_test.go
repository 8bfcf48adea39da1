package rollout

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
)

func TestTargetsAreComparedByGroup(t *testing.T) {
	for _, test := range []struct {
		version, want string
		custom        bool
	}{
		{"", "", false},
		{"apps/v1", "", false},
		{"apps.kruise.io/v1alpha1", "apps.kruise.io", true},
		{"apps.kruise.io/v1beta1", "apps.kruise.io", true},
	} {
		ref := v1alpha1.RolloutTarget{APIVersion: test.version, Kind: "StatefulSet", Name: "db"}
		if got := Normal(ref); got.APIVersion != test.want || got.Name != "db" || IsCustom(ref) != test.custom {
			t.Errorf("%q gives %+v, custom: %t", test.version, got, IsCustom(ref))
		}
	}
}

// cloned has ready pods of r1 with random names, in turn in zones a and b. Pods of the domains were taken down, and are gone.
func cloned(pods int, down ...string) *State {
	s := &State{Revision: "r2", Spec: Spec{MaxUnavailable: Amount{Value: 1}, Deadline: 10 * time.Minute}}
	s.Memory = Memory{Phase: v1alpha1.PhaseProgressing, Revision: "r2", PreviousRevision: "r1", CurrentDomains: []string{"a", "b"}}
	for i := range pods {
		s.Pods = append(s.Pods, clone(fmt.Sprintf("old-%d", i), "r1", string("ab"[i%2]), true))
	}
	for i, domain := range down {
		name := fmt.Sprintf("gone-%d", i)
		s.Memory.Replacements = append(s.Memory.Replacements, v1alpha1.RolloutReplacement{
			Slot: name, Domain: domain, Pod: name, UID: types.UID("was-" + name), Stage: Gone, Since: metav1.NewTime(start),
		})
	}
	return s
}

func clone(name, revision, domain string, ready bool) Pod {
	return Pod{UID: "uid-" + name, Name: name, Revision: revision, Placed: domain != "", Domain: domain, Ready: ready, Since: start.Add(-time.Minute)}
}

func TestNewPodsTakeTheSlotsOfOldOnes(t *testing.T) {
	for _, test := range []struct {
		name  string
		state *State
		more  []Pod
		// slots has the slots of more, and left the replacements after the step.
		slots, left []string
	}{
		{"an unhealthy pod of the domain", cloned(4, "a", "b"), []Pod{clone("y", "r2", "b", false), clone("x", "r2", "a", false)}, []string{"gone-1", "gone-0"}, []string{"gone-0", "gone-1"}},
		{"an unhealthy pod of another domain ends no replacement", cloned(4, "a", "b"), []Pod{clone("x", "r2", "c", false), clone("y", "r2", "c", true)}, []string{"gone-0", "y"}, []string{"gone-0", "gone-1"}},
		{"a pod without a node", cloned(4, "a"), []Pod{clone("x", "r2", "", false)}, []string{"gone-0"}, []string{"gone-0"}},
		{"a missing pod ends no replacement", cloned(4, "a", "b"), []Pod{clone("x", "r2", "a", true)}, []string{"x"}, []string{"gone-0", "gone-1"}},
		{"healthy pods end replacements", cloned(4, "a", "b"), []Pod{clone("x", "r2", "a", true), clone("y", "r2", "b", true)}, []string{"x", "y"}, nil},
		{"a healthy pod of the domain beside an unhealthy one of the other", cloned(4, "a", "b"), []Pod{clone("x", "r2", "a", true), clone("y", "r2", "b", false)}, []string{"x", "gone-1"}, []string{"gone-1"}},
		{"a pod of the old name", cloned(4, "a"), []Pod{clone("gone-0", "r2", "b", false)}, []string{"gone-0"}, []string{"gone-0"}},
		{"an unready pod of the old revision is not new", cloned(4, "a"), []Pod{clone("x", "r2", "a", true), clone("bad", "r1", "a", false)}, []string{"x", "bad"}, nil},
		{"a pod of an abandoned revision is", func() *State {
			s := cloned(4, "a")
			s.Memory.AbandonedRevisions = []string{"r9"}
			return s
		}(), []Pod{clone("x", "r9", "a", false)}, []string{"gone-0"}, []string{"gone-0"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := test.state
			s.Pods = append(s.Pods, test.more...)
			s.Spec.Paused = true // nothing more is taken down
			AssignSlots(s, 4+len(s.Memory.Replacements), start)
			var slots, left []string
			for _, p := range s.Pods[4:] {
				slots = append(slots, p.Slot)
			}
			for _, e := range Next(s, start).Memory.Replacements {
				left = append(left, e.Slot)
			}
			if !slices.Equal(slots, test.slots) || !slices.Equal(left, test.left) {
				t.Errorf("the slots are %v and the replacements %v, want %v and %v", slots, left, test.slots, test.left)
			}
		})
	}
}

// A workload with random names creates a pod in the zone that lacks one. However late it and the kubelets are, no zone loses more pods
// than allowed, and the rollout ends.
func TestPodsWithNewNamesAreUpdatedWithinTheBound(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		s := cloned(3 * 2 * (1 + r.IntN(3)))
		s.Spec.MaxUnavailable.Value, s.Spec.Waves.All = 1+r.IntN(2), r.IntN(2) == 0
		desired := map[string]int{"a": len(s.Pods) / 2, "b": len(s.Pods) / 2}
		s.Memory = Memory{}
		now, made := start, 0
		for range 5000 {
			now = now.Add(time.Second)
			workloadActs(s, r, now, desired, &made)
			AssignSlots(s, desired["a"]+desired["b"], now)
			step := Next(s, now)
			s.Memory = step.Memory
			for _, target := range step.Evict {
				if i := slices.IndexFunc(s.Pods, func(p Pod) bool { return p.UID == target.UID }); r.IntN(2) == 0 && !s.Pods[i].Terminating {
					s.Pods[i].Terminating, s.Pods[i].Since = true, now.Add(time.Minute)
				}
			}
			for zone, n := range desired {
				up := 0
				for _, p := range s.Pods {
					if p.Domain == zone && p.Ready && !p.Terminating {
						up++
					}
				}
				if n-up > s.Spec.MaxUnavailable.Value {
					t.Fatalf("seed %d: %d of %d pods of %s are up: %+v", seed, up, n, zone, s.Memory.Replacements)
				}
			}
			if s.Memory.Phase == v1alpha1.PhaseComplete {
				break
			}
		}
		if s.Memory.Phase != v1alpha1.PhaseComplete || slices.ContainsFunc(s.Pods, func(p Pod) bool { return p.Revision != "r2" }) {
			t.Fatalf("seed %d: the rollout does not end: %+v", seed, s.Memory)
		}
	}
}

// workloadActs does a part of the work of the workload's controller, the scheduler and the kubelets.
func workloadActs(s *State, r *rand.Rand, now time.Time, desired map[string]int, made *int) {
	s.Pods = slices.DeleteFunc(s.Pods, func(p Pod) bool { return p.Terminating && r.IntN(3) == 0 })
	lacks, missing := map[string]int{}, 0
	for zone, n := range desired {
		lacks[zone] = n
		missing += n
	}
	for _, p := range s.Pods {
		if !p.Terminating {
			lacks[p.Domain]--
			missing--
		}
	}
	if missing > 0 && r.IntN(3) == 0 {
		*made++
		p := clone(fmt.Sprintf("new-%04d", r.IntN(10000)*1000+*made), "r2", "", false)
		p.Since = now
		s.Pods = append(s.Pods, p)
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		switch {
		case p.Terminating || p.Ready || r.IntN(3) > 0:
		case p.Placed:
			p.Ready, p.Since = true, now
		default:
			for _, zone := range []string{"a", "b"} {
				if !p.Placed && lacks[zone] > 0 {
					p.Placed, p.Domain = true, zone
					lacks[zone]--
				}
			}
		}
	}
}
