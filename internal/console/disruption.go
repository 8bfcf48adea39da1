package console

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/inspect"
)

type disruptionView struct {
	Budgets  []budgetView  `json:"budgets"`
	Rollouts []rolloutView `json:"rollouts"`
	Paging   paging        `json:"paging"`
	// Blocking is the number of budgets that allow no eviction, of all.
	Blocking int `json:"blocking"`
	All      int `json:"allBudgets"`
	// Moving is the number of rollouts that replace pods, of all.
	Moving      int `json:"moving"`
	AllRollouts int `json:"allRollouts"`

	Text  string `json:"-"`
	State string `json:"-"`
}

type budgetView struct {
	inspect.BudgetStatus
	More int `json:"moreDomains,omitempty"`
}

type rolloutView struct {
	inspect.RolloutStatus
	Domains []v1alpha1.RolloutDomain `json:"-"`
	More    int                      `json:"-"`
}

// Limits of what is shown: domains of a budget or rollout, and rollouts.
const (
	domainsShown  = 10
	rolloutsShown = 50
)

func (*disruptionView) title() string { return "Disruption" }

func (*disruptionView) parts() []part { return []part{partDisruption} }

func (c *console) disruptionView(_ context.Context, r *http.Request, s *snapshot) (view, *about, error) {
	query := r.URL.Query()
	v := &disruptionView{
		Text: query.Get("q"), Budgets: []budgetView{}, Rollouts: []rolloutView{}, All: len(s.budgets), AllRollouts: len(s.rollouts),
	}
	var err error
	if v.State, err = oneOf(query, "state", "blocking", "moving"); err != nil {
		return nil, nil, err
	}
	a := c.about(s)
	var budgets []inspect.BudgetStatus
	for i := range s.budgets {
		b := &s.budgets[i]
		if b.Blocking() {
			v.Blocking++
		}
		if strings.Contains(b.Namespace+"/"+b.Name, v.Text) && (v.State != "blocking" || b.Blocking()) && v.State != "moving" {
			budgets = append(budgets, *b)
		}
	}
	for i := range s.rollouts {
		rollout := &s.rollouts[i]
		if rollout.Moving {
			v.Moving++
		}
		wanted := strings.Contains(rollout.Namespace+"/"+rollout.Name, v.Text) && (v.State != "moving" || rollout.Moving) && v.State != "blocking"
		if wanted && len(v.Rollouts) < rolloutsShown {
			one := rolloutView{RolloutStatus: *rollout}
			one.Domains, one.More = firstOf(rollout.Status.Domains, domainsShown)
			v.Rollouts = append(v.Rollouts, one)
		}
	}
	if v.Paging, err = pageOf(r, len(budgets)); err != nil {
		return nil, nil, err
	}
	for _, b := range window(budgets, v.Paging) {
		one := budgetView{BudgetStatus: b}
		// The budgets that allow least come first.
		one.Domains = slices.SortedStableFunc(slices.Values(b.Domains), func(a, b v1alpha1.DomainStatus) int { return int(a.Allowed) - int(b.Allowed) })
		one.Domains, one.More = firstOf(one.Domains, domainsShown)
		v.Budgets = append(v.Budgets, one)
	}
	return v, &a, nil
}

// firstOf returns the first items, and the number of others.
func firstOf[T any](list []T, most int) (first []T, more int) {
	shown := min(most, len(list))
	return list[:shown], len(list) - shown
}
