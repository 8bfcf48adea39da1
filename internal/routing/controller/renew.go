package controller

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/explain"
)

// quietRecord notes when the inputs of a Service's plan last changed. A restart begins the quiet time again.
type quietRecord struct {
	inputs   uint64
	since    time.Time
	compared bool
}

// replanPace spaces the renewals of all quiet Services, so that on average no more endpoints move than the rate allows.
// A renewal moves all its endpoints at once, because a part of a plan may overload an endpoint; the next one waits in
// proportion.
type replanPace struct {
	perEndpoint time.Duration
	mu          sync.Mutex
	next        time.Time
}

func newReplanPace(perMinute int) *replanPace {
	return &replanPace{perEndpoint: time.Minute / time.Duration(max(1, perMinute))}
}

// takeTurn starts a renewal that moves some endpoints, or returns how long it has to wait. Concurrent workers get one
// turn after the other.
func (p *replanPace) takeTurn(now time.Time, endpoints int) (wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if wait = p.next.Sub(now); wait > 0 {
		return wait
	}
	p.next = now.Add(p.spacingAfter(endpoints))
	return 0
}

// returnTurn is for a renewal that is not delivered.
func (p *replanPace) returnTurn(endpoints int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = p.next.Add(-p.spacingAfter(endpoints))
}

// spacingAfter returns how long the next renewal waits after one that moves some endpoints.
func (p *replanPace) spacingAfter(endpoints int) time.Duration {
	return time.Duration(endpoints) * p.perEndpoint
}

// hintsAreUncertain reports whether written hints were removed or not stored.
func (s *pass) hintsAreUncertain() bool { return s.record.backoff.Failures > 0 }

// renew compares a kept plan with a new one if the Service has been quiet for ReplanAfter. It returns the decision to
// deliver.
func (s *pass) renew(d routing.Decision) (routing.Decision, error) {
	quiet := &s.record.quiet
	if inputs := inputsOf(&d); inputs != quiet.inputs || quiet.since.IsZero() {
		*quiet = quietRecord{inputs: inputs, since: s.now}
	}
	if !d.HasRule(allocate.RuleKept) || s.options.ReplanAfter <= 0 || quiet.compared {
		return d, nil
	}
	if left := quiet.since.Add(s.options.ReplanAfter).Sub(s.now); left > 0 {
		s.requeueAfter(left)
		return d, nil
	}
	if s.hintsAreUncertain() {
		s.requeueAfter(s.record.backoff.Wait(s.now) + s.record.backoff.proof)
		return d, nil
	}
	in := s.in
	in.Renew = true
	renewed, err := routing.Decide(in)
	if err != nil {
		return d, err
	}
	if renewed.HasRule(allocate.RuleRenewed) {
		if wait := s.pace.takeTurn(s.now, endpointsMoved(&renewed)); wait > 0 {
			s.requeueAfter(wait)
			return d, nil
		}
	}
	s.compared = true
	return renewed, nil
}

// announce reports a renewal that is delivered at least in part, even if its hints are lost at once and written again.
// Otherwise the next sync decides again.
func (s *pass) announce(d *routing.Decision, delivered bool) {
	if !s.compared || !d.HasRule(allocate.RuleRenewed) {
		return
	}
	if s.slices == 0 && (!delivered || !s.hintsAreUncertain()) {
		s.pace.returnTurn(endpointsMoved(d))
		return
	}
	var parts []string
	for _, plan := range plansOf(d) {
		for i := range plan.Families {
			f := &plan.Families[i]
			if f.Outcome.Rule != allocate.RuleRenewed {
				continue
			}
			part := fmt.Sprintf("%s: %s", f.Family, explain.Change(f.Outcome.Figures, f.Outcome.Before))
			if !slices.Contains(parts, part) {
				parts = append(parts, part)
			}
		}
	}
	s.metrics.replans.Inc()
	s.recorder.Eventf(s.in.Service, nil, corev1.EventTypeNormal, "TopologyReplanned", "Routing",
		"a better plan replaces the previous one; endpoints that now serve other zones: %d. %s", endpointsMoved(d), strings.Join(parts, "; "))
}

// endpointsMoved counts the endpoints that move to other zones. Endpoints that move in both groups and hints count
// once.
func endpointsMoved(d *routing.Decision) int {
	most := 0
	for _, plan := range plansOf(d) {
		most = max(most, movedIn(plan))
	}
	return most
}

func movedIn(d *routing.Decision) int {
	moved := 0
	for i := range d.Families {
		moved += d.Families[i].Moved
	}
	return moved
}

// plansOf returns the delivered decisions: two while a Service waits for vicinity-proxy.
func plansOf(d *routing.Decision) []*routing.Decision {
	if d.Meanwhile != nil {
		return []*routing.Decision{d, d.Meanwhile}
	}
	return []*routing.Decision{d}
}

// inputsOf hashes the inputs of plans: the intent, zones with their capacity, and the ready endpoints.
func inputsOf(d *routing.Decision) uint64 {
	h := fnv.New64a()
	intent := &d.Request.Intent
	fmt.Fprintln(h, intent.Tiers)
	if intent.Bound != nil {
		fmt.Fprintf(h, "%+v\n", *intent.Bound)
	}
	for i := range d.Families {
		f := &d.Families[i]
		for _, zone := range f.Region.Zones {
			fmt.Fprintln(h, zone.Name, zone.Capacity)
		}
		for _, e := range f.Endpoints {
			fmt.Fprintln(h, e.Address, e.Zone)
		}
	}
	return h.Sum64()
}
