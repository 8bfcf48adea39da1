package lease

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/cluster/clustertest"
)

var leaseResource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// fakeLeases holds one Lease, as the API does. Tests read it while nothing runs.
type fakeLeases struct {
	mu     sync.Mutex
	stored *coordinationv1.Lease
	fail   error
	// versions has the versions of all writes.
	versions []string
	// failed counts failed requests.
	failed atomic.Int64
}

func (l *fakeLeases) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		return nil, l.fail
	}
	if l.stored == nil || l.stored.Name != name {
		return nil, apierrors.NewNotFound(leaseResource, name)
	}
	return l.stored.DeepCopy(), nil
}

func (l *fakeLeases) Create(_ context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stored != nil {
		return nil, apierrors.NewAlreadyExists(leaseResource, lease.Name)
	}
	return l.store(lease)
}

func (l *fakeLeases) Update(_ context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stored == nil {
		return nil, apierrors.NewNotFound(leaseResource, lease.Name)
	}
	if lease.ResourceVersion != l.stored.ResourceVersion {
		return nil, apierrors.NewConflict(leaseResource, lease.Name, errors.New("it was written"))
	}
	return l.store(lease)
}

func (l *fakeLeases) store(lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if l.fail != nil {
		return nil, l.fail
	}
	l.stored = lease.DeepCopy()
	l.versions = append(l.versions, lease.Annotations[v1alpha1.AnnotationProgrammed])
	l.stored.ResourceVersion = clustertest.VersionText(len(l.versions))
	return l.stored.DeepCopy(), nil
}

// leased runs a keeper in a time of its own.
func leased(t *testing.T, test func(*Keeper, *fakeLeases)) {
	synctest.Test(t, func(t *testing.T) {
		stored := &fakeLeases{}
		k := NewKeeper(Options{
			Leases: stored, Node: "node-a", Owner: func() *metav1.OwnerReference { return &metav1.OwnerReference{Kind: "Node", Name: "node-a"} }, Alive: func() bool { return true },
			Failed: func() { stored.failed.Add(1) }, Log: logr.Discard(),
		})
		ctx, cancel := context.WithCancel(t.Context())
		go k.Run(ctx)
		test(k, stored)
		cancel()
		synctest.Wait()
	})
}

// pass lets time pass, and returns what there is then: the Lease, and which versions it
// was written with.
func (l *fakeLeases) pass(d time.Duration) (lease *coordinationv1.Lease, written []string) {
	<-time.After(d)
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stored.DeepCopy(), slices.Clone(l.versions)
}

// set changes what there is.
func (l *fakeLeases) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

func TestLease(t *testing.T) {
	leased(t, func(k *Keeper, stored *fakeLeases) {
		if _, written := stored.pass(time.Minute); len(written) != 0 {
			t.Fatal("a Lease is written before anything is programmed")
		}
		k.Acknowledge(Acknowledgement{Version: 0})
		lease, _ := stored.pass(0)
		if lease == nil {
			t.Fatal("no Lease is written when all is programmed")
		}
		if lease.Name != "vicinity-proxy-node-a" || lease.Labels["vicinity.dev/proxy"] != "true" || *lease.Spec.HolderIdentity != "node-a" ||
			*lease.Spec.LeaseDurationSeconds != 45 || !lease.Spec.RenewTime.Time.Equal(time.Now()) || len(lease.OwnerReferences) != 1 {
			t.Errorf("Lease %+v", lease)
		}
		if _, found := lease.Annotations[v1alpha1.AnnotationProgrammed]; found {
			t.Error("something is acknowledged")
		}
		lease, written := stored.pass(time.Minute)
		if len(written) != 7 {
			t.Errorf("%d writes in a minute, want one every ten seconds", len(written))
		}
		if got := time.Since(lease.Spec.RenewTime.Time); got > renewEvery {
			t.Errorf("renewed %s ago", got)
		}
	})
}

func TestProgrammedVersionsAreWritten(t *testing.T) {
	leased(t, func(k *Keeper, stored *fakeLeases) {
		last := func(written []string) string { return written[len(written)-1] }
		k.Acknowledge(Acknowledgement{Version: 0})
		stored.pass(time.Second)
		k.Acknowledge(Acknowledgement{Version: 41})
		if _, written := stored.pass(writeWithin); last(written) != "41" || len(written) != 2 {
			t.Errorf("acknowledged %q", written)
		}
		k.Acknowledge(Acknowledgement{Version: 41})
		if _, written := stored.pass(writeWithin); len(written) != 2 {
			t.Errorf("acknowledged again: %q", written)
		}
		// Many are written together, and none is lost.
		for version := range uint64(2000) {
			k.Acknowledge(Acknowledgement{Version: 42 + version})
			stored.pass(10 * time.Millisecond)
		}
		_, written := stored.pass(writeEvery)
		if got := len(written); got > 2+writeBurst+8 {
			t.Errorf("%d writes in 20 s: %q", got, written)
		}
		if last(written) != "2041" {
			t.Errorf("in the end %q is acknowledged", written)
		}
		k.Acknowledge(Acknowledgement{Version: 0})
		if _, written := stored.pass(renewEvery); last(written) != "" {
			t.Errorf("%q is acknowledged without a version", written)
		}
	})
}

func TestExceptedServicesAreWritten(t *testing.T) {
	leased(t, func(k *Keeper, stored *fakeLeases) {
		for _, test := range []struct {
			tell    Acknowledgement
			version string
			except  string
		}{
			{Acknowledgement{Version: 41}, "41", ""},
			{Acknowledgement{Version: 41, Except: []types.NamespacedName{{Namespace: "shop", Name: "cart"}, {Namespace: "shop", Name: "web"}}}, "41", "shop/cart,shop/web"},
			{Acknowledgement{Version: 41, Except: []types.NamespacedName{{Namespace: "shop", Name: "web"}}}, "41", "shop/web"},
			{Acknowledgement{Version: 42}, "42", ""},
		} {
			k.Acknowledge(test.tell)
			lease, _ := stored.pass(time.Second)
			if version, except := lease.Annotations[v1alpha1.AnnotationProgrammed], lease.Annotations[v1alpha1.AnnotationExcept]; version != test.version || except != test.except {
				t.Errorf("acknowledged %q except %q, want %q except %q", version, except, test.version, test.except)
			}
		}
	})
}

// An unhealthy proxy does not renew its Lease.
func TestLeaseOfUnhealthyProxy(t *testing.T) {
	leased(t, func(k *Keeper, stored *fakeLeases) {
		var sick atomic.Bool
		k.Alive = func() bool { return !sick.Load() }
		k.Acknowledge(Acknowledgement{Version: 1})
		stored.pass(0)
		sick.Store(true)
		if _, written := stored.pass(time.Minute); len(written) != 1 {
			t.Errorf("%d writes", len(written))
		}
		sick.Store(false)
		if _, written := stored.pass(renewEvery); len(written) != 2 {
			t.Errorf("%d writes when the API works", len(written))
		}
	})
}

// Written is called with what the Lease has, and not before a write succeeds.
func TestWrittenFollowsTheWrite(t *testing.T) {
	leased(t, func(k *Keeper, stored *fakeLeases) {
		var written []Acknowledgement
		k.Written = func(a Acknowledgement) { written = append(written, a) }
		k.Acknowledge(Acknowledgement{})
		stored.pass(0)
		stored.set(func() { stored.fail = errors.New("the API is away") })
		k.Acknowledge(Acknowledgement{Ready: true})
		stored.pass(10 * time.Second)
		if len(written) != 1 || written[0].Ready {
			t.Errorf("%+v is written while the API is away", written)
		}
		stored.set(func() { stored.fail = nil })
		stored.pass(retryAfter)
		if len(written) != 2 || !written[1].Ready {
			t.Errorf("%+v is written when the API is back", written)
		}
	})
}

func TestLeaseWriteFails(t *testing.T) {
	leased(t, func(k *Keeper, stored *fakeLeases) {
		stored.set(func() { stored.fail = errors.New("the API is away") })
		k.Acknowledge(Acknowledgement{Version: 7})
		stored.pass(10 * time.Second)
		failed := stored.failed.Load()
		if failed < 5 || failed > 15 {
			t.Errorf("%d writes failed in ten seconds", failed)
		}
		stored.set(func() { stored.fail = nil })
		if _, written := stored.pass(retryAfter); len(written) != 1 || written[0] != "7" {
			t.Fatalf("when the API is back, %q is acknowledged", written)
		}
		// Another writer adds an annotation.
		stored.set(func() {
			stored.stored.ResourceVersion = "999"
			stored.stored.Annotations["note"] = "kept"
		})
		k.Acknowledge(Acknowledgement{Version: 8})
		lease, written := stored.pass(5 * time.Second)
		if written[len(written)-1] != "8" || lease.Annotations["note"] != "kept" {
			t.Errorf("after a conflict %q is acknowledged, with %v", written, lease.Annotations)
		}
		stored.set(func() { stored.stored = nil })
		if lease, _ := stored.pass(renewEvery + retryAfter); lease == nil {
			t.Error("a deleted Lease is not created again")
		}
	})
}
