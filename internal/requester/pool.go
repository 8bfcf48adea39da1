package requester

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Pool evicts many pods. When a pod of a domain is denied, it goes behind the others of the
// domain, and the domain is left alone for a while, which doubles with each denial in a row. Then
// it is tried with one pod first. Other domains go on meanwhile. The fields are read once, by Evict.
type Pool struct {
	Requester *Requester
	// Name is that of the requester, Reason what the evictions are for.
	Name, Reason string
	// Domain is what a pod's denial says something about, such as its zone; one for all if it is nil.
	Domain func(*corev1.Pod) string
	// Parallel is how many requests are under way at most, 10 by default.
	Parallel int
	// First is the wait after the first denial in a row, a second by default, and Longest is the
	// longest one, 30 seconds by default. Each wait is shortened by up to half, so that pools do
	// not come in step.
	First, Longest time.Duration
	// Report, if given, is told of each outcome, one at a time.
	Report func(Result)
}

// Result is the last that is known of a pod.
type Result struct {
	Pod     *corev1.Pod
	Outcome Outcome
	Err     error // why the outcome is not known
	Asked   int   // how often it was requested
}

// Evict requests the eviction of all pods until each has an outcome that is final, or the context
// ends. It does not wait until the pods are gone, and withdraws nothing. The results are in the
// order of the pods.
func (p Pool) Evict(ctx context.Context, pods []*corev1.Pod) []Result {
	p.Parallel = cmp.Or(p.Parallel, 10)
	p.First, p.Longest = cmp.Or(p.First, time.Second), cmp.Or(p.Longest, 30*time.Second)
	run := &run{Pool: p, results: make([]Result, len(pods)), changed: make(chan struct{}, 1)}
	domains := map[string]*domain{}
	for i, pod := range pods {
		run.results[i].Pod = pod
		key := ""
		if p.Domain != nil {
			key = p.Domain(pod)
		}
		if domains[key] == nil {
			domains[key] = &domain{width: p.Parallel}
			run.domains = append(run.domains, domains[key])
		}
		domains[key].queue = append(domains[key].queue, turn{pod: i})
	}
	run.left = len(pods)
	run.all(ctx)
	return run.results
}

// run is one Evict.
type run struct {
	Pool
	results []Result
	changed chan struct{} // a request has ended

	mu      sync.Mutex
	domains []*domain // the one to look at first comes first
	left    int       // pods without a final outcome
	busy    int       // requests under way
}

// domain has pods that are denied together.
type domain struct {
	queue  []turn
	from   time.Time // when to go on
	denied int       // in a row, of which half are forgiven for a pod that is evicted
	busy   int       // requests under way
	width  int       // how many may be: one after a denial, and twice as many for each pod that is evicted
}

// wait is how long no pod of the domain is asked for.
func (d *domain) wait(now time.Time, longest time.Duration) time.Duration {
	if d.busy >= d.width {
		return longest
	}
	return d.from.Sub(now)
}

// turn is a pod that has to be asked for.
type turn struct {
	pod  int
	from time.Time
	// waited is how often it was waiting for responders.
	waited int
}

// all makes requests until there is nothing left to ask for.
func (r *run) all(ctx context.Context) {
	var requests sync.WaitGroup
	defer requests.Wait()
	for {
		d, t, wait, done := r.next(time.Now())
		if done || ctx.Err() != nil {
			return
		}
		if d != nil {
			requests.Go(func() {
				r.ask(ctx, d, t)
				select {
				case r.changed <- struct{}{}:
				default:
				}
			})
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-r.changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// next takes the pod that is to be asked for now, if there is one, or says how long there is none.
func (r *run) next(now time.Time) (d *domain, t turn, wait time.Duration, done bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait = r.Longest
	if r.left == 0 || r.busy >= r.Parallel {
		return nil, turn{}, wait, r.left == 0
	}
	for i, d := range r.domains {
		if left := d.wait(now, r.Longest); left > 0 {
			wait = min(wait, left)
			continue
		}
		for at, t := range d.queue {
			if left := t.from.Sub(now); left > 0 {
				wait = min(wait, left)
				continue
			}
			d.queue = slices.Delete(d.queue, at, at+1)
			r.domains = append(slices.Delete(r.domains, i, i+1), d)
			r.busy++
			d.busy++
			return d, t, 0, false
		}
	}
	return nil, turn{}, wait, false
}

// ask requests the eviction of a pod.
func (r *run) ask(ctx context.Context, d *domain, t turn) {
	pod := r.results[t.pod].Pod
	outcome, err := r.Requester.Request(ctx, pod, r.Name, r.Reason)
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy--
	d.busy--
	result := &r.results[t.pod]
	result.Outcome, result.Err = outcome, err
	result.Asked++
	switch {
	case err == nil && outcome.State.Final():
		r.left--
		if outcome.State == Evicted {
			d.denied, d.from, d.width = d.denied/2, time.Time{}, min(2*d.width, r.Parallel)
		}
	case err == nil && outcome.State == Waiting:
		t.from = now.Add(r.pause(t.waited))
		t.waited++
		d.queue = append(d.queue, t)
	default:
		// Requests that were under way together say the same once.
		if !now.Before(d.from) {
			d.from = now.Add(r.pause(d.denied))
			d.denied++
			d.width = 1
		}
		d.queue = append(d.queue, t)
	}
	if r.Report != nil {
		r.Report(*result)
	}
}

// pause is how long to wait after some waits.
func (r *run) pause(before int) time.Duration {
	wait := r.Longest
	if before < 16 {
		wait = min(wait, r.First<<before)
	}
	return wait - time.Duration(rand.Int64N(int64(wait)/2+1))
}
