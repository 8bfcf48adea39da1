package proxy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/pace"
)

// leases is the part of the API that Leases of one namespace are written by.
type leases interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error)
	Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error)
}

// leasePrefix and the node's name are the name of a proxy's Lease.
const leasePrefix = "vicinity-proxy-"

const (
	// renewEvery is how often the Lease says that the proxy lives.
	renewEvery = 10 * time.Second
	// A programmed resource version is told after a moment, since all nodes have one to
	// tell then, so often at once, and once more each time.
	tellWithin = 200 * time.Millisecond
	tellBurst  = 5
	tellEvery  = 5 * time.Second
	// writeTime bounds one request.
	writeTime = 5 * time.Second
	// writeAgain is how long to wait after one that failed.
	writeAgain = time.Second
)

// keeper keeps the Lease by which the controller knows that the node's proxy lives and what
// it has programmed.
type keeper struct {
	leases leases
	node   string
	// owner is the node, with which the Lease goes. It is nil if that is not known.
	owner func() *metav1.OwnerReference
	// alive reports whether the proxy does its work.
	alive   func() bool
	clock   clock.WithDelayedExecution
	metrics *metrics
	log     logr.Logger
	wake    chan struct{}

	budget  pace.Budget
	stored  *coordinationv1.Lease // as it was read or written last, nil if that is not known
	failing bool

	mu      sync.Mutex
	current acknowledgement
	told    bool // that there is anything to say
}

// tell says what is programmed. It may be called by any goroutine.
func (k *keeper) tell(programmed acknowledgement) {
	k.mu.Lock()
	changed := !k.told || !programmed.equal(k.current)
	k.current, k.told = programmed, true
	k.mu.Unlock()
	if changed {
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
}

// annotations are what the Lease says of what is programmed, empty where it says nothing.
func (k *keeper) annotations() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	says := map[string]string{v1alpha1.AnnotationProgrammed: "", v1alpha1.AnnotationExcept: "", v1alpha1.AnnotationProbeFailure: k.current.failure}
	if k.current.version == 0 {
		return says
	}
	names := make([]string, len(k.current.except))
	for i, name := range k.current.except {
		names[i] = name.String()
	}
	says[v1alpha1.AnnotationProgrammed] = strconv.FormatUint(k.current.version, 10)
	says[v1alpha1.AnnotationExcept] = strings.Join(names, ",")
	return says
}

// run keeps the Lease until the context ends. Then it is left to grow old: the rules stay,
// and the next proxy of the node takes it.
func (k *keeper) run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-k.wake: // until something is programmed there is nothing to say
	}
	for {
		again := renewEvery
		if k.alive() {
			if err := k.write(ctx); err != nil {
				again = writeAgain
			}
		}
		if !k.rest(ctx, again) {
			return
		}
	}
}

// rest waits until the Lease is to be written again, and reports whether it is.
func (k *keeper) rest(ctx context.Context, most time.Duration) bool {
	renew := k.clock.NewTimer(most)
	defer renew.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-renew.C():
		return true
	case <-k.wake:
	}
	wait := rand.N(tellWithin)
	if now := k.clock.Now(); k.budget.Empty(now) {
		wait = k.budget.Next().Sub(now)
	}
	moment := k.clock.NewTimer(wait)
	defer moment.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-renew.C():
	case <-moment.C():
		k.budget.Take(k.clock.Now())
	}
	return true
}

// write renews the Lease. What failed is told when it begins to.
func (k *keeper) write(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	err := k.put(limited)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		k.stored = nil
		k.metrics.failed(stepLease)
		if !k.failing {
			k.log.Error(err, "The Lease is not written, without which nothing is handed over to the proxies")
		}
	}
	k.failing = err != nil
	return err
}

func (k *keeper) put(ctx context.Context) (err error) {
	name := leasePrefix + k.node
	if k.stored == nil {
		k.stored, err = k.leases.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			k.stored, err = k.leases.Create(ctx, k.filled(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}), metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("creating Lease %s: %w", name, err)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading Lease %s: %w", name, err)
		}
	}
	written, err := k.leases.Update(ctx, k.filled(k.stored.DeepCopy()), metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("writing Lease %s: %w", name, err)
	}
	k.stored = written
	return nil
}

// filled says all that there is to say in a Lease.
func (k *keeper) filled(lease *coordinationv1.Lease) *coordinationv1.Lease {
	if lease.Labels == nil {
		lease.Labels = map[string]string{}
	}
	lease.Labels[v1alpha1.LabelProxyLease] = "true"
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	for key, value := range k.annotations() {
		if value != "" {
			lease.Annotations[key] = value
		} else {
			delete(lease.Annotations, key)
		}
	}
	if owner := k.owner(); owner != nil {
		lease.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	holder, seconds := k.node, int32(v1alpha1.LeaseFresh/time.Second)
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &holder, &seconds
	lease.Spec.RenewTime = &metav1.MicroTime{Time: k.clock.Now()}
	return lease
}
