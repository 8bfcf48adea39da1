package agent

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// eagerly is how long after its start a container that never passed a probe is probed
// more often than it asks for. A kubelet waits a whole period (10 s, if none is given)
// when its first try comes before the program listens; a lab has no time for that.
const eagerly = 2 * time.Second

// probeState counts the answers to one probe.
type probeState struct {
	begun               time.Time
	successes, failures int32
	// passed says whether the probe ever passed since the container started.
	passed bool
}

// verdict is what an answer comes to.
type verdict int

const (
	undecided verdict = iota
	passing
	failing
)

// observe counts an answer and returns the verdict, and when to try again.
func (p *probeState) observe(spec *corev1.Probe, ok bool, now time.Time) (verdict, time.Time) {
	period := seconds(int64(max(spec.PeriodSeconds, 1)))
	if ok {
		p.successes, p.failures = p.successes+1, 0
		if p.successes >= max(spec.SuccessThreshold, 1) {
			p.passed = true
			return passing, now.Add(period)
		}
		return undecided, now.Add(period)
	}
	p.successes = 0
	if age := now.Sub(p.begun); !p.passed && age < eagerly && age < period {
		return undecided, now.Add(max(age/2, 10*time.Millisecond))
	}
	p.failures++
	if p.failures >= max(spec.FailureThreshold, 1) {
		return failing, now.Add(period)
	}
	return undecided, now.Add(period)
}
