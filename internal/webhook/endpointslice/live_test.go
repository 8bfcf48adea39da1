package endpointslice

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/translate"
	"vicinity.dev/vicinity/internal/webhook/admission"
	"vicinity.dev/vicinity/internal/webhook/certificates"
	"vicinity.dev/vicinity/test/rig"
)

// cluster is a control plane with the real controllers of Kubernetes, and the webhook
// served by this process.
type cluster struct {
	rig.ControlPlane
	// planner writes hints as the routing controller.
	planner  kubernetes.Interface
	registry *prometheus.Registry
	metrics  *admission.Metrics
	certs    *certificates.Certificates
	events   *events
}

// on is the cluster for a part of a test.
func (c *cluster) on(t *testing.T) *cluster {
	part := *c
	part.ControlPlane = c.For(t)
	return &part
}

const (
	system = "vicinity-system"
	gate   = "vicinity.dev/test"
)

// live brings the cluster up. Pods are ready when the test says so.
func live(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{
		ControlPlane: rig.Start(t),
		registry:     prometheus.NewRegistry(),
	}
	log.SetLogger(logr.Discard())
	config := c.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: controllerUser, Groups: []string{"system:masters"}}
	c.planner = kubernetes.NewForConfigOrDie(config)
	var err error
	if c.metrics, err = admission.NewMetrics(c.registry); err != nil {
		t.Fatal(err)
	}
	c.Make("shop", `
{apiVersion: v1, kind: Namespace, metadata: {name: vicinity-system}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: Secret, metadata: {name: webhook, namespace: vicinity-system}}
`)
	c.serve()
	return c
}

// serve runs a manager with the webhook and its certificates, and registers both
// webhooks as the documentation of the package says, with the address of this process.
func (c *cluster) serve() {
	c.Helper()
	listener, err := new(net.ListenConfig).Listen(c.Context(), "tcp", "localhost:0")
	if err != nil {
		c.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		c.Fatal(err)
	}
	c.certs, err = certificates.New(certificates.Options{
		Secret: types.NamespacedName{Namespace: system, Name: "webhook"}, Names: []string{"localhost"}, Mutating: []string{"vicinity"},
	})
	if err != nil {
		c.Fatal(err)
	}
	mgr, err := manager.New(c.Config(), manager.Options{
		Logger:        testr.NewWithInterface(c, testr.Options{}),
		Metrics:       metricsserver.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{Host: "localhost", Port: port, TLSOpts: []func(*tls.Config){c.certs.Configure}}),
	})
	if err != nil {
		c.Fatal(err)
	}
	if err := c.certs.Register(mgr); err != nil {
		c.Fatal(err)
	}
	if err := Register(mgr, Options{User: controllerUser, Exclusion: translate.Exclusion{Own: system, Namespaces: translate.DefaultExcluded()}, Metrics: c.metrics}); err != nil {
		c.Fatal(err)
	}
	c.configure(port)
	ctx, cancel := context.WithCancel(c.Context())
	var work sync.WaitGroup
	work.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			c.Error(err)
		}
	})
	c.Cleanup(func() {
		cancel()
		work.Wait()
	})
	c.Await("the certificates", func(context.Context) (string, error) { return "", c.certs.Ready(nil) })
}

// configure registers the webhooks. The controller's own writes are sent here too, so
// that it is the handler that leaves them alone. An answer may take longer than the chart
// allows: API servers go on without one, and what is tested here is what it says.
func (c *cluster) configure(port int) {
	c.Helper()
	const common = `clientConfig: {url: "https://localhost:PORT/mutate-endpointslice"}, failurePolicy: Ignore, timeoutSeconds: 30,
   sideEffects: None, reinvocationPolicy: Never, admissionReviewVersions: [v1], matchPolicy: Equivalent,
   namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, vicinity-system]}]},
   rules: [{apiGroups: [discovery.k8s.io], apiVersions: [v1], resources: [endpointslices], operations: [CREATE, UPDATE], scope: Namespaced}]`
	c.Make("shop", strings.ReplaceAll(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: vicinity}
webhooks:
- {name: routed.endpointslice.vicinity.dev, `+common+`,
   objectSelector: {matchExpressions: [{key: vicinity.dev/routed, operator: In, values: ["true"]}]}}
- {name: own-zone.endpointslice.vicinity.dev, `+common+`,
   objectSelector: {matchExpressions: [
     {key: vicinity.dev/routed, operator: NotIn, values: ["true"]},
     {key: endpoint-slice-hints.resources.gardener.cloud/consider, operator: In, values: ["true"]}]}}
`, "PORT", fmt.Sprint(port)))
}

// service makes a Service and pods for it, in turn on the nodes of three zones, all
// of them ready, and waits for their slice.
func (c *cluster) service(name, labels string, pods int) {
	c.Helper()
	c.Make("shop", fmt.Sprintf(`
{apiVersion: v1, kind: Service, metadata: {name: %s, labels: {%s}}, spec: {selector: {app: %s}, ports: [{port: 80}]}}
`, name, labels, name))
	for i := range pods {
		c.pod(name, i)
	}
	for i := range pods {
		c.setReady(name, i, true)
	}
	c.waitReady(name, pods)
}

func (c *cluster) pod(service string, i int) {
	c.Helper()
	c.Make("shop", fmt.Sprintf(`
{apiVersion: v1, kind: Pod, metadata: {name: %s-%d, labels: {app: %s}}, spec: {
  nodeName: zone-%c-1, automountServiceAccountToken: false, readinessGates: [{conditionType: %s}],
  containers: [{name: c, image: lab/sleep}]}}
`, service, i, service, 'a'+rune(i%3), gate))
	c.Await("an address", func(ctx context.Context) (string, error) {
		pod, err := c.CoreV1().Pods("shop").Get(ctx, fmt.Sprintf("%s-%d", service, i), metav1.GetOptions{})
		if err == nil && pod.Status.PodIP == "" {
			return pod.Name, nil
		}
		return "", err
	})
}

// setReady opens or closes a pod's readiness gate, and says at once what follows.
func (c *cluster) setReady(service string, i int, ready bool) {
	c.Helper()
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q},{"type":"Ready","status":%q}]}}`, gate, status, status)
	if _, err := c.CoreV1().Pods("shop").Patch(c.Context(), fmt.Sprintf("%s-%d", service, i), types.StrategicMergePatchType,
		[]byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		c.Fatal(err)
	}
}

// slices are those of a Service.
func (c *cluster) slices(ctx context.Context, service string) ([]discoveryv1.EndpointSlice, error) {
	list, err := c.DiscoveryV1().EndpointSlices("shop").List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// waitReady waits until as many endpoints of a Service are ready as said, and returns
// its slices.
func (c *cluster) waitReady(service string, want int) (slices []discoveryv1.EndpointSlice) {
	c.Helper()
	c.Await(fmt.Sprintf("%d ready endpoints of %s", want, service), func(ctx context.Context) (string, error) {
		var err error
		slices, err = c.slices(ctx, service)
		ready := 0
		for _, s := range slices {
			for _, e := range s.Endpoints {
				if e.Conditions.Ready != nil && *e.Conditions.Ready {
					ready++
				}
			}
		}
		if ready != want {
			return fmt.Sprint(ready), err
		}
		return "", err
	})
	return slices
}

// plan hints all endpoints of a Service to the zone after their own, as the routing
// controller, by a patch that tests the resource version.
func (c *cluster) plan(service string) {
	c.Helper()
	next := map[string]string{"zone-a": "zone-b", "zone-b": "zone-c", "zone-c": "zone-a"}
	c.Await("the plan to be written", func(ctx context.Context) (string, error) {
		slices, err := c.slices(ctx, service)
		if err != nil {
			return "", err
		}
		for _, s := range slices {
			operations := []map[string]any{{"op": "test", "path": "/metadata/resourceVersion", "value": s.ResourceVersion}}
			for i, e := range s.Endpoints {
				operations = append(operations, map[string]any{
					"op": "add", "path": fmt.Sprintf("/endpoints/%d/hints", i), "value": map[string]any{"forZones": []any{map[string]any{"name": next[*e.Zone]}}},
				})
			}
			patch, err := json.Marshal(operations)
			if err != nil {
				return "", err
			}
			if _, err := c.planner.DiscoveryV1().EndpointSlices("shop").Patch(ctx, s.Name, types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
				return "", err
			}
		}
		return "", nil
	})
}

// hints are those of a Service by address.
func hintsByAddress(slices []discoveryv1.EndpointSlice) map[string]string {
	all := map[string]string{}
	for i := range slices {
		texts := strings.Fields(hintsOf(&slices[i]))
		for j, e := range slices[i].Endpoints {
			all[e.Addresses[0]] = texts[j]
		}
	}
	return all
}

// events counts what a watcher of slices hears, by Service.
type events struct {
	mu    sync.Mutex
	count map[string]int
	// seen is the highest resource version heard of each slice.
	seen map[string]string
}

// watch counts events from now on.
func (c *cluster) watch() {
	c.Helper()
	list, err := c.DiscoveryV1().EndpointSlices("shop").List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	w, err := c.DiscoveryV1().EndpointSlices("shop").Watch(c.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		c.Fatal(err)
	}
	c.events = &events{count: map[string]int{}, seen: map[string]string{}}
	var work sync.WaitGroup
	work.Go(func() {
		for event := range w.ResultChan() {
			if s, ok := event.Object.(*discoveryv1.EndpointSlice); ok && event.Type != watch.Bookmark {
				c.events.mu.Lock()
				c.events.count[s.Labels[discoveryv1.LabelServiceName]]++
				c.events.seen[s.Name] = s.ResourceVersion
				c.events.mu.Unlock()
			}
		}
	})
	c.Cleanup(func() {
		w.Stop()
		work.Wait()
	})
}

// heard is how many events there were of a Service, once the watcher has heard of a
// slice that is written now, after all of them.
func (c *cluster) heard(service string) int {
	c.Helper()
	mark, err := c.DiscoveryV1().EndpointSlices("shop").Create(c.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "mark-"}, AddressType: discoveryv1.AddressTypeIPv4,
	}, metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	c.Await("the watcher to catch up", func(context.Context) (string, error) {
		c.events.mu.Lock()
		defer c.events.mu.Unlock()
		if c.events.seen[mark.Name] == "" {
			return "it has not", nil
		}
		return "", nil
	})
	c.events.mu.Lock()
	defer c.events.mu.Unlock()
	return c.events.count[service]
}

// quiesce waits until upstream has looked at Services after all that was done to them:
// it makes slices for a few that are made later, one after the other.
func (c *cluster) quiesce() {
	c.Helper()
	for i := range 3 {
		name := fmt.Sprintf("later-%d-%d", time.Now().UnixNano(), i)
		c.Make("shop", fmt.Sprintf(`
{apiVersion: v1, kind: Service, metadata: {name: %s}, spec: {selector: {app: nobody}, ports: [{port: 80}]}}
`, name))
		c.Await("a slice of "+name, func(ctx context.Context) (string, error) {
			slices, err := c.slices(ctx, name)
			if err == nil && len(slices) == 0 {
				return "none", nil
			}
			return "", err
		})
	}
}

// TestBesideKubernetes runs the webhook beside the real controllers of Kubernetes.
func TestBesideKubernetes(t *testing.T) {
	c := live(t)
	t.Run("readiness", func(t *testing.T) { hintsSurvive(c.on(t)) })
	t.Run("several slices", func(t *testing.T) { slicesAreRepacked(c.on(t)) })
	t.Run("a mirrored slice", func(t *testing.T) { mirroredSliceIsKept(c.on(t)) })
	t.Run("a large slice", func(t *testing.T) { largeSliceIsRestored(c.on(t)) })
	if counted := results(t, c.registry); counted[string(admission.Failed)] > 0 || counted[string(admission.Degraded)] > 0 {
		t.Errorf("the webhook counted %v, want none failed or degraded", counted)
	}
}

// hintsSurvive changes the readiness of pods again and again, beside the real
// controller of Kubernetes. The hints stay, a watcher hears of each change once, as it
// does of a Service without hints, and nothing goes on by itself afterwards.
func hintsSurvive(c *cluster) {
	const (
		changes = 50
		pods    = 6
	)
	routed := v1alpha1.LabelRouted + `: "true"`
	for service, labels := range map[string]string{"plain": "", "routed": routed, "gardener": v1alpha1.LabelOwnZone + `: "true"`} {
		c.service(service, labels, pods)
	}
	c.plan("routed")
	c.quiesce()
	planned := hintsByAddress(c.waitReady("routed", pods))
	c.watch()
	for _, service := range []string{"plain", "routed", "gardener"} {
		own := hintsByAddress(c.waitReady(service, pods))
		for i := range changes {
			c.setReady(service, 0, i%2 == 1)
			got := hintsByAddress(c.waitReady(service, pods-1+i%2))
			for address, hint := range got {
				if hint != own[address] || service != "plain" && hint == "-" {
					c.Fatalf("after change %d of %s, %s is hinted to %s, before it was to %s", i, service, address, hint, own[address])
				}
			}
		}
		c.quiesce()
		heard := c.heard(service)
		c.Logf("%s: %d events of %d readiness changes", service, heard, changes)
		if heard != changes {
			c.Errorf("a watcher heard %d events of %d readiness changes of %s", heard, changes, service)
		}
	}
	if got := hintsByAddress(c.waitReady("routed", pods)); fmt.Sprint(got) != fmt.Sprint(planned) {
		c.Errorf("the hints are %v, want the planned %v", got, planned)
	}
	counted := results(c, c.registry)
	c.Logf("the webhook counted %v", counted)
	if counted[string(admission.Changed)] < 2*changes {
		c.Errorf("the webhook counted %v, want %d changed or more", counted, 2*changes)
	}
}

// slicesAreRepacked has Kubernetes split and rewrite slices.
func slicesAreRepacked(c *cluster) {
	const pods = 103 // one slice holds 100
	before := results(c, c.registry)
	c.service("big", v1alpha1.LabelRouted+`: "true"`, pods)
	c.plan("big")
	c.quiesce()
	slices := c.waitReady("big", pods)
	planned := hintsByAddress(slices)
	if len(slices) < 2 || len(planned) != pods {
		c.Fatalf("there are %d slices with %d endpoints, want two with %d", len(slices), len(planned), pods)
	}
	c.watch()

	// Each sync writes all slices, and one of them changes.
	const changes = 10
	for i := range changes {
		c.setReady("big", 0, i%2 == 1)
		c.waitReady("big", pods-1+i%2)
	}
	c.quiesce()
	heard := c.heard("big")
	c.Logf("%d slices: %d events of %d readiness changes", len(slices), heard, changes)
	if heard != changes {
		c.Errorf("a watcher heard %d events of %d readiness changes", heard, changes)
	}

	// Another port makes new slices, which Kubernetes writes over the old ones.
	if err := c.PatchService(c.Context(), "shop", "big", `{"spec":{"ports":[{"port":80,"targetPort":8080}]}}`); err != nil {
		c.Fatal(err)
	}
	c.Await("the new port", func(ctx context.Context) (string, error) {
		slices, err := c.slices(ctx, "big")
		for _, s := range slices {
			if *s.Ports[0].Port != 8080 {
				return s.Name, err
			}
		}
		return "", err
	})
	// What was moved out of a slice that is written already is a new endpoint.
	zones, had := map[string]string{}, hintsByAddress(c.waitReady("big", pods))
	for _, s := range c.waitReady("big", pods) {
		for _, e := range s.Endpoints {
			zones[e.Addresses[0]] = *e.Zone
		}
	}
	moved := 0
	for address, hint := range had {
		if hint == planned[address] {
			continue
		}
		if moved++; hint != zones[address] {
			c.Errorf("with another port, %s of %s is hinted to %s, want that or the planned %s", address, zones[address], hint, planned[address])
		}
	}
	c.Logf("another port: %d of %d endpoints are hinted to their own zone instead of as planned", moved, pods)

	// A pod that is new is hinted to its own zone before the controller hears of it.
	c.pod("big", pods)
	c.setReady("big", pods, true)
	for address, hint := range hintsByAddress(c.waitReady("big", pods+1)) {
		if want, ok := had[address]; ok && hint != want || !ok && hint != fmt.Sprintf("zone-%c", 'a'+rune(pods%3)) {
			c.Errorf("with one pod more, %s is hinted to %s", address, hint)
		}
	}
	counted := results(c, c.registry)
	c.Logf("the webhook counted %v", counted)
	if restored := counted[string(admission.Restored)] - before[string(admission.Restored)]; restored < changes {
		c.Errorf("the webhook restored %d slices, want %d or more", restored, changes)
	}
}

// largeSliceIsRestored strips the hints of a slice of as many endpoints as the API
// takes, again and again, in turn with writes of one that the webhook does not see.
func largeSliceIsRestored(c *cluster) {
	const writes = 50
	api := c.DiscoveryV1().EndpointSlices("shop")
	update := func(s *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, time.Duration) {
		begin := time.Now()
		got, err := api.Update(c.Context(), s, metav1.UpdateOptions{})
		if err != nil {
			c.Fatal(err)
		}
		return got, time.Since(begin)
	}
	large := func(name string, labels map[string]string) *discoveryv1.EndpointSlice {
		s := largeSlice(1000)
		s.ObjectMeta = metav1.ObjectMeta{Name: name, Labels: labels}
		s, err := c.planner.DiscoveryV1().EndpointSlices("shop").Create(c.Context(), s, metav1.CreateOptions{})
		if err != nil {
			c.Fatal(err)
		}
		return s
	}
	planned := large("large", map[string]string{v1alpha1.LabelRouted: yes, discoveryv1.LabelServiceName: "large"})
	unseen := large("unseen", map[string]string{discoveryv1.LabelServiceName: "unseen"})
	var restored, plain []time.Duration
	for i := range writes {
		stripped := planned.DeepCopy()
		for j := range stripped.Endpoints {
			stripped.Endpoints[j].Hints = nil
		}
		stripped.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: time.Unix(int64(i), 0).UTC().Format(time.RFC3339Nano)}
		got, took := update(stripped)
		if got.ResourceVersion != planned.ResourceVersion || hintsOf(got) != hintsOf(planned) {
			c.Fatalf("write %d of a slice without its hints was stored as %s, want it to stay %s", i, got.ResourceVersion, planned.ResourceVersion)
		}
		restored = append(restored, took)
		_, took = update(unseen)
		plain = append(plain, took)
	}
	c.Logf("an update of %d endpoints takes p50 %.1f ms when it is restored, %.1f ms when it changes nothing and no webhook sees it",
		len(planned.Endpoints), percentile(restored, 50)/1000, percentile(plain, 50)/1000)
}

// mirroredSliceIsKept has Kubernetes mirror Endpoints into a slice, which it writes whole,
// with labels that are those of the Endpoints.
func mirroredSliceIsKept(c *cluster) {
	c.Make("shop", `
{apiVersion: v1, kind: Service, metadata: {name: mirrored}, spec: {ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Endpoints, metadata: {name: mirrored}, subsets: [{addresses: [{ip: 10.66.0.1}, {ip: 10.66.0.2}], ports: [{port: 80}]}]}
`)
	mirror := c.waitReady("mirrored", 2)[0]
	operations := []map[string]any{{"op": "add", "path": "/metadata/labels/vicinity.dev~1routed", "value": "true"}}
	for i := range mirror.Endpoints {
		operations = append(operations, map[string]any{
			"op": "add", "path": fmt.Sprintf("/endpoints/%d/hints", i), "value": map[string]any{"forZones": []any{map[string]any{"name": "zone-b"}}},
		})
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		c.Fatal(err)
	}
	if _, err := c.planner.DiscoveryV1().EndpointSlices("shop").Patch(c.Context(), mirror.Name, types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
		c.Fatal(err)
	}
	more := `{"subsets": [{"addresses": [{"ip": "10.66.0.1"}, {"ip": "10.66.0.2"}, {"ip": "10.66.0.3"}], "ports": [{"port": 80}]}]}`
	if _, err := c.CoreV1().Endpoints("shop").Patch(c.Context(), "mirrored", types.MergePatchType, []byte(more), metav1.PatchOptions{}); err != nil {
		c.Fatal(err)
	}
	slices := c.waitReady("mirrored", 3)
	if got := hintsByAddress(slices); slices[0].Labels[v1alpha1.LabelRouted] != "true" || got["10.66.0.1"] != "zone-b" || got["10.66.0.2"] != "zone-b" {
		c.Errorf("labels %v, hints %v", slices[0].Labels, got)
	}
}
