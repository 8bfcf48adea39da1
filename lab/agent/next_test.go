package agent

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// at is a moment so many seconds after the epoch of the tests.
func at(s float64) time.Time { return epoch.Add(time.Duration(s * float64(time.Second))) }

func testPod(policy corev1.RestartPolicy, names ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "default", UID: "u"}}
	pod.Spec.RestartPolicy = policy
	for _, name := range names {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name, Image: "lab/echo"})
	}
	return pod
}

func withInit(pod *corev1.Pod, name string, sidecar bool) *corev1.Pod {
	c := corev1.Container{Name: name, Image: "lab/sleep"}
	if sidecar {
		always := corev1.ContainerRestartPolicyAlways
		c.RestartPolicy = &always
	}
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	return pod
}

func withEphemeral(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e", Image: "lab/sleep"},
	})
	return pod
}

func deleted(pod *corev1.Pod, grace int64) *corev1.Pod {
	now := metav1.NewTime(at(0))
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, &grace
	return pod
}

func runningContainer() *container {
	return &container{Current: &attempt{ID: "id", Begun: at(0)}, Started: true, Passing: true}
}

func endedContainer(code int32, s float64) *container {
	return &container{Current: &attempt{ID: "id", Begun: at(0), Ended: at(s), ExitCode: code}}
}

// otherImage is a container that runs what it was started with, before its image was
// changed.
func otherImage() *container {
	c := runningContainer()
	c.Current.Image = "lab/echo:before"
	return c
}

func TestNext(t *testing.T) {
	network := func(containers map[string]*container) *record {
		return &record{Network: "u", Started: at(0), Containers: containers}
	}
	type m = map[string]*container
	waiting := endedContainer(1, 5)
	waiting.NextStart, waiting.Failures = at(15), 2
	told := runningContainer()
	told.Stopping = &stopping{Deadline: at(20)}
	hooked := runningContainer()
	hooked.Stopping = &stopping{Deadline: at(10), Least: at(12)}
	replaced := endedContainer(137, 5)
	replaced.Current.Replaced = true
	for _, c := range []struct {
		name   string
		pod    *corev1.Pod
		record *record
		want   step
	}{
		{"network first", testPod("Always", "a"), &record{Started: at(0)}, step{Network: true}},
		{"then all containers", testPod("Always", "a", "b"), network(nil), step{Start: []string{"a", "b"}}},
		{"nothing while they run", testPod("Always", "a"), network(m{"a": runningContainer()}), step{}},
		{"the back-off is waited for", testPod("Always", "a"), network(m{"a": waiting}), step{Wake: at(15)}},
		{"init containers in order", withInit(withInit(testPod("Always", "a"), "i", false), "j", false), network(nil), step{Start: []string{"i"}}},
		{"the next init container", withInit(withInit(testPod("Always", "a"), "i", false), "j", false), network(m{"i": endedContainer(0, 1)}), step{Start: []string{"j"}}},
		{"a failed init container again", withInit(testPod("Always", "a"), "i", false), network(m{"i": endedContainer(1, 1)}), step{Start: []string{"i"}}},
		{"a sidecar lets others start", withInit(testPod("Always", "a"), "s", true), network(m{"s": runningContainer()}), step{Start: []string{"a"}}},
		{"a failed init container for good", withInit(testPod("Never", "a"), "i", false), network(m{"i": endedContainer(1, 1)}), step{Release: true}},
		{"an ephemeral container beside the others", withEphemeral(withInit(testPod("Always", "a"), "i", false)), network(m{"i": runningContainer()}), step{Start: []string{"e"}}},
		{"which runs once", withEphemeral(testPod("Always", "a")), network(m{"a": runningContainer(), "e": endedContainer(1, 1)}), step{}},
		{"and keeps no pod", withEphemeral(testPod("Never", "a")), network(m{"a": endedContainer(0, 1), "e": runningContainer()}), step{Stop: map[string]time.Time{"e": at(40)}}},
		{"a pod that succeeded", testPod("OnFailure", "a"), network(m{"a": endedContainer(0, 1)}), step{Release: true}},
		{"its sidecar is stopped", withInit(testPod("OnFailure", "a"), "s", true), network(m{"a": endedContainer(0, 1), "s": runningContainer()}), step{Stop: map[string]time.Time{"s": at(40)}}},
		{"deletion stops", deleted(testPod("Always", "a"), 5), network(m{"a": runningContainer()}), step{Stop: map[string]time.Time{"a": at(15)}}},
		{"containers before sidecars", withInit(deleted(testPod("Always", "a"), 5), "s", true), network(m{"a": runningContainer(), "s": runningContainer()}), step{Stop: map[string]time.Time{"a": at(15)}}},
		{"and is not before its least time is over", deleted(testPod("Always", "a"), 5), network(m{"a": hooked}), step{Wake: at(12)}},
		{"another image", withInit(testPod("Never", "a"), "i", false), network(m{"a": otherImage(), "i": endedContainer(0, 1)}), step{Replace: []string{"a"}}},
		{"of a sidecar", withInit(testPod("Always", "a"), "s", true), network(m{"a": runningContainer(), "s": otherImage()}), step{Replace: []string{"s"}}},
		{"not of one that is to end", withInit(testPod("Always", "a"), "i", false), network(m{"i": otherImage()}), step{}},
		{"one replaced starts again", testPod("Never", "a"), network(m{"a": replaced}), step{Start: []string{"a"}}},
		{"a stopped one is killed later", deleted(testPod("Always", "a"), 10), network(m{"a": told}), step{Wake: at(20)}},
		{"less grace counts", deleted(testPod("Always", "a"), 1), network(m{"a": told}), step{Stop: map[string]time.Time{"a": at(11)}, Wake: at(20)}},
		{"all ended", deleted(testPod("Always", "a"), 5), network(m{"a": endedContainer(0, 1)}), step{Release: true}},
		{"released", deleted(testPod("Always", "a"), 5), &record{Network: "u", Released: true, Containers: m{"a": endedContainer(0, 1)}}, step{Remove: true}},
		{"deleted before anything", deleted(testPod("Always", "a"), 0), &record{}, step{Release: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := next(c.pod, false, c.record, at(10))
			if !equalSteps(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func equalSteps(a, b step) bool {
	if len(a.Stop) != len(b.Stop) {
		return false
	}
	for name, deadline := range a.Stop {
		if !deadline.Equal(b.Stop[name]) {
			return false
		}
	}
	return a.Network == b.Network && a.Release == b.Release && a.Remove == b.Remove && a.Wake.Equal(b.Wake) &&
		slices.Equal(a.Replace, b.Replace) && slices.Equal(a.Start, b.Start) && slices.Equal(a.Kill, b.Kill)
}

func TestNextKillsAtDeadline(t *testing.T) {
	c := runningContainer()
	c.Stopping = &stopping{Deadline: at(10)}
	got := next(deleted(testPod("Always", "a"), 10), false, &record{Network: "u", Stopped: at(0), Containers: map[string]*container{"a": c}}, at(10))
	if !slices.Equal(got.Kill, []string{"a"}) {
		t.Errorf("got %+v", got)
	}
}

func TestNextFailsPastActiveDeadline(t *testing.T) {
	pod := testPod("Always", "a")
	limit := int64(10)
	pod.Spec.ActiveDeadlineSeconds = &limit
	r := &record{Network: "u", Started: at(0), Containers: map[string]*container{"a": runningContainer()}}
	if got := next(pod, false, r, at(9)); got.Fail != nil || !got.Wake.Equal(at(10)) {
		t.Errorf("before: %+v", got)
	}
	if got := next(pod, false, r, at(10)); got.Fail == nil || got.Fail.Reason != "DeadlineExceeded" {
		t.Errorf("after: %+v", got)
	}
}

func TestBackoff(t *testing.T) {
	b := backoff{First: 10 * time.Second, Most: 5 * time.Minute}
	for failures, want := range []time.Duration{0, 10, 20, 40, 80, 160, 300, 300} {
		if got := b.after(failures); got != want*time.Second {
			t.Errorf("after %d failures: got %v, want %v s", failures, got, int(want))
		}
	}
	c := &container{Failures: 6, Current: &attempt{Begun: at(0), Ended: at(600)}}
	if b.note(c); !c.NextStart.Equal(at(600)) {
		t.Errorf("one that ran long waits until %v", c.NextStart)
	}
	c = &container{Failures: 6, Current: &attempt{Begun: at(0), Ended: at(5), Replaced: true}}
	if b.note(c); !c.NextStart.Equal(at(5)) {
		t.Errorf("one whose image was replaced waits until %v", c.NextStart)
	}
}

// A container that waits for a ConfigMap does not back off as if it had crashed.
func TestBackoffOfRefusals(t *testing.T) {
	b := backoff{First: 10 * time.Second, Most: 5 * time.Minute}
	c := &container{}
	for i, want := range []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10} {
		if b.refuse(c, false, at(0)); !c.NextStart.Equal(at(want)) {
			t.Errorf("refusal %d: it waits until %v, want %v s", i+1, c.NextStart, want)
		}
	}
	c.Current = &attempt{Begun: at(20), Ended: at(21), ExitCode: 1}
	if b.note(c); !c.NextStart.Equal(at(21)) {
		t.Errorf("after its first failure it waits until %v", c.NextStart)
	}
	image := &container{}
	for i, want := range []float64{10, 20, 40} {
		if b.refuse(image, true, at(0)); !image.NextStart.Equal(at(want)) {
			t.Errorf("refusal %d of its image: it waits until %v, want %v s", i+1, image.NextStart, want)
		}
	}
}

// A deleted pod always ends, and frees its network.
func TestNextEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := rapid.SampledFrom([]corev1.RestartPolicy{"Always", "OnFailure", "Never"}).Draw(t, "policy")
		pod := withEphemeral(withInit(withInit(testPod(policy, "a", "b"), "i", false), "s", true))
		r := &record{Started: at(0)}
		now := at(0)
		steps := rapid.IntRange(0, 30).Draw(t, "steps")
		for i := 0; ; i++ {
			if i == steps {
				deleted(pod, rapid.Int64Range(0, 5).Draw(t, "grace"))
			}
			if i > steps+100 {
				t.Fatalf("it does not end: %+v", r)
			}
			s := next(pod, false, r, now)
			if s.Remove {
				if r.anyRunning() || !r.Released {
					t.Fatalf("removed while %+v", r)
				}
				return
			}
			now = act(t, r, s, now)
		}
	})
}

// act plays what the world makes of a step.
func act(t *rapid.T, r *record, s step, now time.Time) time.Time {
	switch {
	case s.Network:
		r.Network = "u"
	case s.Release:
		r.Released = true
	}
	for _, name := range s.Start {
		c := r.container(name)
		c.Previous, c.Current, c.Stopping = c.Current, &attempt{Begun: now}, nil
		c.Started = rapid.Bool().Draw(t, "started")
	}
	for name, deadline := range s.Stop {
		if r.Stopped.IsZero() {
			r.Stopped = now
		}
		r.Containers[name].Stopping = &stopping{Deadline: deadline}
	}
	for _, name := range s.Kill {
		r.Containers[name].Stopping.Killed = true
	}
	for name, c := range r.Containers {
		if c.isRunning() && (c.Stopping != nil && c.Stopping.Killed || rapid.IntRange(0, 3).Draw(t, "ends "+name) == 0) {
			c.Current.Ended, c.Current.ExitCode = now, int32(rapid.IntRange(0, 1).Draw(t, "code"))
			backoff{First: time.Second, Most: 4 * time.Second}.note(c)
		}
	}
	return now.Add(time.Second)
}
