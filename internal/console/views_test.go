package console

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/inspect"
)

// Any user who may write a Deployment can give it the labels of vicinity-controller. Webhooks belong
// to the cluster.
func TestSeveralControllers(t *testing.T) {
	other := aController()
	other.Namespace = "a-tenant"
	w := newWorld(t, append(aCluster(), other, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "vicinity", Labels: map[string]string{"app.kubernetes.io/part-of": "vicinity"}},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{ClientConfig: admissionregistrationv1.WebhookClientConfig{
			Service: &admissionregistrationv1.ServiceReference{Namespace: "vicinity-system", Name: "vicinity-webhook"},
		}}},
	})...).start(t)
	v, about := read[clusterView](t, w, "/cluster")
	if a := v.Regions[0].Zones[0]; a.Proxies != 1 || len(about.NotKnown) != 1 || !strings.Contains(about.NotKnown[0], "Deployments vicinity-system/vicinity-controller and") {
		t.Errorf("the Leases of %d proxies were found, not known %q", a.Proxies, about.NotKnown)
	}
}

func TestClusterView(t *testing.T) {
	w := newWorld(t, aCluster()...).start(t)
	v, about := read[clusterView](t, w, "/cluster")
	if len(about.NotKnown) > 0 || v.All != 6 || len(v.Regions) != 1 || v.Regions[0].Region != "north" {
		t.Fatalf("got %+v, not known %q", v, about.NotKnown)
	}
	zones := v.Regions[0].Zones
	if a := zones[0]; a.Zone != "a" || a.Nodes != 2 || a.Ready != 2 || a.Counted != 2 || a.Traffic != 40 || a.Proxies != 1 {
		t.Errorf("zone a is %+v", a)
	}
	if b := zones[1]; b.Ready != 1 || b.Counted != 1 || b.Traffic != 20 {
		t.Errorf("zone b is %+v", b)
	}
	var states []inspect.ProxyState
	for _, node := range v.Nodes {
		states = append(states, node.Proxy)
	}
	if !slices.Equal(states[:3], []inspect.ProxyState{inspect.ProxyLives, inspect.ProxySilent, inspect.ProxyNone}) {
		t.Errorf("proxies are %v", states)
	}
	holds(t, w.get(t, "/cluster", 200), "Region <strong>north</strong>", `<span class="tag bad">1 of 2</span>`, `<span class="tag bad">not ready</span>`, "vicinity-proxy does not renew its Lease", `aria-current="page">Cluster`)
	for query, want := range map[string][]string{
		"zone=b": {"b-1", "b-2"}, "state=notReady": {"b-2"}, "q=c-": {"c-1", "c-2"}, "state=noProxy&zone=a": {"a-2"}, "per=2&page=2": {"b-1", "b-2"}, "per=2&page=99": {"c-1", "c-2"},
	} {
		v, _ := read[clusterView](t, w, "/cluster?"+query)
		var names []string
		for _, node := range v.Nodes {
			names = append(names, node.Node)
		}
		if !slices.Equal(names, want) {
			t.Errorf("%s: got %q, want %q", query, names, want)
		}
	}
	for query, says := range map[string]string{
		"state=odd": `state &#34;odd&#34; is not allowed; it must be one of`, "per=1000": `per &#34;1000&#34; is not allowed; it must be a number from 1 to 200`, "page=0": "page &#34;0&#34;",
	} {
		holds(t, w.get(t, "/cluster?"+query, 400), says)
	}
}

// The first page names zone shifts in force, and the page of a Service their effect.
func TestZoneShift(t *testing.T) {
	zs := &v1alpha1.ZoneShift{
		TypeMeta: ownMeta("ZoneShift"), ObjectMeta: metav1.ObjectMeta{Name: "out", CreationTimestamp: metav1.Now()},
		Spec: v1alpha1.ZoneShiftSpec{
			From: v1alpha1.ShiftedDomain{Key: corev1.LabelTopologyZone, Value: "a"}, For: metav1.Duration{Duration: time.Hour}, MaxOverload: 50, Reason: hostile,
		},
	}
	w := newWorld(t, aCluster()...).start(t)
	before := w.get(t, "/services/shop/web", 200)
	zs.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Accepted, Status: metav1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(zs)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.dynamic.Tracker().Create(v1alpha1.GroupVersion.WithResource("zoneshifts"), &unstructured.Unstructured{Object: content}, ""); err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "the first page names the shift", func() bool {
		return strings.Contains(w.get(t, "/cluster", 200), "zone shift out: endpoints in topology.kubernetes.io/zone=a will get no new connections until")
	})
	after := w.get(t, "/services/shop/web", 200)
	const effect = "zone shift out: 2 endpoints in topology.kubernetes.io/zone=a get no new connections until"
	if holds(t, after, effect); strings.Contains(before, effect) || strings.Contains(after, "<script>alert") {
		t.Errorf("before the shift:\n%s", before)
	}
}

// counted has the counts of a proxy for shop/web when it is read every 10 s: 30 connections from zone
// a to a, and 10 to b, each time.
func counted(asked int) []inspect.ProxyReading {
	n := float64(asked)
	return []inspect.ProxyReading{{Pod: "p", Node: "a-1", LowerBound: true, At: time.Unix(int64(10*asked), 0), Counts: map[inspect.TrafficKey]inspect.TrafficCount{
		{Namespace: "shop", Service: "web", From: "a", To: "a"}: {Connections: 30 * n},
		{Namespace: "shop", Service: "web", From: "a", To: "b"}: {Connections: 10 * n},
	}}}
}

func TestServicesView(t *testing.T) {
	w := newWorld(t, aCluster()...)
	w.answers.traffic = counted
	w.start(t)
	w.eventually(t, "traffic is measured, since someone looks", func() bool {
		w.get(t, "/services", 200)
		m := w.traffic.newest()
		return m.of("shop", "web") != nil
	})
	v, _ := read[servicesView](t, w, "/services")
	if v.All != 3 || v.Services[2].Service != "web" {
		t.Fatalf("got %+v", v)
	}
	web := v.Services[2]
	if web.Measured == nil || *web.Measured != 75 || *web.Connections != 4 || web.State != "allocated" || web.HandOver != inspect.HandOverNone {
		t.Errorf("shop/web is %+v", web)
	}
	if got := v.Measured.LowerBoundOn; !slices.Equal(got, []string{"a-1"}) {
		t.Errorf("bytes are lower bounds on %v, want a-1", got)
	}
	// The list has the values of status.
	statuses, err := inspect.StatusOf(w.watcher.newest.Load().reading(w.watcher.newest.Load().service("shop", "web")))
	if err != nil || statuses[0].Expected.InZone != web.Expected.InZone || statuses[0].Why != web.Why {
		t.Errorf("listed is %+v, status says %+v, %v", web, statuses, err)
	}
	holds(t, w.get(t, "/services", 200), `<a href="/services/shop/web"><span class="ns">shop/</span>web</a>`, "75\u00a0%", "4.0 connections/s", `aria-sort="ascending"`)
	for query, want := range map[string]string{
		"q=shop/": "plain web", "namespace=data": "db", "state=allocated": "web", "sort=measured&order=descending": "web plain db", "sort=endpoints": "plain db web",
		"delivery=Hints": "web", "handover=other": "db", "q=nothing": "", "per=1&page=2": "plain",
	} {
		v, _ := read[servicesView](t, w, "/services?"+query)
		var names []string
		for i := range v.Services {
			names = append(names, v.Services[i].Service)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	holds(t, w.get(t, "/services?q=nothing", 200), "No Service matches.")
	holds(t, w.get(t, "/services?sort=odd", 400), "sort &#34;odd&#34; is not allowed")
	holds(t, w.get(t, "/services?delivery=odd", 400), "it must be one of [Hints Groups None]")
}

func TestServiceView(t *testing.T) {
	policy := &v1alpha1.RoutingPolicy{
		TypeMeta: ownMeta("RoutingPolicy"), ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "near"},
		Spec: v1alpha1.RoutingPolicySpec{Mode: v1alpha1.Prefer, Level: v1alpha1.Zone, Algorithm: "local", OverloadThreshold: "80%"},
	}
	governed := aService("shop", "governed", map[string]string{v1alpha1.AnnotationTopologyMode: v1alpha1.PolicyPrefix + "near"})
	w := newWorld(t, aCluster(policy, governed, aSlice("shop", "governed", "a-1", "b-1", "c-1"))...)
	w.answers.traffic = counted
	w.answers.complete = func(*inspect.Explanation) error { return errors.New("etcd is away") }
	w.start(t)
	w.eventually(t, "traffic is measured, since someone looks", func() bool {
		w.get(t, "/services", 200)
		m := w.traffic.newest()
		return m.of("shop", "web") != nil
	})
	holds(t, w.get(t, "/services/shop/web", 200), "is not known: etcd is away")
	w.answers.complete = func(e *inspect.Explanation) error {
		e.Warnings, e.ServedBy = append(e.Warnings, "a gateway chooses"), []string{"A proxy follows"}
		return nil
	}
	v, about := read[serviceView](t, w, "/services/shop/web")
	if len(about.NotKnown) > 0 || v.Explanation.AsksFor == "" || v.Explanation.Families[0].State != "allocated" || *v.Traffic.InZoneConnections != 75 {
		t.Fatalf("got %+v, not known %q", v, about.NotKnown)
	}
	sum := 0.0
	for _, flow := range v.Families[0].Flows {
		sum += flow.Percent
	}
	if sum < 99.9 || sum > 100.1 {
		t.Errorf("%v add up to %v %%", v.Families[0].Flows, sum)
	}
	if zones := v.Families[0].Zones; len(zones) != 3 || zones[0].Number != 2 || zones[0].Nodes != 2 || zones[1].Nodes != 1 || zones[0].Endpoints[0].Pod != "web-0" {
		t.Errorf("endpoints are %+v", zones)
	}
	page := w.get(t, "/services/shop/web", 200)
	holds(t, page, "Where its traffic goes", "measured </span>75\u00a0%", "What each algorithm would give", "asked for", "Served by kube-proxy", "<dt>Condition</dt>", "a gateway chooses", "A proxy follows", `data-parts="service:shop/web traffic"`)
	holds(t, w.get(t, "/services/shop/governed", 200), "RoutingPolicy near", "overloadThreshold: 80%")
	holds(t, w.get(t, "/services/data/db", 200), "neither kube-proxy nor vicinity-proxy", `href="/names?name=db.data"`)
	holds(t, w.get(t, "/services/shop/none", 404), "no Service &#34;none&#34; is in namespace &#34;shop&#34;")
}

func TestNamesView(t *testing.T) {
	w := newWorld(t, aCluster()...).start(t)
	w.answers.name = &inspect.NameExplanation{
		Name: "db.data.svc.cluster.local.", Namespace: "data", Service: "db", Rule: inspect.RuleGroups, Why: []string{"the nearest are in its zone"},
		Answers: []inspect.NameAnswer{{Type: "A", Why: "1 of 2 is near", Of: 2, Records: []inspect.NameRecord{{Type: "A", Address: "10.0.0.1", Zone: "a", Node: "a-1"}}}},
	}
	holds(t, w.get(t, "/names", 200), `<option value="db.data">`, `<option value="node/a-1">`)
	holds(t, w.get(t, "/names?name=db.data&from=shop/client-1", 200), "the nearest are in its zone", "10.0.0.1", "A: 1 of 2 records", `data-parts="service:data/db cluster"`)
	v, _ := read[namesView](t, w, "/names?name=db.data&from=node/a-1")
	if w.answers.from != "192.0.2.7" || v.Address != "192.0.2.7" || v.Explanation.Service != "db" {
		t.Errorf("asked for %q, got %+v", w.answers.from, v)
	}
	holds(t, w.get(t, "/names?name=db.data&from=node/none", 400), "there is no such node")
	holds(t, w.get(t, "/names?name=db.data", 400), "must both be given")
	w.answers.nameErr = errors.New(`pod "x" does not exist`)
	holds(t, w.get(t, "/names?name=db.data&from=x", 200), "pod &#34;x&#34; does not exist")
}

func TestDisruptionView(t *testing.T) {
	since := metav1.Unix(1700000000, 0)
	blocked := &v1alpha1.TopologyDisruptionBudget{
		TypeMeta: ownMeta("TopologyDisruptionBudget"), ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: 2},
		Status: v1alpha1.TopologyDisruptionBudgetStatus{
			ObservedGeneration: 2, ExpectedPods: 6, CurrentHealthy: 4, DesiredHealthy: 4,
			Domains:    []v1alpha1.DomainStatus{{Domain: "b", Expected: 3, Healthy: 3, Desired: 2, Allowed: 1}, {Domain: "a", Expected: 3, Healthy: 1, Desired: 2, Disturbed: true}},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionDisruptionAllowed, Status: metav1.ConditionFalse, Reason: "InsufficientPods", Message: "zone a is disturbed", LastTransitionTime: since}},
		},
	}
	open := &v1alpha1.TopologyDisruptionBudget{TypeMeta: ownMeta("TopologyDisruptionBudget"), ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "open", Generation: 1}}
	rollout := &v1alpha1.DomainRollout{
		TypeMeta: ownMeta("DomainRollout"), ObjectMeta: metav1.ObjectMeta{Namespace: "data", Name: "db"},
		Spec: v1alpha1.DomainRolloutSpec{TargetRef: v1alpha1.RolloutTarget{Kind: "StatefulSet", Name: "db"}, TopologyKey: "topology.kubernetes.io/zone"},
		Status: v1alpha1.DomainRolloutStatus{
			Phase: "Updating", Revision: "db-2", Wave: 2, WaitingFor: "waits for pod db-1 to be ready",
			Domains:    []v1alpha1.RolloutDomain{{Name: "a", Pods: 3, Updated: 3, Healthy: 3, State: v1alpha1.DomainDone}, {Name: "b", Pods: 3, Updated: 1, State: v1alpha1.DomainUpdating}},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionTrue}},
		},
	}
	w := newWorld(t, aCluster(blocked, open, rollout)...).start(t)
	v, _ := read[disruptionView](t, w, "/disruption")
	if v.Blocking != 1 || v.All != 2 || v.Moving != 1 || v.Budgets[0].Name != "web" || v.Budgets[0].Domains[0].Domain != "a" || v.Budgets[1].Current {
		t.Errorf("got %+v", v)
	}
	page := w.get(t, "/disruption", 200)
	holds(t, page, "allows no eviction", `<time datetime="2023-11-14T22:13:20Z">`, "zone a is disturbed", "It waits for pod db-1 to be ready.", "4 of 6 pods updated, 3 healthy", "wave 2", "the status is older than the spec")
	if only := w.get(t, "/disruption?state=blocking", 200); strings.Contains(only, "a/</span>open") || strings.Contains(only, "StatefulSet db") {
		t.Error("the filter passes other items")
	}
	// A change of the status is shown.
	rollout.Status.WaitingFor = "stays as it is"
	w.update(t, "domainrollouts", rollout)
	w.eventually(t, "the page has the change", func() bool {
		return strings.Contains(w.get(t, "/disruption", 200), "It stays as it is.")
	})
}

func TestWhatIfView(t *testing.T) {
	w := newWorld(t, aCluster()...).start(t)
	holds(t, w.get(t, "/whatif", 200), `<option value="shop/web">`, "Choose a Service and a change.")
	v, _ := read[whatIfView](t, w, "/whatif?service=shop/web&zone=a")
	if len(v.Families) != 1 || v.Families[0].Now.Endpoints != 6 || v.Families[0].Then.Endpoints != 4 {
		t.Fatalf("got %+v", v)
	}
	for _, zone := range v.Families[0].Then.Zones {
		if zone.Zone == "a" {
			t.Errorf("the lost zone is among %+v", v.Families[0].Then.Zones)
		}
	}
	if v, _ = read[whatIfView](t, w, "/whatif?service=shop/web&zone=a&endpoints=9"); v.Families[0].Then.Endpoints != 9 {
		t.Errorf("got %+v", v.Families[0].Then)
	}
	if v, _ = read[whatIfView](t, w, "/whatif?service=shop/web&endpoints=2"); v.Families[0].Then.Endpoints != 2 {
		t.Errorf("got %+v", v.Families[0].Then)
	}
	if v, _ = read[whatIfView](t, w, "/whatif?service=shop/web&algorithm=local"); v.Families[0].Then.Algorithm != "local" || v.Families[0].Now.Algorithm != "optimal" {
		t.Errorf("got %+v", v.Families[0].Then)
	}
	holds(t, w.get(t, "/whatif?service=shop/web&endpoints=0", 200), "no endpoint is left")
	holds(t, w.get(t, "/whatif?service=shop/web&zone=a", 200), "gone", "lost pods are not replaced")
	for query, says := range map[string]string{
		"service=web": "it must be NAMESPACE/NAME", "service=shop/web&zone=z": `zone &#34;z&#34; has no node; allowed are a, b, c`, "service=shop/web&endpoints=x": "it must be a number from 0 to 10000",
		"service=shop/web&endpoints=10001": "it must be from 0 to 10000", "service=shop/web&algorithm=odd": "algorithm &#34;odd&#34; is unknown", "service=shop/web&algorithm=flow": "cannot be delivered by hints",
	} {
		holds(t, w.get(t, "/whatif?"+query, 400), says)
	}
	holds(t, w.get(t, "/whatif?service=shop/none", 404), "no Service")
}

// Pages name the missing right; the rest works.
func TestMissingRights(t *testing.T) {
	for resource, says := range map[string]string{
		"nodes":                     "Nodes may not be read, so the origin of traffic is unknown, and so are plans. Missing right: list and watch nodes in the whole cluster",
		"services":                  "Services may not be read, so no Service is shown",
		"endpointslices":            "Missing right: list and watch endpointslices.discovery.k8s.io in the whole cluster",
		"namespaces":                "Namespaces may not be read",
		"deployments":               "vicinity-controller is assumed to have its default flags",
		"leases":                    "Missing right: list leases.coordination.k8s.io",
		"endpointgroups":            "Missing right: list and watch endpointgroups.vicinity.dev in the whole cluster",
		"routingpolicies":           "RoutingPolicies may not be read",
		"clusterroutingpolicies":    "ClusterRoutingPolicies may not be read",
		"zoneshifts":                "ZoneShifts may not be read, so none counts here",
		"topologydisruptionbudgets": "no budget is shown",
		"domainrollouts":            "no rollout is shown",
	} {
		t.Run(resource, func(t *testing.T) {
			w := newWorld(t, aCluster()...)
			w.refuse(resource, forbidden(resource))
			w.start(t)
			w.eventually(t, "it is said what is missing", func() bool { return strings.Contains(w.get(t, "/cluster", 200), says) })
			holds(t, w.get(t, "/cluster", 200), "docs/reference/permissions.md")
			for _, path := range []string{"/services", "/disruption", "/whatif", "/names"} {
				w.get(t, path, 200)
			}
			status := 200
			if resource == "services" {
				status = 404
			}
			w.get(t, "/services/shop/web", status)
		})
	}
}

func TestWithoutVicinity(t *testing.T) {
	w := newWorld(t, aNode("a-1", "a", true), aService("shop", "web", prefer), aSlice("shop", "web", "a-1"))
	for plural := range ownKinds {
		w.refuse(plural, &notInstalled)
	}
	w.start(t)
	w.eventually(t, "it is said that CRDs are missing", func() bool {
		return strings.Contains(w.get(t, "/services", 200), "the cluster has no RoutingPolicies, since Vicinity&#39;s CRDs are not installed")
	})
	w.eventually(t, "it is said that no proxy is there", func() bool {
		return strings.Contains(w.get(t, "/services", 200), "Traffic is not measured: vicinity-proxy is not installed")
	})
	holds(t, w.get(t, "/services", 200), "no vicinity-controller is installed")
	holds(t, w.get(t, "/services/shop/web", 200), "start vicinity-controller")
}

// While the cluster does not answer, the pages show older data, and say since when.
func TestClusterIsOffline(t *testing.T) {
	w := newWorld(t, aCluster()...)
	gone := &url.Error{Op: "Get", URL: "https://cluster.test", Err: errors.New("connection refused")}
	w.start(t)
	w.watcher.outcome(&w.watcher.kinds[0], "watch", gone)
	w.eventually(t, "it is said", func() bool {
		return strings.Contains(w.get(t, "/services", 200), "The cluster has not answered since")
	})
	holds(t, w.get(t, "/services", 200), "shop/</span>web", "the cluster does not answer: connection refused")
	_, before := read[servicesView](t, w, "/services")
	if before.OfflineSince == nil {
		t.Error("the JSON does not say it")
	}
	w.watcher.outcome(&w.watcher.kinds[0], "watch", errors.New("connection reset"))
	w.eventually(t, "the other reason is said", func() bool { return strings.Contains(w.get(t, "/services", 200), "connection reset") })
	if _, after := read[servicesView](t, w, "/services"); !after.At.Equal(before.At) {
		t.Errorf("a change seems to be read at %s, when the cluster does not answer", after.At)
	}
	w.watcher.outcome(&w.watcher.kinds[0], "watch", nil)
	w.eventually(t, "it is over", func() bool {
		return !strings.Contains(w.get(t, "/services", 200), "The cluster has not answered since")
	})
}

// When a right is lost, pages go on showing older data and say so.
func TestRightsAreLost(t *testing.T) {
	w := newWorld(t, aCluster()...).start(t)
	for name, test := range map[string]struct {
		err  error
		says string
	}{
		kindServices:        {forbidden("services"), "Services may not be read any more; older data is shown. Missing right: list and watch services in the whole cluster"},
		inspect.KindNodes:   {apierrors.NewUnauthorized("expired"), "the cluster does not accept the credentials of the kubeconfig; older data is shown"},
		inspect.KindBudgets: {&notInstalled, "the cluster has no TopologyDisruptionBudgets any more"},
	} {
		at := slices.IndexFunc(w.watcher.kinds, func(k kind) bool { return k.name == name })
		w.watcher.outcome(&w.watcher.kinds[at], "list", test.err)
		w.eventually(t, test.says, func() bool { return strings.Contains(w.get(t, "/services", 200), test.says) })
	}
	holds(t, w.get(t, "/services", 200), "shop/</span>web")
}

func TestBrokenObjects(t *testing.T) {
	w := newWorld(t, aCluster()...)
	bad := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "EndpointGroup",
		"metadata": map[string]any{"namespace": "shop", "name": "odd"}, "spec": map[string]any{"endpoints": "none"},
	}}
	if err := w.dynamic.Tracker().Create(v1alpha1.GroupVersion.WithResource("endpointgroups"), bad, "shop"); err != nil {
		t.Fatal(err)
	}
	w.start(t)
	w.eventually(t, "it is named", func() bool {
		return strings.Contains(w.get(t, "/services", 200), "EndpointGroup shop/odd is invalid and left out")
	})
	holds(t, w.get(t, "/services", 200), "shop/</span>web")
}

// Text from tenants is escaped everywhere.
func TestHostileTexts(t *testing.T) {
	service := aService("shop", "odd", map[string]string{v1alpha1.AnnotationSameZone: hostile, v1alpha1.AnnotationTopologyKeys: hostile})
	service.Status.Conditions = []metav1.Condition{{Type: "vicinity.dev/TopologyRouting", Status: metav1.ConditionTrue, Reason: hostile, Message: hostile}}
	node := aNode(hostile, hostile, false)
	slice := aSlice("shop", "odd", "a-1")
	slice.Endpoints[0].TargetRef.Name, slice.Endpoints[0].Addresses[0] = hostile, hostile
	budget := &v1alpha1.TopologyDisruptionBudget{TypeMeta: ownMeta("TopologyDisruptionBudget"), ObjectMeta: metav1.ObjectMeta{Namespace: hostile, Name: hostile}}
	budget.Status.Domains = []v1alpha1.DomainStatus{{Domain: hostile, Group: hostile}}
	budget.Status.Reservations = []v1alpha1.Reservation{{Pod: hostile}}
	budget.Status.Conditions = []metav1.Condition{{Type: hostile, Status: metav1.ConditionFalse, Reason: hostile, Message: hostile}}
	rollout := &v1alpha1.DomainRollout{TypeMeta: ownMeta("DomainRollout"), ObjectMeta: metav1.ObjectMeta{Namespace: hostile, Name: hostile}}
	rollout.Spec.TargetRef = v1alpha1.RolloutTarget{Kind: hostile, Name: hostile}
	rollout.Status = v1alpha1.DomainRolloutStatus{Phase: v1alpha1.RolloutPhase(hostile), WaitingFor: hostile, Domains: []v1alpha1.RolloutDomain{{Name: hostile}}}
	w := newWorld(t, aCluster(service, node, slice, budget, rollout)...)
	w.answers.name = &inspect.NameExplanation{Name: hostile, Why: []string{hostile}, Answers: []inspect.NameAnswer{{Type: hostile, Records: []inspect.NameRecord{{Address: hostile, Zone: hostile}}}}}
	w.answers.trafficErr = errors.New(hostile)
	w.start(t)
	asked := url.QueryEscape(hostile)
	found := 0
	for path, status := range map[string]int{
		"/cluster?q=" + url.QueryEscape("<"): 200, "/cluster": 200, "/services?q=" + asked: 200, "/services?namespace=" + asked: 200, "/services?state=" + asked: 200,
		"/services": 200, "/services/shop/odd": 200, "/names?name=" + asked + "&from=" + asked: 200, "/disruption": 200, "/disruption?q=" + asked: 200,
		"/whatif?service=shop/odd&zone=" + asked: 200, "/whatif?service=" + asked: 400, "/services/shop/" + url.PathEscape(strings.ReplaceAll(hostile, "/", "")): 404,
	} {
		page := w.get(t, path, status)
		for _, no := range []string{"<script>alert", "<img", "</style></script>"} {
			if strings.Contains(page, no) {
				t.Errorf("%s has %q", path, no)
			}
		}
		found += strings.Count(page, "&lt;script&gt;alert(1)")
	}
	if found < 20 {
		t.Errorf("the text is in only %d places, so the test checks nothing", found)
	}
}
