package evictions

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Waves is the course of an update by domains, from the history of pods alone.
type Waves struct {
	// Evictions is the number of evicted pods, and Deletions that of pods that were deleted otherwise.
	Evictions, Deletions int
	// MostDown is the highest number of pods of one domain that were down at a time, after the update
	// had taken one, and MostDomains that of domains.
	MostDown, MostDomains int
	// Order has the domains in the order in which pods were taken, once for each turn.
	Order []string

	gaps int
}

// Waves replays the history of pods with some labels. Their number in each domain of nodes is constant
// except for replacements.
func (h *History) Waves(labels, domains map[string]string) Waves {
	h.mu.Lock()
	events := slices.Clone(h.events)
	h.mu.Unlock()
	return waves(events, labels, domains)
}

func waves(events []event, labels, domains map[string]string) Waves {
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.version, b.version) })
	w := Waves{}
	present, taken := map[types.UID]pod{}, map[types.UID]bool{}
	all := map[string]int{} // pods of each domain when the history began
	down := func() map[string]int {
		left := maps.Clone(all)
		for uid, p := range present {
			if p.healthy() && !taken[uid] {
				left[domains[p.node]]--
			}
		}
		return left
	}
	lists := 0
	for _, e := range events {
		switch {
		case e.of != pods:
			continue
		case e.list:
			if lists++; lists > 1 {
				w.gaps++
			}
			clear(present)
			continue
		case !matches(labels, e.pod.labels):
			continue
		}
		before, known := present[e.uid]
		if lists == 1 && e.listed {
			all[domains[e.pod.node]]++
		}
		switch {
		case e.pod.evicted && !taken[e.uid]:
			taken[e.uid] = true
			w.Evictions++
			w.take(domains[e.pod.node], down())
		case (e.gone || e.pod.terminating) && known && !before.terminating && !taken[e.uid]:
			taken[e.uid] = true
			w.Deletions++
			w.take(domains[e.pod.node], down())
		}
		if present[e.uid] = e.pod; e.gone {
			delete(present, e.uid)
		}
	}
	return w
}

// take records that a pod of a domain was taken, and what is down since.
func (w *Waves) take(domain string, down map[string]int) {
	if n := len(w.Order); n == 0 || w.Order[n-1] != domain {
		w.Order = append(w.Order, domain)
	}
	w.MostDown = max(w.MostDown, down[domain])
	disturbed := 0
	for _, n := range down {
		if n > 0 {
			disturbed++
		}
	}
	w.MostDomains = max(w.MostDomains, disturbed)
}

// Limits are limits of an update. Zero or empty ones are not checked.
type Limits struct {
	Evictions, Down, Domains int
	Order                    []string
}

// Err returns an error if an update broke its limits, or deleted a pod.
func (w Waves) Err(l Limits) error {
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if w.gaps > 0 {
		say("the history has %d gaps", w.gaps)
	}
	if w.Deletions > 0 {
		say("%d pods were deleted without an eviction", w.Deletions)
	}
	if l.Evictions > 0 && w.Evictions != l.Evictions {
		say("%d pods were evicted, want %d", w.Evictions, l.Evictions)
	}
	if l.Down > 0 && w.MostDown > l.Down {
		say("%d pods of a domain were down at the same time, want at most %d", w.MostDown, l.Down)
	}
	if l.Domains > 0 && w.MostDomains > l.Domains {
		say("%d domains had pods down at the same time, want at most %d", w.MostDomains, l.Domains)
	}
	if len(l.Order) > 0 && !slices.Equal(w.Order, l.Order) {
		say("domains were updated as %s, want %s", strings.Join(w.Order, ", "), strings.Join(l.Order, ", "))
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("%s", strings.Join(wrong, "; "))
}
