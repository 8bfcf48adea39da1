package scale

import (
	"context"
	"encoding/json"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/pacing"
	"vicinity.dev/vicinity/internal/webhook/admission"
)

// allowing lets all pods go, and counts how often it is asked.
type allowing struct{ asked int }

func (a *allowing) Ask(_ context.Context, q pacing.Question) (pacing.Answer, error) {
	a.asked++
	return pacing.Answer{Replicas: q.Wanted}, nil
}

// The next step is made of a write by the controller that changes nothing, and of no other.
func TestWhatIsANextStep(t *testing.T) {
	for name, test := range map[string]struct {
		user   string
		change func(*appsv1.StatefulSet)
		step   bool
	}{
		"a write that changes nothing":                {user, func(*appsv1.StatefulSet) {}, true},
		"one of somebody else":                        {"alice", func(*appsv1.StatefulSet) {}, false},
		"one that restores a template":                {user, func(s *appsv1.StatefulSet) { s.Spec.Template.Labels = map[string]string{"app": "db"} }, false},
		"one that takes away what is wanted":          {user, func(s *appsv1.StatefulSet) { s.Annotations = nil }, false},
		"one that changes what is wanted, and no pod": {user, func(s *appsv1.StatefulSet) { s.Annotations[v1alpha1.AnnotationWantedReplicas] = "2" }, true},
	} {
		stored := &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", Annotations: map[string]string{v1alpha1.AnnotationWantedReplicas: "1", v1alpha1.AnnotationPacedReplicas: "3"}},
			Spec:       appsv1.StatefulSetSpec{Replicas: new(int32(3))},
		}
		object := stored.DeepCopy()
		test.change(object)
		asks := &allowing{}
		namespaces := fake.NewClientBuilder().WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{v1alpha1.PaceScaleDown: v1alpha1.PaceClamp}}}).Build()
		r := &review{judge: judge{kind: pacing.StatefulSet, user: user, pacer: asks, namespaces: namespaces}, object: text(t, object), stored: text(t, stored)}
		verdict, err := r.Judge(t.Context(), &admission.Request{Operation: "UPDATE", Namespace: "shop", Name: "db", User: test.user})
		if err != nil || (asks.asked > 0) != test.step || (verdict.Patch != nil) != test.step {
			t.Errorf("%s: %+v, %v, asked %d times", name, verdict, err, asks.asked)
		}
	}
}

func text(t *testing.T, object any) []byte {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A number that is none is left to the API server, which says so: clamped, it would be a scale-down that nobody asked for.
func TestNegativeReplicas(t *testing.T) {
	r := &review{judge: judge{kind: pacing.Deployment}, stored: []byte(`{"spec":{"replicas":9}}`), object: []byte(`{"spec":{"replicas":-1}}`)}
	verdict, err := r.Judge(t.Context(), &admission.Request{Operation: "UPDATE"})
	if err != nil || verdict.Result != admission.Skipped || verdict.Patch != nil || verdict.Denial != nil {
		t.Errorf("the verdict is %+v, %v", verdict, err)
	}
}
