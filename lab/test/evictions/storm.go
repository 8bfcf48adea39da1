package evictions

import (
	"context"
	"fmt"
	"sync"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Storm evicts healthy pods of a namespace, many at a time, without a pause and without regard to the
// budgets.
type Storm struct {
	API     kubernetes.Interface
	History *History
	// InFlight is the number of concurrent evictions, Evictions the number to admit in all; if it is
	// 0, End sets it later.
	InFlight, Evictions int
	// Died, if not zero, is the interval at which a pod is deleted at once, as if its node had failed.
	Died time.Duration

	mu      sync.Mutex
	busy    map[types.UID]bool
	figures Figures
}

// Figures are the results of a storm.
type Figures struct {
	Admitted, Refused int
	// Gone are pods that were gone before their eviction, Failed are evictions without such an answer,
	// and Deaths are pods that the storm deleted.
	Gone, Failed, Deaths int
	Failures             []string // some of them
	// Times are those of evictions that were admitted or refused.
	Times []time.Duration
	Took  time.Duration
}

// PerSecond is the number of admitted evictions per second.
func (f Figures) PerSecond() float64 { return float64(f.Admitted) / f.Took.Seconds() }

// Add joins two storms that ran one after the other.
func (f Figures) Add(g Figures) Figures {
	f.Admitted, f.Refused, f.Gone, f.Failed, f.Deaths = f.Admitted+g.Admitted, f.Refused+g.Refused, f.Gone+g.Gone, f.Failed+g.Failed, f.Deaths+g.Deaths
	f.Failures, f.Times, f.Took = append(f.Failures, g.Failures...), append(f.Times, g.Times...), f.Took+g.Took
	return f
}

// Progress is the number of admitted evictions so far.
func (s *Storm) Progress() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.figures.Admitted
}

// End ends the storm after more evictions are admitted.
func (s *Storm) End(more int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Evictions = s.figures.Admitted + more
}

func (s *Storm) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Evictions > 0 && s.figures.Admitted >= s.Evictions
}

// Run runs the storm to its end.
func (s *Storm) Run(ctx context.Context) (Figures, error) {
	s.busy = map[types.UID]bool{}
	begun := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var evicting, dying sync.WaitGroup
	for range s.InFlight {
		evicting.Go(func() {
			for !s.over() && ctx.Err() == nil {
				s.once(ctx)
			}
		})
	}
	if s.Died > 0 {
		dying.Go(func() { s.kill(ctx) })
	}
	evicting.Wait()
	unfinished := context.Cause(ctx)
	cancel()
	dying.Wait()
	s.figures.Took = time.Since(begun)
	if unfinished != nil {
		return s.figures, fmt.Errorf("of %d evictions %d were admitted, %d refused, and %d failed, such as %q: %w",
			s.Evictions, s.figures.Admitted, s.figures.Refused, s.figures.Failed, s.figures.Failures, unfinished)
	}
	return s.figures, nil
}

// idlePause is the pause while no pod is healthy.
const idlePause = 5 * time.Millisecond

func (s *Storm) once(ctx context.Context) {
	s.mu.Lock()
	p, ok := s.History.pick(s.busy)
	if ok {
		s.busy[p.uid] = true
	}
	s.mu.Unlock()
	if !ok {
		select {
		case <-ctx.Done():
		case <-time.After(idlePause):
		}
		return
	}
	begun := time.Now()
	// Without a precondition, like kubectl drain.
	err := s.API.PolicyV1().Evictions(s.History.namespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.name, Namespace: s.History.namespace}})
	took := time.Since(begun)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, p.uid)
	f := &s.figures
	switch {
	case err == nil:
		f.Admitted++
		f.Times = append(f.Times, took)
	case apierrors.IsTooManyRequests(err):
		f.Refused++
		f.Times = append(f.Times, took)
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		f.Gone++
	case ctx.Err() == nil:
		f.Failed++
		if len(f.Failures) < maxExamples {
			f.Failures = append(f.Failures, err.Error())
		}
	}
}

func (s *Storm) kill(ctx context.Context) {
	ticker := time.NewTicker(s.Died)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		p, ok := s.History.pick(nil)
		if !ok {
			continue
		}
		err := s.API.CoreV1().Pods(s.History.namespace).Delete(ctx, p.name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &p.uid}})
		if err == nil {
			s.mu.Lock()
			s.figures.Deaths++
			s.mu.Unlock()
		}
	}
}
