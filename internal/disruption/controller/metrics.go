package controller

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/shell"
)

type metrics struct {
	syncs   *prometheus.CounterVec
	writes  prometheus.Counter
	budgets *collector
}

func newMetrics(views *shell.Notes[types.NamespacedName, view], now clock.PassiveClock, top int) *metrics {
	return &metrics{
		syncs: shell.NewCounter("vicinity_budget_syncs_total", "Syncs of TopologyDisruptionBudgets, by result.", "result", shell.Outcomes()...),
		writes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "vicinity_budget_status_writes_total",
			Help: "Writes of the status of TopologyDisruptionBudgets by the controller, except for reservations.",
		}),
		budgets: newCollector(views, now, top),
	}
}

func (m *metrics) register() error { return shell.Register(m.syncs, m.writes, m.budgets) }

func (m *metrics) synced(outcome shell.Outcome) { m.syncs.WithLabelValues(string(outcome)).Inc() }

// States of a budget.
const (
	stateAllowing   = "allowing"
	stateBlocked    = "blocked"
	stateInvalid    = "invalid"
	stateBreakGlass = "break-glass"
)

// topDomains is the number of domains of a budget with their own metrics.
const topDomains = 20

// collector counts budgets at each scrape. Only the budgets that allow the least have their own series, which bounds the number of series.
type collector struct {
	views *shell.Notes[types.NamespacedName, view]
	clock clock.PassiveClock
	top   int

	budgets, allowed, domainAllowed, blocked *prometheus.Desc
}

func newCollector(views *shell.Notes[types.NamespacedName, view], now clock.PassiveClock, top int) *collector {
	one := []string{"namespace", "budget"}
	return &collector{
		views: views, clock: now, top: top,
		budgets:       prometheus.NewDesc("vicinity_budgets", "TopologyDisruptionBudgets, by state.", []string{"enforced", "state"}, nil),
		allowed:       prometheus.NewDesc("vicinity_budget_allowed_disruptions", "Pods that a TopologyDisruptionBudget allows to evict now.", one, nil),
		domainAllowed: prometheus.NewDesc("vicinity_budget_domain_allowed_disruptions", "Pods of a failure domain that a TopologyDisruptionBudget allows to evict now.", append(one, "group", "domain"), nil),
		blocked:       prometheus.NewDesc("vicinity_budget_blocked_seconds", "Time since a TopologyDisruptionBudget last allowed an eviction.", one, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.budgets, c.allowed, c.domainAllowed, c.blocked} {
		descriptions <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(samples chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		samples <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	all := budgetsIn(c.views)
	type kind struct{ enforced, state string }
	counts := map[kind]int{}
	for _, b := range all {
		conditions := b.Status.Conditions
		enforced := "false"
		if meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionEnforced) {
			enforced = "true"
		}
		counts[kind{enforced, stateOf(conditions)}]++
	}
	for k, n := range counts {
		gauge(c.budgets, float64(n), k.enforced, k.state)
	}
	now := c.clock.Now()
	for _, b := range least(all, c.top) {
		gauge(c.allowed, float64(b.Status.DisruptionsAllowed), b.Namespace, b.Name)
		since := 0.0
		if at := blockedSince(b); !at.IsZero() {
			since = max(0, now.Sub(at).Seconds())
		}
		gauge(c.blocked, since, b.Namespace, b.Name)
		for _, d := range leastDomains(b.Status.Domains) {
			gauge(c.domainAllowed, float64(d.Allowed), b.Namespace, b.Name, d.Group, d.Domain)
		}
	}
}

// budgetsIn returns the known budgets.
func budgetsIn(views *shell.Notes[types.NamespacedName, view]) (all []*v1alpha1.TopologyDisruptionBudget) {
	for _, v := range views.All() {
		if budget := v.budget.Load(); budget != nil {
			all = append(all, budget)
		}
	}
	return all
}

func stateOf(conditions []metav1.Condition) string {
	allowed := meta.FindStatusCondition(conditions, v1alpha1.ConditionDisruptionAllowed)
	switch {
	case meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionBreakGlass):
		return stateBreakGlass
	case meta.IsStatusConditionFalse(conditions, v1alpha1.ConditionValid):
		return stateInvalid
	case allowed != nil && allowed.Status == metav1.ConditionFalse:
		return stateBlocked
	}
	return stateAllowing
}

// blockedSince returns when a budget last allowed an eviction, zero if it does now.
func blockedSince(b *v1alpha1.TopologyDisruptionBudget) time.Time {
	c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionDisruptionAllowed)
	if c == nil || c.Status != metav1.ConditionFalse {
		return time.Time{}
	}
	return c.LastTransitionTime.Time
}

// least returns the budgets that allow the least: first the blocked ones, the longest blocked first.
func least(all []*v1alpha1.TopologyDisruptionBudget, most int) []*v1alpha1.TopologyDisruptionBudget {
	slices.SortFunc(all, func(a, b *v1alpha1.TopologyDisruptionBudget) int {
		sinceA, sinceB := blockedSince(a), blockedSince(b)
		if sinceA.IsZero() != sinceB.IsZero() {
			if sinceB.IsZero() {
				return -1
			}
			return 1
		}
		return cmp.Or(
			sinceA.Compare(sinceB),
			cmp.Compare(a.Status.DisruptionsAllowed, b.Status.DisruptionsAllowed),
			cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name),
		)
	})
	return all[:min(len(all), most)]
}

func leastDomains(domains []v1alpha1.DomainStatus) []v1alpha1.DomainStatus {
	sorted := slices.Clone(domains)
	slices.SortFunc(sorted, func(a, b v1alpha1.DomainStatus) int {
		return cmp.Or(cmp.Compare(a.Allowed, b.Allowed), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Domain, b.Domain))
	})
	return sorted[:min(len(sorted), topDomains)]
}
