package disruption_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"vicinity.dev/vicinity/internal/disruption"
	"vicinity.dev/vicinity/test/golden"
)

var evening = time.Date(2026, 3, 1, 23, 0, 0, 0, time.UTC)

// shop has four pods in each of three zones.
func shop(limits disruption.Budget) *disruption.State {
	limits.Name, limits.Keys = "shop/web", []string{"topology.kubernetes.io/zone"}
	s := &disruption.State{
		Budget: limits, Domains: []string{"a", "b", "c"},
		Owners: []disruption.Owner{{ID: "StatefulSet/web", Replicas: 12}},
	}
	for i := range 12 {
		s.Pods = append(s.Pods, disruption.Pod{
			UID: fmt.Sprint(i), Name: fmt.Sprintf("web-%02d", i), Owner: "StatefulSet/web",
			Place: disruption.Covered, Domain: s.Domains[i%3], Ready: true, ReadySince: evening.Add(-time.Hour),
		})
	}
	return s
}

func reserve(s *disruption.State, pods ...int) {
	for _, i := range pods {
		s.Reservations = append(s.Reservations, disruption.Reservation{UID: s.Pods[i].UID, Pod: s.Pods[i].Name, Expires: evening.Add(90 * time.Second)})
	}
}

func TestDisruptionsGolden(t *testing.T) {
	one, half := &disruption.Amount{Value: 1}, &disruption.Amount{Value: 50, Percent: true}
	two, zones := &disruption.Amount{Value: 2}, 1
	var text strings.Builder
	for _, c := range []struct {
		name   string
		limits disruption.Budget
		change func(s *disruption.State)
		pod    string // "4" if empty, which is in zone b
	}{
		{name: "room", limits: disruption.Budget{MaxUnavailable: one}},
		{name: "one not ready", limits: disruption.Budget{MaxUnavailable: one}, change: func(s *disruption.State) { s.Pods[7].Ready = false }},
		{name: "three of them down", limits: disruption.Budget{MinAvailable: half}, change: func(s *disruption.State) {
			s.Pods[1].Ready, s.Pods[7].Ready = false, false
			s.Pods[10].Terminating = true
		}},
		{name: "a reservation", limits: disruption.Budget{MaxUnavailable: one}, change: func(s *disruption.State) { reserve(s, 10) }},
		{name: "a missing pod", limits: disruption.Budget{MaxUnavailable: one}, change: func(s *disruption.State) { s.Pods = append(s.Pods[:7], s.Pods[8:]...) }},
		{name: "a missing pod of any zone", limits: disruption.Budget{MaxUnavailable: one}, change: func(s *disruption.State) { s.Owners[0].Replicas++ }},
		{name: "a rollout", limits: disruption.Budget{MaxUnavailable: one}, change: func(s *disruption.State) {
			s.Pods[1].Ready, s.Pods[7].Ready = false, false
			s.Pods = append(s.Pods, disruption.Pod{UID: "new", Name: "web-new", Owner: "StatefulSet/web", Place: disruption.Covered, Domain: "b"})
		}},
		{name: "never", limits: disruption.Budget{MinAvailable: &disruption.Amount{Value: 4}}},
		{name: "a zone is free", limits: disruption.Budget{MaxUnavailable: new(disruption.Amount), Free: []string{"d"}, Advances: true}},
		{name: "a zone is free, which no command can change", limits: disruption.Budget{MaxUnavailable: new(disruption.Amount), Free: []string{"d"}}},
		{name: "total", limits: disruption.Budget{MaxUnavailable: two, MaxTotal: two}, change: func(s *disruption.State) {
			s.Pods[0].Ready, s.Pods[2].Ready = false, false
		}},
		{name: "another zone", limits: disruption.Budget{MaxUnavailable: half, MaxDomains: &zones}, change: func(s *disruption.State) {
			s.Pods[0].Ready, s.Pods[3].Terminating = false, true
		}},
		{name: "another zone settles", limits: disruption.Budget{MaxUnavailable: half, MaxDomains: &zones, Settle: time.Minute}, change: func(s *disruption.State) {
			s.Pods[0].ReadySince = evening.Add(-20 * time.Second)
		}},
		{name: "another zone is shifted", limits: disruption.Budget{MaxUnavailable: half, MaxDomains: &zones}, change: func(s *disruption.State) {
			s.Pods[0].Shift, s.Pods[2].Ready = disruption.Shift{Name: "out", Until: evening.Add(time.Hour)}, false
		}},
		{name: "two zones are down", limits: disruption.Budget{MaxUnavailable: half, MaxDomains: &zones}, change: func(s *disruption.State) {
			s.Pods[0].Ready, s.Pods[1].Ready = false, false
		}},
		{name: "no zone ever", limits: disruption.Budget{MaxUnavailable: half, MaxDomains: new(int)}},
		{name: "an unready pod", limits: disruption.Budget{MaxUnavailable: one}, change: func(s *disruption.State) { s.Pods[4].Ready = false }},
		{name: "an unready pod too many", limits: disruption.Budget{MaxUnavailable: one}, change: func(s *disruption.State) {
			s.Pods[4].Ready, s.Pods[7].Ready = false, false
		}},
		{name: "admitted before", limits: disruption.Budget{MaxUnavailable: one}, change: func(s *disruption.State) { reserve(s, 4) }},
		{name: "admitted too long before", limits: disruption.Budget{MaxUnavailable: one}, change: func(s *disruption.State) {
			reserve(s, 4)
			s.Reservations[0].Expires = evening.Add(time.Minute)
		}},
		{name: "terminating", limits: disruption.Budget{MaxUnavailable: one}, change: func(s *disruption.State) { s.Pods[4].Terminating = true }},
		{name: "not covered", limits: disruption.Budget{MaxUnavailable: one}, pod: "another"},
		{name: "break glass", limits: disruption.Budget{MaxUnavailable: one, BreakGlass: disruption.BreakGlass{Until: evening.Add(time.Hour), Reason: "the zone burns"}}},
		{name: "invalid", limits: disruption.Budget{Invalid: "spec.maxUnavailable: Required value: either minAvailable or maxUnavailable must be given"}},
		{name: "groups", limits: disruption.Budget{MaxUnavailable: one}, change: func(s *disruption.State) {
			s.Owners[0].Group = "shard-1"
			for i := range s.Pods {
				s.Pods[i].Group = "shard-1"
			}
			s.Pods[7].Ready = false
		}},
		{name: "no keys", limits: disruption.Budget{MaxUnavailable: one}, change: func(s *disruption.State) {
			s.Budget.Keys, s.Domains = nil, []string{""}
			for i := range s.Pods {
				s.Pods[i].Domain = ""
			}
			s.Pods[7].Ready = false
		}},
	} {
		s := shop(c.limits)
		if c.change != nil {
			c.change(s)
		}
		if c.pod == "" {
			c.pod = "4"
		}
		d := disruption.Decide(s, c.pod, evening)
		fmt.Fprintf(&text, "# %s (%s)\n%s\n", c.name, d.Rule, d.Brief())
		for _, line := range d.Lines()[1:] {
			fmt.Fprintf(&text, "  %s\n", line)
		}
		text.WriteString("\n")
	}
	golden.Compare(t, "testdata/disruptions.txt", text.String())
}

func TestBriefIsShort(t *testing.T) {
	zones := 1
	s := shop(disruption.Budget{MaxUnavailable: &disruption.Amount{Value: 1}, MaxDomains: &zones})
	s.Budget.Name = strings.Repeat("n", 63) + "/" + strings.Repeat("b", 253)
	for i := range 400 {
		zone := fmt.Sprintf("%s%d", strings.Repeat("z", 60), i/10)
		if i%10 == 0 {
			s.Domains = append(s.Domains, zone)
		}
		s.Pods = append(s.Pods, disruption.Pod{
			UID: fmt.Sprint("more", i), Name: fmt.Sprintf("%s%d", strings.Repeat("p", 250), i), Place: disruption.Covered, Domain: zone, Ready: i%3 > 0,
		})
	}
	for _, uid := range []string{"4", "more8"} {
		if got := disruption.Decide(s, uid, evening).Brief(); len(got) > 1000 || !strings.Contains(got, " more") {
			t.Errorf("%d bytes: %s", len(got), got)
		}
	}
	s.Budget.Invalid = strings.Repeat("ä", 2000)
	if got := disruption.Decide(s, "4", evening).Brief(); len(got) > 1000 || strings.Contains(got, "\ufffd") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}
