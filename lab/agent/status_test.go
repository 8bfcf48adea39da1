package agent

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab/shape"
)

func TestFakeStatus(t *testing.T) {
	always, now := corev1.ContainerRestartPolicyAlways, time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	before := metav1.NewTime(now.Add(-time.Hour))
	w := fakeWork{
		node: &node{Node: shape.Node{Name: "fake-1", Index: 7, Fake: true}},
		slot: 9,
		pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: "u", Generation: 3},
			Spec: corev1.PodSpec{
				InitContainers: []corev1.Container{{Name: "first"}, {Name: "beside", RestartPolicy: &always}},
				Containers:     []corev1.Container{{Name: "c", Image: "lab/echo"}},
				ReadinessGates: []corev1.PodReadinessGate{{ConditionType: "example.org/gate"}},
			},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: before},
				{Type: "example.org/other", Status: corev1.ConditionFalse, LastTransitionTime: before},
			}},
		},
	}
	conditionOf := func(s corev1.PodStatus, kind corev1.PodConditionType) corev1.PodCondition {
		t.Helper()
		for _, c := range s.Conditions {
			if c.Type == kind {
				return c
			}
		}
		t.Fatalf("there is no condition %s", kind)
		return corev1.PodCondition{}
	}
	s := fakeStatus(w, now)
	if s.Phase != corev1.PodRunning || s.PodIP != "10.128.7.9" || len(s.PodIPs) != 2 || len(s.HostIPs) != 2 || s.ObservedGeneration != 3 {
		t.Errorf("got %+v", s)
	}
	if first, beside := s.InitContainerStatuses[0], s.InitContainerStatuses[1]; first.State.Terminated == nil || beside.State.Running == nil || !*beside.Started {
		t.Errorf("the init containers are %+v", s.InitContainerStatuses)
	}
	if c := s.ContainerStatuses[0]; !c.Ready || c.State.Running == nil || c.Image != "lab/echo" {
		t.Errorf("the container is %+v", c)
	}
	if c := conditionOf(s, corev1.PodReady); c.Status != corev1.ConditionFalse || c.Reason != "ReadinessGatesNotReady" {
		t.Errorf("with a closed gate it is %+v", c)
	}
	if c := conditionOf(s, "example.org/other"); c.LastTransitionTime != before {
		t.Errorf("a condition of others is %+v", c)
	}
	w.pod.Status = s
	w.pod.Status.Conditions = append(w.pod.Status.Conditions, corev1.PodCondition{Type: "example.org/gate", Status: corev1.ConditionTrue})
	s = fakeStatus(w, now.Add(time.Hour))
	if c := conditionOf(s, corev1.PodReady); c.Status != corev1.ConditionTrue || !c.LastTransitionTime.After(now) {
		t.Errorf("with an open gate it is %+v", c)
	}
	if c := conditionOf(s, corev1.ContainersReady); c.LastTransitionTime.After(now) {
		t.Errorf("a condition that did not change is %+v", c)
	}
	w.pod.Spec.HostNetwork = true
	if s = fakeStatus(w, now); s.PodIP != s.HostIP {
		t.Errorf("in the host's network its address is %s, that of the node %s", s.PodIP, s.HostIP)
	}
}

func TestStartTime(t *testing.T) {
	now := time.Now()
	pod := func(phase corev1.PodPhase, takes string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-time.Minute)), Annotations: map[string]string{shape.AnnotationStartTime: takes}},
			Status: corev1.PodStatus{Phase: phase, Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-time.Second))},
			}},
		}
	}
	unscheduled := pod(corev1.PodPending, "90s")
	unscheduled.Status.Conditions = nil
	for _, c := range []struct {
		name string
		pod  *corev1.Pod
		want time.Duration
	}{
		{"bound a second ago", pod(corev1.PodPending, "5s"), 4 * time.Second},
		{"long enough", pod(corev1.PodPending, "500ms"), 0},
		{"made with its node", unscheduled, 30 * time.Second},
		{"not annotated", pod(corev1.PodPending, ""), 0},
		{"ran before", pod(corev1.PodRunning, "5s"), 0},
	} {
		if got := startTime(c.pod, now); got != c.want {
			t.Errorf("%s: it takes %v, want %v", c.name, got, c.want)
		}
	}
}
