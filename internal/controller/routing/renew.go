package routing

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/explain"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/translate"
)

// What a renewal was asked for by.
const (
	replanQuiet   = "quiet"
	replanRequest = "request"
)

// quietRecord is since when nothing has happened to a Service. A restart loses it, and
// the quiet time begins again.
type quietRecord struct {
	// inputs is what the plan was made from, since when.
	inputs uint64
	since  time.Time
	// compared says that the plan was compared with a new one since then.
	compared bool
}

// replanPace spaces the renewals of all quiet Services, so that no more endpoints move
// in the long run than the rate allows. A renewal moves all endpoints of a Service that
// it moves at once, because a part of a plan may overload an endpoint; the next one
// waits for as long as so many endpoints take.
type replanPace struct {
	perEndpoint time.Duration
	mu          sync.Mutex
	next        time.Time
}

func newReplanPace(perMinute int) *replanPace {
	return &replanPace{perEndpoint: time.Minute / time.Duration(max(1, perMinute))}
}

// wait is how long the next renewal has to wait, zero if it need not.
func (p *replanPace) wait(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, p.next.Sub(now))
}

// moved notes a renewal.
func (p *replanPace) moved(now time.Time, endpoints int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(time.Duration(endpoints) * p.perEndpoint)
}

// isReplanAsked reports whether somebody asks for a better plan.
func isReplanAsked(service *corev1.Service) bool {
	_, asked := service.Annotations[translate.AnnotationReplan]
	return asked
}

// renew compares a plan that is kept with a new one: when nothing has happened to the
// Service for long, or at once if somebody asks for it. It returns what is to be
// delivered.
func (s *pass) renew(d routing.Decision) (routing.Decision, error) {
	quiet := &s.record.quiet
	if inputs := inputsOf(&d); inputs != quiet.inputs || quiet.since.IsZero() {
		*quiet = quietRecord{inputs: inputs, since: s.now}
	}
	asked := isReplanAsked(s.in.Service)
	switch {
	case !hasRule(&d, allocate.RuleKept), s.record.stay.losses > 0:
		return d, nil
	case asked:
	case s.options.ReplanAfter <= 0 || quiet.compared:
		return d, nil
	default:
		if left := quiet.since.Add(s.options.ReplanAfter).Sub(s.now); left > 0 {
			s.come(left)
			return d, nil
		}
		if wait := s.pace.wait(s.now); wait > 0 {
			s.come(wait)
			return d, nil
		}
	}
	in := s.in
	in.Renew = true
	renewed, err := routing.Decide(in)
	if err != nil {
		return d, err
	}
	s.compared = true
	return renewed, nil
}

// renewed notes and reports what became of a comparison, once it is delivered. The
// request is taken off the Service, so that whoever made it sees that it is done.
func (s *pass) renewed(ctx context.Context, d *routing.Decision) error {
	if s.compared {
		s.record.quiet.compared = true
	}
	asked := isReplanAsked(s.in.Service)
	if hasRule(d, allocate.RuleRenewed) {
		trigger := replanQuiet
		if asked {
			trigger = replanRequest
		}
		moved := 0
		for i := range d.Families {
			moved += d.Families[i].Moved
		}
		s.metrics.replans.WithLabelValues(trigger).Inc()
		s.pace.moved(s.now, moved)
		s.recorder.Eventf(s.in.Service, nil, corev1.EventTypeNormal, "TopologyReplanned", "Routing", "%s", renewalText(d, moved))
	}
	if !asked || d.Delivery == routing.DeliveryNone {
		return nil
	}
	service := serviceObject(s.in.Service)
	const body = `{"metadata":{"annotations":{"` + translate.AnnotationReplan + `":null}}}`
	err := s.client.Patch(ctx, service, client.RawPatch(types.MergePatchType, []byte(body)))
	switch {
	case apierrors.IsNotFound(err):
		return errChanged
	case err != nil:
		return fmt.Errorf("taking the annotation %s off: %w", translate.AnnotationReplan, err)
	}
	s.record.service = service.ResourceVersion
	return nil
}

// renewalText says what a renewal changes.
func renewalText(d *routing.Decision, moved int) string {
	var parts []string
	for i := range d.Families {
		f := &d.Families[i]
		if f.Outcome.Rule == allocate.RuleRenewed {
			parts = append(parts, fmt.Sprintf("%s: %s of the traffic stays in its zone instead of %s",
				f.Family, explain.Percent(f.Outcome.Figures.InZone), explain.Percent(f.Outcome.Before.InZone)))
		}
	}
	return fmt.Sprintf("a better plan replaces the one that was kept; endpoints that serve other zones now: %d. %s", moved, strings.Join(parts, "; "))
}

func hasRule(d *routing.Decision, rule allocate.Rule) bool {
	for i := range d.Families {
		if d.Families[i].Outcome.Rule == rule {
			return true
		}
	}
	return false
}

// inputsOf tells apart what plans are made from: zones with their capacity, and the
// ready endpoints.
func inputsOf(d *routing.Decision) uint64 {
	h := fnv.New64a()
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
