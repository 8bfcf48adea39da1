package agent

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestExpand(t *testing.T) {
	values := map[string]string{"A": "1", "B": "$(A)"}
	lookup := func(name string) (string, bool) { value, ok := values[name]; return value, ok }
	for text, want := range map[string]string{
		"plain":      "plain",
		"$(A)":       "1",
		"x$(A)y$(A)": "x1y1",
		"$(B)":       "$(A)",
		"$(C)":       "$(C)",
		"$$(A)":      "$(A)",
		"$$$(A)":     "$1",
		"$(A":        "$(A",
		"$A $":       "$A $",
		"":           "",
	} {
		if got := expand(text, lookup); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func FuzzExpand(f *testing.F) {
	f.Add("$(A)$$($(")
	f.Fuzz(func(t *testing.T, text string) {
		if got := expand(text, func(string) (string, bool) { return "", false }); len(got) > len(text) {
			t.Errorf("%q grew to %q", text, got)
		}
	})
}

func TestDownward(t *testing.T) {
	pod := testPod("Always", "a")
	pod.Labels = map[string]string{"b": "2", "a": "1"}
	r := &record{Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")}, Hosts: []netip.Addr{netip.MustParseAddr("172.30.1.1")}}
	for path, want := range map[string]string{
		"metadata.name":        "pod",
		"metadata.labels":      "a=\"1\"\nb=\"2\"",
		"metadata.labels['b']": "2",
		"status.podIP":         "10.0.0.2",
		"status.podIPs":        "10.0.0.2,fd00::2",
		"status.hostIP":        "172.30.1.1",
	} {
		if got, err := podField(pod, r, path); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", path, got, err, want)
		}
	}
	if _, err := podField(pod, r, "spec.nothing"); err == nil {
		t.Error("an unknown field has a value")
	}
}

func TestResourceField(t *testing.T) {
	c := &corev1.Container{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("250m"), "memory": resource.MustParse("100Mi")}}}
	node := corev1.ResourceList{"cpu": resource.MustParse("4")}
	for _, test := range []struct{ name, divisor, want string }{
		{"requests.cpu", "0", "1"}, {"requests.cpu", "1m", "250"}, {"requests.memory", "1Mi", "100"}, {"limits.cpu", "1", "4"},
	} {
		got, err := resourceField(c, node, &corev1.ResourceFieldSelector{Resource: test.name, Divisor: resource.MustParse(test.divisor)})
		if err != nil || got != test.want {
			t.Errorf("%s by %s: got %s, %v, want %s", test.name, test.divisor, got, err, test.want)
		}
	}
}

func TestImages(t *testing.T) {
	images := Images{Program: "/bin/vicinity-lab", Folder: "/bin"}
	for _, image := range []string{"lab/echo", "lab/echo:1", "registry.example:5000/lab/echo:1@sha256:0", "docker.io/lab/echo"} {
		if got, err := images.Resolve(image); err != nil || got[len(got)-1] != "echo" {
			t.Errorf("%s: %v %v", image, got, err)
		}
	}
	for _, image := range []string{"nginx", "lab/other", "lab/", "vicinity-nothing", "slab/echo"} {
		if got, err := images.Resolve(image); err == nil {
			t.Errorf("%s is %v", image, got)
		}
	}
}

func TestSlots(t *testing.T) {
	var s slots
	s.hold(2)
	first, err := s.take()
	if err != nil || first != 3 {
		t.Fatalf("got %d, %v", first, err)
	}
	s.free(first)
	if next, err := s.take(); err != nil || next == first {
		t.Errorf("%d came again at once, %v", next, err)
	}
	taken := 2
	for ; ; taken++ {
		if _, err := s.take(); err != nil {
			break
		}
	}
	if taken != lastSlot-firstSlot+1 {
		t.Errorf("%d were to be had", taken)
	}
}
