// Package controller lets replicas of vicinity-controller leave a domain first when a ZoneShift takes it out of service. A
// replica there stands by while others are ready: it is not ready, gives up the Lease, and does not take it again. So a slow
// zone delays neither webhooks nor what the leader writes.
//
// It runs on every replica. All of them see the same objects, and each decides for itself alone.
package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/endpoint"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing/capacity"
	"vicinity.dev/vicinity/internal/shift"
)

const (
	// lookEvery is the time between two looks. Without a ZoneShift a look costs next to nothing.
	lookEvery = time.Second
	// lookTime limits a look, which blocks until the cache is filled.
	lookTime = 5 * time.Second
	// trustAfter is how long a replica serves on after all others failed: a leader that stands by restarts.
	trustAfter = time.Minute
	// awaitTime is how long after its creation a ZoneShift waits for the replicas in its domain.
	awaitTime = 15 * time.Second
)

// Options say which replica this is.
type Options struct {
	Node string // may be empty
	// Service is that of the webhooks, which every replica serves. Without a name no replica stands by.
	Service types.NamespacedName
	// OnChange is called when the replica begins and ends to stand by.
	OnChange func(standsBy bool)
	// Leave ends the process, which gives up the Lease.
	Leave func()
}

// Standby decides whether a replica stands by.
type Standby struct {
	Options
	client client.Reader
	clock  clock.PassiveClock
	log    logr.Logger
	leads  atomic.Bool // the lock sets it

	mu    sync.Mutex
	known bool      // it has looked
	cause string    // why it stands by, empty if it serves
	alone time.Time // when all others were last seen to fail
	left  bool      // the process ends
}

// New returns a Standby. Add must follow.
func New(options Options) *Standby {
	return &Standby{Options: options, clock: clock.RealClock{}, log: log.Log.WithName("zone-shift")}
}

// Add adds it to a manager whose cache is that of routing.
func (s *Standby) Add(mgr manager.Manager) error {
	s.client = mgr.GetClient()
	return mgr.Add(s)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (s *Standby) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (s *Standby) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, s.look, lookEvery)
	return nil
}

// Ready is a readiness check that fails while the replica stands by.
func (s *Standby) Ready(*http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.known:
		return errors.New("ZoneShifts are not known yet")
	case s.cause != "":
		return errors.New(s.cause)
	}
	return nil
}

// look decides anew. If it cannot read, the last decision stays; a replica that never could read serves.
func (s *Standby) look(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	now := s.clock.Now()
	peers, err := s.read(limited, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil || err != nil && s.known || s.left {
		return
	}
	if err != nil {
		s.log.Error(err, "Cannot tell whether a ZoneShift takes this replica out of service, so it serves")
		peers = new(shift.Peers)
	}
	if _, staying := peers.Count(); staying == 0 && peers.ShiftOf(s.self()) != nil {
		s.alone = now
	}
	before := s.cause
	s.known, s.cause = true, s.causeIn(peers, now)
	if standsBy := s.cause != ""; standsBy != (before != "") {
		s.log.Info(map[bool]string{true: "Stands by", false: "Serves again"}[standsBy], "cause", s.cause)
		s.OnChange(standsBy)
	}
	if s.cause != "" && s.leads.Load() {
		s.log.Info("Gives up the Lease and ends, so that another replica leads", "cause", s.cause)
		s.left = true
		s.Leave()
	}
}

// self is an endpoint on the node of this replica.
func (s *Standby) self() *discoveryv1.Endpoint { return &discoveryv1.Endpoint{NodeName: &s.Node} }

// causeIn says why this replica stands by, empty if it serves.
func (s *Standby) causeIn(peers *shift.Peers, now time.Time) string {
	zs := peers.ShiftOf(s.self())
	_, staying := peers.Count()
	if zs == nil || staying == 0 || now.Sub(s.alone) < trustAfter {
		return ""
	}
	return fmt.Sprintf("ZoneShift %s takes %s out of service, and %s", zs.Name, zs.Spec.From.Value,
		plaintext.Count(staying, "other replica is ready", "other replicas are ready"))
}

// Awaits says what a ZoneShift waits for before it is accepted, empty for nothing. A leader in the domain does not accept
// it: the next one does.
func (s *Standby) Awaits(ctx context.Context, zs *v1alpha1.ZoneShift) (string, error) {
	now := s.clock.Now()
	peers, err := s.read(ctx, now, *zs)
	if err != nil {
		return "", fmt.Errorf("reading the replicas of vicinity-controller: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	leaving, staying := peers.Count()
	switch {
	case s.leads.Load() && s.causeIn(peers, now) != "":
		return "vicinity-controller leads from the domain; a replica outside takes over first", nil
	case leaving == 0 || staying == 0 || now.Sub(zs.CreationTimestamp.Time) >= awaitTime:
		return "", nil
	}
	return fmt.Sprintf("%s of vicinity-controller in the domain still get requests; they stop first, within %s",
		plaintext.Plural(leaving, "replica"), awaitTime), nil
}

// read returns the replicas while they leave domains: those of all ZoneShifts, since a slow replica delays the writes for any
// Service, and of new ones.
func (s *Standby) read(ctx context.Context, now time.Time, begins ...v1alpha1.ZoneShift) (*shift.Peers, error) {
	peers := new(shift.Peers)
	if s.Service.Name == "" {
		return peers, nil
	}
	var all v1alpha1.ZoneShiftList
	if err := s.client.List(ctx, &all); err != nil {
		return nil, err
	}
	leaving := append(slices.DeleteFunc(all.Items, func(zs v1alpha1.ZoneShift) bool { return !shift.Leaves(&zs, now) }), begins...)
	if len(leaving) == 0 {
		return peers, nil
	}
	for _, zs := range leaving {
		peers.Leaving = append(peers.Leaving, &zs)
	}
	var list discoveryv1.EndpointSliceList
	if err := s.client.List(ctx, &list, client.InNamespace(s.Service.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: s.Service.Name}); err != nil {
		return nil, err
	}
	for i := range list.Items {
		for j := range list.Items[i].Endpoints {
			if e := &list.Items[i].Endpoints[j]; e.NodeName != nil && endpoint.StateOf(e).IsReady() {
				peers.Ready = append(peers.Ready, e)
			}
		}
	}
	nodes := make([]*corev1.Node, len(peers.Ready)+1)
	for i, replica := range append(peers.Ready, s.self()) {
		nodes[i] = new(corev1.Node)
		if err := s.client.Get(ctx, types.NamespacedName{Name: *replica.NodeName}, nodes[i]); client.IgnoreNotFound(err) != nil {
			return nil, err
		}
	}
	peers.Cluster = capacity.NewCluster(nodes)
	return peers, nil
}

// lock is a Lease that a replica does not take while it stands by. A holder may renew and release it.
type lock struct {
	resourcelock.Interface
	standby *Standby
}

// Lock wraps the Lease of the leader.
func (s *Standby) Lock(lease resourcelock.Interface) resourcelock.Interface { return &lock{lease, s} }

// Create implements resourcelock.Interface.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Create)
}

// Update implements resourcelock.Interface.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Update)
}

func (l *lock) write(ctx context.Context, record resourcelock.LeaderElectionRecord, store func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	holds := record.HolderIdentity == l.Identity()
	if err := l.standby.Ready(nil); err != nil && holds && !l.standby.leads.Load() {
		return err
	}
	err := store(ctx, record)
	if err == nil {
		l.standby.leads.Store(holds)
	}
	return err
}
