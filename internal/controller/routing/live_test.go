package routing

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/controller/shell"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/hints"
	"vicinity.dev/vicinity/test/rig"
)

// TestAgainstKubernetes runs the controller beside Kubernetes' own controllers, with a
// real API server and no webhook.
func TestAgainstKubernetes(t *testing.T) {
	c := live(t)
	stop := c.run()
	t.Run("slices by hand are routed", func(t *testing.T) { c.on(t).byHand(t) })
	t.Run("guards are minded by the API server", func(t *testing.T) { c.on(t).guards(t) })
	t.Run("hints that Kubernetes removes", func(t *testing.T) { c.on(t).stripped(t) })
	t.Run("hints that a webhook drops", func(t *testing.T) { c.on(t).dropped(t) })
	t.Run("policies have a status", func(t *testing.T) { c.on(t).policies() })
	t.Run("a headless Service has groups", func(t *testing.T) { c.on(t).headless(t) })
	stop()
	t.Run("a restart writes nothing", func(t *testing.T) { c.on(t).restart(t) })
	t.Run("what is not asked for any more goes", func(t *testing.T) { c.on(t).goes(t) })
}

// cluster is a control plane with the real controllers of Kubernetes.
type cluster struct {
	rig.ControlPlane
	objects client.Client
}

// on is the cluster for a part of a test.
func (c *cluster) on(t *testing.T) *cluster { return &cluster{c.For(t), c.objects} }

func live(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{ControlPlane: rig.Start(t)}
	log.SetLogger(logr.Discard())
	var err error
	if c.objects, err = client.New(c.Config(), client.Options{Scheme: testScheme(t)}); err != nil {
		t.Fatal(err)
	}
	c.Make("", "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}")
	zones := rig.Halls(3) // as the slices of tests name them
	zones["zone-a-1"], zones["zone-b-1"], zones["zone-c-1"] = "a", "b", "c"
	c.Label(corev1.LabelTopologyZone, zones)
	return c
}

// run runs a controller until it is told to stop.
func (c *cluster) run() (stop func()) {
	c.Helper()
	options := testOptions()
	skip := true
	mgrOptions := manager.Options{
		Scheme: testScheme(c), Cache: CacheOptions(options), Metrics: metricsserver.Options{BindAddress: "0"},
	}
	mgrOptions.Controller.SkipNameValidation = &skip // they run one after the other
	mgr, err := manager.New(c.Config(), mgrOptions)
	if err != nil {
		c.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.Context())
	if err := addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		c.Fatal(err)
	}
	recorder, err := shell.NewRecorder(ctx, mgr, "vicinity-controller")
	if err != nil {
		c.Fatal(err)
	}
	r := newReconciler(mgr.GetClient(), recorder, clock.RealClock{}, options)
	if err := errors.Join(r.addServices(mgr), r.addPolicies(mgr)); err != nil {
		c.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			c.Error(err)
		}
	}
}

// waitReason waits until the condition of a Service has a reason, and returns it.
func (c *cluster) waitReason(t *testing.T, name, reason string) *corev1.Service {
	t.Helper()
	service := new(corev1.Service)
	c.Await("reason "+reason+" of "+name, func(ctx context.Context) (string, error) {
		err := c.objects.Get(ctx, types.NamespacedName{Namespace: "shop", Name: name}, service)
		condition := routing.ConditionOf(service)
		switch {
		case err != nil:
			return "", err
		case condition == nil && reason != "":
			return "no condition", nil
		case condition != nil && condition.Reason != reason:
			return condition.Reason, nil
		}
		return "", nil
	})
	return service
}

// slices are those of a Service.
func (c *cluster) slices(ctx context.Context, name string) ([]*discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	err := c.objects.List(ctx, &list, client.InNamespace("shop"), client.MatchingLabels{discoveryv1.LabelServiceName: name})
	return pointers(list.Items), err
}

// told are the reasons of the events about a Service, in order.
func (c *cluster) told(ctx context.Context, name string) ([]string, error) {
	var list eventsv1.EventList
	if err := c.objects.List(ctx, &list, client.InNamespace("shop")); err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
	var reasons []string
	for i := range list.Items {
		e := &list.Items[i]
		if e.Regarding.Kind == "Service" && e.Regarding.Name == name && e.ReportingController == "vicinity-controller" {
			reasons = append(reasons, e.Reason)
			if e.Series != nil {
				reasons = append(reasons, "again")
			}
		}
	}
	return reasons, nil
}

// waitTold waits until the events about a Service are those, and no more.
func (c *cluster) waitTold(t *testing.T, name string, want ...string) {
	t.Helper()
	c.Await("events of "+name, func(ctx context.Context) (string, error) {
		got, err := c.told(ctx, name)
		if err == nil && !slices.Equal(got, want) {
			return fmt.Sprintf("%v, want %v", got, want), nil
		}
		return "", err
	})
}

// byHand makes a Service whose slice nobody else looks after. What others have
// written into its status stays.
func (c *cluster) byHand(t *testing.T) {
	c.Make("shop", "{apiVersion: v1, kind: Service, metadata: {name: hand}, spec: {ports: [{name: http, port: 80}]}}")
	service := c.waitReason(t, "hand", "")
	service.Status.Conditions = []metav1.Condition{{
		Type: "example.com/Other", Status: metav1.ConditionTrue, Reason: "Theirs", LastTransitionTime: metav1.Now(),
	}}
	if err := c.objects.Status().Update(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	slice := aSlice("hand", 0, "a a a a a a b b b b c c")
	slice.Labels[discoveryv1.LabelManagedBy] = "example.com"
	slice.Annotations = map[string]string{"example.com/kept": "yes"}
	if err := c.objects.Create(t.Context(), slice); err != nil {
		t.Fatal(err)
	}
	c.service(t, "hand", `{"metadata":{"annotations":{"endpointslice.kubernetes.io/same-zone":"Prefer"}}}`)
	service = c.waitReason(t, "hand", "Allocated")
	if len(service.Status.Conditions) != 2 || service.Labels[v1alpha1.LabelRouted] != "true" {
		t.Errorf("conditions %+v, labels %v", service.Status.Conditions, service.Labels)
	}
	routed, err := c.slices(t.Context(), "hand")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := shown(routed), "a a a a c c b b b b c c"; got != want {
		t.Errorf("hints %s, want %s", got, want)
	}
	if routed[0].Annotations["example.com/kept"] != "yes" {
		t.Errorf("the slice is now %+v", routed[0])
	}
	c.waitTold(t, "hand", "TopologyAllocated")
}

// service changes a Service.
func (c *cluster) service(t *testing.T, name, patch string) {
	t.Helper()
	if err := c.objects.Patch(t.Context(), aService(name), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// shown are the zones that endpoints are hinted to.
func shown(eps []*discoveryv1.EndpointSlice) string {
	var words []string
	for _, slice := range eps {
		for _, e := range slice.Endpoints {
			word := "-"
			if e.Hints != nil && len(e.Hints.ForZones) > 0 {
				word = e.Hints.ForZones[0].Name
			}
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

// guards sends patches for slices that are not what they were any more, and one that
// breaks a rule.
func (c *cluster) guards(t *testing.T) {
	routed, err := c.slices(t.Context(), "hand")
	if err != nil {
		t.Fatal(err)
	}
	r := &reconciler{client: c.objects}
	stale := routed[0].DeepCopy()
	stale.ResourceVersion = "1"
	bare, _ := hints.Bare(stale)
	if _, err := r.writeHints(t.Context(), hints.Write{Slice: stale, Endpoints: bare}); !shell.IsChanged(err) {
		t.Errorf("an old resource version: %v", err)
	}
	gone := routed[0].DeepCopy()
	gone.Name = "gone"
	if _, err := r.writeHints(t.Context(), hints.Write{Slice: gone, Endpoints: bare}); !shell.IsChanged(err) {
		t.Errorf("a slice that is gone: %v", err)
	}
	wrong := slices.Clone(routed[0].Endpoints)
	wrong[0].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "a"}, {Name: "a"}}}
	if _, err := r.writeHints(t.Context(), hints.Write{Slice: routed[0], Endpoints: wrong}); err == nil || shell.IsChanged(err) {
		t.Errorf("hints that are not valid: %v", err)
	}
}

// stripped is about a Service with pods, whose hints Kubernetes' controller removes
// each time, since there is no webhook: that is told once.
func (c *cluster) stripped(t *testing.T) {
	c.Make("shop", `
{apiVersion: v1, kind: Service, metadata: {name: pods, annotations: {"endpointslice.kubernetes.io/same-zone": Prefer}}, spec: {selector: {app: pods}, ports: [{port: 80}]}}
`)
	for i := range 12 {
		c.Make("shop", fmt.Sprintf(`
{apiVersion: v1, kind: Pod, metadata: {name: pods-%d, labels: {app: pods}}, spec: {
  nodeName: zone-%c-1, automountServiceAccountToken: false, containers: [{name: c, image: lab/sleep}]}}
`, i, 'a'+rune(i%3)))
	}
	service := c.waitReason(t, "pods", "Allocated,HintsLost")
	if condition := routing.ConditionOf(service); condition.Status != metav1.ConditionFalse || !strings.HasPrefix(condition.Message, routing.HintsLost) {
		t.Errorf("condition %+v", condition)
	}
	c.Await("the event", func(ctx context.Context) (string, error) {
		told, err := c.told(ctx, "pods")
		if err == nil && (len(told) == 0 || told[len(told)-1] != "TopologyHintsLost") {
			return fmt.Sprint(told), nil
		}
		return "", err
	})
}

func (c *cluster) policies() {
	c.Make("shop", `
{apiVersion: vicinity.dev/v1alpha1, kind: RoutingPolicy, metadata: {name: all, namespace: shop}, spec: {selector: {matchLabels: {tier: none}}, capacity: {type: CPU}}}
`)
	c.Await("the status of the policy", func(ctx context.Context) (string, error) {
		var policy v1alpha1.RoutingPolicy
		err := c.objects.Get(ctx, types.NamespacedName{Namespace: "shop", Name: "all"}, &policy)
		if err == nil && (len(policy.Status.Conditions) != 1 || policy.Status.Conditions[0].Status != metav1.ConditionTrue || policy.Status.ObservedGeneration != policy.Generation) {
			return fmt.Sprintf("%+v", policy.Status), nil
		}
		return "", err
	})
}

// headless makes a headless Service without ports, and then one with an address that has its
// name. The API server takes what is written of both, and its garbage collector deletes the
// groups of the first one.
func (c *cluster) headless(t *testing.T) {
	c.Make("shop", `
{apiVersion: v1, kind: Service, metadata: {name: ring, annotations: {"endpointslice.kubernetes.io/same-zone": Require}}, spec: {clusterIP: None, publishNotReadyAddresses: true}}
`)
	slice := aSlice("ring", 0, "a a b")
	slice.Labels[discoveryv1.LabelManagedBy], slice.Labels[corev1.IsHeadlessService] = "example.com", ""
	slice.Ports = nil
	if err := c.objects.Create(t.Context(), slice); err != nil {
		t.Fatal(err)
	}
	service := c.waitReason(t, "ring", "Allocated")
	condition := routing.ConditionOf(service)
	if len(service.Labels) > 0 || condition.Status != metav1.ConditionTrue || !strings.Contains(condition.Message, "hides from each client those that are not near it") {
		t.Errorf("labels %v, condition %+v", service.Labels, condition)
	}
	groups := func(ctx context.Context) (list v1alpha1.EndpointGroupList, err error) {
		err = c.objects.List(ctx, &list, client.InNamespace("shop"), client.MatchingLabels{v1alpha1.LabelService: "ring", corev1.IsHeadlessService: ""})
		return list, err
	}
	list, err := groups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, group := range list.Items {
		text := ""
		for _, consumer := range group.Spec.Consumers {
			text += consumer.Zone
		}
		said = append(said, fmt.Sprintf("%s:%d", text, len(group.Spec.Endpoints)))
	}
	// Without a selector the API gives a headless Service both families.
	if slices.Sort(said); !slices.Equal(said, []string{":0", "a:2", "b:1", "c:0"}) {
		t.Errorf("groups %v", said)
	}
	eps, err := c.slices(t.Context(), "ring")
	if err != nil || eps[0].ResourceVersion != slice.ResourceVersion {
		t.Errorf("the slice is written: %+v, %v", eps, err)
	}
	c.waitTold(t, "ring", "TopologyAllocated")

	if err := c.objects.Delete(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	// With the label of headless Services, the slice would have no endpoints for the next one.
	delete(eps[0].Labels, corev1.IsHeadlessService)
	if err := c.objects.Update(t.Context(), eps[0]); err != nil {
		t.Fatal(err)
	}
	c.Make("shop", `
{apiVersion: v1, kind: Service, metadata: {name: ring, annotations: {"endpointslice.kubernetes.io/same-zone": Prefer}}, spec: {ports: [{port: 80}]}}
`)
	c.Await("the groups to go with their Service", func(ctx context.Context) (string, error) {
		list, err := groups(ctx)
		if n := len(list.Items); err == nil && n > 0 {
			return fmt.Sprintf("%d are left", n), nil
		}
		return "", err
	})
	if service = c.waitReason(t, "ring", "Allocated"); service.Labels[v1alpha1.LabelRouted] != "true" {
		t.Errorf("labels %v", service.Labels)
	}
}

// restart runs another controller, which finds all as it should be. That it has
// looked is seen by what it does to a Service that is new.
func (c *cluster) restart(t *testing.T) {
	before, err := c.slices(t.Context(), "hand")
	if err != nil {
		t.Fatal(err)
	}
	service := c.waitReason(t, "hand", "Allocated")
	defer c.run()()
	c.Make("shop", `
{apiVersion: v1, kind: Service, metadata: {name: zz-new, annotations: {"endpointslice.kubernetes.io/same-zone": Prefre}}, spec: {ports: [{port: 80}]}}
`)
	c.waitReason(t, "zz-new", "NotRouted")
	after, err := c.slices(t.Context(), "hand")
	if err != nil {
		t.Fatal(err)
	}
	if before[0].ResourceVersion != after[0].ResourceVersion {
		t.Errorf("the slice is written: %s, then %s", shown(before), shown(after))
	}
	if again := c.waitReason(t, "hand", "Allocated"); again.ResourceVersion != service.ResourceVersion {
		t.Errorf("the Service is written: %+v", again)
	}
	c.waitTold(t, "hand", "TopologyAllocated")
}

// goes takes the annotation away, and with it all that was written.
func (c *cluster) goes(t *testing.T) {
	defer c.run()()
	for _, name := range []string{"hand", "pods"} {
		c.service(t, name, `{"metadata":{"annotations":{"endpointslice.kubernetes.io/same-zone":null}}}`)
		service := c.waitReason(t, name, "")
		if _, labelled := service.Labels[v1alpha1.LabelRouted]; labelled {
			t.Errorf("%s has the label", name)
		}
		c.Await("hints of "+name+" to go", func(ctx context.Context) (string, error) {
			eps, err := c.slices(ctx, name)
			if err == nil && strings.Trim(shown(eps), "- ") != "" {
				return shown(eps), nil
			}
			return "", err
		})
	}
}

// dropped has a webhook of somebody else drop the hints for nodes that the controller
// writes, as an API server does that does not know them. The condition says so, hints for
// zones are written all the same, and nothing is written again and again.
func (c *cluster) dropped(t *testing.T) {
	var reviews atomic.Int32
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		reviews.Add(1)
		var review admissionv1.AdmissionReview
		slice := new(discoveryv1.EndpointSlice)
		if err := errors.Join(json.NewDecoder(request.Body).Decode(&review), json.Unmarshal(review.Request.Object.Raw, slice)); err != nil {
			t.Error(err)
		}
		var operations []shell.Operation
		for i := range slice.Endpoints {
			if hints := slice.Endpoints[i].Hints; hints != nil && len(hints.ForNodes) > 0 {
				operations = append(operations, shell.Operation{Op: "remove", Path: fmt.Sprintf("/endpoints/%d/hints/forNodes", i)})
			}
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		if len(operations) > 0 {
			body, err := json.Marshal(operations)
			if err != nil {
				t.Error(err)
			}
			review.Response.Patch, review.Response.PatchType = body, new(admissionv1.PatchTypeJSONPatch)
		}
		review.Request = nil
		if err := json.NewEncoder(w).Encode(&review); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	c.Make("", fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: somebody}
webhooks:
- {name: drops.example.com, clientConfig: {url: %q, caBundle: %s}, failurePolicy: Fail, sideEffects: None, admissionReviewVersions: [v1],
   objectSelector: {matchLabels: {kubernetes.io/service-name: dropped}},
   rules: [{apiGroups: [discovery.k8s.io], apiVersions: [v1], resources: [endpointslices], operations: [UPDATE], scope: Namespaced}]}
`, server.URL, base64.StdEncoding.EncodeToString(authority)))
	slice := aSlice("dropped", 0, twelve)
	slice.Labels[discoveryv1.LabelManagedBy] = "example.com"
	if err := c.objects.Create(t.Context(), slice); err != nil {
		t.Fatal(err)
	}
	c.Make("shop", `{apiVersion: v1, kind: Service, metadata: {name: dropped, annotations: {
  vicinity.dev/topology-keys: "kubernetes.io/hostname,topology.kubernetes.io/zone,*"}}, spec: {ports: [{name: http, port: 80}]}}`)
	service := c.waitReason(t, "dropped", "Allocated,HintsDropped")
	if condition := routing.ConditionOf(service); condition.Status != metav1.ConditionFalse || !strings.HasPrefix(condition.Message, string(hints.LossNodes)) {
		t.Errorf("condition %+v", condition)
	}
	c.waitTold(t, "dropped", "TopologyHintsDropped")
	stored, err := c.slices(t.Context(), "dropped")
	if err != nil {
		t.Fatal(err)
	}
	if got := shown(stored); got != twelve || len(stored[0].Endpoints[0].Hints.ForNodes) > 0 {
		t.Errorf("hints %s", got)
	}
	if n := reviews.Load(); n < 1 || n > 4 {
		t.Errorf("the slice was written %d times", n)
	}
	t.Logf("the slice was written %d times", reviews.Load())
}
