package budget

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// The budgets that allow the least have figures of their own, those that are blocked the longest
// first, and others do not.
func TestFiguresOfTheWorst(t *testing.T) {
	w := newWorld(t)
	now := w.clock.Now()
	seen := func(name string, allowed int32, blocked time.Duration, others ...metav1.Condition) {
		b := &v1alpha1.TopologyDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name}}
		b.Status.DisruptionsAllowed = allowed
		b.Status.Domains = []v1alpha1.DomainStatus{{Domain: "b", Allowed: allowed}, {Domain: "a", Allowed: allowed}}
		condition := metav1.Condition{Type: v1alpha1.ConditionDisruptionAllowed, Status: metav1.ConditionTrue}
		if blocked > 0 {
			condition.Status, condition.LastTransitionTime = metav1.ConditionFalse, metav1.NewTime(now.Add(-blocked))
		}
		b.Status.Conditions = append(b.Status.Conditions, others...)
		b.Status.Conditions = append(b.Status.Conditions, condition)
		w.r.memory.set(types.NamespacedName{Namespace: shop, Name: name}, &view{budget: b})
	}
	enforced := metav1.Condition{Type: v1alpha1.ConditionEnforced, Status: metav1.ConditionTrue}
	seen("much", 9, 0, enforced)
	seen("little", 1, 0, enforced)
	seen("short", 0, time.Minute, enforced)
	seen("long", 0, time.Hour)
	seen("open", 7, 0, enforced, metav1.Condition{Type: v1alpha1.ConditionBreakGlass, Status: metav1.ConditionTrue})
	seen("wrong", 5, 0, enforced, metav1.Condition{Type: v1alpha1.ConditionValid, Status: metav1.ConditionFalse})
	want := `
# HELP vicinity_budget_allowed_disruptions Pods that a TopologyDisruptionBudget lets be evicted now, for those that allow the least.
# TYPE vicinity_budget_allowed_disruptions gauge
vicinity_budget_allowed_disruptions{budget="little",namespace="shop"} 1
vicinity_budget_allowed_disruptions{budget="long",namespace="shop"} 0
vicinity_budget_allowed_disruptions{budget="short",namespace="shop"} 0
# HELP vicinity_budget_blocked_seconds Time since a TopologyDisruptionBudget allowed an eviction last, for those that allow the least.
# TYPE vicinity_budget_blocked_seconds gauge
vicinity_budget_blocked_seconds{budget="little",namespace="shop"} 0
vicinity_budget_blocked_seconds{budget="long",namespace="shop"} 3600
vicinity_budget_blocked_seconds{budget="short",namespace="shop"} 60
# HELP vicinity_budgets TopologyDisruptionBudgets by whether evictions are checked and by what they allow.
# TYPE vicinity_budgets gauge
vicinity_budgets{enforced="false",state="blocked"} 1
vicinity_budgets{enforced="true",state="allowing"} 2
vicinity_budgets{enforced="true",state="blocked"} 1
vicinity_budgets{enforced="true",state="break-glass"} 1
vicinity_budgets{enforced="true",state="invalid"} 1
`
	if err := testutil.CollectAndCompare(w.r.metrics.budgets, strings.NewReader(want),
		"vicinity_budgets", "vicinity_budget_allowed_disruptions", "vicinity_budget_blocked_seconds"); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(w.r.metrics.budgets, "vicinity_budget_domain_allowed_disruptions"); n != 6 {
		t.Errorf("there are %d series of domains, want 6", n)
	}
}

// However many domains a budget has, few have a figure: those that allow the least.
func TestDomainsAreBounded(t *testing.T) {
	var domains []v1alpha1.DomainStatus
	for i := range 100 {
		domains = append(domains, v1alpha1.DomainStatus{Domain: string(rune('a' + i)), Allowed: int32(100 - i)})
	}
	few := leastDomains(domains)
	if len(few) != topDomains || few[0].Allowed != 1 || domains[0].Allowed != 100 {
		t.Errorf("%d domains, the first allows %d", len(few), few[0].Allowed)
	}
}
