package routing

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/explain"
	"vicinity.dev/vicinity/internal/routing"
)

// quietRecord is since when nothing has happened to a Service. A restart begins the quiet
// time again.
type quietRecord struct {
	inputs   uint64
	since    time.Time
	compared bool
}

// replanPace spaces the renewals of all quiet Services, so that in the long run no more
// endpoints move than the rate allows. A renewal moves its endpoints at once, because a part
// of a plan may overload an endpoint; the next one waits in proportion.
type replanPace struct {
	perEndpoint time.Duration
	mu          sync.Mutex
	next        time.Time
}

func newReplanPace(perMinute int) *replanPace {
	return &replanPace{perEndpoint: time.Minute / time.Duration(max(1, perMinute))}
}

// wait is how long the next renewal has to wait.
func (p *replanPace) wait(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next.Sub(now)
}

// moved notes a renewal that moved some endpoints.
func (p *replanPace) moved(now time.Time, endpoints int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(time.Duration(endpoints) * p.perEndpoint)
}

// renewal is a better plan that was decided, while nothing of it is stored.
type renewal struct {
	moved int
	text  string
}

// hintsAreUncertain reports whether hints that were written are not stored, or were removed.
func (s *pass) hintsAreUncertain() bool { return s.record.backoff.Failures > 0 }

// renew compares a plan that is kept with a new one, when nothing has happened to the Service
// for long. It returns the decision to deliver.
func (s *pass) renew(d routing.Decision) (routing.Decision, error) {
	quiet := &s.record.quiet
	if inputs := inputsOf(&d); inputs != quiet.inputs || quiet.since.IsZero() {
		*quiet = quietRecord{inputs: inputs, since: s.now}
	}
	if !hasRule(&d, allocate.RuleKept) {
		s.record.renewal = nil // another plan has taken its place
		return d, nil
	}
	if s.options.ReplanAfter <= 0 || quiet.compared {
		return d, nil
	}
	if s.hintsAreUncertain() {
		s.postponed = true
		return d, nil
	}
	if left := quiet.since.Add(s.options.ReplanAfter).Sub(s.now); left > 0 {
		s.requeueAfter(left)
		return d, nil
	}
	in := s.in
	in.Renew = true
	renewed, err := routing.Decide(in)
	if err != nil {
		return d, err
	}
	if hasRule(&renewed, allocate.RuleRenewed) {
		if wait := s.pace.wait(s.now); wait > 0 {
			s.requeueAfter(wait)
			return d, nil
		}
	}
	s.compared = true
	return renewed, nil
}

// announce reports a renewal once a part of it is stored. Until then the record keeps it
// where hints have to be written again. A delivery that ended early without a write is
// decided anew by the next sync.
func (s *pass) announce(d *routing.Decision, delivered bool) {
	if s.compared && hasRule(d, allocate.RuleRenewed) && (s.slices > 0 || delivered && s.hintsAreUncertain()) {
		s.record.renewal = renewalOf(d)
	}
	r := s.record.renewal
	if r == nil || s.slices == 0 {
		return
	}
	s.record.renewal = nil
	s.metrics.replans.Inc()
	s.pace.moved(s.now, r.moved)
	s.recorder.Eventf(s.in.Service, nil, corev1.EventTypeNormal, "TopologyReplanned", "Routing", "%s", r.text)
}

// noteCompared notes that the plan was compared with a new one. That counts once the hints are
// known to be stored.
func (s *pass) noteCompared() {
	switch {
	case s.hintsAreUncertain(): // another sync is asked for already
	case s.postponed:
		s.requeueAfter(time.Millisecond)
	case s.compared:
		s.record.quiet.compared = true
	}
}

// renewalOf is the renewal of a decision. An endpoint that both groups and hints give to other
// zones counts once.
func renewalOf(d *routing.Decision) *renewal {
	r := new(renewal)
	var parts []string
	for _, plan := range plansOf(d) {
		moved := 0
		for i := range plan.Families {
			f := &plan.Families[i]
			moved += f.Moved
			if f.Outcome.Rule != allocate.RuleRenewed {
				continue
			}
			part := fmt.Sprintf("%s: %s", f.Family, explain.Change(f.Outcome.Figures, f.Outcome.Before))
			if !slices.Contains(parts, part) {
				parts = append(parts, part)
			}
		}
		r.moved = max(r.moved, moved)
	}
	r.text = fmt.Sprintf("a better plan replaces the one that was kept; endpoints that serve other zones now: %d. %s", r.moved, strings.Join(parts, "; "))
	return r
}

// plansOf are the plans that a decision delivers: two while a Service waits for
// vicinity-proxy.
func plansOf(d *routing.Decision) []*routing.Decision {
	if d.Meanwhile != nil {
		return []*routing.Decision{d, d.Meanwhile}
	}
	return []*routing.Decision{d}
}

func hasRule(d *routing.Decision, rule allocate.Rule) bool {
	for _, plan := range plansOf(d) {
		for i := range plan.Families {
			if plan.Families[i].Outcome.Rule == rule {
				return true
			}
		}
	}
	return false
}

// inputsOf is a hash of what plans are made from: the intent, zones with their capacity, and
// the ready endpoints.
func inputsOf(d *routing.Decision) uint64 {
	h := fnv.New64a()
	intent := &d.Request.Intent
	_, _ = fmt.Fprint(h, intent.Tiers, 0)
	if intent.Bound != nil {
		_, _ = fmt.Fprintf(h, "%+v", *intent.Bound)
	}
	var number [8]byte
	for i := range d.Families {
		f := &d.Families[i]
		for _, zone := range f.Region.Zones {
			binary.LittleEndian.PutUint64(number[:], math.Float64bits(zone.Capacity))
			_, _ = h.Write(append([]byte(zone.Name), 0))
			_, _ = h.Write(number[:])
		}
		for _, e := range f.Endpoints {
			_, _ = h.Write(append([]byte(e.Address), 0))
			_, _ = h.Write(append([]byte(e.Zone), 0))
		}
	}
	return h.Sum64()
}
