package cli

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// lentCluster has a Service of twelve endpoints of which one of zone-a is lent to
// zone-b. answer is what the controller does when it is asked for a better plan.
func lentCluster(t *testing.T, answer func(c *fakeCluster, slice *discoveryv1.EndpointSlice)) *fakeCluster {
	t.Helper()
	c := newFakeCluster(t)
	service := aService("shop", "lent", map[string]string{v1alpha1.AnnotationSameZone: v1alpha1.Prefer})
	service.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionTopologyRouting, Status: metav1.ConditionTrue, Reason: "Allocated"}}
	slice := aSlice("shop", "lent", "a=4", "b=4", "c=4")
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: *e.Zone}}}
	}
	slice.Endpoints[0].Hints.ForZones[0].Name = "zone-b"
	c.add(t, service, slice)
	c.typed.PrependReactor("patch", "services", func(action clienttesting.Action) (bool, runtime.Object, error) {
		var asked corev1.Service
		if err := json.Unmarshal(action.(clienttesting.PatchAction).GetPatch(), &asked); err != nil || asked.Annotations[v1alpha1.AnnotationReplan] == "" {
			t.Errorf("%v: asked with %v", err, asked.Annotations)
		}
		answer(c, slice)
		return true, service, nil
	})
	return c
}

// givenBack is the answer that the endpoint serves its own zone again.
func givenBack(t *testing.T) func(c *fakeCluster, slice *discoveryv1.EndpointSlice) {
	return func(c *fakeCluster, slice *discoveryv1.EndpointSlice) {
		better := slice.DeepCopy()
		better.Endpoints[0].Hints.ForZones[0].Name = "zone-a"
		if err := c.typed.Tracker().Update(discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), better, "shop"); err != nil {
			t.Error(err)
		}
	}
}

// changeLent changes the Service of lentCluster.
func (c *fakeCluster) changeLent(t *testing.T, change func(*corev1.Service)) {
	t.Helper()
	services := corev1.SchemeGroupVersion.WithResource("services")
	object, err := c.typed.Tracker().Get(services, "shop", "lent")
	if err != nil {
		t.Fatal(err)
	}
	service := object.(*corev1.Service).DeepCopy()
	change(service)
	if err := c.typed.Tracker().Update(services, service, "shop"); err != nil {
		t.Error(err)
	}
}

func TestReplan(t *testing.T) {
	c := lentCluster(t, givenBack(t))
	code, stdout, stderr := c.run(t.Context(), "replan", "svc/lent")
	const want = "shop/lent: a new plan, 1 endpoint serves other zones: 100 % of the traffic stays in its zone instead of 93.3 %, greatest overload 0 % instead of 33.3 %\n"
	if code != 0 || stdout != want {
		t.Errorf("exit code %d, printed %q, said %q, want %q", code, stdout, stderr, want)
	}
}

// While a Service waits for vicinity-proxy it is the hints that are in force.
func TestReplanWhileProxyIsAwaited(t *testing.T) {
	c := lentCluster(t, givenBack(t))
	c.changeLent(t, func(service *corev1.Service) { service.Annotations[v1alpha1.AnnotationProxy] = "true" })
	code, stdout, stderr := c.run(t.Context(), "replan", "lent")
	if code != 0 || !strings.HasPrefix(stdout, "shop/lent: a new plan, 1 endpoint serves other zones: 100 % of the traffic") {
		t.Errorf("exit code %d, printed %q, said %q", code, stdout, stderr)
	}
}

func TestReplanKeeps(t *testing.T) {
	c := lentCluster(t, func(*fakeCluster, *discoveryv1.EndpointSlice) {})
	code, stdout, _ := c.run(t.Context(), "replan", "lent")
	if code != 0 || !strings.Contains(stdout, "shop/lent: the plan is kept, no other is better by 1 point: 93.3 %") {
		t.Errorf("exit code %d, printed %q", code, stdout)
	}
}

func TestReplanFails(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"replan", "plain"}, "no plan is made for Service shop/plain; vicinity explain says why"},
		{[]string{"replan", "lend"}, `no Service "lend" is in namespace "shop"; it has `},
		{[]string{"replan", "lent", "--wait", "0s"}, "--wait 0s is not allowed; it must be above 0"},
	} {
		c := lentCluster(t, func(*fakeCluster, *discoveryv1.EndpointSlice) {})
		code, _, stderr := c.run(t.Context(), test.args...)
		if code == 0 || !strings.Contains(stderr, test.want) {
			t.Errorf("%q: exit code %d, said %q, want %q", test.args, code, stderr, test.want)
		}
	}
}
