package disruption

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// pods draws a State: each word is a domain, a colon and a letter for each of its pods.
// Domain "-" has pods without a place and "!" those on nodes that are not covered. Pods are
// named by their domain and number, as in a1.
//
//	R ready   S ready since 10 s   U not ready   P pending   T terminating   F finished   X ready and reserved
func pods(drawn string, owners ...Owner) *State {
	s := &State{Owners: owners}
	for _, word := range strings.Fields(drawn) {
		domain, letters, _ := strings.Cut(word, ":")
		place := Covered
		switch domain {
		case "-":
			place = Unplaced
		case "!":
			place = Uncovered
		default:
			s.Domains = append(s.Domains, domain)
		}
		for i, letter := range letters {
			name := fmt.Sprintf("%s%d", domain, i+1)
			p := Pod{UID: name, Name: name, Place: place, Domain: domain, ReadySince: start.Add(-time.Hour)}
			if place != Covered {
				p.Domain = ""
			}
			if len(owners) > 0 {
				p.Owner = owners[0].ID
			}
			p.Pending = letter == 'P'
			p.Finished = letter == 'F'
			p.Terminating = letter == 'T'
			p.Ready = strings.ContainsRune("RSXT", letter)
			if letter == 'S' {
				p.ReadySince = start.Add(-10 * time.Second)
			}
			if letter == 'X' {
				s.Reservations = append(s.Reservations, Reservation{UID: name, Pod: name, Expires: start.Add(90 * time.Second)})
			}
			s.Pods = append(s.Pods, p)
		}
	}
	return s
}

func replicas(n int) Owner { return Owner{ID: "StatefulSet/web", Replicas: n} }

func number(n int) *Amount   { return &Amount{Value: n} }
func percent(n int) *Amount  { return &Amount{Value: n, Percent: true} }
func limit(domains int) *int { return &domains }

// with has a State with the limits of a budget, changed.
func (s *State) with(b Budget, changes ...func(s *State)) *State {
	s.Budget = b
	for _, change := range changes {
		change(s)
	}
	return s
}

func (s *State) pod(name string) *Pod {
	return &s.Pods[slices.IndexFunc(s.Pods, func(p Pod) bool { return p.Name == name })]
}

func TestRules(t *testing.T) {
	one := Budget{MaxUnavailable: number(1)}
	zoneAtATime := Budget{MaxUnavailable: percent(100), MaxDomains: limit(1), Settle: time.Minute}
	wasDisturbed := func(domains ...string) func(s *State) {
		return func(s *State) {
			for _, name := range domains {
				s.Disturbed = append(s.Disturbed, DomainKey{Domain: name})
			}
		}
	}
	shifted := func(pods ...string) func(s *State) {
		return func(s *State) {
			for _, name := range pods {
				s.pod(name).Shift = Shift{"out", start.Add(time.Hour)}
			}
		}
	}
	inGroup := func(group string, pods ...string) func(s *State) {
		return func(s *State) {
			for _, name := range pods {
				s.pod(name).Group = group
			}
		}
	}
	for _, test := range []struct {
		name  string
		state *State
		// want are the rules by pod, as in "a1=Within"; other pods are not asked about.
		want string
	}{
		{
			"a domain may have as many down as the budget says",
			pods("a:RRR b:RRU c:RRR", replicas(9)).with(one),
			"a1=Within b1=Domain c1=Within",
		},
		{
			"a replacement that does not exist yet counts as down",
			pods("a:RR b:RRR c:RRR", replicas(9)).with(one),
			"a1=Domain b1=Within c1=Within",
		},
		{
			"a replacement that is not scheduled yet counts as down",
			pods("a:RR b:RRR c:RRR -:P", replicas(9)).with(one),
			"a1=Domain b1=Within -1=Gone",
		},
		{
			"a pod that ends counts as down until it is gone",
			pods("a:RRT b:RRR c:RRR", replicas(9)).with(one),
			"a1=Domain a3=Gone b1=Within",
		},
		{
			"a reserved pod counts as down",
			pods("a:RRX b:RRR c:RRR", replicas(9)).with(one),
			"a1=Domain a3=Reserved b1=Within",
		},
		{
			"a reservation that has expired counts no more",
			pods("a:RRX b:RRR", replicas(6)).with(one, func(s *State) { s.Reservations[0].Expires = start }),
			"a1=Within a3=Within",
		},
		{
			"a reservation that ends during an eviction admits none",
			pods("a:RRX b:RRR", replicas(6)).with(one, func(s *State) {
				s.Reservations[0].Expires = start.Add(EvictionTime + ClockSkew - time.Second)
			}),
			"a1=Domain a3=Expiring",
		},
		{
			"missing pods are of the domains with the largest deficits",
			pods("a:RRR b:RR c:R", replicas(9)).with(Budget{MaxUnavailable: number(2)}), // 3 are missing: c 2, b 1
			"a1=Within b1=Within c1=Domain",
		},
		{
			"a missing pod that no domain lacks counts against every domain",
			pods("a:RR b:RR c:RR", replicas(7)).with(one),
			"a1=Domain b1=Domain c1=Domain",
		},
		{
			"a pod that can only be in one domain is missing there",
			pods("a:RR b:RR c:RR -:P", replicas(7)).with(one, func(s *State) { s.pod("-1").Domain = "b" }),
			"a1=Within b1=Domain c1=Within",
		},
		{
			"a total holds over all domains",
			pods("a:RRU b:RRU c:RRR", replicas(9)).with(Budget{MaxUnavailable: number(1), MaxTotal: number(2)}),
			"c1=Total a1=Domain",
		},
		{
			"pods that are down in one domain close the others",
			pods("a:RRU b:RRR c:RRR", replicas(9)).with(zoneAtATime),
			"a1=Within b1=Domains c1=Domains",
		},
		{
			"a domain is disturbed until its pods have settled",
			pods("a:RRS b:RRR", replicas(6)).with(zoneAtATime),
			"a1=Within a3=Within b1=Domains",
		},
		{
			"a ZoneShift of one pod closes the other domains, and not its own",
			pods("a:RRR b:RRR c:RRR", replicas(9)).with(zoneAtATime, shifted("a2")),
			"a1=Within a2=Within b1=Domains c1=Domains",
		},
		{
			"a ZoneShift counts no pod as down",
			pods("a:RRR b:RRR c:RRR", replicas(9)).with(Budget{MaxUnavailable: number(1), MaxTotal: number(1), MaxDomains: limit(2)}, shifted("a1", "a2", "a3")),
			"a1=Within b1=Within",
		},
		{
			"a ZoneShift and a pod that is down are two domains",
			pods("a:RRR b:RRU c:RRR", replicas(9)).with(Budget{MaxUnavailable: number(2), MaxDomains: limit(2)}, shifted("a1")),
			"a1=Within b1=Within c1=Domains",
		},
		{
			"a ZoneShift that is over closes nothing",
			pods("a:RRR b:RRR", replicas(6)).with(zoneAtATime, shifted("a1"), func(s *State) { s.pod("a1").Shift.Until = start }),
			"b1=Within",
		},
		{
			"a missing pod that may be of any domain closes all",
			pods("a:RR b:RR c:RR", replicas(7)).with(zoneAtATime),
			"a1=Domains b1=Domains c1=Domains",
		},
		{
			"a missing pod that may be of any domain is of the one that was disturbed",
			pods("a:RR b:RR c:RR", replicas(7)).with(zoneAtATime, wasDisturbed("b")),
			"a1=Domains b1=Within c1=Domains",
		},
		{
			"a zone is emptied while its pods cannot come back",
			pods("a:R b:RR c:RR -:P", replicas(6)).with(zoneAtATime, wasDisturbed("a")),
			"a1=Within b1=Domains",
		},
		{
			"a zone continues once the replacement in another has settled",
			pods("a:R b:RRR c:RR", replicas(6)).with(zoneAtATime, wasDisturbed("a", "b")),
			"a1=Within b1=Within c1=Within",
		},
		{
			"a zone waits while the replacement in another settles",
			pods("a:R b:RRS c:RR", replicas(6)).with(zoneAtATime, wasDisturbed("a")),
			"a1=Domains c1=Domains",
		},
		{
			"an unready pod goes while the budget is kept without it",
			pods("a:RRU b:RRR", replicas(6)).with(one),
			"a3=Unhealthy",
		},
		{
			"an unready pod stays while the budget is exceeded",
			pods("a:RUU b:RRR", replicas(6)).with(one),
			"a2=UnhealthyNo a3=UnhealthyNo",
		},
		{
			"an unready pod always goes with AlwaysAllow",
			pods("a:RUU b:RRR", replicas(6)).with(Budget{MaxUnavailable: number(1), AlwaysAllowUnhealthy: true}),
			"a2=Unhealthy a1=Domain",
		},
		{
			"pods on nodes that are not covered go, and are not expected in domains",
			pods("a:RR b:RR !:RRR", replicas(7)).with(one),
			"!1=NotCovered a1=Within",
		},
		{
			"pods of a Deployment that surges do not count as down where they are too many",
			pods("a:RRU b:RR", replicas(4)).with(one),
			"a1=Within b1=Within",
		},
		{
			"a Deployment that surges in one domain covers for none in another",
			pods("a:RRR b:RU", replicas(4)).with(one),
			"a1=Within b1=Domain",
		},
		{
			"old pods of a rollout that end do not count as down",
			pods("a:RRT b:RR", replicas(4)).with(one),
			"a1=Within b1=Within",
		},
		{
			"surplus pods that are healthy are not spent twice",
			pods("a:RRX b:RR", replicas(4)).with(one),
			"a1=Domain b1=Within",
		},
		{
			"pods without an owner are expected as they are",
			pods("a:RR b:R -:P").with(one),
			"a1=Within b1=Domain",
		},
		{
			"without domains nothing is covered",
			pods("!:R -:P", replicas(2)).with(Budget{MaxUnavailable: number(0), MaxDomains: limit(0)}),
			"!1=NotCovered -1=Gone other=NotCovered",
		},
		{
			"a budget without keys is one domain",
			pods("all:RRU", replicas(3)).with(one),
			"all1=Domain all3=Unhealthy",
		},
		{
			"groups have budgets of their own",
			pods("a:RRRU b:RRRR", Owner{ID: "One", Replicas: 4, Group: "1"}, Owner{ID: "Two", Replicas: 4, Group: "2"}).with(one,
				inGroup("1", "a1", "a2", "b1", "b2"), inGroup("2", "a3", "a4", "b3", "b4"), func(s *State) {
					for _, name := range []string{"a3", "a4", "b3", "b4"} {
						s.pod(name).Owner = "Two"
					}
					for _, name := range []string{"a1", "a2", "b1", "b2"} {
						s.pod(name).Owner = "One"
					}
				}),
			"a1=Within a3=Domain b3=Within",
		},
		{
			"break glass lets everything through",
			pods("a:RU b:RR", replicas(4)).with(Budget{MaxUnavailable: number(0), BreakGlass: BreakGlass{Until: start.Add(time.Second)}}),
			"a1=BreakGlass a2=BreakGlass",
		},
		{
			"an invalid budget keeps all pods that run",
			pods("a:RT b:R !:R", replicas(3)).with(Budget{Invalid: "no limit"}),
			"a1=Invalid a2=Gone !1=Invalid",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, word := range strings.Fields(test.want) {
				name, _, _ := strings.Cut(word, "=")
				got = append(got, fmt.Sprintf("%s=%s", name, Decide(test.state, name, start).Rule))
			}
			if got := strings.Join(got, " "); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// Only evictions that wait for time alone get a time to retry.
func TestRetryAt(t *testing.T) {
	settle := Budget{MaxUnavailable: number(1), MaxDomains: limit(1), Settle: time.Minute}
	in := start.Add
	for _, test := range []struct {
		name  string
		state *State
		pod   string
		want  time.Time
	}{
		{"a reservation expires", pods("a:RRX", replicas(3)).with(Budget{MaxUnavailable: number(1)}), "a1", in(90 * time.Second)},
		{"a pod has to become ready", pods("a:RRU", replicas(3)).with(Budget{MaxUnavailable: number(1)}), "a1", time.Time{}},
		{"a domain settles", pods("a:RS b:RR", replicas(4)).with(settle), "b1", in(50 * time.Second)},
		{"a domain settles once a reservation has expired", pods("a:SX b:RR", replicas(4)).with(settle), "b1", in(90 * time.Second)},
		{"a pod is missing", pods("a:S b:RR", replicas(4)).with(settle), "b1", time.Time{}},
		{"the break glass ends", pods("a:R").with(Budget{MaxUnavailable: number(1), BreakGlass: BreakGlass{Until: in(time.Hour)}}), "a1", in(time.Hour)},
		{"nothing is denied", pods("a:R").with(Budget{MaxUnavailable: number(1)}), "a1", time.Time{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Decide(test.state, test.pod, start).RetryAt; !got.Equal(test.want) {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestBlockedForEver(t *testing.T) {
	for _, test := range []struct {
		name  string
		state *State
		want  []string
	}{
		{"4 of 2 are needed, and 4 of 4", pods("a:RRRRRR b:RRRU c:RR", replicas(12)).with(Budget{MinAvailable: percent(80)}), []string{"b", "c"}},
		{"pods are down", pods("a:RU b:UU", replicas(4)).with(Budget{MinAvailable: number(1)}), nil},
		{"a pod is missing", pods("a:R b:RR", replicas(4)).with(Budget{MinAvailable: number(1)}), nil},
		{"none may be down", pods("a:R b:RR c:", replicas(3)).with(Budget{MaxUnavailable: percent(0)}), []string{"a", "b"}},
		{"none in all", pods("a:R", replicas(1)).with(Budget{MaxUnavailable: number(1), MaxTotal: number(0)}), []string{"a"}},
		{"no domain", pods("a:R", replicas(1)).with(Budget{MaxUnavailable: number(1), MaxDomains: limit(0)}), []string{"a"}},
		{"no replicas", pods("a:R", replicas(0)).with(Budget{MaxUnavailable: percent(10)}), nil},
		{"invalid", pods("a:R", replicas(1)).with(Budget{Invalid: "no limit"}), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, m := range Measure(test.state, start).Blocked {
				got = append(got, m.Domain)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestAmountOf(t *testing.T) {
	for _, test := range []struct {
		amount            Amount
		expected, domains int
		want              int
	}{
		{Amount{Value: 3}, 100, 3, 3},
		{Amount{Value: 80, Percent: true}, 12, 3, 4},
		{Amount{Value: 50, Percent: true}, 6, 3, 1},
		{Amount{Value: 50, Percent: true}, 7, 3, 2},
		{Amount{Value: 1, Percent: true}, 1, 3, 1},
		{Amount{Value: 100, Percent: true}, 10, 3, 4},
		{Amount{Value: 0, Percent: true}, 10, 3, 0},
		{Amount{Value: 30, Percent: true}, 10, 0, 3},
	} {
		if got := test.amount.Of(test.expected, test.domains); got != test.want {
			t.Errorf("%+v of %d in %d is %d, want %d", test.amount, test.expected, test.domains, got, test.want)
		}
	}
}
