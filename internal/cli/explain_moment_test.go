package cli

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/routing"
)

func (c *fakeCluster) add(t *testing.T, objects ...runtime.Object) {
	t.Helper()
	for _, object := range objects {
		resource := corev1.SchemeGroupVersion.WithResource("services")
		if _, ok := object.(*discoveryv1.EndpointSlice); ok {
			resource = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
		}
		if err := c.typed.Tracker().Create(resource, object, "shop"); err != nil {
			t.Fatal(err)
		}
	}
}

// hintOwn hints all endpoints to their own zone.
func hintOwn(slice *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	for i := range slice.Endpoints {
		slice.Endpoints[i].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: *slice.Endpoints[i].Zone}}}
	}
	return slice
}

func wants(t *testing.T, output string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(output, text) {
			t.Errorf("%q is missing in\n%s", text, output)
		}
	}
}

// Explain tells endpoints that zones keep for a while from endpoints without written hints.
func TestExplainHeldEndpoints(t *testing.T) {
	service := aService("shop", "held", map[string]string{v1alpha1.AnnotationSameZone: v1alpha1.Prefer})
	service.Labels[v1alpha1.LabelRouted] = "true"
	slice := hintOwn(aSlice("shop", "held", "a=4", "b=4", "c=4"))
	slice.Annotations = map[string]string{v1alpha1.AnnotationHeld: `{"zone-b":["10.0.0.1","10.0.0.2"],"zone-b,zone-c":["10.0.0.3"],"zone-c":["10.0.0.4"]}`}
	hint := func(endpoint int, zones ...string) {
		hints := &slice.Endpoints[endpoint].Hints.ForZones
		for _, zone := range zones {
			*hints = append(*hints, discoveryv1.ForZone{Name: zone})
		}
	}
	hint(0, "zone-b")
	hint(1, "zone-b")
	hint(2, "zone-b", "zone-c")
	c := newFakeCluster(t)
	c.add(t, service, slice)
	_, stdout, _ := c.run(t.Context(), "explain", "held", "--all")
	wants(t, stdout, `
  written:
    for a moment longer zone-b may use 10.0.0.1, 10.0.0.2, against the plan
    for a moment longer zone-b and zone-c may use 10.0.0.3, against the plan
`)
	if strings.Contains(stdout, "not written yet") {
		t.Errorf("explain says that hints are not written:\n%s", stdout)
	}
	_, stdout, _ = c.run(t.Context(), "explain", "held", "-o", "json")
	var document struct {
		Written bool
		Held    map[string][]string
	}
	if err := json.Unmarshal([]byte(stdout), &document); err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{"10.0.0.1": {"zone-b"}, "10.0.0.2": {"zone-b"}, "10.0.0.3": {"zone-b", "zone-c"}}
	if document.Written || !reflect.DeepEqual(document.Held, want) {
		t.Errorf("written is %t, held %v", document.Written, document.Held)
	}
	_, stdout, _ = c.run(t.Context(), "status", "-o", "wide")
	wants(t, stdout, "for a moment longer zone-b may use 10.0.0.1, 10.0.0.2, against the plan")

	// A hint that no zone holds must be written.
	hint(3, "zone-b")
	c = newFakeCluster(t)
	c.add(t, service, slice)
	_, stdout, _ = c.run(t.Context(), "explain", "held")
	wants(t, stdout, "not written yet: the hints of 1 endpoint in 1 slice differ from the plan")

	// A hint that does not stay is written again and again.
	service.Status.Conditions = []metav1.Condition{routing.WithHintsLost(metav1.Condition{
		Type: v1alpha1.ConditionTopologyRouting, Status: metav1.ConditionFalse, Reason: "Allocated",
	})}
	c = newFakeCluster(t)
	c.add(t, service, slice)
	_, stdout, _ = c.run(t.Context(), "explain", "held")
	wants(t, stdout, "written and lost again: the hints of 1 endpoint in 1 slice differ from the plan")
}

// Until vicinity-proxy serves a Service, stock proxies follow hints, and explain compares those with
// the plan.
func TestExplainHintsUntilHandOver(t *testing.T) {
	for _, test := range []struct {
		name, annotation, value string
		wants                   []string
		undelivered             bool
		state                   string
		status                  []string
	}{
		{
			"soft", v1alpha1.AnnotationSameZone, v1alpha1.Prefer,
			[]string{
				"delivery: Groups, for vicinity-proxy; stock proxies serve the Service until every node has it (0 groups so far)\n" +
					"  until then: hints for them; allocated; optimal: a new plan, overload 0 %, below the threshold of 50 %\n  condition",
				"\n  written:\n    not written yet: 3 groups differ from the plan\n",
				"expected once vicinity-proxy serves it: 100 % of the traffic stays in its zone",
			},
			false, "allocated",
			[]string{"allocated", "12", "3", "100.0", "0.0", "Groups", "stock proxies serve it until every node has vicinity-proxy"},
		},
		{
			"hard", v1alpha1.AnnotationSameZone, v1alpha1.Require,
			[]string{
				"  until then: hints cannot express the request, so all zones use all endpoints\n",
				"not written yet: the hints of 12 endpoints in 1 slice differ from the plan\n",
				"expected once vicinity-proxy serves it: 100 % of the traffic stays in its zone",
			},
			true, "allocated",
			[]string{"undelivered", "12", "3", "33.3", "0.0", "Groups", "stock proxies serve it until every node has vicinity-proxy"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			service := aService("shop", "soon", map[string]string{test.annotation: test.value, v1alpha1.AnnotationProxy: "true"})
			service.Labels[v1alpha1.LabelRouted] = "true"
			c := newFakeCluster(t)
			c.add(t, service, hintOwn(aSlice("shop", "soon", "a=4", "b=4", "c=4")))
			_, stdout, _ := c.run(t.Context(), "explain", "soon", "--all")
			wants(t, stdout, test.wants...)
			_, stdout, _ = c.run(t.Context(), "explain", "soon", "-o", "json")
			var document struct{ Meanwhile inspect.Interim }
			if err := json.Unmarshal([]byte(stdout), &document); err != nil {
				t.Fatal(err)
			}
			m := document.Meanwhile
			if m.Undelivered != test.undelivered || len(m.Families) != 1 || m.Families[0].State != test.state || len(m.Families[0].Endpoints) != 12 {
				t.Errorf("meanwhile %+v", m)
			}
			_, stdout, _ = c.run(t.Context(), "status")
			if row := strings.Join(strings.Fields(stdout), " "); !strings.Contains(row, strings.Join(test.status, " ")) {
				t.Errorf("the status does not match stock proxies, %q:\n%s", test.status, stdout)
			}
		})
	}
}

// Without the Service's annotation, explain names what asks for groups.
func TestExplainNamesWhatAsksForGroups(t *testing.T) {
	c := newFakeCluster(t)
	c.add(t, aService("shop", "soon", map[string]string{v1alpha1.AnnotationSameZone: v1alpha1.Prefer}), aSlice("shop", "soon", "a=4", "b=4", "c=4"))
	if err := c.typed.Tracker().Update(appsv1.SchemeGroupVersion.WithResource("deployments"), aController("--groups-by-default"), "vicinity-system"); err != nil {
		t.Fatal(err)
	}
	_, stdout, _ := c.run(t.Context(), "explain", "soon", "--all")
	wants(t, stdout, "delivery: Groups, for vicinity-proxy; stock proxies serve", "\n  groups because of: --groups-by-default\n")
	_, stdout, _ = c.run(t.Context(), "explain", "grouped", "--all")
	if strings.Contains(stdout, "groups because of") {
		t.Errorf("the Service asks itself:\n%s", stdout)
	}
}
