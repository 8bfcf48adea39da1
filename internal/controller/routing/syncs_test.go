package routing

import (
	"context"
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
)

func TestSyncsThatHang(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	syncs := NewSyncs(now)
	alive := func(want bool) {
		t.Helper()
		if err := syncs.Alive(nil); (err == nil) != want {
			t.Errorf("alive: %v, want %t", err, want)
		}
	}
	alive(true)
	first := syncs.begin("Service shop/web")
	now.SetTime(now.Now().Add(stuckAfter))
	second := syncs.begin("Service shop/web")
	alive(true)
	now.SetTime(now.Now().Add(time.Second))
	alive(false)
	first()
	alive(true)
	now.SetTime(now.Now().Add(stuckAfter))
	alive(false)
	second()
	alive(true)
}

// Each sync of a Service or a policy is noted while it runs, and no longer, however it
// ends.
func TestSyncsAreNoted(t *testing.T) {
	w := newWorld(t, append(threeZones(), preferring("web"), aSlice("web", 0, twelve), aPolicy("web", v1alpha1.RoutingPolicySpec{}))...)
	most := 0
	w.refuse = func(client.Object, string) error {
		most = len(w.reconciler.syncs.begun)
		return errors.New("no")
	}
	request := serviceNamed("shop", "web")[0]
	for name, one := range map[string]reconcile.Reconciler{"a Service": w.reconciler, "a policy": newPolicyReconciler(w.reconciler)} {
		most = 0
		if _, err := one.Reconcile(context.Background(), request); err == nil {
			t.Errorf("%s: no error", name)
		}
		if most != 1 || len(w.reconciler.syncs.begun) != 0 {
			t.Errorf("%s: %d syncs while it runs, %d after", name, most, len(w.reconciler.syncs.begun))
		}
	}
}
