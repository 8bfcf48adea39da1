package shell

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Callers at one time share a reading of the nodes, which has a deadline. Later callers see newer nodes.
func TestRecentNodes(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	node := func(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	live := interceptor.NewClient(fake.NewClientBuilder().WithObjects(node("n1")).Build(), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, bounded := ctx.Deadline(); !bounded {
				t.Error("the reading has no deadline")
			}
			return c.List(ctx, list, options...)
		},
	})
	nodes := &RecentNodes{Live: live, Clock: clock, Trust: time.Second, Timeout: time.Minute}
	for _, step := range []struct {
		after time.Duration
		want  int
	}{{0, 1}, {time.Second - 1, 1}, {time.Second, 2}} {
		clock.SetTime(time.Unix(0, 0).Add(step.after))
		list, err := nodes.List(t.Context())
		if err != nil || len(list) != step.want {
			t.Errorf("after %s there are %d nodes, want %d: %v", step.after, len(list), step.want, err)
		}
		if step.after == 0 {
			if err := live.Create(t.Context(), node("n2")); err != nil {
				t.Fatal(err)
			}
		}
	}
}
