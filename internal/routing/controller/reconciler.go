package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/consumer"
	"vicinity.dev/vicinity/internal/routing/handover"
	"vicinity.dev/vicinity/internal/routing/hints"
	"vicinity.dev/vicinity/internal/routing/intent"
)

type reconciler struct {
	client   client.Client
	recorder events.EventRecorder
	clock    clock.PassiveClock
	options  Options
	memory   *memory
	nodes    *nodeWatcher
	proxies  *proxyTable
	cilium   *ciliumWatch
	metrics  *metrics
	syncs    *shell.Syncs
	pace     *replanPace
	planners sync.Pool // of *allocate.Planner
}

const (
	// settle is how long Kubernetes has to copy the label to the slices, so that the webhook keeps hints from the
	// start.
	settle = 2 * time.Second
	// reportedAfter is how long an outcome must last to be reported: a Service with two address families, or with a
	// rollout under way, changes in several steps.
	reportedAfter = time.Second
)

type pass struct {
	*reconciler
	key           types.NamespacedName
	in            routing.Input
	planner       *allocate.Planner
	record        *record
	now           time.Time
	again         time.Duration
	slices, moved int
	// shiftsLast is how long zone shifts stay as they are, zero for ever.
	shiftsLast time.Duration
	compared   bool // the plan was compared with a new one
}

// Reconcile syncs one Service.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key := request.NamespacedName
	defer r.syncs.Begin("Service " + key.String())()
	service := new(corev1.Service)
	err := r.client.Get(ctx, key, service)
	switch {
	case apierrors.IsNotFound(err):
		r.forget(key)
		return r.releaseDeleted(ctx, key)
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("reading the Service: %w", err)
	}
	if service.DeletionTimestamp != nil {
		r.forget(key)
		return reconcile.Result{}, nil
	}
	s := &pass{reconciler: r, key: key, in: routing.Input{Service: service}, now: r.clock.Now(), planner: r.planners.Get().(*allocate.Planner)}
	defer r.planners.Put(s.planner)
	err = s.run(ctx, service)
	result, outcome, err := shell.Finish(s.again, err)
	r.metrics.countSync(outcome)
	return result, err
}

func (r *reconciler) forget(key types.NamespacedName) {
	r.memory.forget(key)
	r.proxies.forget(key)
}

// releaseDeleted releases the remaining slices of a deleted Service: Kubernetes deletes only its own.
func (r *reconciler) releaseDeleted(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	var eps discoveryv1.EndpointSliceList
	if err := r.client.List(ctx, &eps, client.InNamespace(key.Namespace), client.MatchingFields{indexSliceService: key.Name}); err != nil {
		return reconcile.Result{}, fmt.Errorf("reading EndpointSlices: %w", err)
	}
	result, _, err := shell.Finish(0, r.release(ctx, shell.Pointers(eps.Items)))
	return result, err
}

func (s *pass) requeueAfter(wait time.Duration) { s.again = shell.Sooner(s.again, wait) }

func (s *pass) run(ctx context.Context, service *corev1.Service) error {
	var fresh bool
	if s.record, fresh = s.memory.record(s.key); !fresh && s.record.uid != service.UID {
		s.forget(s.key)
		s.record, fresh = s.memory.record(s.key)
	}
	if s.record.uid = service.UID; fresh && routing.TroubleHintsLost.IsOn(service) {
		s.record.backoff.Failures = reportedLosses
	}
	if condition := routing.ConditionOf(service); fresh && condition != nil && strings.Contains(condition.Message, markFought) {
		s.record.mark.Failures = reportedLosses
	}
	if shell.Behind(service, s.record.service) {
		if s.record.trust.Left(s.now) > 0 {
			s.requeueAfter(shell.BehindWait)
			return nil
		}
		s.record.distrust()
	}
	if err := s.read(ctx, service); err != nil {
		return err
	}
	d, err := s.decide()
	if err != nil {
		return err
	}
	if d, err = s.renew(d); err != nil {
		return err
	}
	if d.Delivery == allocate.DeliveryNone && d.Request.FromPolicy() == "" && !hasTraces(service) && !slices.ContainsFunc(s.in.Slices, hints.IsMarked) && !d.IsReported() && len(s.in.Groups) == 0 && !s.record.groups.Pending() &&
		s.now.Sub(s.record.yielded) >= yieldFor {
		s.forget(s.key)
		return nil
	}
	if d.Shifting.Moves && d.Delivery == allocate.DeliveryGroups {
		s.requeueAfter(s.shiftsLast) // the next step of the ramp
	}
	waiting, err := s.deliver(ctx, &d)
	s.announce(&d, err == nil && !waiting)
	switch {
	case err != nil:
		return s.reportFailure(ctx, &d, err)
	case waiting:
		return nil
	}
	s.record.failing = time.Time{}
	if err := s.reportOutcome(ctx, d); err != nil {
		return err
	}
	s.remember(ctx, d)
	if s.compared && !s.hintsAreUncertain() {
		s.record.quiet.compared = true
	}
	return nil
}

func hasTraces(service *corev1.Service) bool {
	_, labelled := service.Labels[v1alpha1.LabelRouted]
	return labelled || consumer.IsMarked(service) || intent.IsHandedOver(service) ||
		routing.ConditionOf(service) != nil
}

func (s *pass) read(ctx context.Context, service *corev1.Service) error {
	in, err := read(ctx, s.client, service)
	if err != nil {
		return err
	}
	cluster, err := s.nodes.current(ctx)
	if err != nil {
		return fmt.Errorf("reading Nodes: %w", err)
	}
	in.Groups = s.record.groups.Current(in.Groups, s.now)
	in.Cluster, in.Settings, in.Last, in.Planner = cluster, s.options.Settings, s.record.last, s.planner
	if in.Shifts, s.shiftsLast, err = shiftsOf(ctx, s.client, service, s.now); err != nil {
		return err
	}
	s.in = in
	s.record.noteSlices(in.Slices)
	s.requeueAfter(s.record.groups.Left(s.now))
	return nil
}

// read reads the objects of a namespace that the decision about a Service depends on.
func read(ctx context.Context, c client.Reader, service *corev1.Service) (in routing.Input, err error) {
	in.Service = service
	if in.Slices, err = slicesOf(ctx, c, service); err != nil {
		return in, err
	}
	var groups v1alpha1.EndpointGroupList
	if err := c.List(ctx, &groups, client.InNamespace(service.Namespace), client.MatchingFields{indexGroupService: service.Name}); err != nil {
		return in, fmt.Errorf("reading EndpointGroups: %w", err)
	}
	in.Groups = shell.Pointers(groups.Items)
	policies, err := ReadPolicies(ctx, c, service.Namespace)
	in.Policies, in.Defaults = policies.Own, policies.Defaults
	return in, err
}

func slicesOf(ctx context.Context, c client.Reader, service *corev1.Service) ([]*discoveryv1.EndpointSlice, error) {
	var eps discoveryv1.EndpointSliceList
	if err := c.List(ctx, &eps, client.InNamespace(service.Namespace), client.MatchingFields{indexSliceService: service.Name}); err != nil {
		return nil, fmt.Errorf("reading EndpointSlices: %w", err)
	}
	return shell.Pointers(eps.Items), nil
}

func (s *pass) decide() (routing.Decision, error) {
	if s.options.Exclusion.Reason(s.key.Namespace, s.key.Name) != "" {
		return routing.Decision{Delivery: allocate.DeliveryNone}, nil
	}
	d, err := routing.Decide(s.in)
	if err != nil || !s.yieldsOn(&d.Shifting) {
		return d, err
	}
	s.in.Shifts = nil
	return routing.Decide(s.in)
}

// yieldFor is how long a Service yields at least. Its endpoints may cross the bound often, as in a rolling update.
const yieldFor = 30 * time.Second

// yieldsOn reports whether a Service that could move again still yields. One whose ready endpoints outside all fail yields,
// too.
func (s *pass) yieldsOn(shifting *routing.Shifting) bool {
	moved := s.in.Service.Labels[v1alpha1.LabelRouted] == "true" || len(s.in.Groups) > 0 || !s.record.yielded.IsZero()
	if shifting.Yields || moved && shifting.Inside > 0 && shifting.Outside == 0 {
		s.record.yielded = s.now
	}
	left := s.record.yielded.Add(yieldFor).Sub(s.now)
	if !shifting.Moves || s.record.yielded.IsZero() || left <= 0 {
		return false
	}
	s.requeueAfter(left)
	return true
}

// deliver writes hints and groups as far as that is safe now. It is waiting, without an outcome, if caches are behind
// its writes.
func (s *pass) deliver(ctx context.Context, d *routing.Decision) (waiting bool, err error) {
	if d.Delivery == allocate.DeliveryGroups || len(s.in.Groups) > 0 ||
		intent.IsHandedOver(s.in.Service) {
		if waiting, err := s.syncGroups(ctx, d); err != nil || waiting {
			return waiting, err
		}
	} else {
		s.record.handover = handover.Memory{}
		s.proxies.forget(s.key)
	}
	_, labelled := s.in.Service.Labels[v1alpha1.LabelRouted]
	// A Service without a choice is left unchanged. If it has the label, another zone may return soon.
	if hinted := d.Hinted(); hinted.Delivery == allocate.DeliveryHints && (labelled || !hinted.NothingToChoose()) {
		return s.syncHints(ctx, hinted)
	}
	return false, s.unroute(ctx)
}

// noteMoved counts the endpoints that move to other zones. Endpoints that move in both groups and hints count once.
func (s *pass) noteMoved(d *routing.Decision) {
	s.moved = max(s.moved, movedIn(d))
}

func (s *pass) remember(ctx context.Context, d routing.Decision) {
	ineffective, _ := s.ineffective(&d)
	reported := reportOf(&d, s.in.Service, ineffective)
	s.record.last = nil
	if d.Delivery != allocate.DeliveryNone {
		s.record.last = d.Essence()
		s.metrics.observeDelivery(d, s.slices+s.record.hinted, s.moved)
	}
	s.record.hinted = 0
	s.memory.setReport(s.key, reported)
	if s.slices > 0 {
		log.FromContext(ctx).Info("routed", "delivery", d.Delivery.Title(), "source", d.Request.Source,
			"state", reported.state, "slices", s.slices, "moved", s.moved)
	}
}
