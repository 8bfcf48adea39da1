// Package lease keeps the Lease by which vicinity-controller knows that the proxy of a node lives,
// and what it has programmed of the groups of Services in hand-over.
package lease

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// leases is the part of the API that Leases of one namespace are written by.
type leases interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error)
	Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error)
}

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

// Options are what a keeper goes by.
type Options struct {
	// Leases are those of Vicinity's namespace, and node is the name of the own node.
	Leases leases
	Node   string
	// Owner is the node, with which the Lease goes. It is nil if that is not known.
	Owner func() *metav1.OwnerReference
	// Alive reports whether the proxy does its work.
	Alive func() bool
	// Failed is called for each request that failed.
	Failed func()
	Log    logr.Logger
}

// Keeper keeps the Lease by which the controller knows that the node's proxy lives and what
// it has programmed.
type Keeper struct {
	Options
	// limiter bounds how often something is told before the Lease is renewed for it.
	limiter *rate.Limiter
	wake    chan struct{}

	stored  *coordinationv1.Lease // as it was read or written last, nil if that is not known
	failing bool

	mu      sync.Mutex
	current Acknowledgement
	told    bool // that there is anything to say
}

// NewKeeper makes a keeper, which has nothing to say until it is told.
func NewKeeper(o Options) *Keeper {
	return &Keeper{Options: o, limiter: rate.NewLimiter(rate.Every(tellEvery), tellBurst), wake: make(chan struct{}, 1)}
}

// Tell says what is programmed. It may be called by any goroutine.
func (k *Keeper) Tell(programmed Acknowledgement) {
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
func (k *Keeper) annotations() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	says := map[string]string{v1alpha1.AnnotationProgrammed: "", v1alpha1.AnnotationExcept: "", v1alpha1.AnnotationProbeFailure: k.current.Failure}
	if k.current.Version == 0 {
		return says
	}
	names := make([]string, len(k.current.Except))
	for i, name := range k.current.Except {
		names[i] = name.String()
	}
	says[v1alpha1.AnnotationProgrammed] = strconv.FormatUint(k.current.Version, 10)
	says[v1alpha1.AnnotationExcept] = strings.Join(names, ",")
	return says
}

// Run keeps the Lease until the context ends. Then it is left to grow old: the rules stay,
// and the next proxy of the node takes it.
func (k *Keeper) Run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-k.wake: // until something is programmed there is nothing to say
	}
	for {
		again := renewEvery
		if k.Alive() {
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
func (k *Keeper) rest(ctx context.Context, most time.Duration) bool {
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
	moment := time.NewTimer(max(rand.N(tellWithin), reserved.Delay()))
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

// write renews the Lease. What failed is told when it begins to.
func (k *Keeper) write(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	err := k.put(limited)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		k.stored = nil
		k.Failed()
		if !k.failing {
			k.Log.Error(err, "The Lease is not written, without which nothing is handed over to the proxies")
		}
	}
	k.failing = err != nil
	return err
}

func (k *Keeper) put(ctx context.Context) (err error) {
	name := v1alpha1.ProxyLeasePrefix + k.Node
	if k.stored == nil {
		k.stored, err = k.Leases.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			k.stored, err = k.Leases.Create(ctx, k.filled(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}), metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("creating Lease %s: %w", name, err)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading Lease %s: %w", name, err)
		}
	}
	written, err := k.Leases.Update(ctx, k.filled(k.stored.DeepCopy()), metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("writing Lease %s: %w", name, err)
	}
	k.stored = written
	return nil
}

// filled says all that there is to say in a Lease.
func (k *Keeper) filled(lease *coordinationv1.Lease) *coordinationv1.Lease {
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
	if owner := k.Owner(); owner != nil {
		lease.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	holder, seconds := k.Node, int32(v1alpha1.LeaseFresh/time.Second)
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &holder, &seconds
	lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	return lease
}
