package ordinal

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"vicinity.dev/vicinity/internal/webhook/admission"
	"vicinity.dev/vicinity/internal/webhook/certificates"
	"vicinity.dev/vicinity/test/rig"
)

const hall = "example.com/hall"

// cluster is a control plane with the controllers and the scheduler of Kubernetes, and this webhook. It has two nodes in each of
// three halls.
type cluster struct {
	rig.ControlPlane
	halls map[string]string // of nodes
}

// TestAgainstKubernetes has Kubernetes scale a StatefulSet down whose ordinals take turns, and place one that cannot have them so.
func TestAgainstKubernetes(t *testing.T) {
	c := &cluster{rig.Start(t), rig.Halls(2)}
	log.SetLogger(logr.Discard())
	c.Label(hall, c.halls)
	c.serve()
	namespace, err := c.MakeNamespace(t.Context(), "ordinals")
	if err != nil {
		t.Fatal(err)
	}
	c.Make(namespace, `
{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db}, spec: {
  replicas: 7, serviceName: db, podManagementPolicy: Parallel, selector: {matchLabels: {app: db}}, template: {
    metadata: {labels: {app: db}, annotations: {vicinity.dev/spread-ordinals: example.com/hall}},
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: db, image: db}]}}}}
`)
	for _, step := range []struct {
		replicas int
		want     []int
	}{{7, []int{2, 2, 3}}, {4, []int{1, 1, 2}}, {2, []int{0, 1, 1}}} {
		if _, err := c.AppsV1().StatefulSets(namespace).Patch(t.Context(), "db", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, step.replicas), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := c.spread(namespace, step.replicas); !slices.Equal(got, step.want) {
			t.Errorf("%d pods are spread as %v, want %v", step.replicas, got, step.want)
		}
	}
	c.schedulesMinDomains(namespace)
}

// With an affinity for one hall the scheduler would count one hall, fewer than minDomains, and keep all pods but the first of
// each pending.
func (c *cluster) schedulesMinDomains(namespace string) {
	c.Helper()
	c.Make(namespace, `
{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: bounded}, spec: {
  replicas: 4, serviceName: bounded, podManagementPolicy: Parallel, selector: {matchLabels: {app: bounded}}, template: {
    metadata: {labels: {app: bounded}, annotations: {vicinity.dev/spread-ordinals: example.com/hall}},
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: db, image: db}], topologySpreadConstraints: [
      {topologyKey: example.com/hall, maxSkew: 1, minDomains: 3, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: bounded}}}]}}}}
`)
	c.Await("four pods on nodes", func(ctx context.Context) (string, error) {
		list, err := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=bounded"})
		if err != nil || len(list.Items) != 4 {
			return "there are not four", err
		}
		for i := range list.Items {
			if list.Items[i].Spec.NodeName == "" {
				return list.Items[i].Name + " has no node", nil
			}
		}
		return "", nil
	})
}

// spread are the numbers of pods of the halls, the smallest first, once there are so many pods and all have a node.
func (c *cluster) spread(namespace string, pods int) []int {
	c.Helper()
	counts := map[string]int{}
	c.Await(fmt.Sprintf("%d pods on nodes", pods), func(ctx context.Context) (string, error) {
		list, err := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		counts = map[string]int{"a": 0, "b": 0, "c": 0}
		missing := ""
		for i := range list.Items {
			pod := &list.Items[i]
			if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil {
				missing = pod.Name + " has no node, or is being deleted"
			}
			in := c.halls[pod.Spec.NodeName]
			counts[in]++
			if ordinal, _ := ordinalOf(pod); in != "" && in != string("abc"[ordinal%3]) {
				c.Errorf("%s is in hall %s", pod.Name, in)
			}
		}
		if len(list.Items) != pods {
			missing = fmt.Sprintf("there are %d", len(list.Items))
		}
		return missing, nil
	})
	return slices.Sorted(maps.Values(counts))
}

// serve runs a manager with the webhook, and registers it as the chart does.
func (c *cluster) serve() {
	c.Helper()
	c.Make("", `
{apiVersion: v1, kind: Namespace, metadata: {name: vicinity-system}}
---
{apiVersion: v1, kind: Secret, metadata: {name: webhook, namespace: vicinity-system}}
`)
	listener, err := new(net.ListenConfig).Listen(c.Context(), "tcp", "localhost:0")
	if err != nil {
		c.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		c.Fatal(err)
	}
	certs, err := certificates.New(certificates.Options{
		Secret: types.NamespacedName{Namespace: "vicinity-system", Name: "webhook"}, Names: []string{"localhost"}, Mutating: []string{"vicinity"},
		Controller: fmt.Sprintf("certificates-%d", port),
	})
	if err != nil {
		c.Fatal(err)
	}
	mgr, err := manager.New(c.Config(), manager.Options{
		Scheme: clientgoscheme.Scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{Host: "localhost", Port: port, TLSOpts: []func(*tls.Config){certs.Configure}}),
	})
	if err != nil {
		c.Fatal(err)
	}
	metrics, err := admission.NewMetrics(prometheus.NewRegistry())
	if err = errors.Join(err, certs.Register(mgr)); err != nil {
		c.Fatal(err)
	}
	Register(mgr, Options{Metrics: metrics})
	// Without an answer the test is to fail, so it is asked with the policy Fail.
	c.Make("", fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: vicinity}
webhooks:
- name: ordinal.vicinity.dev
  clientConfig: {url: "https://localhost:%d%s"}
  admissionReviewVersions: [v1]
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE], scope: Namespaced}]
  objectSelector: {matchExpressions: [{key: apps.kubernetes.io/pod-index, operator: Exists}]}
  matchConditions:
  - name: asks-for-it
    expression: object.metadata.?annotations[?'vicinity.dev/spread-ordinals'].hasValue()
  - name: of-a-statefulset
    expression: >-
      object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false) && o.kind == 'StatefulSet' && o.apiVersion.startsWith('apps/'))
  sideEffects: None
  failurePolicy: Fail
  timeoutSeconds: 2
`, port, Path))
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
	c.Await("the certificates", func(context.Context) (string, error) { return "", certs.Ready(nil) })
	c.Await("the webhook", func(ctx context.Context) (string, error) {
		// Of a pod that StatefulSets make, without a domain to be in.
		_, err := c.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, podOf(0, func(pod *corev1.Pod) {
			pod.OwnerReferences[0].UID = "of-no-set"
			pod.Spec.Containers = []corev1.Container{{Name: "db", Image: "db"}}
		}), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return "", err
	})
}
