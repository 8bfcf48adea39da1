package pod

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/admission"
)

// responders have the priority of controllers.
func responders(names ...string) []corev1.EvictionResponder {
	var all []corev1.EvictionResponder
	for _, name := range names {
		all = append(all, corev1.EvictionResponder{Name: name, Priority: new(int32(10000))})
	}
	return all
}

func many(n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("example.com/r%d", i))
	}
	return names
}

func TestNewPodsNameTheResponder(t *testing.T) {
	group := &corev1.PodSchedulingGroup{}
	const own = v1alpha1.EvictionResponder
	for name, test := range map[string]struct {
		spec     corev1.PodSpec
		unserved bool
		update   bool
		want     []string
		warned   bool
	}{
		"none":               {want: []string{own}},
		"others":             {spec: corev1.PodSpec{EvictionResponders: responders("example.com/a")}, want: []string{"example.com/a", own}},
		"named already":      {spec: corev1.PodSpec{EvictionResponders: responders(own)}, want: []string{own}},
		"nine":               {spec: corev1.PodSpec{EvictionResponders: responders(many(9)...)}, want: append(many(9), own)},
		"ten":                {spec: corev1.PodSpec{EvictionResponders: responders(many(10)...)}, want: many(10), warned: true},
		"of a PodGroup":      {spec: corev1.PodSpec{SchedulingGroup: group}},
		"the API is not on":  {unserved: true},
		"not when it is new": {update: true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: test.spec}
			write := admission.Write[corev1.Pod]{Object: pod, Namespace: "shop"}
			if test.update {
				write.Stored = pod
			}
			verdict, err := judge{Options{Served: func() bool { return !test.unserved }}}.judge(t.Context(), write)
			if err != nil || len(verdict.Faults) > 0 || (len(verdict.Warnings) > 0) != test.warned {
				t.Fatalf("%+v, %v", verdict, err)
			}
			patched := patched(t, pod, verdict.Patch)
			var got []string
			for _, r := range patched.Spec.EvictionResponders {
				got = append(got, r.Name)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("the responders are %v, want %v", got, test.want)
			}
			if added := len(patched.Spec.EvictionResponders) - len(test.spec.EvictionResponders); added > 0 {
				if p := *patched.Spec.EvictionResponders[len(got)-1].Priority; p <= 10000 || p > 100000 {
					t.Errorf("the priority is %d", p)
				}
			}
		})
	}
}

// patched applies a patch to a pod, as the API server does.
func patched(t *testing.T, pod *corev1.Pod, patch []byte) *corev1.Pod {
	t.Helper()
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	if patch != nil {
		decoded, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			t.Fatal(err)
		}
		if text, err = decoded.Apply(text); err != nil {
			t.Fatal(err)
		}
	}
	made := new(corev1.Pod)
	if err := json.Unmarshal(text, made); err != nil {
		t.Fatal(err)
	}
	return made
}
