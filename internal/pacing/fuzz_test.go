package pacing

import (
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
)

// FuzzAnnotations reads what people write on workloads and pods: numbers are those that Kubernetes reads too, a mode that is not known
// denies, and nothing holds a deletion cost for longer than a Pacer would.
func FuzzAnnotations(f *testing.F) {
	for _, text := range []string{"", "3", "-3", "+3", "03", "0", "2147483648", "-2147483648", "Clamp", "Deny", "Annotated", "2026-01-02T15:04:05Z", "2026-01-02T15:06:05+00:01", "9999-12-31T23:59:59Z"} {
		f.Add(text, text)
		f.Add(text, "Clamp")
	}
	now := time.Date(2026, 1, 2, 15, 4, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, own, namespace string) {
		workload := Of(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			v1alpha1.AnnotationWantedReplicas: own, v1alpha1.PaceScaleDown: own,
		}}})
		n, err := strconv.ParseInt(own, 10, 32)
		if isNumber := err == nil && n >= 0; isNumber != (workload.Wanted != nil) || isNumber && int64(*workload.Wanted) != n {
			t.Fatalf("%q is %v replicas", own, workload.Wanted)
		}
		mode := workload.Mode(map[string]string{v1alpha1.PaceScaleDown: namespace})
		switch {
		case own == "" && mode != "", own != "" && own != v1alpha1.PaceClamp && mode != v1alpha1.PaceDeny, own == v1alpha1.PaceClamp && mode != own:
			t.Fatalf("%q in a namespace with %q is %q", own, namespace, mode)
		}
		if mode := workload.Mode(nil); mode != "" {
			t.Fatalf("in a namespace without the label it is %q", mode)
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Annotations:     map[string]string{corev1.PodDeletionCost: own, v1alpha1.AnnotationDeletionCost: namespace, v1alpha1.AnnotationGoesUntil: own},
			OwnerReferences: []metav1.OwnerReference{{Controller: new(true), Name: "web-1"}},
		}}
		p := RankedPod(pod)
		if p.Cost != 0 && strconv.Itoa(int(p.Cost)) != own || p.Foreign != (own != namespace) {
			t.Fatalf("the cost %q, of ours %q, is %+v", own, namespace, p)
		}
		if until := GoesUntil(pod, now); !until.IsZero() && (!until.After(now) || until.Sub(now) > disruption.ReservationTime+disruption.ClockSkew) {
			t.Fatalf("%q holds until %s", own, until)
		}
	})
}
