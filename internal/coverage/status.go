package coverage

import (
	"cmp"
	"math"
	"slices"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
)

// MaxDomains bounds the domains of a status.
const MaxDomains = 500

// Status writes measures into a status. It leaves reservations, podsObserved and conditions alone: others write these.
func Status(status *v1alpha1.TopologyDisruptionBudgetStatus, generation int64, m disruption.Measures) {
	status.ObservedGeneration = generation
	status.ExpectedPods, status.CurrentHealthy = count(m.Expected), count(m.Healthy)
	status.DesiredHealthy, status.DisruptionsAllowed = count(m.Desired), count(m.Allowed)
	status.DisturbedDomains = count(m.Disturbed)
	status.Domains = domainsOf(m.Domains)
}

// domainsOf lists domains by group and name. If there are too many, it keeps those that allow the least.
func domainsOf(measures []disruption.DomainMeasure) []v1alpha1.DomainStatus {
	listed := slices.Clone(measures)
	if len(listed) > MaxDomains {
		slices.SortStableFunc(listed, func(a, b disruption.DomainMeasure) int {
			return cmp.Or(cmp.Compare(a.Allowed, b.Allowed), compareBools(b.Disturbed, a.Disturbed), comparePlaces(a, b))
		})
		listed = listed[:MaxDomains]
	}
	slices.SortStableFunc(listed, comparePlaces)
	domains := make([]v1alpha1.DomainStatus, len(listed))
	for i, m := range listed {
		domains[i] = v1alpha1.DomainStatus{
			Domain: m.Domain, Group: m.Group, Expected: count(m.Expected), Healthy: count(m.Healthy),
			Desired: count(m.Desired), Allowed: count(m.Allowed), Disturbed: m.Disturbed,
		}
	}
	return domains
}

func comparePlaces(a, b disruption.DomainMeasure) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Domain, b.Domain))
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func count(n int) int32 { return int32(min(max(n, 0), math.MaxInt32)) }
