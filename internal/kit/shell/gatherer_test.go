package shell

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// The changes of one burst are handled together. Later and failed ones are handled again.
func TestBurstsAreHandledOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		g := NewGatherer(time.Second)
		handled := 0
		var fails error
		s := g.Source("counting", func(context.Context, workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			handled++
			return fails
		})
		if err := s.Start(ctx, nil); err != nil {
			t.Fatal(err)
		}
		after := func(d time.Duration, want int) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if handled != want {
				t.Errorf("%d bursts are handled, want %d", handled, want)
			}
		}
		after(time.Minute, 0)
		for range 100 {
			g.Notice()
			time.Sleep(time.Millisecond)
		}
		after(0, 0)
		after(time.Second, 1)
		after(time.Minute, 1)
		fails = errors.New("not now")
		g.Notice()
		after(time.Second, 2)
		fails = nil
		after(time.Second, 3)
		after(time.Minute, 3)
		g.Notice()
		synctest.Wait()
		cancel()
		after(time.Minute, 3)
	})
}
