package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption/requester"
	"vicinity.dev/vicinity/internal/rollout"
)

// slow is an evictor that takes a second for each request and admits a limited number.
type slow struct {
	evictor
	allowed int
	failing map[string]bool

	mu         sync.Mutex
	busy, most int
	asked      []string
}

// Request implements evictor.
func (s *slow) Request(_ context.Context, pod *corev1.Pod, _, _ string) (requester.Outcome, error) {
	s.mu.Lock()
	s.busy++
	s.most = max(s.most, s.busy)
	s.asked = append(s.asked, pod.Name)
	s.mu.Unlock()
	time.Sleep(time.Second) // synctest makes it instant
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	if s.failing[pod.Name] {
		return requester.Outcome{}, errors.New("no answer about " + pod.Name)
	}
	if s.allowed == 0 {
		return requester.Outcome{State: requester.Denied, Causes: []string{"the budget is used up"}}, nil
	}
	s.allowed--
	return requester.Outcome{State: requester.Evicted}, nil
}

// manyTargets makes targets and pods in each domain.
func manyTargets(each int, domains ...string) (targets []rollout.Target, pods map[string]*corev1.Pod) {
	pods = map[string]*corev1.Pod{}
	for _, domain := range domains {
		for i := range each {
			name := fmt.Sprintf("%s-%02d", domain, i)
			targets = append(targets, rollout.Target{UID: "u" + name, Pod: name, Domain: domain})
			pods["u"+name] = &corev1.Pod{}
			pods["u"+name].Name, pods["u"+name].Namespace, pods["u"+name].UID = name, "shop", types.UID("u"+name)
		}
	}
	return targets, pods
}

// A step evicts several pods at a time, each once, and never more than allowed.
func TestEvictionsAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		domains []string
		allowed int
		failing string
		// most is the number of concurrent requests, asked the number of all.
		most, asked int
		took        time.Duration
	}{
		"all are admitted": {domains: []string{"a"}, allowed: 100, most: 8, asked: 30, took: 6 * time.Second}, // 1, 2, 4, 8, 8, 7
		"two domains":      {domains: []string{"a", "b"}, allowed: 100, most: 8, asked: 60, took: 9 * time.Second},
		"none is admitted": {domains: []string{"a"}, most: 1, asked: 1, took: time.Second},
		"five are":         {domains: []string{"a"}, allowed: 5, most: 4, asked: 7, took: 3 * time.Second},
		"no answer":        {domains: []string{"a"}, allowed: 100, failing: "a-02", most: 2, asked: 3, took: 2 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, v1alpha1.KindStatefulSet, "OnDelete")
			evicts := &slow{evictor: w, allowed: test.allowed, failing: map[string]bool{test.failing: true}}
			w.r.evictor, w.r.clock = evicts, clock.RealClock{}
			targets, pods := manyTargets(30, test.domains...)
			for _, pod := range pods {
				if err := w.client.Create(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
			}
			begin := time.Now()
			n := newNotes()
			after, err := w.r.takeDown(t.Context(), n, w.rollout("db"), &view{pods: pods}, &todo{evict: targets, begin: begin})
			slices.Sort(evicts.asked)
			if took := time.Since(begin); evicts.most != test.most || len(evicts.asked) != test.asked || took != test.took {
				t.Errorf("%s: %d requests, up to %d at once, in %s", name, len(evicts.asked), evicts.most, took)
			}
			if len(slices.Compact(evicts.asked)) != test.asked {
				t.Errorf("%s: the pods that are asked for are %v", name, evicts.asked)
			}
			if (err != nil) != (test.failing != "") || err != nil && !strings.Contains(err.Error(), test.failing) {
				t.Errorf("%s: the error is %v", name, err)
			}
			if wasDenied := test.asked < 30; wasDenied != (len(n.refused) > 0) || wasDenied != (after > 0) || wasDenied && after > firstDenial {
				t.Errorf("%s: %d pods are refused, and it comes back after %s", name, len(n.refused), after)
			}
			for uid, refusal := range n.refused { // denied at once, they count as one denial
				if wait := time.Until(refusal.Until); wait > firstDenial {
					t.Errorf("%s: %s waits for %s", name, uid, wait)
				}
			}
		})
	}
}
