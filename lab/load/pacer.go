package load

import (
	"math"
	"time"
)

// tolerance is how late a request may leave. Requests that became due in a short stall are sent; after
// a long one they would overload the Service.
const tolerance = time.Second

// pacer is the schedule of one source. Time is an argument.
type pacer struct {
	rate  float64 // of all sources
	index int     // this source
	of    int     // number of sources
	count int64   // number of this source's requests
	next  int64   // this source's next request

	patient bool
}

func newPacer(j job) *pacer {
	return &pacer{
		rate:    j.Plan.Rate,
		index:   j.Index,
		of:      j.Of,
		patient: j.Plan.Patient,
		count:   (j.Plan.requests() - int64(j.Index) + int64(j.Of) - 1) / int64(j.Of),
	}
}

// due is the time of a request after the start. It is computed from the start, so that errors do not
// add up, and rounded up, so that no request leaves early.
func (p *pacer) due(n int64) time.Duration {
	return time.Duration(math.Ceil(float64(n*int64(p.of)+int64(p.index)) / p.rate * float64(time.Second)))
}

type action int

const (
	wait   action = iota // until the returned time
	send                 // the request, which is late by the returned time
	skip                 // the request, which is too late
	finish               // no request is left
)

// step returns the action for the next request, and moves on to the one after it, except when the
// action is to wait.
func (p *pacer) step(now time.Duration) (action, time.Duration) {
	if p.next >= p.count {
		return finish, 0
	}
	lag := now - p.due(p.next)
	if lag < 0 {
		return wait, -lag
	}
	p.next++
	if lag > tolerance && !p.patient {
		return skip, lag
	}
	return send, lag
}
