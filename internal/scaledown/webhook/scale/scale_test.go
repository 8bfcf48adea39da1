package scale

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/admission"
	"vicinity.dev/vicinity/internal/scaledown/pacing"
)

const (
	system = "vicinity-system"
	user   = "system:serviceaccount:vicinity-system:vicinity-controller"
)

// allowing never allows fewer replicas than a number. It records the questions.
type allowing struct {
	replicas int32
	asked    []pacing.Question
}

func (a *allowing) Ask(_ context.Context, q pacing.Question) (pacing.Answer, error) {
	a.asked = append(a.asked, q)
	if a.replicas > q.Wanted {
		return pacing.Answer{Replicas: a.replicas, Denial: "The budget is used up."}, nil
	}
	return pacing.Answer{Replicas: q.Wanted}, nil
}

// stored is a StatefulSet of nine replicas with an optional wanted number.
func stored(wanted string) *appsv1.StatefulSet {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", UID: "set-1"}, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(9))}}
	if wanted != "" {
		set.Annotations = map[string]string{v1alpha1.AnnotationWantedReplicas: wanted, v1alpha1.AnnotationPacedReplicas: "9"}
	}
	return set
}

// paced is the namespace of the workloads with a mode.
func paced(mode string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{v1alpha1.PaceScaleDown: mode}}}
}

// A scale-down is denied, or reduced to what budgets allow, whether the write is to the workload or to its scale.
func TestScaleDowns(t *testing.T) {
	for name, test := range map[string]struct {
		mode              string
		replicas, allowed int32
		known             string // the wanted number before
		dryRun            bool

		denial  string
		given   int32 // replicas of the patch, 0 for no patch
		warning string
		whole   bool   // Question.Whole
		unasked bool   // the pacer is not asked
		kept    string // the record of a write of the scale: the replicas and the wanted number
	}{
		"denied":                  {mode: v1alpha1.PaceDeny, replicas: 3, allowed: 8, whole: true, denial: "StatefulSet shop/db may become 8 now, asked for 3. The budget is used up."},
		"denied, none may go":     {mode: v1alpha1.PaceDeny, replicas: 3, allowed: 9, whole: true, denial: "StatefulSet shop/db may not become smaller than 9 now, asked for 3."},
		"denied in a dry run":     {mode: v1alpha1.PaceDeny, replicas: 3, allowed: 8, whole: true, dryRun: true, denial: "asked for 3"},
		"all may go":              {mode: v1alpha1.PaceDeny, replicas: 3, allowed: 3, whole: true},
		"a scale-up where denied": {mode: v1alpha1.PaceDeny, replicas: 12, unasked: true},
		"clamped":                 {mode: v1alpha1.PaceClamp, replicas: 3, allowed: 7, given: 7, warning: "may become 7 now, and continues to 3", kept: "7 3"},
		"clamped in a dry run":    {mode: v1alpha1.PaceClamp, replicas: 3, allowed: 7, given: 7, warning: "may become 7 now", dryRun: true},
		"the same number again":   {mode: v1alpha1.PaceClamp, replicas: 3, allowed: 7, known: "3", given: 9, unasked: true},
		"another number":          {mode: v1alpha1.PaceClamp, replicas: 5, allowed: 7, known: "3", given: 7, warning: "continues to 5", kept: "7 5"},
		"a scale-up ends it":      {mode: v1alpha1.PaceClamp, replicas: 12, known: "3", unasked: true, kept: "12"},
		"no mode":                 {mode: "", replicas: 3, unasked: true},
	} {
		for _, ofScale := range []bool{false, true} {
			before, after := stored(test.known), stored(test.known)
			after.Spec.Replicas = &test.replicas
			live := fake.NewClientBuilder().WithObjects(before, paced(test.mode)).Build()
			asks, kept := &allowing{replicas: test.allowed}, ""
			keep := func(_ context.Context, r record) error {
				if kept = strconv.Itoa(int(r.Replicas)); r.Wanted != nil {
					kept += " " + strconv.Itoa(int(*r.Wanted))
				}
				return nil
			}
			j := judge{kind: pacing.StatefulSet, user: user, pacer: asks, namespaces: live, live: live, keep: keep}
			request := &admission.Request{Operation: "UPDATE", Namespace: "shop", Name: "db", User: "alice", DryRun: test.dryRun}
			if ofScale {
				request.SubResource = "scale"
			}
			verdict, err := j.judge(t.Context(), request, text(t, after), text(t, before))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			denial := ""
			if verdict.Denial != nil {
				denial = verdict.Denial.Message
			}
			if (denial != "") != (test.denial != "") || !strings.Contains(denial, test.denial) {
				t.Errorf("%s, of the scale %t: the denial is %q", name, ofScale, denial)
			}
			if warning := strings.Join(verdict.Warnings, ""); (warning != "") != (test.warning != "") || !strings.Contains(warning, test.warning) {
				t.Errorf("%s, of the scale %t: the warning is %q", name, ofScale, warning)
			}
			if given := fmt.Sprintf(`"path":"/spec/replicas","value":%d}`, test.given); strings.Contains(string(verdict.Patch), given) != (test.given > 0) {
				t.Errorf("%s, of the scale %t: the patch is %s", name, ofScale, verdict.Patch)
			}
			if notes := strings.Contains(string(verdict.Patch), "wanted-replicas"); notes != (!ofScale && test.warning != "") {
				t.Errorf("%s, of the scale %t: the patch is %s", name, ofScale, verdict.Patch)
			}
			if want := map[bool]string{true: test.kept}[ofScale]; kept != want {
				t.Errorf("%s, of the scale %t: the record is %q, want %q", name, ofScale, kept, want)
			}
			if len(asks.asked) > 1 || (len(asks.asked) == 0) != test.unasked || !test.unasked && (asks.asked[0].Whole != test.whole || asks.asked[0].DryRun != test.dryRun) {
				t.Errorf("%s, of the scale %t: asked is %+v", name, ofScale, asks.asked)
			}
		}
	}
}

// Of a workload of another kind only the subresource is known. Nothing is kept of its scale-down.
func TestScaleDownsOfOtherKinds(t *testing.T) {
	for name, test := range map[string]struct {
		mode              string
		replicas, allowed int32
		annotations       map[string]string // of the written Scale
		denial, patch     string
		warning           string
	}{
		"denied":           {mode: v1alpha1.PaceDeny, replicas: 3, allowed: 8, denial: "Scale shop/db may become 8 now, asked for 3. The budget is used up."},
		"all may go":       {mode: v1alpha1.PaceDeny, replicas: 3, allowed: 3},
		"clamped":          {mode: v1alpha1.PaceClamp, replicas: 3, allowed: 7, patch: `[{"op":"add","path":"/spec/replicas","value":7}]`, warning: "Scale shop/db may become 7 now, asked for 3; ask again to continue. The budget is used up."},
		"clamped, all go":  {mode: v1alpha1.PaceClamp, replicas: 3, allowed: 3},
		"annotated ones":   {mode: v1alpha1.PaceAnnotated, replicas: 3, allowed: 8},
		"annotations":      {mode: v1alpha1.PaceDeny, replicas: 3, allowed: 8, annotations: map[string]string{v1alpha1.PaceScaleDown: ""}, denial: "Scale shop/db may become 8 now, asked for 3. The budget is used up."},
		"a larger number":  {mode: v1alpha1.PaceClamp, replicas: 12, allowed: 8},
		"without the mode": {replicas: 3, allowed: 8},
	} {
		scale := func(replicas int32, annotations map[string]string) []byte {
			return text(t, &autoscalingv1.Scale{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", UID: "clones", Annotations: annotations}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas}, Status: autoscalingv1.ScaleStatus{Selector: "app=db"},
			})
		}
		asks, namespaces := &allowing{replicas: test.allowed}, fake.NewClientBuilder().WithObjects(paced(test.mode)).Build()
		j := judge{kind: pacing.Scale, user: user, pacer: asks, namespaces: namespaces}
		verdict, err := j.judge(t.Context(), &admission.Request{Operation: "UPDATE", Namespace: "shop", Name: "db", SubResource: "scale", User: "alice"}, scale(test.replicas, test.annotations), scale(9, nil))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		denial := ""
		if verdict.Denial != nil {
			denial = verdict.Denial.Message
		}
		if denial != test.denial || string(verdict.Patch) != test.patch || strings.Join(verdict.Warnings, "") != test.warning {
			t.Errorf("%s: denial %q, patch %s, warnings %q", name, denial, verdict.Patch, verdict.Warnings)
		}
		if len(asks.asked) > 0 && (asks.asked[0].Workload.Replicas != 9 || asks.asked[0].Workload.Object.GetUID() != "clones") {
			t.Errorf("%s: asked is %+v", name, asks.asked)
		}
	}
}

// Only a write of the controller that changes nothing else becomes the next step.
func TestNextSteps(t *testing.T) {
	for name, test := range map[string]struct {
		user   string
		change func(*appsv1.StatefulSet)
		step   bool
	}{
		"a write that changes nothing": {user, func(*appsv1.StatefulSet) {}, true},
		"another user":                 {"alice", func(*appsv1.StatefulSet) {}, false},
		"a changed template":           {user, func(s *appsv1.StatefulSet) { s.Spec.Template.Labels = map[string]string{"app": "db"} }, false},
		"no wanted number":             {user, func(s *appsv1.StatefulSet) { s.Annotations = nil }, false},
		"another wanted number":        {user, func(s *appsv1.StatefulSet) { s.Annotations[v1alpha1.AnnotationWantedReplicas] = "2" }, true},
	} {
		before := stored("1")
		object := before.DeepCopy()
		test.change(object)
		asks := &allowing{}
		namespaces := fake.NewClientBuilder().WithObjects(paced(v1alpha1.PaceClamp)).Build()
		j := judge{kind: pacing.StatefulSet, user: user, pacer: asks, namespaces: namespaces}
		verdict, err := j.judge(t.Context(), &admission.Request{Operation: "UPDATE", Namespace: "shop", Name: "db", User: test.user}, text(t, object), text(t, before))
		if err != nil || (len(asks.asked) > 0) != test.step || (verdict.Patch != nil) != test.step {
			t.Errorf("%s: %+v, %v, asked %d times", name, verdict, err, len(asks.asked))
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

// A negative number is left to the API server, which refuses it. The webhook must not turn it into a scale-down.
func TestNegativeReplicas(t *testing.T) {
	verdict, err := judge{kind: pacing.Deployment}.judge(t.Context(), &admission.Request{Operation: "UPDATE"}, []byte(`{"spec":{"replicas":-1}}`), []byte(`{"spec":{"replicas":9}}`))
	if err != nil || verdict.Result != admission.Skipped || verdict.Patch != nil || verdict.Denial != nil {
		t.Errorf("the verdict is %+v, %v", verdict, err)
	}
}
