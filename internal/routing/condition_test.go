package routing

import (
	"slices"
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
	"vicinity.dev/vicinity/internal/routing/hints"
)

func TestCondition(t *testing.T) {
	nodes := nodesIn(map[string]int{"a": 1, "b": 1, "c": 1})
	external := routedService(sameZone, "Prefer")
	external.Spec.Type, external.Spec.ExternalName = corev1.ServiceTypeExternalName, "old.example.com"
	for _, test := range []struct {
		name            string
		service         *corev1.Service
		endpoints       string
		reported        bool
		status          metav1.ConditionStatus
		reason, message string
	}{
		{
			name: "allocated", service: routedService(sameZone, "Prefer"), endpoints: "a a a a b b b b c c c c",
			reported: true, status: "True", reason: "Allocated",
			message: "endpoints are divided among zones by optimal, the overload stays below 50 %",
		},
		{
			name: "one endpoint", service: routedService(sameZone, "Prefer"), endpoints: "a",
			reported: true, status: "True", reason: "Allocated", message: "all zones use all endpoints: optimal has no better plan for them",
		},
		{
			name: "waiting", service: routedService(mode, "vicinity.dev/local"), endpoints: "a b",
			reported: true, status: "False", reason: "Waiting", message: "balanced: too few endpoints to start",
		},
		{
			name: "no endpoint", service: routedService(sameZone, "Prefer"), endpoints: "a!",
			reported: true, status: "False", reason: "Waiting", message: "balanced: no endpoint is ready",
		},
		{
			name: "tiers", service: routedService(keys, "topology.kubernetes.io/zone,*"), endpoints: "a",
			reported: true, status: "True", reason: "Allocated", message: "each zone uses its nearest endpoints",
		},
		{
			name: "what hints cannot", service: routedService(sameZone, "Require"), endpoints: "a",
			reported: true, status: "False", reason: "Allocated,NeedsGroups",
			message: `what is asked for requires what hints cannot: where no endpoint is near, a stock proxy uses all of them; so there are no hints, and delivery by groups (annotation vicinity.dev/proxy: "true") is needed`,
		},
		{
			name: "what hints cannot and nobody does yet", service: routedService(sameZone, "Require", v1alpha1.AnnotationProxy, "true"), endpoints: "a b c",
			reported: true, status: "False", reason: "Allocated,AwaitsProxy",
			message: "vicinity-proxy does not serve the Service yet, and hints cannot express what is asked for: until then all zones use all endpoints",
		},
		{
			name: "what hints can until a proxy does", service: routedService(sameZone, "Prefer", v1alpha1.AnnotationProxy, "true"), endpoints: "a a a a b b b b c c c c",
			reported: true, status: "True", reason: "Allocated",
			message: "endpoints are divided among zones by optimal, the overload stays below 50 %",
		},
		{
			name: "what a proxy does", service: servedService(sameZone, "Require", v1alpha1.AnnotationProxy, "true"), endpoints: "a b",
			reported: true, status: "True", reason: "Allocated",
			message: "each zone uses its nearest endpoints. there are zones that reach no endpoint, since what is asked for allows no farther one",
		},
		{
			name: "an unknown value", service: routedService(sameZone, "Prefre"), endpoints: "a",
			reported: true, status: "False", reason: "NotRouted",
			message: `annotation endpointslice.kubernetes.io/same-zone: "Prefre" is unknown; allowed are Balanced, Prefer and Require`,
		},
		{
			name: "no plan can be made", service: external, endpoints: "a",
			reported: true, status: "False", reason: "NotRouted",
			message: `type ExternalName: the Service is a name for "old.example.com" and has no endpoints`,
		},
		{name: "nothing is asked for", service: routedService(), endpoints: "a"},
		{name: "Kubernetes does it", service: routedService(mode, "Auto"), endpoints: "a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := inputOf(test.service, nodes, slicesOf(test.endpoints))
			in.Policies = []*v1alpha1.RoutingPolicy{localPolicy()}
			d := decided(t, in)
			if d.IsReported() != test.reported {
				t.Fatalf("reported: %t", d.IsReported())
			}
			if !test.reported {
				return
			}
			got := d.Condition()
			if got.Status != test.status || got.Reason != test.reason || got.Message != test.message {
				t.Errorf("got\n%s %s %q\nwant\n%s %s %q", got.Status, got.Reason, got.Message, test.status, test.reason, test.message)
			}
			lost := WithHintsLost(got)
			test.service.Status.Conditions = []metav1.Condition{lost}
			if !LostHints(test.service) || lost.Status != metav1.ConditionFalse || !strings.HasSuffix(lost.Message, got.Message) {
				t.Errorf("with hints lost: %+v", lost)
			}
			dropped := WithHintsDropped(got, hints.LossHints)
			unwritten := WithNotWritten(got, apierrors.NewBadRequest("it may change labels only."))
			test.service.Status.Conditions = []metav1.Condition{dropped}
			if !DroppedHints(test.service) || dropped.Status != metav1.ConditionFalse || !strings.HasPrefix(dropped.Message, string(hints.LossHints)) {
				t.Errorf("with hints dropped: %+v", dropped)
			}
			test.service.Status.Conditions = []metav1.Condition{unwritten}
			if !NotWritten(test.service) || LostHints(test.service) || unwritten.Status != metav1.ConditionFalse ||
				!strings.HasPrefix(unwritten.Message, "what was decided cannot be written: it may change labels only. ") {
				t.Errorf("not written: %+v", unwritten)
			}
			// All are as the API server takes them, and read back as the same state.
			for _, condition := range []metav1.Condition{got, lost, dropped, unwritten} {
				condition.LastTransitionTime = metav1.Now()
				if errs := metavalidation.ValidateConditions([]metav1.Condition{condition}, field.NewPath("status")); len(errs) > 0 {
					t.Error(errs)
				}
				test.service.Status.Conditions = []metav1.Condition{condition}
				for _, f := range d.Families {
					if state := reasonOf(test.service).State(f.Family); state != f.Outcome.State {
						t.Errorf("%s reads back as %s, was %s", condition.Reason, state, f.Outcome.State)
					}
				}
			}
		})
	}
}

// A policy that chooses Services by selector, in a whole cluster maybe, chooses some that
// have no use for it: nothing is written to those, and the decision still says why. To
// one that names its policy it is.
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
			d := decided(t, in)
			if d.Delivery != allocate.DeliveryNone || d.IsReported() != test.reported {
				t.Errorf("%s, %s: by %s, reported: %t", name, chosen, d.Delivery, d.IsReported())
			}
			if d.Request.NoPlan == "" && len(d.Notes) == 0 {
				t.Errorf("%s, %s: nothing says why", name, chosen)
			}
		}
	}
}

// What a Service declines is told to who asks, and written nowhere.
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
		d := decided(t, in)
		if d.Delivery != allocate.DeliveryNone || d.IsReported() || len(d.Request.Warnings) > 0 {
			t.Errorf("%s: by %s, reported: %t, warnings %q", want, d.Delivery, d.IsReported(), d.Request.Warnings)
		}
		if notes := strings.Join(d.Notes, "; "); !strings.HasPrefix(notes, "ClusterRoutingPolicy near selects the Service") || !strings.HasSuffix(notes, want) {
			t.Errorf("%s: notes %q", want, notes)
		}
	}
}

// servedService is one that vicinity-proxy serves.
func servedService(annotations ...string) *corev1.Service {
	service := routedService(annotations...)
	service.Labels = map[string]string{v1alpha1.LabelServiceProxyName: v1alpha1.ServiceProxyName}
	return service
}

func TestLongMessagesAreCut(t *testing.T) {
	got := cut(strings.Repeat("zoné ", 400))
	if len(got) > maxMessage || !utf8.ValidString(got) || !strings.HasSuffix(got, "...") {
		t.Errorf("%d bytes: %q", len(got), got[len(got)-20:])
	}
	if short := strings.Repeat("x", maxMessage); cut(short) != short {
		t.Error("a message that fits is cut")
	}
}

// A Service whose slices come and go around the limit does not say another thing each
// time.
func TestSliceLimitDoesNotFlap(t *testing.T) {
	nodes := nodesIn(map[string]int{"a": 2, "b": 2, "c": 2})
	service := routedService(sameZone, "Prefer")
	for i, step := range []struct {
		slices int
		noted  bool
	}{{20, false}, {21, true}, {20, true}, {18, true}, {17, false}, {18, false}, {20, false}, {21, true}} {
		if got := notesSlices(t, service, nodes, step.slices); got != step.noted {
			t.Errorf("step %d, %d slices: noted %t", i, step.slices, got)
		}
	}
	// With another limit what was said of the one before is nothing to go by.
	in := inputOf(service, nodes, slicesOf(slices.Repeat([]string{"a b c"}, 21)...))
	if in.Settings.SliceLimit = 22; decided(t, in).ManySlices != "" {
		t.Error("it is said of another limit")
	}
	if got := decided(t, inputOf(routedService(sameZone, "Balanced"), nodes, slicesOf("a"))).Notes; len(got) > 0 {
		t.Errorf("a Service without hints: %q", got)
	}
}

// notesSlices decides about a Service with a number of slices, and keeps what is to be kept.
func notesSlices(t *testing.T, service *corev1.Service, nodes []*corev1.Node, n int) bool {
	t.Helper()
	d := decided(t, inputOf(service, nodes, slicesOf(slices.Repeat([]string{"a b c"}, n)...)))
	condition := d.Condition()
	service.Status.Conditions = []metav1.Condition{condition}
	service.Annotations[v1alpha1.AnnotationManySlices] = d.ManySlices
	noted := strings.Contains(condition.Message, "more than 20 slices")
	if want := map[bool]string{true: "20"}[noted]; d.ManySlices != want {
		t.Errorf("%d slices: keeps %q, want %q", n, d.ManySlices, want)
	}
	return noted
}

// A version that kept nothing but the condition leaves a Service whose message names the
// slices. Above the limit it stays as it is. Within a tenth of it the sentence goes, once, and
// comes back above the limit only.
func TestSliceLimitAtAnUpgrade(t *testing.T) {
	nodes := nodesIn(map[string]int{"a": 2, "b": 2, "c": 2})
	for before, want := range map[int][]bool{21: {true, true, true, false, false}, 20: {false, false, false, false, false}} {
		service := routedService(sameZone, "Prefer")
		notesSlices(t, service, nodes, 21)
		old := service.Status.Conditions[0]
		delete(service.Annotations, v1alpha1.AnnotationManySlices)
		for i, n := range []int{before, 20, 18, 17, 20} {
			if got := notesSlices(t, service, nodes, n); got != want[i] {
				t.Errorf("%d slices at the upgrade, step %d, %d slices: noted %t", before, i, n, got)
			}
			if same := service.Status.Conditions[0] == old; i == 0 && same != (before > 20) {
				t.Errorf("%d slices: the condition is the same: %t", before, same)
			}
		}
		if !notesSlices(t, service, nodes, 21) {
			t.Error("above the limit it is not named")
		}
	}
}
