package controller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
)

func headlessService(annotations ...string) *corev1.Service {
	service := aService("web", annotations...)
	service.UID = "headless"
	service.Spec.ClusterIP, service.Spec.IPFamilies = corev1.ClusterIPNone, []corev1.IPFamily{corev1.IPv4Protocol}
	return service
}

// expectGroups expects n groups, each with the label or each without it.
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

// For a headless Service only its groups and its condition are written. It waits for no proxy, and unwanted groups are
// deleted at once.
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
			if sent := w.takePatches(); len(sent) != 1 || !strings.HasPrefix(sent[0], "*v1.Service/status web") {
				t.Errorf("sent %q", sent)
			}
			if c := w.condition(); c == nil || c.Status != metav1.ConditionTrue || c.Reason != "Allocated" || !strings.Contains(c.Message, "vicinity-dns follows the plan") {
				t.Errorf("condition %+v", c)
			}
			if reported := w.newEvents(); len(reported) != 1 || !strings.HasPrefix(reported[0], "Normal TopologyAllocated") {
				t.Errorf("reported %q", reported)
			}
			if followed := w.reconciler.proxies.services; len(followed) > 0 {
				t.Errorf("proxies are waited for: %v", followed)
			}
			w.reconciler.memory.each(func(_ types.NamespacedName, made *report) {
				if made.delivery != allocate.DeliveryGroups || made.state != "delivered" || made.families[0].figures.InZone != 1 {
					t.Errorf("metrics show %+v", made)
				}
			})
			end(w)
			w.sync("web")
			w.expectGroups(0, "", false)
			if sent := patchesOf(w.takePatches(), "*v1.EndpointSlice"); len(sent) > 0 {
				t.Errorf("sent %q", sent)
			}
		})
	}
}
