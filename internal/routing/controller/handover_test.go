package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/shell"
)

// groups returns the groups of the Service web.
func (w *world) groups() []*v1alpha1.EndpointGroup {
	w.t.Helper()
	var list v1alpha1.EndpointGroupList
	if err := w.client.List(context.Background(), &list, client.MatchingFields{indexGroupService: "web"}); err != nil {
		w.t.Fatal(err)
	}
	return shell.Pointers(list.Items)
}

// readyAddresses returns the addresses that the groups of the Service web give as ready to the nodes of a zone.
func (w *world) readyAddresses(zone string) string {
	w.t.Helper()
	var addresses []string
	for _, group := range w.groups() {
		if group.Labels[v1alpha1.LabelNotForPrefix+zone] != "" ||
			!slices.ContainsFunc(group.Spec.Consumers, func(c v1alpha1.GroupConsumer) bool { return c.Zone == zone }) {
			continue
		}
		for i := range group.Spec.Endpoints {
			if e := &group.Spec.Endpoints[i]; !e.NotReady {
				addresses = append(addresses, e.Address)
			}
		}
	}
	slices.Sort(addresses)
	return strings.Join(slices.Compact(addresses), " ")
}

// syncAfter syncs the Service web after some time.
func (w *world) syncAfter(after time.Duration) {
	w.t.Helper()
	w.clock.SetTime(w.clock.Now().Add(after))
	w.sync("web")
}

// acknowledge has the proxies of all nodes report that they have programmed groups up to a resource version.
func (w *world) acknowledge(programmed string) {
	for _, node := range []string{"a-1", "b-1", "c-1"} {
		w.reconciler.proxies.observe(proxyLeaseOf(node, programmed, w.clock.Now()))
	}
}

// newestVersion returns the highest resource version of the groups of the Service web.
func (w *world) newestVersion() string {
	versions := []string{""}
	for _, group := range w.groups() {
		versions = append(versions, fmt.Sprintf("%9s", group.ResourceVersion))
	}
	return strings.TrimSpace(slices.Max(versions))
}

// changeService changes the Service web as its owner does.
func (w *world) changeService(change func(*corev1.Service)) {
	w.t.Helper()
	service := w.service("web")
	change(service)
	w.update(service)
}

// proxied returns a Service that asks for vicinity-proxy, with more annotations as key and value in turn.
func proxied(annotations ...string) *corev1.Service {
	service := aService("web", append([]string{v1alpha1.AnnotationProxy, "true"}, annotations...)...)
	service.UID = "web-uid"
	service.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	return service
}

// newServedWorld returns a world where vicinity-proxy serves the Service web.
func newServedWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, append(threeZones(), proxied(), aSlice("web", 0, "a b c"))...)
	options := testOptions()
	options.HandBackGrace = 10 * time.Second
	w.start(options)
	w.sync("web")
	w.acknowledge(w.newestVersion())
	w.settle("web")
	if w.service("web").Labels[v1alpha1.LabelServiceProxyName] != v1alpha1.ServiceProxyName {
		t.Fatalf("not handed over: %+v", w.condition())
	}
	return w
}

// replacePods gives all endpoints of the Service web new addresses.
func (w *world) replacePods() {
	w.t.Helper()
	for _, slice := range w.slices("web") {
		for i := range slice.Endpoints {
			slice.Endpoints[i].Addresses = []string{fmt.Sprintf("10.99.0.%d", i+1)}
		}
		w.update(slice)
	}
}

// The condition names zones that refuse connections from outside, once vicinity-proxy serves the Service.
func TestZonesThatRefuseConnections(t *testing.T) {
	service := proxied(v1alpha1.AnnotationSameZone, v1alpha1.Require)
	service.Spec.Type = corev1.ServiceTypeNodePort
	w := newWorld(t, append(threeZones(), service, aSlice("web", 0, "a b"))...)
	expect := func(when string, want bool) {
		t.Helper()
		c := w.condition()
		if got := c != nil && strings.Contains(c.Message, "connections from outside are refused at all nodes of c, which"); got != want {
			t.Errorf("%s: %+v", when, c)
		}
	}
	w.sync("web")
	w.syncAfter(2 * time.Second)
	expect("kube-proxy serves", false)
	w.acknowledge(w.newestVersion())
	w.settle("web")
	expect("zone c has no endpoint", true)
	slice := w.slices("web")[0]
	slice.Endpoints = aSlice("web", 0, "a b c").Endpoints
	w.update(slice)
	w.settle("web")
	expect("each zone has one", false)
}

// Groups stay until kube-proxy sees the slices, which is after Kubernetes has removed the label from them.
func TestHandBackWaitsForKubernetes(t *testing.T) {
	w := newServedWorld(t)
	label := func(value string) {
		slice := w.slices("web")[0]
		delete(slice.Labels, v1alpha1.LabelServiceProxyName)
		if value != "" {
			slice.Labels[v1alpha1.LabelServiceProxyName] = value
		}
		w.update(slice)
	}
	label(v1alpha1.ServiceProxyName)
	w.changeService(func(s *corev1.Service) { delete(s.Annotations, v1alpha1.AnnotationProxy) })
	for range 5 {
		w.syncAfter(time.Minute)
	}
	if _, labelled := w.service("web").Labels[v1alpha1.LabelServiceProxyName]; labelled || len(w.groups()) == 0 {
		t.Fatalf("labels %v, %d groups", w.service("web").Labels, len(w.groups()))
	}
	if c := w.condition(); c == nil || !strings.Contains(c.Message, "EndpointSlice web-00 has the label") {
		t.Errorf("condition %+v", c)
	}
	label("")
	w.syncAfter(time.Second)
	w.syncAfter(9 * time.Second)
	if len(w.groups()) == 0 {
		t.Fatal("kube-proxy has no time to take the Service back")
	}
	w.syncAfter(time.Second)
	if n := len(w.groups()); n != 0 {
		t.Errorf("%d groups are left", n)
	}
}

// Groups follow the pods until their deletion, whatever ends the hand-over.
func TestGroupsFollowPodsUntilDeletion(t *testing.T) {
	edit := func(change func(*corev1.Service)) func(*world) {
		return func(w *world) { w.changeService(change) }
	}
	for name, stopServing := range map[string]func(*world){
		"nothing is asked for": edit(func(s *corev1.Service) { s.Annotations = nil }),
		"no plan can be made": edit(func(s *corev1.Service) {
			s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
			delete(s.Annotations, v1alpha1.AnnotationProxy)
		}),
		"hints deliver the plan": edit(func(s *corev1.Service) {
			s.Annotations = map[string]string{v1alpha1.AnnotationTopologyKeys: "topology.kubernetes.io/region,*"}
		}),
		"the namespace is excluded": func(w *world) { w.reconciler.options.Exclusion.Namespaces = []string{"shop"} },
		"groups are switched off":   func(w *world) { w.reconciler.options.Settings.WithoutGroups = true },
	} {
		t.Run(name, func(t *testing.T) {
			w := newServedWorld(t)
			stopServing(w)
			w.syncAfter(time.Second)
			w.syncAfter(time.Second)
			w.replacePods()
			w.syncAfter(time.Second)
			for _, zone := range []string{"a", "b", "c"} {
				if got, want := w.readyAddresses(zone), "10.99.0.1 10.99.0.2 10.99.0.3"; got != want {
					t.Errorf("zone %s has %q, want %q", zone, got, want)
				}
			}
			w.settle("web")
			if n := len(w.groups()); n != 0 {
				t.Errorf("%d groups are left", n)
			}
		})
	}
}

// A Service with the name of a deleted Service is handed over only when proxies have its own groups, even if the
// controller missed the deletion.
func TestRemadeServiceBeginsAnew(t *testing.T) {
	w := newWorld(t, append(threeZones(), proxied(), aSlice("web", 0, "a b c"))...)
	w.sync("web")
	old := w.newestVersion()
	before, _ := w.reconciler.memory.record(client.ObjectKeyFromObject(w.service("web")))
	if err := w.client.Delete(context.Background(), w.service("web")); err != nil {
		t.Fatal(err)
	}
	for _, group := range w.groups() {
		if err := w.client.Delete(context.Background(), group); err != nil {
			t.Fatal(err)
		}
	}
	again := proxied()
	again.UID = "another-uid"
	if err := w.client.Create(context.Background(), again); err != nil {
		t.Fatal(err)
	}
	w.clock.SetTime(w.clock.Now().Add(shell.TrustFor + time.Second))
	w.acknowledge(old)
	w.sync("web")
	record, _ := w.reconciler.memory.record(client.ObjectKeyFromObject(again))
	begun := record.handover.Begun
	if len(begun) == 0 || !slices.ContainsFunc(w.groups(), func(g *v1alpha1.EndpointGroup) bool { return g.Name == begun[0].Name }) {
		t.Errorf("the hand-over began with %+v", begun)
	}
	if record == before || record.uid != again.UID {
		t.Error("what is known of the other Service is remembered of this one")
	}
}

// Hints follow the pods while kube-proxy serves the Service, and are removed later.
func TestHintsWhileAHandOverWaits(t *testing.T) {
	w := newWorld(t, append(threeZones(), preferring("web"), aSlice("web", 0, twelve))...)
	w.settle("web")
	before := w.hints()
	w.changeService(func(s *corev1.Service) {
		s.UID = "web-uid"
		s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
		s.Annotations[v1alpha1.AnnotationProxy] = "true"
	})
	for range 3 {
		w.syncAfter(20 * time.Second)
	}
	if got := w.hints(); got != before || len(w.groups()) == 0 {
		t.Fatalf("hints %q, before %q, %d groups", got, before, len(w.groups()))
	}
	slice := w.slices("web")[0]
	slice.Endpoints = slice.Endpoints[3:] // one is left in zone a
	w.update(slice)
	for range 3 {
		w.syncAfter(20 * time.Second)
	}
	if got := w.hints(); strings.Count(got, "a") < 2 {
		t.Errorf("zone a is left to one endpoint: %q", got)
	}
	moved := w.hints()
	w.start(testOptions())
	w.syncAfter(time.Second)
	if got := w.hints(); got != moved {
		t.Errorf("a restart makes %q of %q", got, moved)
	}
	w.acknowledge(w.newestVersion())
	w.settle("web")
	labels := w.service("web").Labels
	if _, routed := labels[v1alpha1.LabelRouted]; routed || labels[v1alpha1.LabelServiceProxyName] != v1alpha1.ServiceProxyName {
		t.Errorf("labels %v after the hand-over", labels)
	}
}

// A Service with a selector is handed over only after Kubernetes has created its slices. Earlier acknowledgements do not
// cover its endpoints.
func TestHandOverWaitsForSlices(t *testing.T) {
	service := proxied()
	service.Spec.Selector = map[string]string{"app": "web"}
	w := newWorld(t, append(threeZones(), service)...)
	w.sync("web")
	w.acknowledge(w.newestVersion())
	w.settle("web")
	if service := w.service("web"); service.Labels[v1alpha1.LabelServiceProxyName] != "" {
		t.Fatal("handed over without slices")
	}
	if got := w.condition().Message; !strings.Contains(got, "until Kubernetes has made its EndpointSlices of IPv4") {
		t.Errorf("the condition says %q", got)
	}
	without := w.newestVersion()
	w.create(aSlice("web", 0, "a b c"))
	w.sync("web")
	if service := w.service("web"); service.Labels[v1alpha1.LabelServiceProxyName] != "" {
		t.Fatalf("handed over as of %s, without the endpoints of %s", without, w.newestVersion())
	}
	w.acknowledge(w.newestVersion())
	w.settle("web")
	if service := w.service("web"); service.Labels[v1alpha1.LabelServiceProxyName] != v1alpha1.ServiceProxyName {
		t.Errorf("not handed over: %+v", w.condition())
	}
}
