// Package reservation admits evictions under TopologyDisruptionBudgets. What may be evicted is
// decided in internal/disruption; the Ledger reads what a decision depends on, and stores the
// reservation of an eviction in the status of its budgets before it is admitted.
package reservation

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/coverage"
	"vicinity.dev/vicinity/internal/disruption"
)

// CacheOptions adds to a manager's cache what the Ledger reads.
func CacheOptions(options *cache.Options) {}

// Options are what a Ledger may be given.
type Options struct {
	// Clock is the real one if it is nil.
	Clock clock.PassiveClock
}

// Ledger admits evictions. The Ledgers of several processes act at once.
type Ledger struct{}

// New makes a Ledger that reads from the cache of a manager, which must have CacheOptions, and
// adds to it the indexes that it needs.
func New(ctx context.Context, mgr manager.Manager, o Options) (*Ledger, error) { return &Ledger{}, nil }

// Request is an eviction to decide about.
type Request struct {
	// Pod is as it was read last. Only its name, UID and version matter: the rest is read anew.
	Pod *corev1.Pod
	// Holder tells apart who asks. A reservation of the same pod and another holder is taken over,
	// so that the other one cannot give it up any more.
	Holder string
	// DryRun stores nothing.
	DryRun bool
}

// Answer is what all budgets say about one eviction.
type Answer struct {
	// Decisions are those of the budgets that cover the pod, in the order of their names, up to
	// the first that denies it.
	Decisions []disruption.Decision
	// Denial is why it is denied, in sentences; it is empty if the eviction is admitted.
	Denial string
	// Warnings are sentences for people who evict.
	Warnings []string
}

// Allowed reports whether the eviction is admitted.
func (a *Answer) Allowed() bool { return a.Denial == "" }

// Admit decides about the eviction of a pod under all budgets that cover it. Once it is admitted,
// reservations are stored. A pod without a budget is admitted. An error says that not everything
// is known that a decision depends on: the eviction must not be admitted then.
func (l *Ledger) Admit(ctx context.Context, request Request) (Answer, error) {
	return Answer{}, errors.ErrUnsupported
}

// Undo gives up the reservations of a pod that a holder has.
func (l *Ledger) Undo(ctx context.Context, pod types.NamespacedName, uid types.UID, holder string) error {
	return errors.ErrUnsupported
}

// Hold has the reservations of a pod expire later, as if they were made now, and makes those that
// are not there, whatever the budgets allow. It is for the eviction of a pod that was admitted and
// is handed to others, who delete the pod without asking again, and when they want. A reservation
// of another holder stays as it is.
func (l *Ledger) Hold(ctx context.Context, pod *corev1.Pod, holder string) error {
	return errors.ErrUnsupported
}

// Covering are the budgets that may be about a pod of a namespace with some labels, before and
// after a change of it.
func (l *Ledger) Covering(namespace string, labels map[string]string) []types.NamespacedName {
	return nil
}

// Report is what is known of a budget.
type Report struct {
	// Budget is as it is stored now. It must not be changed.
	Budget *v1alpha1.TopologyDisruptionBudget
	// World is what State was made of.
	World    coverage.World
	State    disruption.State
	Measures disruption.Measures
	// Written is set if the status was not what it should be, and is now.
	Written bool
	// Next, if not zero, is when time alone changes the status.
	Next time.Time
}

// Refresh brings the status of a budget up to date, with conditions: those of the function, which
// is given what is known, are set, all others stay. The answer is nil if there is no such budget.
func (l *Ledger) Refresh(ctx context.Context, budget types.NamespacedName, conditions func(*Report) []metav1.Condition) (*Report, error) {
	return nil, errors.ErrUnsupported
}
