package reservation

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
)

// undoPause is the time between two tries to give up a reservation.
const undoPause = time.Second

// attempt is a request to evict a pod. Each has a holder of its own.
type attempt struct {
	pod    types.UID
	holder string
}

// isGivenUp reports whether a reservation was given up, so that a write which stores it came late.
func (l *Ledger) isGivenUp(r *v1alpha1.Reservation) bool {
	_, found := l.givenUp.get(attempt{r.UID, r.Holder})
	return found
}

// giveUp gives up what budgets may have reserved for a request that was denied, without a wait. It tries again until that
// is stored or the reservation has expired.
func (l *Ledger) giveUp(budgets []types.NamespacedName, pod types.UID, holder string) {
	l.givenUp.set(attempt{pod, holder}, struct{}{})
	for _, budget := range budgets {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), disruption.ReservationTime)
			defer cancel()
			err := wait.PollUntilContextCancel(ctx, undoPause, true, func(ctx context.Context) (bool, error) {
				return l.undo(ctx, budget, pod, holder) == nil, nil
			})
			if err != nil {
				l.log.Error(err, "Reservation of an eviction that was denied stays until it expires", "budget", budget, "uid", pod)
			}
		}()
	}
}

// GiveUp gives up the reservations of a pod that a holder has, without a wait.
func (l *Ledger) GiveUp(pod types.NamespacedName, uid types.UID, holder string) {
	l.giveUp(l.holding(pod.Namespace, uid), uid, holder)
}

// undoAgain drops what a budget has reserved after it was given up. One commit drops all of it. If that fails, the next
// event of the budget has it tried again.
func (l *Ledger) undoAgain(budget *v1alpha1.TopologyDisruptionBudget) {
	for i := range budget.Status.Reservations {
		if r := &budget.Status.Reservations[i]; l.isGivenUp(r) {
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), requestTime)
				defer cancel()
				if err := l.undo(ctx, client.ObjectKeyFromObject(budget), r.UID, r.Holder); err != nil {
					l.log.Info("A reservation that came late is not given up yet", "budget", client.ObjectKeyFromObject(budget), "error", err.Error())
				}
			}()
			return
		}
	}
}
