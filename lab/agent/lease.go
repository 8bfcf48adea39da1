package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/lab/shape"
)

// renewTimeout is shorter than any grace period of the control plane.
const renewTimeout = 3 * time.Second

// renewers limits concurrent renewals: a busy API server answers late.
const renewers = 64

type leaseRenewal struct {
	leaseMu   sync.Mutex
	ring      []*node
	ringIndex int
	timing    shape.Timing
}

func (a *agent) setLeaseNodes(nodes []*node, t shape.Timing) {
	a.leaseMu.Lock()
	defer a.leaseMu.Unlock()
	a.ring, a.timing = nodes, t
}

// renewLeases renews the leases of all nodes in turn, spread evenly over the period.
func (a *agent) renewLeases(ctx context.Context) {
	const tick = 20 * time.Millisecond
	due := make(chan *node)
	var work sync.WaitGroup
	defer work.Wait()
	for range renewers {
		work.Go(func() {
			for n := range due {
				a.renew(ctx, n)
			}
		})
	}
	defer close(due)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	owed, last := 0.0, time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		// Use the clock: ticks are lost while all renewers are busy.
		now := time.Now()
		a.leaseMu.Lock()
		if n := len(a.ring); n > 0 {
			owed = min(owed+float64(n)*float64(now.Sub(last))/float64(a.timing.LeaseRenewal.Duration), float64(n))
		}
		last = now
		var batch []*node
		for ; owed >= 1 && len(a.ring) > 0; owed-- {
			a.ringIndex = (a.ringIndex + 1) % len(a.ring)
			batch = append(batch, a.ring[a.ringIndex])
		}
		a.leaseMu.Unlock()
		for _, n := range batch {
			select {
			case due <- n:
			case <-ctx.Done():
				return
			}
		}
	}
}

func (a *agent) renew(ctx context.Context, n *node) {
	if n.stopped.Load() || n.isRemoved() || n.uid() == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	api := a.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	patch := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
	_, err := api.Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		_, err = api.Create(ctx, a.newLease(n), metav1.CreateOptions{})
	}
	if err != nil && ctx.Err() == nil {
		a.Log.Error("lease cannot be renewed", "node", n.Name, "error", err)
	}
}

func (a *agent) newLease(n *node) *coordinationv1.Lease {
	a.leaseMu.Lock()
	duration := int32(a.timing.LeaseDuration.Seconds())
	a.leaseMu.Unlock()
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.Name, Namespace: corev1.NamespaceNodeLease,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.uid()}},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       &n.Name,
			LeaseDurationSeconds: &duration,
			RenewTime:            &metav1.MicroTime{Time: time.Now()},
		},
	}
}
