package spread

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Misplaced is how many pods are in other domains than they would be with the best spread. The domains
// are those in which pods can be; pods in others, as in a zone that is being drained, are misplaced.
func Misplaced(pods []Pod, domains []string) int {
	counts := countsOf(pods, domains)
	placed := 0
	for i := range pods {
		if pods[i].Node != "" {
			placed++
		}
	}
	if len(domains) == 0 {
		return 0
	}
	misplaced := placed
	for _, n := range counts {
		misplaced -= n
	}
	share, more := placed/len(domains), placed%len(domains)
	for _, n := range counts { // the fullest first
		if more > 0 {
			misplaced += max(0, n-share-1)
			more--
		} else {
			misplaced += max(0, n-share)
		}
	}
	return misplaced
}

// countsOf are the numbers of pods of domains, the largest first.
func countsOf(pods []Pod, domains []string) []int {
	counts := map[string]int{}
	for _, d := range domains {
		counts[d] = 0
	}
	for i := range pods {
		if _, known := counts[pods[i].Domain]; known && pods[i].Node != "" {
			counts[pods[i].Domain]++
		}
	}
	return slices.SortedFunc(maps.Values(counts), func(a, b int) int { return cmp.Compare(b, a) })
}

// Repair is the pod to evict next so that the one that comes instead can make the spread better, false if
// none can: one that its ReplicaSet would delete first, in the fullest domain that is not blocked. The
// domains are those in which pods can be. It is about pods that are all ready: with one that is not, wait.
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
