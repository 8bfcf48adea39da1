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

// attempt is one request to evict a pod. Each has a holder of its own.
type attempt struct {
	pod    types.UID
	holder string
}

// isGivenUp reports whether a reservation was given up. A write that stores it came late.
func (l *Ledger) isGivenUp(r *v1alpha1.Reservation) bool {
	_, found := l.givenUp.get(attempt{r.UID, r.Holder})
	return found
}

// giveUp gives up the reservations of a denied request in the background. It tries again until that is stored or the
// reservation has expired.
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

// GiveUp gives up the reservations that a holder has for a pod, in the background.
func (l *Ledger) GiveUp(pod types.NamespacedName, uid types.UID, holder string) {
	l.giveUp(l.holding(pod.Namespace, uid), uid, holder)
}

// undoLateWrites drops reservations that were stored after they were given up. One commit drops all of them. If it fails,
// the next event of the budget tries again.
func (l *Ledger) undoLateWrites(budget *v1alpha1.TopologyDisruptionBudget) {
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
