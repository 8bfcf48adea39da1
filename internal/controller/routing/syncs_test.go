package routing

import (
	"context"
	"errors"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// Each sync of a Service or a policy is noted while it runs, and no longer, however it
// ends.
func TestSyncsAreNoted(t *testing.T) {
	w := newWorld(t, append(threeZones(), preferring("web"), aSlice("web", 0, twelve), aPolicy("web", v1alpha1.RoutingPolicySpec{}))...)
	most := 0
	w.refuse = func(client.Object, string) error {
		most = w.reconciler.syncs.Count()
		return errors.New("no")
	}
	request := serviceNamed("shop", "web")[0]
	for name, one := range map[string]reconcile.Reconciler{"a Service": w.reconciler, "a policy": newPolicyReconciler(w.reconciler)} {
		most = 0
		if _, err := one.Reconcile(context.Background(), request); err == nil {
			t.Errorf("%s: no error", name)
		}
		if most != 1 || w.reconciler.syncs.Count() != 0 {
			t.Errorf("%s: %d syncs while it runs, %d after", name, most, w.reconciler.syncs.Count())
		}
	}
}
