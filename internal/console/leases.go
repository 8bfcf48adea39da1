package console

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/inspect"
)

// leasesEvery is how often Leases are read while a page shows what they say.
const leasesEvery = 10 * time.Second

// askFor is how long an answer of the cluster may take that a page waits for.
const askFor = 20 * time.Second

// leaseReader reads the Leases of proxies. They are not watched: thousands of proxies renew theirs
// every few seconds.
type leaseReader struct {
	typed kubernetes.Interface
	now   func() time.Time

	mu       sync.Mutex
	next     time.Time // when they are read again
	leases   []*coordinationv1.Lease
	notKnown string
}

// read returns the Leases, nil with a sentence if they cannot be read.
func (r *leaseReader) read(ctx context.Context) (leases []*coordinationv1.Lease, notKnown string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if began := r.now(); !began.Before(r.next) {
		r.leases, r.notKnown = r.ask(ctx)
		now := r.now()
		r.next = now.Add(max(leasesEvery/2, askingRests*now.Sub(began)))
	}
	return r.leases, r.notKnown
}

func (r *leaseReader) ask(ctx context.Context) ([]*coordinationv1.Lease, string) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), askFor)
	defer stop()
	leases := []*coordinationv1.Lease{}
	err := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return r.typed.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, o)
	}).EachListItem(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelProxyLease + "=true"}, func(object runtime.Object) error {
		if lease, ok := object.(*coordinationv1.Lease); ok {
			leases = append(leases, lease)
		}
		return nil
	})
	switch {
	case err == nil:
		return leases, ""
	case apierrors.IsForbidden(err):
		return nil, "Leases may not be read, so which nodes have a vicinity-proxy that lives is unknown. Missing right: list leases.coordination.k8s.io in the whole cluster; see " + inspect.PermissionsDocument
	}
	return nil, fmt.Sprintf("which nodes have a vicinity-proxy that lives is unknown: reading Leases: %v", err)
}
