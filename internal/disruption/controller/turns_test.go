package controller

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Ten thousand changed budgets of one namespace take a quarter of the writes. A budget of another namespace that changes later is
// written at once.
func TestTurnsAreFair(t *testing.T) {
	const budgets = 10_000
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	turns, waiting, written, asked := newTurns(10), map[types.NamespacedName]time.Duration{}, 0, 0
	come := func(name types.NamespacedName, at time.Duration) bool {
		asked++
		if wait := turns.wait(name, start.Add(at)); wait > 0 {
			waiting[name] = at + wait
			return false
		}
		delete(waiting, name)
		turns.wrote(name.Namespace, start.Add(at))
		return true
	}
	for i := range budgets {
		if come(types.NamespacedName{Namespace: "noisy", Name: fmt.Sprint(i)}, 0) {
			written++
		}
	}
	if written > 10 {
		t.Errorf("%d are written at once", written)
	}
	if !come(types.NamespacedName{Namespace: "quiet", Name: "web"}, 0) {
		t.Error("the budget of the other namespace waits")
	}
	last := time.Duration(0)
	order := slices.SortedFunc(maps.Keys(waiting), func(a, b types.NamespacedName) int { return cmp.Compare(waiting[a], waiting[b]) })
	for _, name := range order {
		last = waiting[name]
		if !come(name, last) {
			t.Fatalf("%s comes at its turn after %s, and waits again", name.Name, last)
		}
	}
	if rate := float64(budgets-written) / last.Seconds(); rate < 2.4 || rate > 2.6 {
		t.Errorf("%.2f of a namespace are written a second, want 2.5 of 10", rate)
	}
	if asked > 2*budgets+1 {
		t.Errorf("they came %d times", asked)
	}
	if len(turns.given) != 0 {
		t.Errorf("%d turns are left", len(turns.given))
	}
}

// Namespaces that all exceed their share get the whole rate together, and each gets some of it.
func TestTurnsOfNoisyNamespaces(t *testing.T) {
	const namespaces, budgets = 40, 100
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	turns, next := newTurns(10), map[types.NamespacedName]time.Duration{}
	for i := range namespaces * budgets {
		next[types.NamespacedName{Namespace: fmt.Sprint(i % namespaces), Name: fmt.Sprint(i)}] = 0
	}
	// Budgets come in any order. In this time each namespace is drawn 22 times on average, so that none is left out by chance.
	const lasts, step = 90 * time.Second, 20 * time.Millisecond
	written := 0
	of := map[string]int{}
	for at := time.Duration(0); at < lasts; at += step {
		for name, due := range next {
			if due > at {
				continue
			}
			if wait := turns.wait(name, start.Add(at)); wait > 0 {
				next[name] = at + wait
				continue
			}
			turns.wrote(name.Namespace, start.Add(at))
			written++
			of[name.Namespace]++
		}
	}
	if most := int((lasts + 2*burst).Seconds() * 10); written > most || written < most/2 {
		t.Errorf("%d are written in %s, want at most %d and no less than half of that", written, lasts, most)
	}
	if len(of) != namespaces {
		t.Errorf("%d of %d namespaces have written", len(of), namespaces)
	}
}
