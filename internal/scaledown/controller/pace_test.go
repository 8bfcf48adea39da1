package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/scaledown/pacing"
)

// fixed is a pacer that allows a fixed number of replicas. It records questions and counts holds.
type fixed struct {
	replicas int32
	asked    []pacing.Question
	held     int
}

func (f *fixed) Ask(_ context.Context, q pacing.Question) (pacing.Answer, error) {
	f.asked = append(f.asked, q)
	answer := pacing.Answer{Replicas: max(q.Wanted, min(q.Workload.Replicas, f.replicas))}
	if answer.Replicas > q.Wanted {
		answer.Denial = "the budget is used up"
	}
	return answer, nil
}

func (f *fixed) Hold(context.Context, pacing.Workload, string) error {
	f.held++
	return nil
}

func pacedDeployment(replicas int32, annotations map[string]string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web", Annotations: annotations}, Spec: appsv1.DeploymentSpec{Replicas: &replicas},
	}
}

func noted(wanted, paced string) map[string]string {
	return map[string]string{v1alpha1.AnnotationWantedReplicas: wanted, v1alpha1.AnnotationPacedReplicas: paced}
}

// bench has a stepper and an API server whose patches become steps, as by the webhook.
type bench struct {
	*stepper
	api      client.Client
	asks     *fixed
	clock    *clocktesting.FakePassiveClock
	events   *events.FakeRecorder
	writes   int
	conflict bool
}

func newBench(t *testing.T, allowed int32, mode string, objects ...client.Object) *bench {
	t.Helper()
	b := &bench{asks: &fixed{replicas: allowed}, clock: clocktesting.NewFakePassiveClock(time.Unix(1e9, 0)), events: events.NewFakeRecorder(10)}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{v1alpha1.PaceScaleDown: mode}}}
	b.api = fake.NewClientBuilder().WithObjects(objects...).WithObjects(namespace).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if b.writes++; b.conflict {
				return apierrors.NewConflict(appsv1.Resource("deployments"), o.GetName(), errors.New("it changed"))
			}
			if err := c.Patch(ctx, o, p, opts...); err != nil {
				return err
			}
			if d := o.(*appsv1.Deployment); d.Annotations[v1alpha1.AnnotationWantedReplicas] != "" {
				d.Spec.Replicas = new(min(*d.Spec.Replicas, max(b.asks.replicas, *pacing.Of(d).Wanted)))
				return c.Update(ctx, d)
			}
			return nil
		},
	}).Build()
	b.restart()
	return b
}

func (b *bench) restart() {
	b.stepper = newStepper(stepper{client: b.api, live: b.api, pacer: b.asks, recorder: b.events, clock: b.clock})
}

func (b *bench) stored(t *testing.T) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{}
	if err := b.api.Get(t.Context(), web.NamespacedName, d); err != nil {
		t.Fatal(err)
	}
	return d
}

func (b *bench) event() string {
	select {
	case event := <-b.events.Events:
		return event
	default:
		return ""
	}
}

func TestSync(t *testing.T) {
	for name, test := range map[string]struct {
		replicas    int32
		annotations map[string]string
		mode        string
		allowed     int32

		want   int32
		ended  bool // the annotations are removed
		writes int
		event  string
	}{
		"continues":                 {replicas: 7, annotations: noted("3", "7"), allowed: 5, want: 5, writes: 1, event: "The scale-down to 3 is at 5"},
		"nothing is allowed":        {replicas: 7, annotations: noted("3", "7"), allowed: 7, want: 7, event: "The scale-down to 3 is at 7"},
		"has ended":                 {replicas: 3, annotations: noted("3", "3"), want: 3, ended: true, writes: 1, event: "The scale-down to 3 is complete"},
		"smaller than wanted":       {replicas: 2, annotations: noted("3", "5"), want: 2, ended: true, writes: 1, event: "is complete"},
		"an autoscaler wants more":  {replicas: 9, annotations: noted("3", "7"), want: 9, ended: true, writes: 1, event: "The workload was set to 9 replicas"},
		"an autoscaler wants fewer": {replicas: 6, annotations: noted("3", "7"), allowed: 6, want: 6, event: "The scale-down to 3 is at 6"},
		"no paced number yet":       {replicas: 7, annotations: map[string]string{v1alpha1.AnnotationWantedReplicas: "3"}, allowed: 3, want: 3, writes: 1},
		"an invalid number":         {replicas: 7, annotations: noted("-1", "7"), want: 7, ended: true, writes: 1, event: "is not a number of replicas; scale down again"},
		"the number was removed":    {replicas: 7, annotations: map[string]string{v1alpha1.AnnotationPacedReplicas: "7"}, want: 7, ended: true, writes: 1, event: "is not a number of replicas"},
		"it is denied from now on":  {replicas: 7, annotations: noted("3", "7"), mode: v1alpha1.PaceDeny, want: 7, ended: true, writes: 1, event: "is no longer Clamp here"},
		"without a scale-down":      {replicas: 7, want: 7, ended: true},
	} {
		t.Run(name, func(t *testing.T) {
			mode := v1alpha1.PaceClamp
			if test.mode != "" {
				mode = test.mode
			}
			b := newBench(t, test.allowed, mode, pacedDeployment(test.replicas, test.annotations))
			after, err := b.sync(t.Context(), web)
			if err != nil || (after == 0) != test.ended || b.notes.Has(web) == test.ended {
				t.Errorf("it requeues after %s: %v", after, err)
			}
			d := b.stored(t)
			if *d.Spec.Replicas != test.want || isNoted(d) == test.ended || b.writes != test.writes {
				t.Errorf("%d replicas after %d writes, annotations %v", *d.Spec.Replicas, b.writes, d.Annotations)
			}
			if event := b.event(); (event != "") != (test.event != "") || !strings.Contains(event, test.event) {
				t.Errorf("the event is %q, want %q", event, test.event)
			}
		})
	}
}

// A restarted controller continues from the annotations and repeats its event. A running one emits one event per number.
func TestSyncAgain(t *testing.T) {
	b := newBench(t, 7, v1alpha1.PaceClamp, pacedDeployment(7, noted("3", "7")))
	step := func(name, event string, held int) {
		t.Helper()
		if _, err := b.sync(t.Context(), web); err != nil {
			t.Fatal(err)
		}
		if got := b.event(); (got != "") != (event != "") || !strings.Contains(got, event) {
			t.Errorf("%s: the event is %q, want %q", name, got, event)
		}
		if b.asks.held != held {
			t.Errorf("%s: reservations were held %d times, want %d", name, b.asks.held, held)
		}
	}
	step("first", "The scale-down to 3", 1)
	b.clock.SetTime(b.clock.Now().Add(holdEvery - 1))
	step("again", "", 1)
	b.clock.SetTime(b.clock.Now().Add(1))
	step("later", "", 2)

	d := b.stored(t)
	d.Annotations[v1alpha1.AnnotationWantedReplicas] = "5"
	if err := b.api.Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	step("another number", "The scale-down to 5", 2)
	if last := b.asks.asked[len(b.asks.asked)-1]; last.Wanted != 5 || !last.DryRun {
		t.Errorf("the last question is %+v", last)
	}

	b.restart()
	step("restarted", "The scale-down to 5", 3)
	b.asks.replicas = 0
	step("allowed", "", 3)
	if d := b.stored(t); *d.Spec.Replicas != 5 {
		t.Errorf("there are %d replicas", *d.Spec.Replicas)
	}
	step("complete", "The scale-down to 5 is complete", 3)
}

// If the write conflicts, nothing changes and the sync runs again later.
func TestSyncOfAChangedWorkload(t *testing.T) {
	b := newBench(t, 5, v1alpha1.PaceClamp, pacedDeployment(7, noted("3", "7")))
	b.conflict = true
	result, err := b.Reconcile(t.Context(), web)
	if err != nil || result.RequeueAfter <= 0 {
		t.Errorf("%+v, %v", result, err)
	}
	if d := b.stored(t); *d.Spec.Replicas != 7 || !isNoted(d) {
		t.Errorf("%d replicas, annotations %v", *d.Spec.Replicas, d.Annotations)
	}
}
