package routing

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing/capacity"
	"vicinity.dev/vicinity/test/golden"
)

// The golden file has the delivery and the condition of each case.
func TestCondition(t *testing.T) {
	nodes := nodesIn(map[string]int{"a": 1, "b": 1, "c": 1})
	of := func(service *corev1.Service, endpoints string) Input {
		in := inputOf(service, nodes, slicesOf(endpoints))
		in.Policies = []*v1alpha1.RoutingPolicy{localPolicy()}
		return in
	}
	external := routedService(sameZone, "Prefer")
	external.Spec.Type, external.Spec.ExternalName = corev1.ServiceTypeExternalName, "old.example.com"
	tuned := func() Input {
		in := of(routedService(sameZone, "Prefer"), "a a a a b b b b c c c c")
		near := in.Policies[0]
		near.Name, near.Spec = "near", v1alpha1.RoutingPolicySpec{Selector: &metav1.LabelSelector{}, OverloadThreshold: "20%", Delivery: v1alpha1.DeliveryGroups}
		return in
	}
	mixed := of(routedService(sameZone, "Require", v1alpha1.AnnotationProxy, "true"), "a b c")
	mixed.Cluster = capacity.NewCluster(append(nodes, testNode{name: "win", zone: "a", labels: map[string]string{corev1.LabelOSStable: "windows"}}.object()))
	members := func(in Input) Input {
		in.Slices = hostnames(in.Slices)
		return in
	}
	even := "a a a a b b b b c c c c"
	var text strings.Builder
	for _, test := range []struct {
		name string
		in   Input
	}{
		{"allocated", of(routedService(sameZone, "Prefer"), even)},
		{"one endpoint", of(routedService(sameZone, "Prefer"), "a")},
		{"waiting", of(routedService(mode, "vicinity.dev/local"), "a b")},
		{"no endpoint", of(routedService(sameZone, "Prefer"), "a!")},
		{"tiers", of(routedService(keys, "topology.kubernetes.io/zone,*"), "a")},
		{"what hints cannot", of(routedService(sameZone, "Require"), "a")},
		{"what hints cannot, until a proxy does", of(routedService(sameZone, "Require", v1alpha1.AnnotationProxy, "true"), "a b c")},
		{"what hints can until a proxy does", of(routedService(sameZone, "Prefer", v1alpha1.AnnotationProxy, "true"), even)},
		{"what a proxy does", of(servedService(sameZone, "Require", v1alpha1.AnnotationProxy, "true"), "a b")},
		{"bounded and delivered by a policy", tuned()},
		{"bounded by a policy, groups are off", without(tuned(), func(s *Settings) { s.WithoutGroups = true })},
		{"a Windows node, before a hand-over", mixed},
		{"an unknown value", of(routedService(sameZone, "Prefre"), "a")},
		{"no plan can be made", of(external, "a")},
		{"nothing is asked for", of(routedService(), "a")},
		{"Kubernetes does it", of(routedService(mode, "Auto"), "a")},
		{"headless, divided", of(headlessService(sameZone, "Prefer"), "a a b b c c")},
		{"headless, hard", of(headlessService(sameZone, "Require"), "a b")},
		{"headless, no endpoint", of(headlessService(sameZone, "Prefer"), "")},
		{"headless, members", members(of(headlessService(sameZone, "Prefer"), "a b c"))},
		{"headless, members and a policy", withPolicy(members(of(headlessService(), "a b c")))},
		{"headless, members that are asleep and a policy", withPolicy(of(headlessService(), ""))},
		{"headless, a policy", withPolicy(of(headlessService(), "a b c"))},
		{"headless, hints are off", without(of(headlessService(sameZone, "Require"), "a b c"), func(s *Settings) { s.WithoutHints = true })},
		{"headless, groups are off", without(of(headlessService(sameZone, "Require"), "a b c"), func(s *Settings) { s.WithoutGroups = true })},
		{"headless, groups are off and a policy", without(withPolicy(of(headlessService(), "a b c")), func(s *Settings) { s.WithoutGroups = true })},
		{"headless, for vicinity-proxy", of(headlessService(v1alpha1.AnnotationProxy, "true"), "a b c")},
		{"headless, Kubernetes' heuristic", of(headlessService(mode, "Auto"), "a b c")},
		{"headless, all endpoints", of(headlessService(sameZone, "Balanced"), "a b c")},
		{"headless, nothing is asked for", of(headlessService(), "a b c")},
	} {
		d := mustDecide(t, test.in)
		fmt.Fprintf(&text, "%s\n  by %s", test.name, d.Delivery)
		if d.Meanwhile != nil {
			fmt.Fprintf(&text, ", meanwhile by %s", d.Meanwhile.Delivery)
		}
		if !d.IsReported() {
			text.WriteString("\n\n")
			continue
		}
		got := d.Condition()
		fmt.Fprintf(&text, "\n  %s %s\n  %s\n\n", got.Status, got.Reason, got.Message)
		t.Run(test.name, func(t *testing.T) { checkTroubles(t, test.in.Service, d, got) })
	}
	golden.Compare(t, "testdata/conditions.txt", text.String())
}

// checkTroubles adds troubles to a condition, and reads them back.
func checkTroubles(t *testing.T, service *corev1.Service, d Decision, got metav1.Condition) {
	lost := WithHintsLost(got)
	unwritten := WithNotWritten(got, apierrors.NewBadRequest("it may change labels only."))
	service.Status.Conditions = []metav1.Condition{lost}
	if !TroubleHintsLost.IsOn(service) || lost.Status != metav1.ConditionFalse || !strings.HasSuffix(lost.Message, got.Message) {
		t.Errorf("with hints lost: %+v", lost)
	}
	service.Status.Conditions = []metav1.Condition{unwritten}
	if !TroubleNotWritten.IsOn(service) || TroubleHintsLost.IsOn(service) || unwritten.Status != metav1.ConditionFalse ||
		!strings.HasPrefix(unwritten.Message, "the decision cannot be written: it may change labels only. ") {
		t.Errorf("not written: %+v", unwritten)
	}
	// The API server accepts all of them, and they read back as the same state.
	for _, condition := range []metav1.Condition{got, lost, unwritten} {
		condition.LastTransitionTime = metav1.Now()
		if errs := metavalidation.ValidateConditions([]metav1.Condition{condition}, field.NewPath("status")); len(errs) > 0 {
			t.Error(errs)
		}
		service.Status.Conditions = []metav1.Condition{condition}
		for _, f := range d.Families {
			if state := reasonOf(service).State(f.Family); state != f.Outcome.State {
				t.Errorf("%s reads back as %s, was %s", condition.Reason, state, f.Outcome.State)
			}
		}
	}
}

// A policy may select Services that it cannot apply to. These get no condition, but the decision has the reason. A
// Service that names its policy gets a condition.
func TestPoliciesBySelectorAreQuiet(t *testing.T) {
	nodes := nodesIn(map[string]int{"a": 1, "b": 1, "c": 1})
	local := corev1.ServiceInternalTrafficPolicyLocal
	everywhere := &v1alpha1.ClusterRoutingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "near"}}
	everywhere.Spec.NamespaceSelector = &metav1.LabelSelector{}
	selecting := localPolicy()
	selecting.Spec.Selector = &metav1.LabelSelector{}
	racks := everywhere.DeepCopy()
	racks.Spec.Keys = []string{"rack", "*"}
	for name, change := range map[string]func(*Input){
		"ExternalName": func(in *Input) { in.Service.Spec.Type = corev1.ServiceTypeExternalName },
		"Local":        func(in *Input) { in.Service.Spec.InternalTrafficPolicy = &local },
		"hints are off": func(in *Input) {
			in.Settings.WithoutHints = true
		},
	} {
		for chosen, test := range map[string]struct {
			choose   func(*Input)
			reported bool
		}{
			"ClusterRoutingPolicy":       {func(in *Input) { in.Defaults = []*v1alpha1.ClusterRoutingPolicy{everywhere} }, false},
			"ClusterRoutingPolicy, keys": {func(in *Input) { in.Defaults = []*v1alpha1.ClusterRoutingPolicy{racks} }, false},
			"RoutingPolicy by selector":  {func(in *Input) { in.Policies = []*v1alpha1.RoutingPolicy{selecting} }, false},
			"RoutingPolicy by name": {func(in *Input) {
				in.Policies = []*v1alpha1.RoutingPolicy{localPolicy()}
				in.Service.Annotations[mode] = "vicinity.dev/local"
			}, true},
			"annotation": {func(in *Input) { in.Service.Annotations[sameZone] = "Prefer" }, true},
		} {
			in := inputOf(routedService(), nodes, slicesOf("a b c"))
			change(&in)
			test.choose(&in)
			d := mustDecide(t, in)
			if d.Delivery != allocate.DeliveryNone || d.IsReported() != test.reported {
				t.Errorf("%s, %s: by %s, reported: %t", name, chosen, d.Delivery, d.IsReported())
			}
			if d.Request.NoPlan == "" && len(d.Notes) == 0 {
				t.Errorf("%s, %s: nothing says why", name, chosen)
			}
		}
	}
}

// A policy that a Service declines is in the notes of the decision, but not in a condition.
func TestDeclinedPolicyIsQuiet(t *testing.T) {
	everywhere := &v1alpha1.ClusterRoutingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "near"}}
	everywhere.Spec.NamespaceSelector = &metav1.LabelSelector{}
	early := headlessService()
	early.Spec.PublishNotReadyAddresses = true
	for want, service := range map[string]*corev1.Service{
		"opts out of it":                         routedService(mode, "Disabled"),
		"leaves the hints to another controller": routedService(mode, "example.com/other"),
		"since publishNotReadyAddresses is true; DNS gives all of them, unless the Service itself asks for a plan": early,
	} {
		in := inputOf(service, nodesIn(map[string]int{"a": 1, "b": 1, "c": 1}), slicesOf("a b c"))
		in.Defaults = []*v1alpha1.ClusterRoutingPolicy{everywhere}
		d := mustDecide(t, in)
		if d.Delivery != allocate.DeliveryNone || d.IsReported() || len(d.Request.Warnings) > 0 {
			t.Errorf("%s: by %s, reported: %t, warnings %q", want, d.Delivery, d.IsReported(), d.Request.Warnings)
		}
		if notes := strings.Join(d.Notes, "; "); !strings.HasPrefix(notes, "ClusterRoutingPolicy near selects the Service") || !strings.HasSuffix(notes, want) {
			t.Errorf("%s: notes %q", want, notes)
		}
	}
}

// servedService returns a Service that vicinity-proxy serves.
func servedService(annotations ...string) *corev1.Service {
	service := routedService(annotations...)
	service.Labels = map[string]string{v1alpha1.LabelServiceProxyName: v1alpha1.ServiceProxyName}
	return service
}

func TestLongMessagesAreCut(t *testing.T) {
	got := truncate(strings.Repeat("zoné ", 400))
	if len(got) > maxMessage || !utf8.ValidString(got) || !strings.HasSuffix(got, "...") {
		t.Errorf("%d bytes: %q", len(got), got[len(got)-20:])
	}
	if short := strings.Repeat("x", maxMessage); truncate(short) != short {
		t.Error("a message that fits is cut")
	}
}
