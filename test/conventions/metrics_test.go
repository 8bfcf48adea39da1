package conventions_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	disruptioncontroller "vicinity.dev/vicinity/internal/disruption/controller"
	"vicinity.dev/vicinity/internal/disruption/reservation"
	"vicinity.dev/vicinity/internal/disruption/responder"
	"vicinity.dev/vicinity/internal/kit/admission"
	namescontroller "vicinity.dev/vicinity/internal/names/controller"
	"vicinity.dev/vicinity/internal/proxy"
	rolloutcontroller "vicinity.dev/vicinity/internal/rollout/controller"
	"vicinity.dev/vicinity/internal/routing"
	routingcontroller "vicinity.dev/vicinity/internal/routing/controller"
	scaledowncontroller "vicinity.dev/vicinity/internal/scaledown/controller"
)

// Documents of metrics: of the controller with its webhooks, and of the proxy.
const (
	metricsDocument      = "docs/reference/metrics.md"
	proxyMetricsDocument = "docs/reference/proxy.md"
)

// metric is a documented metric. Labels are sorted.
type metric struct {
	kind, labels, help string
}

// observed stands in for a manager: it has a client of its own and keeps added runnables, so that a
// test can sync a Service.
type observed struct {
	manager.Manager
	objects []client.Object
	indexes []index
	client  client.Client
	syncs   []reconcile.Reconciler
}

type index struct {
	object  client.Object
	field   string
	extract client.IndexerFunc
}

// GetFieldIndexer is called before GetClient, since an index belongs to a client.
func (o *observed) GetFieldIndexer() client.FieldIndexer { return o }

func (o *observed) IndexField(_ context.Context, object client.Object, field string, extract client.IndexerFunc) error {
	o.indexes = append(o.indexes, index{object, field, extract})
	return nil
}

func (o *observed) GetClient() client.Client {
	if o.client == nil {
		b := fake.NewClientBuilder().WithScheme(o.GetScheme()).WithObjects(o.objects...).WithStatusSubresource(&corev1.Service{})
		for _, i := range o.indexes {
			b = b.WithIndex(i.object, i.field, i.extract)
		}
		o.client = b.Build()
	}
	return o.client
}

func (o *observed) Add(runnable manager.Runnable) error {
	if r, ok := runnable.(reconcile.Reconciler); ok {
		o.syncs = append(o.syncs, r)
	}
	return o.Manager.Add(runnable)
}

// unreachable makes a manager that never calls an API server.
func unreachable(t *testing.T, objects []client.Object) *observed {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	log.SetLogger(logr.Discard())
	mgr, err := manager.New(&rest.Config{Host: "https://127.0.0.1:1"}, manager.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			mapper := meta.NewDefaultRESTMapper(nil)
			mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
			return mapper, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &observed{Manager: mgr, objects: objects}
}

// service is a routed Service with endpoints in two zones.
func service() []client.Object {
	labels := map[string]string{v1alpha1.LabelRouted: "true", discoveryv1.LabelServiceName: "web"}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: labels}, AddressType: discoveryv1.AddressTypeIPv4}
	objects := []client.Object{slice, &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web", Labels: map[string]string{v1alpha1.LabelRouted: "true"},
		Annotations: map[string]string{v1alpha1.AnnotationSameZone: v1alpha1.Prefer},
	}}}
	for i, zone := range []string{"a", "b"} {
		objects = append(objects, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node-" + zone, Labels: map[string]string{corev1.LabelTopologyZone: zone}},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
		ready := true
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.0.0.%d", i+1)}, Zone: &zone, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	return objects
}

// ledgerOfOne knows only one budget.
type ledgerOfOne struct{}

func (ledgerOfOne) Covering(string, map[string]string) []types.NamespacedName { return nil }

func (ledgerOfOne) Refresh(_ context.Context, key types.NamespacedName, _ func(*reservation.Report) []metav1.Condition) (*reservation.Report, error) {
	stored := &v1alpha1.TopologyDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	stored.Status.Domains = []v1alpha1.DomainStatus{{Domain: "a", Group: "shard-1"}}
	return &reservation.Report{Budget: stored}, nil
}

// registered gathers the metrics that the controller and its webhooks register, after a sync of a
// Service and a request.
func registered(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	libraries := crmetrics.Registry
	own := prometheus.NewPedanticRegistry()
	crmetrics.Registry = own
	t.Cleanup(func() { crmetrics.Registry = libraries })

	budgeted := &v1alpha1.TopologyDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	shifted := &v1alpha1.ZoneShift{ObjectMeta: metav1.ObjectMeta{Name: "out"}}
	mgr := unreachable(t, append(service(), budgeted, shifted))
	options := routingcontroller.Options{
		Settings: routing.DefaultSettings(), Workers: routingcontroller.DefaultWorkers, TopServices: routingcontroller.DefaultTopServices,
	}
	if err := routingcontroller.Add(t.Context(), mgr, options); err != nil {
		t.Fatal(err)
	}
	if err := namescontroller.Add(t.Context(), mgr, namescontroller.Options{Mode: namescontroller.All, Workers: 1, Rate: 1, Burst: 1}); err != nil {
		t.Fatal(err)
	}
	if err := disruptioncontroller.Add(t.Context(), mgr, ledgerOfOne{}, disruptioncontroller.Options{Rate: 1, Top: disruptioncontroller.DefaultTop}); err != nil {
		t.Fatal(err)
	}
	if err := responder.Add(mgr, nil, responder.Options{Reports: 1}); err != nil {
		t.Fatal(err)
	}
	if err := scaledowncontroller.AddPacing(t.Context(), mgr, nil, scaledowncontroller.Options{Workers: 1}); err != nil {
		t.Fatal(err)
	}
	if err := scaledowncontroller.Add(t.Context(), mgr, nil, scaledowncontroller.Options{Workers: 1, Rate: 1, Burst: 1}); err != nil {
		t.Fatal(err)
	}
	if err := rolloutcontroller.Add(t.Context(), mgr, nil, rolloutcontroller.Options{Workers: 1}); err != nil {
		t.Fatal(err)
	}
	request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"}}
	for _, sync := range mgr.syncs {
		if _, err := sync.Reconcile(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	answered, err := admission.NewMetrics(own)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reservation.NewMetrics(own); err != nil {
		t.Fatal(err)
	}
	answered.Observe("service", admission.Allowed, 0)
	families, err := own.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// registeredByProxy gathers the metrics that a proxy registers.
func registeredByProxy(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if _, err := proxy.New(proxy.Options{
		NodeName: "node-a", API: &rest.Config{Host: "https://127.0.0.1:1"}, AccountingInterval: time.Minute, Registry: registry, Log: logr.Discard(),
	}); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

func metricsOf(families []*dto.MetricFamily) map[string]metric {
	all := map[string]metric{}
	for _, family := range families {
		var labels []string
		for _, label := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, label.GetName())
		}
		slices.Sort(labels)
		all[family.GetName()] = metric{strings.ToLower(family.GetType().String()), strings.Join(labels, ", "), family.GetHelp()}
	}
	return all
}

var metricRow = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (counter|gauge|histogram):? ?([^|]*?) ?\\| ([^|]*) \\|$")

// documentedMetrics returns the metrics in the tables of a document.
func documentedMetrics(document string) map[string]metric {
	all := map[string]metric{}
	for _, row := range metricRow.FindAllStringSubmatch(document, -1) {
		labels := strings.Fields(strings.NewReplacer("`", "", ",", "").Replace(row[3]))
		slices.Sort(labels)
		all[row[1]] = metric{row[2], strings.Join(labels, ", "), row[4]}
	}
	return all
}

func TestMetricsAreDocumentedAndWellNamed(t *testing.T) {
	for document, families := range map[string][]*dto.MetricFamily{metricsDocument: registered(t), proxyMetricsDocument: registeredByProxy(t)} {
		documented := documentedMetrics(read(t, document))
		// Connections create these two, which the tests of accounting list.
		delete(documented, "vicinity_proxy_connections_total")
		delete(documented, "vicinity_proxy_bytes_total")
		registered := metricsOf(families)
		for name, is := range registered {
			if has, found := documented[name]; !found || has != is {
				t.Errorf("%s is %+v, %s says %+v", name, is, document, has)
			}
		}
		for name := range documented {
			if _, found := registered[name]; !found {
				t.Errorf("%s is in %s and no program registers it", name, document)
			}
		}
		// The metric names of the Kubernetes proposal pass too, so there is no exception.
		problems, err := promlint.NewWithMetricFamilies(families).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range problems {
			t.Errorf("%s: %s", problem.Metric, problem.Text)
		}
	}
}
