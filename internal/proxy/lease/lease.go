// Package lease keeps the Lease of a node's proxy. It tells vicinity-controller that the proxy lives, and which groups of
// Services in hand-over are programmed.
package lease

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// leases reads and writes the Leases of one namespace.
type leases interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error)
	Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error)
}

const (
	renewEvery = 10 * time.Second
	// A new acknowledgement is written within writeWithin, at random, because all nodes write at the same time. There can
	// be writeBurst writes at once, and one more every writeEvery.
	writeWithin = 200 * time.Millisecond
	writeBurst  = 5
	writeEvery  = 5 * time.Second
	// writeTime bounds one request.
	writeTime  = 5 * time.Second
	retryAfter = time.Second
)

// Options configure a Keeper.
type Options struct {
	// Leases are those of Vicinity's namespace.
	Leases leases
	Node   string
	// Owner returns the Node as the owner of the Lease, nil if it is unknown.
	Owner func() *metav1.OwnerReference
	// Alive reports whether the proxy is healthy.
	Alive func() bool
	// Written is called with the acknowledgement that a write of the Lease has stored. It may be nil.
	Written func(Acknowledgement)
	// Failed is called for each failed request.
	Failed func()
	Log    logr.Logger
}

// Keeper keeps the Lease.
type Keeper struct {
	Options
	// limiter bounds the writes for new acknowledgements.
	limiter *rate.Limiter
	wake    chan struct{}

	stored  *coordinationv1.Lease // as read or written last, nil if unknown
	failing bool

	mu      sync.Mutex
	current Acknowledgement
	known   bool // Acknowledge was called
}

// NewKeeper returns a Keeper that writes nothing before the first call of Acknowledge.
func NewKeeper(o Options) *Keeper {
	return &Keeper{Options: o, limiter: rate.NewLimiter(rate.Every(writeEvery), writeBurst), wake: make(chan struct{}, 1)}
}

// Acknowledge sets the acknowledgement to write. Any goroutine may call it.
func (k *Keeper) Acknowledge(programmed Acknowledgement) {
	k.mu.Lock()
	changed := !k.known || !programmed.equal(k.current)
	k.current, k.known = programmed, true
	k.mu.Unlock()
	if changed {
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
}

// Run renews the Lease until the context ends. Then the Lease expires, and the node's next proxy takes it over.
func (k *Keeper) Run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-k.wake: // the first acknowledgement
	}
	for {
		again := renewEvery
		if k.Alive() {
			if err := k.write(ctx); err != nil {
				again = retryAfter
			}
		}
		if !k.waitUntilDue(ctx, again) {
			return
		}
	}
}

// waitUntilDue waits until the Lease is due. It returns false when the context ends.
func (k *Keeper) waitUntilDue(ctx context.Context, most time.Duration) bool {
	renew := time.NewTimer(most)
	defer renew.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-renew.C:
		return true
	case <-k.wake:
	}
	reserved := k.limiter.Reserve()
	moment := time.NewTimer(max(rand.N(writeWithin), reserved.Delay()))
	defer moment.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-renew.C:
		reserved.Cancel()
	case <-moment.C:
	}
	return true
}

// write renews the Lease. It logs the first failure in a row.
func (k *Keeper) write(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	k.mu.Lock()
	current := k.current
	k.mu.Unlock()
	err := k.put(limited, current)
	switch {
	case ctx.Err() != nil:
		return nil
	case err == nil && k.Written != nil:
		k.Written(current)
	case err != nil:
		k.stored = nil
		k.Failed()
		if !k.failing {
			k.Log.Error(err, "Cannot write the Lease: without it, no Service is handed over to the proxies")
		}
	}
	k.failing = err != nil
	return err
}

func (k *Keeper) put(ctx context.Context, current Acknowledgement) (err error) {
	name := v1alpha1.ProxyLeasePrefix + k.Node
	if k.stored == nil {
		k.stored, err = k.Leases.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			k.stored, err = k.Leases.Create(ctx, k.filled(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, current), metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("creating Lease %s: %w", name, err)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading Lease %s: %w", name, err)
		}
	}
	written, err := k.Leases.Update(ctx, k.filled(k.stored.DeepCopy(), current), metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("writing Lease %s: %w", name, err)
	}
	k.stored = written
	return nil
}

func (k *Keeper) filled(lease *coordinationv1.Lease, current Acknowledgement) *coordinationv1.Lease {
	if lease.Labels == nil {
		lease.Labels = map[string]string{}
	}
	lease.Labels[v1alpha1.LabelProxyLease] = "true"
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	for key, value := range current.annotations() {
		if value != "" {
			lease.Annotations[key] = value
		} else {
			delete(lease.Annotations, key)
		}
	}
	if owner := k.Owner(); owner != nil {
		lease.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	holder, seconds := k.Node, int32(v1alpha1.LeaseFresh/time.Second)
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &holder, &seconds
	lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	return lease
}
