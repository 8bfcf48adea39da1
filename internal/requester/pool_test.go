package requester

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
)

// budget is an API server where pods of a zone, which is what their names begin with, are evicted
// one at a time, and come back after some time.
type budget struct {
	back time.Duration

	mu            sync.Mutex
	down          map[string]time.Time // by zone, until when
	calls, denied int
	order         []string
}

func (b *budget) evict(eviction *policyv1.Eviction) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	zone, _, _ := strings.Cut(eviction.Name, "-")
	if time.Now().Before(b.down[zone]) || strings.HasSuffix(eviction.Name, "stuck") && len(b.order) < 3 {
		b.denied++
		return denial(0, zone+" has a pod down")
	}
	b.down[zone] = time.Now().Add(b.back)
	b.order = append(b.order, eviction.Name)
	return nil
}

func zoneOf(pod *corev1.Pod) string {
	zone, _, _ := strings.Cut(pod.Name, "-")
	return zone
}

// pods are some of each zone.
func pods(zones []string, each int) []*corev1.Pod {
	var all []*corev1.Pod
	for _, zone := range zones {
		for i := range each {
			all = append(all, newPod(fmt.Sprintf("%s-%d", zone, i)))
		}
	}
	return all
}

// Each zone goes on by itself, and the API server is not asked much more often than pods are evicted.
func TestPoolEvictsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{back: 20 * time.Second, down: map[string]time.Time{}}
		pool := Pool{Requester: New(evictions(b.evict).client(t), no), Name: drain, Domain: zoneOf}
		begin := time.Now()
		results := pool.Evict(t.Context(), pods([]string{"a", "b", "c"}, 20))
		for _, result := range results {
			if result.Outcome.State != Evicted || result.Err != nil {
				t.Errorf("%s: %+v", result.Pod.Name, result)
			}
		}
		if len(b.order) != 60 {
			t.Errorf("%d of 60 pods are evicted", len(b.order))
		}
		// At least 19 times 20 seconds, and each wait may be too long by what it was shorter before.
		if took := time.Since(begin); took < 380*time.Second || took > 15*time.Minute {
			t.Errorf("it took %s", took)
		}
		if perPod := float64(b.calls) / 60; perPod > 7 {
			t.Errorf("%.1f calls for each pod", perPod)
		}
		t.Logf("%d calls, of which %d were denied, in %s", b.calls, b.denied, time.Since(begin))
	})
}

// A pod that is denied does not keep others of its domain waiting.
func TestDeniedPodsYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{down: map[string]time.Time{}}
		pool := Pool{Requester: New(evictions(b.evict).client(t), no), Name: drain, Domain: zoneOf, Parallel: 1}
		pool.Evict(t.Context(), []*corev1.Pod{newPod("a-stuck"), newPod("a-1"), newPod("a-2"), newPod("a-3")})
		if want := []string{"a-1", "a-2", "a-3", "a-stuck"}; !slices.Equal(b.order, want) {
			t.Errorf("the order is %v, want %v", b.order, want)
		}
	})
}

// A zone whose pods are all denied is asked ever less often, and keeps no other waiting.
func TestDomainsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{down: map[string]time.Time{"a": time.Now().Add(time.Hour)}}
		pool := Pool{Requester: New(evictions(b.evict).client(t), no), Name: drain, Domain: zoneOf}
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
		defer cancel()
		states := map[State]int{}
		begin := time.Now()
		var last time.Duration
		pool.Report = func(result Result) {
			if result.Outcome.State == Evicted {
				last = time.Since(begin)
			}
		}
		for _, result := range pool.Evict(ctx, pods([]string{"a", "b"}, 30)) {
			states[result.Outcome.State]++
			if result.Outcome.State == Denied && !slices.Equal(result.Outcome.Causes, []string{"a has a pod down"}) {
				t.Errorf("the causes are %q", result.Outcome.Causes)
			}
		}
		if want := map[State]int{Evicted: 30, Denied: 30}; !maps.Equal(states, want) {
			t.Errorf("the outcomes are %v, want %v", states, want)
		}
		if last > 0 {
			t.Errorf("pods of the other zone waited up to %s", last)
		}
		// From one to ten at first, then, after a minute at most, one each 15 to 30 seconds.
		if b.denied < 30 || b.denied > 60 {
			t.Errorf("%d requests were denied", b.denied)
		}
	})
}

func TestPoolBoundsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		busy, most := 0, 0
		api := evictions(func(*policyv1.Eviction) error {
			mu.Lock()
			busy++
			most = max(most, busy)
			mu.Unlock()
			time.Sleep(time.Second) // of the bubble
			mu.Lock()
			busy--
			mu.Unlock()
			return nil
		})
		begin := time.Now()
		Pool{Requester: New(api.client(t), no), Name: drain, Parallel: 5}.Evict(t.Context(), pods([]string{"a", "b"}, 10))
		if took := time.Since(begin); most != 5 || took != 4*time.Second {
			t.Errorf("up to %d requests at a time, %s in all", most, took)
		}
	})
}
