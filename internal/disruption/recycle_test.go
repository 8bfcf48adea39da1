package disruption

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// recycling drains one zone after the other, a pod at a time, under a budget that allows all
// of one zone to be down. What becomes of the pods is up to the kind of workload.
type recycling struct {
	s   *State
	now time.Time
	// backTo is where the replacement of a pod of a zone goes while that zone is drained, ""
	// if it waits for the zone.
	backTo func(zone string, made int) string
	made   int
	from   map[string]string // which zone the pod was in that an unplaced one replaces, by UID
}

// round evicts one pod of a zone if the budget allows it, and has the world go on.
func (r *recycling) round(t *testing.T, zone string, before map[string]bool) {
	tally := NewTally(r.s, r.now)
	for i := range r.s.Pods {
		p := &r.s.Pods[i]
		if p.Domain != zone || !before[p.UID] || p.Place != Covered || p.Terminating {
			continue
		}
		if tally.Decide(p.UID).Allowed {
			for _, other := range r.s.Pods {
				if other.Place == Covered && other.Domain != zone && !other.isHealthy() {
					t.Fatalf("%s of zone %s is evicted while %s of zone %s is down", p.Name, zone, other.Name, other.Domain)
				}
			}
			tally.Reserve(p.UID, "")
			p.Terminating = true
			break
		}
	}
	r.s.Disturbed = nil
	for _, m := range tally.Measures().Domains {
		if m.Disturbed {
			r.s.Disturbed = append(r.s.Disturbed, DomainKey{Domain: m.Domain})
		}
	}
	r.now = r.now.Add(10 * time.Second)
	var next []Pod
	for _, p := range r.s.Pods {
		switch {
		case p.Terminating:
			r.made++
			name := fmt.Sprintf("web-%03d", r.made)
			r.from[name] = p.Domain
			p = Pod{UID: name, Name: name, Owner: p.Owner, Pending: true}
		case p.Place == Unplaced:
			if back := r.backTo(r.from[p.UID], r.made); back != "" {
				p.Place, p.Domain = Covered, back
			}
		case p.Pending:
			p.Pending, p.Ready, p.ReadySince = false, true, r.now
		}
		next = append(next, p)
	}
	slices.SortFunc(next, func(a, b Pod) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	r.s.Pods = next
}

func TestZonesAreRecycledOneAfterTheOther(t *testing.T) {
	zones := []string{"a", "b", "c"}
	for replicas := 3; replicas <= 12; replicas++ {
		for _, kind := range []string{"volumes in the zone", "another zone", "the same zone"} {
			t.Run(fmt.Sprintf("%d replicas, %s", replicas, kind), func(t *testing.T) {
				s := &State{
					Budget: Budget{MaxUnavailable: percent(100), MaxDomains: limit(1), Settle: 30 * time.Second}, Domains: zones,
					Owners: []Owner{{ID: "web", Replicas: replicas}},
				}
				r := &recycling{s: s, now: start, made: replicas, from: map[string]string{}}
				for i := range replicas {
					name := fmt.Sprintf("web-%03d", i+1)
					s.Pods = append(s.Pods, Pod{UID: name, Name: name, Owner: "web", Place: Covered, Domain: zones[i%3], Ready: true, ReadySince: start.Add(-time.Hour)})
				}
				for at, zone := range zones {
					draining := true
					r.backTo = func(from string, made int) string {
						switch {
						case kind == "the same zone" || !draining:
							return from
						case kind == "another zone":
							return zones[(at+1+made%2)%3]
						}
						return ""
					}
					before := map[string]bool{}
					for _, p := range s.Pods {
						before[p.UID] = true
					}
					rounds := 0
					for slices.ContainsFunc(s.Pods, func(p Pod) bool { return p.Domain == zone && before[p.UID] }) {
						if rounds++; rounds > 20*replicas {
							t.Fatalf("zone %s is not empty: %+v", zone, Measure(s, r.now))
						}
						r.round(t, zone, before)
					}
					draining = false
					for range 6 {
						r.round(t, "", before)
					}
				}
			})
		}
	}
}
