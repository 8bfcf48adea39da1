package inspect

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing/explain"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// Change is a possible change of a Service.
type Change struct {
	// Zone fails, with its nodes and endpoints; empty if none does.
	Zone string `json:"zone,omitempty"`
	// Endpoints is the number of ready endpoints after the change, nil if it only loses those of the zone.
	Endpoints *int `json:"endpoints,omitempty"`
	// Algorithm is the new algorithm, empty for no change.
	Algorithm allocate.Algorithm `json:"algorithm,omitempty"`
}

// MostEndpoints is the greatest number of endpoints of a Change.
const MostEndpoints = 10000

// WhatIf is the effect of a change on a family of a Service. Both plans are new ones, as in plan.
type WhatIf struct {
	Namespace string    `json:"namespace"`
	Service   string    `json:"service"`
	Family    string    `json:"family"`
	Change    Change    `json:"change"`
	AsksFor   string    `json:"asksFor"`
	Now       *Prospect `json:"now,omitempty"`  // nil if no endpoint is ready
	Then      *Prospect `json:"then,omitempty"` // nil if no endpoint is left
	NoPlan    string    `json:"noPlan,omitempty"`
	Assumed   []string  `json:"assumed,omitempty"`
}

// Prospect is the result of a plan. Percentages are from 0 to 100.
type Prospect struct {
	Algorithm string   `json:"algorithm"`
	Endpoints int      `json:"endpoints"`
	Expected  *Figures `json:"expected"`
	Why       string   `json:"why"`
	Zones     []Zone   `json:"zones"`
	Flows     []Flow   `json:"flows"`
	Warnings  []string `json:"warnings,omitempty"`
}

// situation is one state of a Service, in place of manifests.
type situation struct {
	reading  *Reading
	families intent.Families
}

func (s situation) Defaults(string) []*v1alpha1.ClusterRoutingPolicy { return s.reading.Defaults }

func (s situation) Endpoints(*corev1.Service, *intent.Cluster) intent.Families {
	return s.families
}

func (s situation) GivesNames(*corev1.Service) bool { return intent.GivesNames(s.reading.Slices) }

// ForeseeChange predicts the effect of a change on each family of a Service. The cluster after it lacks the nodes of
// the failed zone.
func ForeseeChange(in Reading, change Change, after *intent.Cluster) ([]WhatIf, error) {
	if err := change.check(&in); err != nil {
		return nil, err
	}
	now := intent.SliceEndpoints(intent.ProxySlices(in.Service, in.Slices), in.Cluster)
	if len(now) == 0 {
		now = noEndpoints(in.Service)
	}
	then := intent.Families{}
	for family, endpoints := range now {
		then[family] = change.endpoints(endpoints, after)
	}
	var assumed []string
	if change.Endpoints != nil {
		assumed = append(assumed, "pods are added one by one in the zone with the fewest endpoints, and removed from the one with the most")
	}
	if change.Zone != "" {
		assumed = append(assumed, "the nodes of the zone are gone, and so is the traffic from there")
		if change.Endpoints == nil {
			assumed = append(assumed, "lost pods are not replaced in other zones")
		}
	}
	if len(in.Shifts) > 0 {
		assumed = append(assumed, "no zone shift is in force")
	}
	before, err := foresee(&in, in.Cluster, now, "")
	if err != nil {
		return nil, err
	}
	later, err := foresee(&in, after, then, change.Algorithm)
	if err != nil {
		return nil, err
	}
	all := []WhatIf{}
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		if _, found := now[family]; !found {
			continue
		}
		w := WhatIf{
			Namespace: in.Service.Namespace, Service: in.Service.Name, Family: string(family), Change: change,
			AsksFor: before.asksFor, NoPlan: before.noPlan, Now: before.prospects[family], Then: later.prospects[family], Assumed: assumed,
		}
		if w.NoPlan == "" && w.Now == nil && w.Then == nil {
			w.NoPlan = noEndpoint
		}
		all = append(all, w)
	}
	return all, nil
}

// noEndpoints returns the families of a Service without an endpoint.
func noEndpoints(service *corev1.Service) intent.Families {
	none := intent.Families{}
	for _, family := range service.Spec.IPFamilies {
		none[family] = nil
	}
	if len(none) == 0 {
		none[corev1.IPv4Protocol] = nil
	}
	return none
}

// check validates the change.
func (c *Change) check(in *Reading) error {
	switch zones := in.Cluster.Zones(); {
	case c.Zone != "" && !slices.Contains(zones, c.Zone):
		return fmt.Errorf("zone %q has no node; allowed are %s", c.Zone, plaintext.FirstOf(zones, mostNamed))
	case c.Endpoints != nil && (*c.Endpoints < 0 || *c.Endpoints > MostEndpoints):
		return fmt.Errorf("endpoints %d is not allowed; it must be from 0 to %d", *c.Endpoints, MostEndpoints)
	case c.Algorithm != "" && !slices.Contains(allocate.Algorithms(), c.Algorithm):
		return fmt.Errorf("algorithm %q is unknown; allowed are %v", c.Algorithm, allocate.Algorithms())
	}
	return nil
}

// endpoints returns the ready endpoints after the change.
func (c *Change) endpoints(now []intent.Endpoint, after *intent.Cluster) []intent.Endpoint {
	left := slices.DeleteFunc(slices.Clone(now), func(e intent.Endpoint) bool { return c.Zone != "" && e.Zone == c.Zone })
	if c.Endpoints == nil {
		return left
	}
	in := map[string]int{} // endpoints by zone
	for i := range left {
		in[left[i].Zone]++
	}
	for len(left) > *c.Endpoints {
		most := extreme(in, func(a, b int) bool { return a > b })
		last := len(left) - 1
		for left[last].Zone != most {
			last--
		}
		left = slices.Delete(left, last, last+1)
		in[most]--
	}
	where := map[string]int{} // endpoints by zone that can have pods
	for _, z := range after.Region(intent.Capacity{}, nil).Zones {
		if z.Capacity > 0 {
			where[z.Name] = in[z.Name]
		}
	}
	for len(left) < *c.Endpoints && len(where) > 0 {
		fewest := extreme(where, func(a, b int) bool { return a < b })
		left = append(left, intent.Endpoint{Address: fmt.Sprintf("new-%d", len(left)), Zone: fewest})
		where[fewest]++
	}
	return left
}

// extreme returns the zone whose number sorts first, the first by name of equals.
func extreme(in map[string]int, before func(a, b int) bool) string {
	chosen, found := "", false
	for zone, n := range in {
		if !found || before(n, in[chosen]) || n == in[chosen] && zone < chosen {
			chosen, found = zone, true
		}
	}
	return chosen
}

type foresight struct {
	asksFor, noPlan string
	prospects       map[corev1.IPFamily]*Prospect
}

// foresee plans for the endpoints of a Service in a cluster, by its own or another algorithm.
func foresee(in *Reading, cluster *intent.Cluster, families intent.Families, algorithm allocate.Algorithm) (foresight, error) {
	question := func(d allocate.Delivery) explain.Question {
		return explain.Question{Delivery: d, Algorithms: carried(d)}
	}
	p := Planner{
		Manifests: situation{in, families}, Policies: in.Policies, Cluster: cluster, Settings: in.Settings,
		Question: question(allocate.DeliveryHints), Groups: question(allocate.DeliveryGroups),
	}
	sections, err := p.Sections(in.Service)
	if err != nil {
		return foresight{}, err
	}
	f := foresight{prospects: map[corev1.IPFamily]*Prospect{}}
	for i := range sections {
		s := &sections[i]
		f.asksFor = s.AsksFor
		if s.NoPlan != "" {
			if s.NoPlan != noEndpoint {
				f.noPlan = s.NoPlan
			}
			continue
		}
		family := corev1.IPFamily(s.Family)
		for only := range families {
			if len(families) == 1 {
				family = only
			}
		}
		if f.prospects[family], err = s.prospect(algorithm); err != nil {
			return foresight{}, err
		}
	}
	return f, nil
}

func (s *Section) prospect(algorithm allocate.Algorithm) (*Prospect, error) {
	shown := s.Comparison.Asked
	if algorithm != "" {
		shown = slices.IndexFunc(s.Comparison.Options, func(o explain.Option) bool { return o.Algorithm == algorithm })
	}
	if shown < 0 {
		return nil, fmt.Errorf("algorithm %q cannot be delivered by %s to Service %s/%s", algorithm, s.Question.Delivery, s.Namespace, s.Service)
	}
	o := &s.Comparison.Options[shown]
	return &Prospect{
		Algorithm: OptionName(o), Endpoints: s.Question.Region.Endpoints(), Expected: figuresOf(o.Figures), Why: explain.Outcome(o.Outcome),
		Zones: s.zones(), Flows: planFlows(s.Question.Region, o.Plan), Warnings: s.Warnings,
	}, nil
}
