package spread

import (
	"cmp"
	"slices"
	"time"
)

// Misplaced counts the pods that are in other domains than with the best spread. The domains are those where pods fit.
// Pods in other domains, such as a drained zone, are misplaced.
func Misplaced(pods []Pod, domains []string) int {
	if len(domains) == 0 {
		return 0
	}
	placed, counts := 0, map[string]int{}
	for i := range pods {
		if pods[i].Node != "" {
			placed++
			counts[pods[i].Domain]++
		}
	}
	share, more := placed/len(domains), placed%len(domains)
	misplaced := placed
	for i, domain := range slices.SortedFunc(slices.Values(domains), func(a, b string) int { return cmp.Compare(counts[b], counts[a]) }) {
		if i < more { // the fullest have one more
			misplaced -= min(counts[domain], share+1)
		} else {
			misplaced -= min(counts[domain], share)
		}
	}
	return misplaced
}

// Repair returns the pod to evict next, so that its replacement can improve the spread: the pod that its
// ReplicaSet would delete first, in the fullest domain that is not blocked. It returns false if no eviction can help, or
// while a pod is not ready. The domains are those where pods fit.
func Repair(pods []Pod, domains []string, now time.Time) (Pod, bool) {
	if len(domains) == 0 {
		return Pod{}, false
	}
	counts := map[string]int{}
	for i := range pods {
		if pods[i].Node == "" || !pods[i].Ready {
			return Pod{}, false
		}
		counts[pods[i].Domain]++
	}
	emptiest := counts[domains[0]]
	for _, d := range domains {
		emptiest = min(emptiest, counts[d])
	}
	r := NewRanking(pods, now)
	var best *Pod
	for i := range pods {
		p := &pods[i]
		if p.Blocked || counts[p.Domain] < emptiest+2 {
			continue
		}
		if best == nil || counts[p.Domain] > counts[best.Domain] || counts[p.Domain] == counts[best.Domain] && r.Before(p, best) {
			best = p
		}
	}
	if best == nil {
		return Pod{}, false
	}
	return *best, true
}
