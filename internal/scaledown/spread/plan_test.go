package spread

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// parse reads pods as SET/DOMAIN/NODE=COST. An ! marks the cost of another owner.
func parse(text string) []Pod {
	var pods []Pod
	for i, field := range strings.Fields(text) {
		where, cost, _ := strings.Cut(field, "=")
		part := strings.Split(where, "/")
		p := Pod{Name: fmt.Sprintf("p%d", i), Set: part[0], Domain: part[1], Node: part[1] + part[2], Phase: Running, Ready: true}
		if p.Foreign = strings.HasSuffix(cost, "!"); cost != "" {
			if _, err := fmt.Sscan(strings.TrimSuffix(cost, "!"), &p.Cost); err != nil {
				panic(err)
			}
		}
		pods = append(pods, p)
	}
	return pods
}

func block(pods []Pod, domain string) {
	for i := range pods {
		pods[i].Blocked = pods[i].Domain == domain
	}
}

func TestPlan(t *testing.T) {
	for _, test := range []struct {
		name, pods, blocked string
		want                string
	}{
		{name: "no pods"},
		{name: "one of each domain needs nothing", pods: "s/a/1 s/b/1 s/c/1"},
		{name: "one domain needs nothing", pods: "s/a/1 s/a/2 s/a/3"},
		{name: "the fullest domain first", pods: "s/a/1 s/a/2 s/b/1", want: "p0=-2 p2=-1 p1=-1"},
		{name: "the fullest node of a domain first", pods: "s/a/1=-1 s/a/1=-2 s/a/2=-3 s/b/1=-1", want: "p0=-3 p2=-1"},
		{name: "the order of nodes alone is wrong", pods: "s/a/1=-1 s/a/1=-2 s/a/2=-3 s/b/1=-1 s/b/2=-2 s/b/3=-3", want: "p0=-3 p2=-1"},
		{name: "an order that is right with other costs", pods: "s/a/1=7 s/a/2=40 s/b/1=50"},
		{name: "an order that depends on luck", pods: "s/a/1=7 s/a/2=40 s/b/1=7", want: "p0=-2 p2=-1 p1=-1"},
		{name: "a new pod", pods: "s/a/1=-1 s/a/2=-2 s/b/1=-1 s/b/2", want: "p3=-2"},
		{name: "a deleted pod", pods: "s/a/2=-2 s/a/3=-3 s/b/1=-1 s/b/2=-2", want: "p1=-1"},
		{name: "pods of another ReplicaSet lie below", pods: "old/a/1 old/b/1 new/a/2", want: "p0=-2 p1=-1"},
		{name: "domains without allowance last", pods: "s/a/1=-1 s/a/2=-2 s/b/1=-1", blocked: "a", want: "p1=999998 p0=999999"},
		{name: "no domain has an allowance", pods: "s/a/1=-1 s/a/2=-2", blocked: "a"},
		{name: "a low cost of another owner", pods: "s/a/1=-9! s/b/1 s/b/2", want: "p1=990 p2=991"},
		{name: "a high cost of another owner", pods: "s/a/1=9! s/b/1 s/b/2 s/a/2", want: "p3=-2 p1=-2 p2=-1"},
		{name: "no room", pods: "s/a/1=-1! s/b/1 s/b/2 s/c/1=1!", want: "crowded s"},
		{name: "no room for withheld pods", pods: fmt.Sprintf("s/a/1=%d! s/b/1 s/b/2", math.MaxInt32), blocked: "b", want: "crowded s"},
	} {
		t.Run(test.name, func(t *testing.T) {
			pods := parse(test.pods)
			block(pods, test.blocked)
			before := slices.Clone(pods)
			plan := NewPlan(pods)
			var got []string
			for _, c := range plan.Changes {
				got = append(got, fmt.Sprintf("%s=%d", c.Pod, c.Cost))
			}
			for _, set := range plan.Crowded {
				got = append(got, "crowded "+set)
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("the plan is %q, want %q", got, test.want)
			}
			if !slices.Equal(pods, before) {
				t.Error("the pods were changed")
			}
		})
	}
}

// Each case has one difference, and the pod that ReplicaSets of Kubernetes 1.37 delete first in front.
func TestRanking(t *testing.T) {
	ago := func(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }
	base := Pod{Name: "a", Set: "s", Node: "n", Domain: "d", Phase: Running, Ready: true, UID: "m", ReadySince: ago(100), Created: ago(100)}
	type edit = func(*Pod)
	for _, test := range []struct {
		name          string
		first, second edit
	}{
		{"without a node", func(p *Pod) { p.Node, p.Restarts = "", 0 }, func(p *Pod) { p.Phase, p.Cost = Pending, -9 }},
		{"pending", func(p *Pod) { p.Phase = Pending }, func(p *Pod) { p.Phase, p.Ready = Unknown, false }},
		{"of an unknown phase", func(p *Pod) { p.Phase = Unknown }, func(p *Pod) { p.Ready = false }},
		{"not ready", func(p *Pod) { p.Ready, p.Cost = false, 9 }, func(p *Pod) { p.Cost = -9 }},
		{"the lower cost", func(p *Pod) { p.Cost, p.Node = -1, "alone" }, func(*Pod) {}},
		{"on a fuller node", func(*Pod) {}, func(p *Pod) { p.Node, p.ReadySince = "alone", ago(1) }},
		{"ready for less time", func(p *Pod) { p.ReadySince = ago(10) }, func(p *Pod) { p.Restarts = 9 }},
		{"ready for as long by magnitude", func(p *Pod) { p.ReadySince, p.UID = ago(101), "l" }, func(p *Pod) { p.Restarts = 9 }},
		{"ready since an unknown time", func(p *Pod) { p.ReadySince = time.Time{} }, func(p *Pod) { p.ReadySince = ago(1) }},
		{"more restarts", func(p *Pod) { p.Restarts = 1 }, func(p *Pod) { p.SidecarRestarts, p.Created = 9, ago(1) }},
		{"more restarts of sidecars", func(p *Pod) { p.SidecarRestarts = 1 }, func(p *Pod) { p.Created = ago(1) }},
		{"younger", func(p *Pod) { p.Created, p.UID = ago(10), "z" }, func(*Pod) {}},
		{"made in the future", func(p *Pod) { p.Created, p.UID = ago(-10), "z" }, func(p *Pod) { p.Created = ago(1) }},
		{"as old by magnitude", func(p *Pod) { p.Created, p.UID = ago(101), "l" }, func(*Pod) {}},
	} {
		t.Run(test.name, func(t *testing.T) {
			first, second, third := base, base, base
			second.Name, third.Name = "b", "c"
			test.first(&first)
			test.second(&second)
			r := NewRanking([]Pod{first, second, third}, now)
			if !r.Before(&first, &second) || r.Before(&second, &first) {
				t.Error("the other one goes first")
			}
		})
	}
	if r := NewRanking(nil, now); r.Before(&base, &base) {
		t.Error("a pod goes before itself")
	}
}

func TestRepair(t *testing.T) {
	for _, test := range []struct {
		name, pods, domains, blocked string
		edit                         func([]Pod)
		want                         string
		misplaced                    int
	}{
		{name: "no pods", domains: "a b"},
		{name: "no domains", pods: "s/a/1 s/a/2"},
		{name: "as good as it gets", pods: "s/a/1 s/a/2 s/b/1", domains: "a b"},
		{name: "a skew", pods: "s/a/1=-3 s/a/2=-4 s/a/3=-2 s/b/1=-9", domains: "a b", want: "p1", misplaced: 1},
		{name: "an empty domain", pods: "s/a/1=-1 s/a/2=-2 s/b/1=-1 s/b/2=-2", domains: "a b c", want: "p1", misplaced: 1},
		{name: "the fullest may not", pods: "s/a/1 s/a/2 s/a/3 s/b/1=-1 s/b/2=-2", domains: "a b c", blocked: "a", want: "p4", misplaced: 1},
		{name: "a domain where no pod can be", pods: "s/a/1 s/a/2 s/b/1=-1", domains: "a c", want: "p0", misplaced: 1},
		{name: "a pod is not ready", pods: "s/a/1 s/a/2 s/a/3", domains: "a b", edit: func(p []Pod) { p[2].Ready = false }, misplaced: 1},
		{name: "a pod has no node", pods: "s/a/1 s/a/2 s/a/3 s/a/4", domains: "a b", edit: func(p []Pod) { p[2].Node = "" }, misplaced: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			pods := parse(test.pods)
			if test.edit != nil {
				test.edit(pods)
			}
			domains := strings.Fields(test.domains)
			block(pods, test.blocked)
			got, _ := Repair(pods, domains, now)
			if misplaced := Misplaced(pods, domains); got.Name != test.want || misplaced != test.misplaced {
				t.Errorf("%q is moved and %d are misplaced, want %q and %d", got.Name, misplaced, test.want, test.misplaced)
			}
		})
	}
}
