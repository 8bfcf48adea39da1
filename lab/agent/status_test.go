package agent

import (
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

var testBackoff = backoff{First: 10 * time.Second, Most: 5 * time.Minute}

func conditionOf(s corev1.PodStatus, t corev1.PodConditionType) corev1.PodCondition {
	for _, c := range s.Conditions {
		if c.Type == t {
			return c
		}
	}
	return corev1.PodCondition{}
}

func TestPodStatus(t *testing.T) {
	type m = map[string]*container
	crashing := endedContainer(1, 5)
	crashing.NextStart, crashing.Failures = at(25), 2
	refused := &container{Waiting: &reason{"ErrImagePull", "no such image"}}
	replaced := endedContainer(0, 5)
	replaced.Current.Replaced = true
	unready := runningContainer()
	unready.Passing = false
	for _, c := range []struct {
		name       string
		pod        *corev1.Pod
		containers m
		phase      corev1.PodPhase
		ready      string // the reason if it is not
		state      string // of the first container: running, waiting reason, or terminated reason
	}{
		{"new", testPod("Always", "a"), nil, "Pending", "ContainersNotReady", "ContainerCreating"},
		{"before init", withInit(testPod("Always", "a"), "i", false), nil, "Pending", "ContainersNotReady", "PodInitializing"},
		{"running", testPod("Always", "a"), m{"a": runningContainer()}, "Running", "", "running"},
		{"unready", testPod("Always", "a"), m{"a": unready}, "Running", "ContainersNotReady", "running"},
		{"no image", testPod("Always", "a"), m{"a": refused}, "Pending", "ContainersNotReady", "ErrImagePull"},
		{"crashing", testPod("Always", "a"), m{"a": crashing}, "Running", "ContainersNotReady", "CrashLoopBackOff"},
		{"failed", testPod("Never", "a"), m{"a": endedContainer(1, 5)}, "Failed", "PodFailed", "Error"},
		{"succeeded", testPod("OnFailure", "a"), m{"a": endedContainer(0, 5)}, "Succeeded", "PodCompleted", "Completed"},
		{"deleted", deleted(testPod("Always", "a"), 5), m{"a": endedContainer(0, 5)}, "Succeeded", "PodCompleted", "Completed"},
		{"init failed", withInit(testPod("Never", "a"), "i", false), m{"i": endedContainer(1, 5)}, "Failed", "PodFailed", "PodInitializing"},
		{"replaced", testPod("Never", "a"), m{"a": replaced}, "Running", "ContainersNotReady", "ContainerCreating"},
		{"sidecar runs on", withInit(testPod("Never", "a"), "s", true), m{"s": runningContainer(), "a": endedContainer(0, 5)}, "Running", "ContainersNotReady", "Completed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &record{Network: "u", Started: at(0), Containers: c.containers, Addresses: []netip.Addr{netip.MustParseAddr("10.128.1.2")}}
			before := c.pod.DeepCopy()
			s := podStatus(c.pod, r, testBackoff, at(10))
			if !equality.Semantic.DeepEqual(before, c.pod) {
				t.Error("the pod was changed")
			}
			if s.Phase != c.phase {
				t.Errorf("phase is %s, want %s", s.Phase, c.phase)
			}
			ready := conditionOf(s, corev1.PodReady)
			if ready.Reason != c.ready || (ready.Status == corev1.ConditionTrue) != (c.ready == "") {
				t.Errorf("ready is %+v, want reason %q", ready, c.ready)
			}
			if got := stateOf(s.ContainerStatuses[0]); got != c.state {
				t.Errorf("state is %s, want %s", got, c.state)
			}
			if s.PodIP != "10.128.1.2" {
				t.Errorf("address is %q", s.PodIP)
			}
			// What was said need not be said again.
			again := c.pod.DeepCopy()
			again.Status = s
			if later := podStatus(again, r, testBackoff, at(12)); !equality.Semantic.DeepEqual(s, later) {
				t.Errorf("it changes on its own from %+v to %+v", s, later)
			}
		})
	}
}

func stateOf(c corev1.ContainerStatus) string {
	switch {
	case c.State.Running != nil:
		return "running"
	case c.State.Waiting != nil:
		return c.State.Waiting.Reason
	default:
		return c.State.Terminated.Reason
	}
}

func TestReadinessGates(t *testing.T) {
	pod := testPod("Always", "a")
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	r := &record{Network: "u", Started: at(0), Containers: map[string]*container{"a": runningContainer()}}
	if c := conditionOf(podStatus(pod, r, testBackoff, at(1)), corev1.PodReady); c.Reason != "ReadinessGatesNotReady" {
		t.Errorf("without the gate's condition: %+v", c)
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: "example.com/gate", Status: corev1.ConditionTrue}}
	s := podStatus(pod, r, testBackoff, at(1))
	if c := conditionOf(s, corev1.PodReady); c.Status != corev1.ConditionTrue {
		t.Errorf("with it: %+v", c)
	}
	if c := conditionOf(s, "example.com/gate"); c.Status != corev1.ConditionTrue {
		t.Error("the condition of others is lost")
	}
}

func TestProbeState(t *testing.T) {
	spec := &corev1.Probe{PeriodSeconds: 10, FailureThreshold: 3, SuccessThreshold: 1}
	p := probeState{begun: at(0)}
	v, again := p.observe(spec, false, at(0.02))
	if v != undecided || p.failures != 0 || !again.Before(at(0.05)) {
		t.Errorf("a first failure: %v, again at %v, %d failures", v, again.Sub(epoch), p.failures)
	}
	if v, again = p.observe(spec, true, at(0.1)); v != passing || !again.Equal(at(10.1)) {
		t.Errorf("a success: %v, again at %v", v, again.Sub(epoch))
	}
	for i, want := range []verdict{undecided, undecided, failing, failing} {
		if v, _ = p.observe(spec, false, at(float64(20+i))); v != want {
			t.Errorf("failure %d: %v, want %v", i+1, v, want)
		}
	}
}

// A success below the threshold does not count.
func TestProbeWantsSuccessesInARow(t *testing.T) {
	p := probeState{begun: at(0)}
	spec := &corev1.Probe{PeriodSeconds: 10, SuccessThreshold: 2}
	for i, answer := range []struct {
		ok   bool
		want verdict
	}{{true, undecided}, {false, undecided}, {true, undecided}, {true, passing}} {
		if got, _ := p.observe(spec, answer.ok, at(0.1)); got != answer.want {
			t.Errorf("answer %d: verdict is %d, want %d", i+1, got, answer.want)
		}
	}
}

// The status names what runs, not what is to run.
func TestStatusNamesTheImageThatRuns(t *testing.T) {
	s := podStatus(testPod("Always", "a"), &record{Network: "u", Containers: map[string]*container{"a": otherImage()}}, testBackoff, at(10))
	if got := s.ContainerStatuses[0]; got.Image != "lab/echo:before" || got.ImageID != imageID("lab/echo:before") {
		t.Errorf("image is %q, its id %q", got.Image, got.ImageID)
	}
}
