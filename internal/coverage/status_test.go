package coverage

import (
	"fmt"
	"slices"
	"testing"

	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
)

func TestStatus(t *testing.T) {
	status := v1alpha1.TopologyDisruptionBudgetStatus{
		Reservations: []v1alpha1.Reservation{{UID: "u"}}, PodsObserved: "5", Conditions: []metav1.Condition{{Type: "Valid"}},
		Domains: []v1alpha1.DomainStatus{{Domain: "gone"}},
	}
	Status(&status, 7, disruption.Measures{
		Expected: 12, Healthy: 11, Desired: 9, Allowed: 2, Disturbed: 1,
		Domains: []disruption.DomainMeasure{
			{Group: "1", Domain: "b", Expected: 4, Healthy: 3, Desired: 3, Disturbed: true},
			{Group: "1", Domain: "a", Expected: 4, Healthy: 4, Desired: 3, Allowed: 1},
			{Group: "0", Domain: "z", Expected: 4, Healthy: 4, Desired: 3, Allowed: 1},
		},
	})
	want := []v1alpha1.DomainStatus{
		{Group: "0", Domain: "z", Expected: 4, Healthy: 4, Desired: 3, Allowed: 1},
		{Group: "1", Domain: "a", Expected: 4, Healthy: 4, Desired: 3, Allowed: 1},
		{Group: "1", Domain: "b", Expected: 4, Healthy: 3, Desired: 3, Disturbed: true},
	}
	if !slices.Equal(status.Domains, want) || status.ObservedGeneration != 7 || status.ExpectedPods != 12 || status.CurrentHealthy != 11 ||
		status.DesiredHealthy != 9 || status.DisruptionsAllowed != 2 || status.DisturbedDomains != 1 {
		t.Errorf("%+v", status)
	}
	if len(status.Reservations) != 1 || status.PodsObserved != "5" || len(status.Conditions) != 1 {
		t.Errorf("what is others' was changed: %+v", status)
	}
}

// Where there are too many domains, those are listed that hold something back.
func TestStatusListsTheDomainsThatAllowLeast(t *testing.T) {
	var measures disruption.Measures
	for i := range MaxDomains + 2 {
		measures.Domains = append(measures.Domains, disruption.DomainMeasure{Domain: fmt.Sprintf("%04d", i), Allowed: 3})
	}
	measures.Domains[MaxDomains].Allowed, measures.Domains[MaxDomains+1].Disturbed = 0, true
	var status v1alpha1.TopologyDisruptionBudgetStatus
	Status(&status, 1, measures)
	if len(status.Domains) != MaxDomains {
		t.Fatalf("%d domains", len(status.Domains))
	}
	if last := status.Domains[MaxDomains-2:]; last[0].Domain != "0500" || last[1].Domain != "0501" {
		t.Errorf("the last are %+v", last)
	}
}

func TestUnits(t *testing.T) {
	all, single := &schedulingv1beta1.DisruptionMode{All: &schedulingv1beta1.AllDisruptionMode{}}, &schedulingv1beta1.DisruptionMode{Single: &schedulingv1beta1.SingleDisruptionMode{}}
	group := func(name string, mode *schedulingv1beta1.DisruptionMode, parent string) schedulingv1beta1.PodGroup {
		g := schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: name}}
		g.Spec.DisruptionMode = mode
		if parent != "" {
			g.Spec.ParentCompositePodGroupName = &parent
		}
		return g
	}
	composite := func(name string, all bool, parent string) schedulingv1alpha3.CompositePodGroup {
		c := schedulingv1alpha3.CompositePodGroup{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if all {
			c.Spec.DisruptionMode = &schedulingv1alpha3.CompositeDisruptionMode{All: &schedulingv1alpha3.AllCompositeDisruptionMode{}}
		}
		if parent != "" {
			c.Spec.ParentCompositePodGroupName = &parent
		}
		return c
	}
	got := Units([]schedulingv1beta1.PodGroup{
		group("together", all, ""), group("single", single, ""), group("default", nil, ""),
		group("below", single, "middle"), group("beside", all, "loose"), group("lost", all, "none"), group("round", nil, "circle"),
	}, []schedulingv1alpha3.CompositePodGroup{
		composite("middle", true, "top"), composite("top", true, ""), composite("loose", false, ""), composite("circle", false, "circle"),
	})
	want := map[string]string{
		"together": "PodGroup/together", "below": "CompositePodGroup/top", "beside": "PodGroup/beside", "lost": "PodGroup/lost",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
