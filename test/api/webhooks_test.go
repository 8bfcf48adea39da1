package api_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/internal/reservation"
	"vicinity.dev/vicinity/internal/webhook/admission"
	webhook "vicinity.dev/vicinity/internal/webhook/budget"
	"vicinity.dev/vicinity/internal/webhook/policy"
	"vicinity.dev/vicinity/internal/webhook/service"
)

// listener serves a manager's webhooks from a server of the test.
type listener struct{ mux *http.ServeMux }

func (l listener) NeedLeaderElection() bool { return false }

func (l listener) Register(path string, hook http.Handler) { l.mux.Handle(path, hook) }

func (l listener) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (l listener) StartedChecker() healthz.Checker { return healthz.Ping }

func (l listener) WebhookMux() *http.ServeMux { return l.mux }

// serve runs the webhooks, and has the API server ask them. It fails where they do, so
// that what is taken here is taken by them.
func (w *writer) serve(t *testing.T) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	metrics, err := admission.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	l := listener{http.NewServeMux()}
	var cached cache.Options
	reservation.CacheOptions(&cached)
	mgr, err := manager.New(w.Config(), manager.Options{
		Scheme: scheme, Logger: testr.New(t), Cache: cached, WebhookServer: l, Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	service.Register(mgr, service.Options{Metrics: metrics})
	policy.Register(mgr, policy.Options{Metrics: metrics})
	ctx, stop := context.WithCancel(t.Context())
	ledger, err := reservation.New(ctx, mgr, reservation.Options{})
	if err != nil {
		t.Fatal(err)
	}
	webhook.Register(mgr, webhook.Options{Worlds: ledger, Own: "vicinity-system", Metrics: metrics})
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	server := httptest.NewTLSServer(l.mux)
	t.Cleanup(func() {
		server.Close()
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the manager ended: %v", err)
		}
	})
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	none, fail, timeout := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail, int32(10)
	hook := func(name, path, group, version, resource string) admissionregistrationv1.ValidatingWebhook {
		url := server.URL + path
		return admissionregistrationv1.ValidatingWebhook{
			Name:         name,
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: bundle},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}},
			}},
			SideEffects: &none, FailurePolicy: &fail, TimeoutSeconds: &timeout, AdmissionReviewVersions: []string{"v1"},
		}
	}
	if _, err := w.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "vicinity"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{
			hook("service.vicinity.dev", service.Path, "", "v1", "services"),
			hook("routingpolicy.vicinity.dev", policy.Path, v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version, "routingpolicies"),
			hook("clusterroutingpolicy.vicinity.dev", policy.ClusterPath, v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version, "clusterroutingpolicies"),
			hook("topologydisruptionbudget.vicinity.dev", webhook.Path, v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version, "topologydisruptionbudgets"),
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waiting, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	if err := kube.Wait(waiting, "what budgets are about", func(context.Context) (string, error) {
		if err := ledger.Synced(nil); err != nil {
			return err.Error(), nil
		}
		return "", nil
	}); err != nil {
		t.Fatal(err)
	}
	for resource, bad := range map[string]string{
		"services":                  web("probe", `vicinity.dev/topology-keys: "*,x"`, ""),
		"routingpolicies":           routingPolicy("probe", `{capacity: {type: Expression, expression: "zone"}}`),
		"clusterroutingpolicies":    clusterRoutingPolicy("probe", `{namespaceSelector: {}, capacity: {type: Expression, expression: "zone"}}`),
		"topologydisruptionbudgets": budget("probe", `{maxUnavailable: 1, selector: {matchLabels: {"-x": "no"}}}`),
	} {
		if err := kube.Wait(waiting, "the webhook of "+resource, func(ctx context.Context) (string, error) {
			_, _, err := w.write(ctx, resource, bad, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil || !strings.Contains(err.Error(), "denied the request") {
				return fmt.Sprintf("a bad object is answered by: %v", err), nil
			}
			return "", nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// web is a Service with annotations and more of its spec, in YAML's flow style.
func web(name, annotations, spec string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s, annotations: {%s}}, spec: {ports: [{port: 80}], selector: {app: web}%s}}", name, annotations, spec)
}

// prepareCluster has the nodes in racks, and a Deployment that a budget can be about.
func (w *writer) prepareCluster(t *testing.T) {
	t.Helper()
	nodes, err := w.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) == 0 {
		t.Fatalf("%d nodes, %v", len(nodes.Items), err)
	}
	for i := range nodes.Items {
		patch := []byte(`{"metadata": {"labels": {"example.com/rack": "r1"}}}`)
		if _, err := w.CoreV1().Nodes().Patch(t.Context(), nodes.Items[i].Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	labels := map[string]string{"app": "rolls"}
	if _, err := w.AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "rolls"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (w *writer) testWebhooks(t *testing.T) {
	const (
		nodePort = ", type: NodePort, externalTrafficPolicy: Local"
		keys     = `vicinity.dev/topology-keys: "topology.kubernetes.io/zone,*"`
	)
	// What is stored from before is no obstacle later.
	if _, _, err := w.write(t.Context(), "services", web("old", `vicinity.dev/topology-keys: "*,x"`, ""), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.write(t.Context(), "routingpolicies", routingPolicy("old", `{capacity: {type: Expression, expression: zone.gpu}}`), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.write(t.Context(), "topologydisruptionbudgets", budget("old", `{maxUnavailable: 1, selector: {matchLabels: {"-x": "no"}}}`), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.prepareCluster(t)
	w.serve(t)
	t.Run("Examples", w.testExamples)
	for _, test := range []struct {
		name, resource, object string
		refused                []string // words
		warnings               []string // how they begin
	}{
		{name: "a Service that asks for nothing", resource: "services", object: web("web", "", "")},
		{name: "a Service that prefers", resource: "services", object: web("web", "endpointslice.kubernetes.io/same-zone: Prefer", nodePort)},
		{
			name: "an unknown value", resource: "services", object: web("web", "endpointslice.kubernetes.io/same-zone: prefer", ""),
			warnings: []string{`annotation endpointslice.kubernetes.io/same-zone: "prefer" is unknown; allowed are Balanced, Prefer and Require`},
		},
		{
			name: "hard without groups", resource: "services", object: web("web", "endpointslice.kubernetes.io/same-zone: Require", ""),
			warnings: []string{"annotation endpointslice.kubernetes.io/same-zone: Require requires what hints cannot"},
		},
		{name: "a policy that is there", resource: "services", object: web("web", "service.kubernetes.io/topology-mode: vicinity.dev/near", "")},
		{
			name: "a policy that is not there", resource: "services", object: web("web", "service.kubernetes.io/topology-mode: vicinity.dev/nera", ""),
			warnings: []string{`annotation service.kubernetes.io/topology-mode: no RoutingPolicy "nera" is known in namespace "default"`},
		},
		{
			name: "keys with a local policy", resource: "services", object: web("web", keys, nodePort),
			refused: []string{"service.vicinity.dev", "annotation vicinity.dev/topology-keys", "cannot be together with spec.externalTrafficPolicy: Local"},
		},
		{
			name: "keys that are none", resource: "services", object: web("web", `vicinity.dev/topology-keys: "a/b/c"`, ""),
			refused: []string{"annotation vicinity.dev/topology-keys", `"a/b/c" is not a label key`},
		},
		{
			name: "annotations that contradict", resource: "services", object: web("web", keys+`, endpointslice.kubernetes.io/same-zone: Require`, ""),
			refused: []string{"annotation vicinity.dev/topology-keys", "contradicts annotation endpointslice.kubernetes.io/same-zone: Require"},
		},
		{
			name: "a Service from before", resource: "services", object: web("old", `vicinity.dev/topology-keys: "*,x", other: x`, ""),
			warnings: []string{"annotation vicinity.dev/topology-keys"},
		},
		{
			name: "a label that no namespace has", resource: "clusterroutingpolicies", object: clusterRoutingPolicy("new", `{namespaceSelector: {matchLabels: {"-x": "no"}}}`),
			refused: []string{"spec.namespaceSelector.matchLabels", `"-x"`},
		},
		{name: "an expression", resource: "routingpolicies", object: routingPolicy("new", `{capacity: {type: Expression, expression: zone.cpu * 2.0}}`)},
		{
			name: "an expression that is none", resource: "routingpolicies", object: routingPolicy("new", `{capacity: {type: Expression, expression: zone.gpu}}`),
			refused: []string{"routingpolicy.vicinity.dev", "spec.capacity.expression", `"zone.gpu"`, "undefined field 'gpu'"},
		},
		{
			name: "an expression of text", resource: "routingpolicies", object: routingPolicy("new", `{capacity: {type: Expression, expression: zone.name}}`),
			refused: []string{"spec.capacity.expression", "it must give a number"},
		},
		{
			name: "a policy from before", resource: "routingpolicies", object: routingPolicy("old", `{padding: 2, capacity: {type: Expression, expression: zone.gpu}}`),
		},
		{name: "a budget", resource: "topologydisruptionbudgets", object: budget("new", `{maxUnavailable: 1, selector: {matchLabels: {app: web}}}`)},
		{
			name: "a budget for labels that no pod has", resource: "topologydisruptionbudgets", object: budget("new", `{maxUnavailable: 1, selector: {matchLabels: {"-x": "no"}}}`),
			refused: []string{"topologydisruptionbudget.vicinity.dev", "spec.selector.matchLabels", `"-x"`},
		},
		{
			name: "a budget for everything", resource: "topologydisruptionbudgets", object: budget("new", `{maxUnavailable: 0, selector: {}, settleTime: 1m}`),
			warnings: []string{"spec.selector is empty", "spec.settleTime has no effect", "spec.maxUnavailable is 0", "Deployment/rolls deletes pods"},
		},
		{
			name: "a budget for no node", resource: "topologydisruptionbudgets",
			object:   budget("new", `{maxUnavailable: 1, selector: {matchLabels: {app: web}}, nodeSelectorTerm: {matchExpressions: [{key: example.com/hall, operator: Exists}]}}`),
			warnings: []string{"spec.nodeSelectorTerm matches none of the "},
		},
		{
			name: "a budget that a rollout does not ask", resource: "topologydisruptionbudgets", object: budget("new", `{maxUnavailable: 1, selector: {matchLabels: {app: rolls}}}`),
			warnings: []string{"Deployment/rolls deletes pods without asking the budget when its template changes"},
		},
		{name: "a budget from before", resource: "topologydisruptionbudgets", object: budget("old", `{maxUnavailable: 2, selector: {matchLabels: {"-x": "no"}}}`)},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, said, err := w.write(t.Context(), test.resource, test.object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			refused(t, err, test.refused...)
			if !slices.EqualFunc(said, test.warnings, strings.HasPrefix) {
				t.Errorf("warnings %q, want %q", said, test.warnings)
			}
		})
	}
}
