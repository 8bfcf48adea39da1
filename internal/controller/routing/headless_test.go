package routing

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
)

// headlessService is the Service web without a cluster IP.
func headlessService(annotations ...string) *corev1.Service {
	service := aService("web", annotations...)
	service.UID = "headless"
	service.Spec.ClusterIP, service.Spec.IPFamilies = corev1.ClusterIPNone, []corev1.IPFamily{corev1.IPv4Protocol}
	return service
}

// expectGroups checks how many groups there are, and that each has, or lacks, a label.
func (w *world) expectGroups(n int, label string, labelled bool) {
	w.t.Helper()
	all := w.groups()
	if len(all) != n {
		w.t.Fatalf("%d groups, want %d", len(all), n)
	}
	for _, group := range all {
		if _, found := group.Labels[label]; found != labelled {
			w.t.Errorf("%s has the labels %v", group.Name, group.Labels)
		}
	}
}

// recreate deletes a Service and makes another with its name, before the garbage collector
// finds its groups.
func (w *world) recreate(service *corev1.Service) {
	w.t.Helper()
	if err := w.client.Delete(w.t.Context(), w.service(service.Name)); err != nil {
		w.t.Fatal(err)
	}
	if err := w.client.Create(w.t.Context(), service); err != nil {
		w.t.Fatal(err)
	}
}

// Of a headless Service only its groups and its condition are written. No proxy is waited
// for, and groups go at once when they are not wanted any more.
func TestHeadlessServiceHasGroupsOnly(t *testing.T) {
	for name, end := range map[string]func(*world){
		"nothing is asked for": func(w *world) {
			service := w.service("web").DeepCopy()
			delete(service.Annotations, v1alpha1.AnnotationSameZone)
			w.update(service)
		},
		"its namespace is excluded": func(w *world) {
			options := testOptions()
			options.Exclusion.Namespaces = append(options.Exclusion.Namespaces, "shop")
			w.start(options)
		},
		"groups are switched off": func(w *world) {
			options := testOptions()
			options.Settings.WithoutGroups = true
			w.start(options)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(threeZones(), headlessService(v1alpha1.AnnotationSameZone, v1alpha1.Require), aSlice("web", 0, "a b c"))...)
			w.settle("web")
			w.expectGroups(3, corev1.IsHeadlessService, true)
			w.expectGroups(3, v1alpha1.LabelHandOver, false)
			if sent := w.sent(); len(sent) != 1 || !strings.HasPrefix(sent[0], "*v1.Service/status web") {
				t.Errorf("sent %q", sent)
			}
			if c := w.condition("web"); c == nil || c.Status != metav1.ConditionTrue || c.Reason != "Allocated" || !strings.Contains(c.Message, "vicinity-dns answers by that") {
				t.Errorf("condition %+v", c)
			}
			if told := w.told(); len(told) != 1 || !strings.HasPrefix(told[0], "Normal TopologyAllocated") {
				t.Errorf("told %q", told)
			}
			if proxies := w.reconciler.groups.proxies; len(proxies.waiting)+len(proxies.served) > 0 {
				t.Errorf("proxies are waited for: %v, %v", proxies.waiting, proxies.served)
			}
			w.reconciler.memory.each(func(_ types.NamespacedName, v *view) {
				if v.report.delivery != allocate.DeliveryGroups || v.report.state != "delivered" || v.report.families[0].figures.InZone != 1 {
					t.Errorf("metrics show %+v", v.report)
				}
			})
			end(w)
			w.sync("web")
			w.expectGroups(0, "", false)
			if sent := of(w.sent(), "*v1.EndpointSlice"); len(sent) > 0 {
				t.Errorf("sent %q", sent)
			}
		})
	}
}

// The label of vicinity-proxy, as the manifest of a Service that had an address may have
// it, is taken off. The groups stay.
func TestHeadlessServiceLosesTheLabelOfTheProxy(t *testing.T) {
	service := headlessService(v1alpha1.AnnotationSameZone, v1alpha1.Require)
	service.Labels = map[string]string{v1alpha1.LabelServiceProxyName: v1alpha1.ServiceProxyName}
	w := newWorld(t, append(threeZones(), service, aSlice("web", 0, "a b c"))...)
	w.settle("web")
	w.expectGroups(3, corev1.IsHeadlessService, true)
	if labels := w.service("web").Labels; labels[v1alpha1.LabelServiceProxyName] != "" {
		t.Errorf("labels %v", labels)
	}
}

// A policy of the cluster leaves the members of a StatefulSet alone and writes nothing about
// it. What they ask for themselves is obeyed, and the condition says what that hides.
func TestPolicyLeavesMembersWhole(t *testing.T) {
	policy := &v1alpha1.ClusterRoutingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "near"}}
	policy.Spec.NamespaceSelector = &metav1.LabelSelector{}
	slice := aSlice("web", 0, "a b c")
	for i := range slice.Endpoints {
		slice.Endpoints[i].Hostname = new("web-" + string(rune('0'+i)))
	}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	w := newWorld(t, append(threeZones(), space, policy, headlessService(), slice)...)
	w.settle("web")
	w.expectGroups(0, "", false)
	if sent, told := w.sent(), w.told(); len(sent)+len(told) > 0 {
		t.Errorf("sent %q, told %q", sent, told)
	}
	service := w.service("web").DeepCopy()
	service.Annotations = map[string]string{v1alpha1.AnnotationSameZone: v1alpha1.Prefer}
	w.update(service)
	w.settle("web")
	w.expectGroups(3, corev1.IsHeadlessService, true)
	if c := w.condition("web"); c == nil || !strings.Contains(c.Message, "hides from each client those that are not near it") {
		t.Errorf("condition %+v", c)
	}
	// Back under the policy alone they are whole again.
	service = w.service("web").DeepCopy()
	service.Annotations = nil
	w.update(service)
	w.settle("web")
	w.expectGroups(0, "", false)
	if c := w.condition("web"); c != nil {
		t.Errorf("condition %+v", c)
	}
}

// A headless Service that gets an address is another Service with the same name: what is left
// of the first one is not taken for its own.
func TestHeadlessServiceIsReplaced(t *testing.T) {
	addressed := func(annotations ...string) *corev1.Service {
		service := aService("web", annotations...)
		service.UID, service.Spec.IPFamilies = "addressed", []corev1.IPFamily{corev1.IPv4Protocol}
		return service
	}
	begin := func(t *testing.T, first *corev1.Service) *world {
		w := newWorld(t, append(threeZones(), first, aSlice("web", 0, "a b c"))...)
		w.settle("web")
		return w
	}
	headless := func() *corev1.Service { return headlessService(v1alpha1.AnnotationSameZone, v1alpha1.Require) }
	proxied := func() *corev1.Service {
		return addressed(v1alpha1.AnnotationSameZone, v1alpha1.Require, v1alpha1.AnnotationProxy, "true")
	}
	t.Run("by one for vicinity-proxy", func(t *testing.T) {
		w := begin(t, headless())
		w.recreate(proxied())
		w.settle("web")
		w.expectGroups(3, corev1.IsHeadlessService, false)
		w.expectGroups(3, v1alpha1.LabelHandOver, true)
	})
	t.Run("by one with hints", func(t *testing.T) {
		w := begin(t, headless())
		before := w.groups()
		w.recreate(addressed(v1alpha1.AnnotationSameZone, v1alpha1.Prefer))
		w.settle("web")
		for i, group := range w.groups() {
			if group.ResourceVersion != before[i].ResourceVersion {
				t.Errorf("%s, which the garbage collector is about to delete, is written", group.Name)
			}
		}
		if w.service("web").Labels[v1alpha1.LabelRouted] != "true" {
			t.Error("the new Service is not routed")
		}
	})
	t.Run("in its turn", func(t *testing.T) {
		w := begin(t, proxied())
		w.expectGroups(3, v1alpha1.LabelHandOver, true)
		w.recreate(headless())
		w.settle("web")
		w.expectGroups(3, corev1.IsHeadlessService, true)
		w.expectGroups(3, v1alpha1.LabelHandOver, false)
		if proxies := w.reconciler.groups.proxies; len(proxies.waiting) > 0 {
			t.Errorf("proxies are waited for: %v", proxies.waiting)
		}
		for _, group := range w.groups() {
			if !metav1.IsControlledBy(group, w.service("web")) {
				t.Errorf("%s is owned by %v", group.Name, group.OwnerReferences)
			}
		}
	})
	// A name for something else is a change of the same Service.
	t.Run("by a name for something else", func(t *testing.T) {
		w := begin(t, headless())
		service := w.service("web").DeepCopy()
		service.Spec.ClusterIP, service.Spec.Type, service.Spec.ExternalName = "", corev1.ServiceTypeExternalName, "old.example.com"
		w.update(service)
		w.sync("web")
		w.expectGroups(0, "", false)
	})
}
