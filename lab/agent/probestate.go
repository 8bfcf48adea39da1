package agent

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// eagerPhase is how long after its start a container that never passed a probe is probed
// more often than its period says. A kubelet would wait a whole period, 10 s by default, if
// the first probe comes before the program listens.
const eagerPhase = 2 * time.Second

type probeState struct {
	begun               time.Time
	successes, failures int32
	// passed reports whether the probe has passed since the container started.
	passed bool
}

// verdict is the result of a probe by its thresholds.
type verdict int

const (
	undecided verdict = iota
	passing
	failing
)

// observe counts a result. It returns the verdict and when to probe again.
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
	if age := now.Sub(p.begun); !p.passed && age < eagerPhase && age < period {
		return undecided, now.Add(max(age/2, 10*time.Millisecond))
	}
	p.failures++
	if p.failures >= max(spec.FailureThreshold, 1) {
		return failing, now.Add(period)
	}
	return undecided, now.Add(period)
}
