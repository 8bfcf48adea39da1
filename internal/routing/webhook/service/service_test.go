package service

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/admission"
	"vicinity.dev/vicinity/internal/routing"
)

// reader lists policies, and no slices.
type reader struct {
	client.Reader
	policies []v1alpha1.RoutingPolicy
	// defaults are for namespaces such as shop, which is labelled near=yes.
	defaults []v1alpha1.ClusterRoutingPolicy
	// leases are those of proxies, nil if they cannot be read.
	leases  []coordinationv1.Lease
	windows []corev1.Node
	err     error
}

func (r reader) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	namespace, ok := object.(*metav1.PartialObjectMetadata)
	if !ok || namespace.Kind != "Namespace" || key.Name != "shop" {
		return errors.New("only the metadata of the namespace shop is expected")
	}
	namespace.Labels = map[string]string{"near": "yes"}
	return r.err
}

func (r reader) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	var o client.ListOptions
	for _, option := range options {
		option.ApplyToList(&o)
	}
	if all, ok := list.(*v1alpha1.ClusterRoutingPolicyList); ok {
		all.Items = slices.Clone(r.defaults)
		return r.err
	}
	if leases, ok := list.(*coordinationv1.LeaseList); ok && r.leases != nil {
		leases.Items = r.leases
		return nil
	}
	if all, ok := list.(*corev1.NodeList); ok {
		all.Items = r.windows
		return r.err
	}
	if _, ok := list.(*discoveryv1.EndpointSliceList); ok {
		return r.err
	}
	policies, ok := list.(*v1alpha1.RoutingPolicyList)
	if !ok || o.Namespace != "shop" {
		return errors.New("only policies of the namespace shop are expected")
	}
	policies.Items = slices.Clone(r.policies)
	return r.err
}

// of returns a Service with annotations, without a namespace as in a review.
func of(lines ...string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{}}, Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1"}}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, "=")
		s.Annotations[name] = value
	}
	return s
}

const (
	sameZone = "endpointslice.kubernetes.io/same-zone="
	keys     = "vicinity.dev/topology-keys="
	mode     = "service.kubernetes.io/topology-mode="
	proxy    = "vicinity.dev/proxy=true"
)

func with(s *corev1.Service, change func(*corev1.Service)) *corev1.Service {
	change(s)
	return s
}

func headless(s *corev1.Service) {
	s.Spec.ClusterIP, s.Spec.Selector = corev1.ClusterIPNone, map[string]string{"app": "web"}
}

// early makes a Service headless, with addresses that are published before they are ready.
func early(s *corev1.Service) {
	headless(s)
	s.Spec.PublishNotReadyAddresses = true
}

func local(s *corev1.Service) {
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

func TestJudge(t *testing.T) {
	racks := v1alpha1.RoutingPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "racks"}, Spec: v1alpha1.RoutingPolicySpec{Keys: []string{"rack", "*"}},
	}
	weighted := v1alpha1.RoutingPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "weighted"}, Spec: v1alpha1.RoutingPolicySpec{Algorithm: "local-opt"},
	}
	const requires = ` requires a near endpoint, which hints cannot express: where none is near, a stock proxy uses all; annotate the Service with vicinity.dev/proxy: "true" to have it served by vicinity-proxy`
	for _, test := range []struct {
		name             string
		object, stored   *corev1.Service
		faults, warnings []string // how they begin
	}{
		{name: "nothing", object: of()},
		{name: "all well", object: of(sameZone + "Prefer")},
		{name: "marked", stored: of(sameZone + "Prefer"), object: of(sameZone+"Prefer", mode+v1alpha1.MarkRouted)},
		{name: "hard with groups", object: of(sameZone+"Require", proxy)},
		{
			name: "hard without groups", object: of(sameZone + "Require"),
			warnings: []string{"annotation endpointslice.kubernetes.io/same-zone: Require" + requires},
		},
		{
			name: "weighted by a policy", object: of(mode + "vicinity.dev/weighted"),
			warnings: []string{"annotation service.kubernetes.io/topology-mode: vicinity.dev/weighted uses the algorithm local-opt, whose weights hints cannot carry; annotate"},
		},
		{
			name: "bounded by a policy, without a plan",
			object: with(of(sameZone+"Prefer", mode+"vicinity.dev/weighted"), func(s *corev1.Service) {
				s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
			}),
			warnings: []string{"annotation endpointslice.kubernetes.io/same-zone: Prefer, bounded by annotation service.kubernetes.io/topology-mode: vicinity.dev/weighted has no effect: internalTrafficPolicy: Local"},
		},
		{name: "headless", object: with(of(sameZone+"Require"), headless)},
		{
			name: "members of their own", object: with(of(sameZone+"Require"), early),
			warnings: []string{"its members may find each other by its name, since publishNotReadyAddresses is true: annotation endpointslice.kubernetes.io/same-zone: Require hides from each client members that are not near it, and all members where none is near; names"},
		},
		{
			name:   "keys of a policy with a local policy already",
			stored: with(of(mode+"vicinity.dev/racks"), local), object: with(of(mode+"vicinity.dev/racks", "other=x"), local),
			warnings: []string{`annotation service.kubernetes.io/topology-mode: vicinity.dev/racks: spec.keys of RoutingPolicy racks`},
		},
		{
			name: "made impossible", stored: of(keys + "zone,*"), object: with(of(keys+"zone,*"), local),
			faults: []string{`annotation vicinity.dev/topology-keys: "zone,*" cannot be together`},
		},
		{
			// It was written while the webhook was down.
			name: "impossible already", stored: of(keys + "*,zone"), object: of(keys+"*,zone", "other=x"),
			warnings: []string{`annotation vicinity.dev/topology-keys: topology keys: "*" is key 1 of 2`},
		},
		{
			name: "impossible in another way", stored: of(keys + "*,zone"), object: of(keys + "*,zone,rack"),
			faults: []string{`annotation vicinity.dev/topology-keys: topology keys: "*" is key 1 of 3`},
		},
		{
			name: "nothing new", stored: of(sameZone + "prefer"),
			object: with(of(sameZone+"prefer"), func(s *corev1.Service) { s.Finalizers = []string{"example.com/x"} }),
		},
		{
			name: "about to go", stored: of(), object: with(of(keys+"*,zone"), func(s *corev1.Service) { s.DeletionTimestamp = &metav1.Time{} }),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			j := judge{objects: reader{policies: []v1alpha1.RoutingPolicy{racks, weighted}}}
			before := test.object.DeepCopy()
			verdict, err := j.judge(t.Context(), admission.Write[corev1.Service]{Object: test.object, Stored: test.stored, Namespace: "shop"})
			expectPrefixes(t, "faults", verdict.Faults, test.faults)
			expectPrefixes(t, "warnings", verdict.Warnings, test.warnings)
			if err != nil {
				t.Error(err)
			}
			if before.Namespace != test.object.Namespace {
				t.Error("the Service is changed")
			}
		})
	}
}

// expectPrefixes expects sentences that start with the wanted texts.
func expectPrefixes(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("%s %q, want %q", what, got, want)
	}
}

// Without the policies the request of a Service is unknown, but impossible settings are still refused.
func TestJudgeWithoutPolicies(t *testing.T) {
	j := judge{objects: reader{err: errors.New("no connection")}}
	verdict, err := j.judge(t.Context(), admission.Write[corev1.Service]{Object: of(mode + "vicinity.dev/near"), Namespace: "shop"})
	if len(verdict.Faults)+len(verdict.Warnings) > 0 || err == nil || err.Error() != "reading RoutingPolicies of shop: no connection" {
		t.Errorf("%+v", verdict)
	}
	verdict, err = j.judge(t.Context(), admission.Write[corev1.Service]{Object: of(keys + "*,zone"), Namespace: "shop"})
	if len(verdict.Faults) != 1 || err != nil {
		t.Errorf("%+v", verdict)
	}
}

// A ClusterRoutingPolicy counts in the namespaces that it selects.
func TestJudgeByClusterPolicy(t *testing.T) {
	hard := v1alpha1.ClusterRoutingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "hard"}}
	hard.Spec.Mode = v1alpha1.Require
	for label, want := range map[string][]string{
		"yes": {"ClusterRoutingPolicy hard by its selector requires a near endpoint, which hints cannot express"},
		"no":  nil,
	} {
		hard.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"near": label}}
		j := judge{objects: reader{defaults: []v1alpha1.ClusterRoutingPolicy{hard}}}
		verdict, err := j.judge(t.Context(), admission.Write[corev1.Service]{Object: of("vicinity.dev/proxy=false"), Namespace: "shop"})
		expectPrefixes(t, "warnings", verdict.Warnings, want)
		if err != nil {
			t.Error(err)
		}
	}
}

// A Service that asks for vicinity-proxy is warned of while no node runs it.
func TestProxyIsMissing(t *testing.T) {
	const missing = "annotation vicinity.dev/proxy has no effect yet: vicinity-proxy runs on no node; set proxy.enabled=true"
	for _, test := range []struct {
		leases []coordinationv1.Lease
		lines  []string
		want   []string
	}{
		{[]coordinationv1.Lease{}, []string{sameZone + "Prefer", proxy}, []string{missing}},
		{[]coordinationv1.Lease{}, []string{sameZone + "Prefer"}, nil},
		{[]coordinationv1.Lease{{}}, []string{sameZone + "Prefer", proxy}, nil},
	} {
		j := judge{objects: reader{leases: test.leases}}
		verdict, err := j.judge(t.Context(), admission.Write[corev1.Service]{Object: of(test.lines...), Namespace: "shop"})
		expectPrefixes(t, "warnings", verdict.Warnings, test.want)
		if err != nil {
			t.Error(err)
		}
	}
}

// A Service that asks for vicinity-proxy, itself or by a policy, cannot be reached from Windows nodes.
func TestWindowsNodes(t *testing.T) {
	near := v1alpha1.ClusterRoutingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "near"}}
	near.Spec.NamespaceSelector, near.Spec.Delivery = &metav1.LabelSelector{}, v1alpha1.DeliveryGroups
	for _, test := range []struct {
		object   *corev1.Service
		defaults []v1alpha1.ClusterRoutingPolicy
		windows  int
		want     []string
	}{
		{of(proxy), nil, 1, []string{routing.WindowsUnserved}},
		{of(sameZone + "Prefer"), []v1alpha1.ClusterRoutingPolicy{near}, 1, []string{routing.WindowsUnserved}},
		{of(proxy), nil, 0, nil},
		{of(sameZone + "Prefer"), nil, 1, nil},
	} {
		j := judge{objects: reader{defaults: test.defaults, windows: make([]corev1.Node, test.windows)}}
		verdict, err := j.judge(t.Context(), admission.Write[corev1.Service]{Object: test.object, Namespace: "shop"})
		if expectPrefixes(t, "warnings", verdict.Warnings, test.want); err != nil {
			t.Error(err)
		}
	}
}

// Settings without effect are warned of if the administrator has switched a delivery off.
func TestSwitchedOff(t *testing.T) {
	const prefer, require, none = sameZone + "Prefer", sameZone + "Require", "headless=yes"
	const hintsOff, groupsOff = "has no effect: delivery by hints is switched off", "annotation vicinity.dev/proxy has no effect: delivery by groups is switched off"
	noHints, noGroups := Options{Settings: routing.Settings{WithoutHints: true, TakeOverAuto: true}}, Options{Settings: routing.Settings{WithoutGroups: true}}
	for _, test := range []struct {
		options Options
		lines   []string
		want    []string
	}{
		{noHints, []string{prefer}, []string{hintsOff}},
		{noHints, []string{mode + "Auto"}, nil}, // Kubernetes does it
		{noGroups, []string{prefer, proxy}, []string{groupsOff}},
		{noGroups, []string{require}, []string{"and delivery by groups is switched off in this cluster"}},
		{noGroups, []string{none, require}, []string{"same-zone: Require has no effect: delivery by groups is switched off"}},
	} {
		j := judge{Options: test.options, objects: reader{}}
		object := of(test.lines...)
		if test.lines[0] == none {
			headless(object)
		}
		verdict, err := j.judge(t.Context(), admission.Write[corev1.Service]{Object: object, Namespace: "shop"})
		if len(verdict.Warnings) != len(test.want) || len(verdict.Faults) > 0 || err != nil {
			t.Errorf("%+v, %q: %+v, want %q", test.options, test.lines, verdict, test.want)
			continue
		}
		for i, want := range test.want {
			if !strings.Contains(verdict.Warnings[i], want) {
				t.Errorf("%+v, %q: %q, want %q", test.options, test.lines, verdict.Warnings[i], want)
			}
		}
	}
}
