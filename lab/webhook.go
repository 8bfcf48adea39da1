package lab

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/internal/kube"
)

func (c *Client) webhooks(ctx context.Context, configuration string) ([]string, error) {
	var names []string
	mutating, err := c.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, configuration, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading the webhooks of %s: %w", configuration, err)
	} else if err == nil {
		for i := range mutating.Webhooks {
			if canBeTried(mutating.Webhooks[i].Rules) {
				names = append(names, mutating.Webhooks[i].Name)
			}
		}
	}
	validating, err := c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, configuration, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading the webhooks of %s: %w", configuration, err)
	} else if err == nil {
		for i := range validating.Webhooks {
			if canBeTried(validating.Webhooks[i].Rules) {
				names = append(names, validating.Webhooks[i].Name)
			}
		}
	}
	return names, nil
}

// canBeTried reports whether a webhook is called for any object that may be written. Those of
// evictions are not: they are called where there is a budget, for pods that run. The server that
// answers them is that of the others.
func canBeTried(rules []admissionregistrationv1.RuleWithOperations) bool {
	return !slices.ContainsFunc(rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		return slices.Contains(r.Resources, "pods/eviction")
	})
}

// probes are objects for which the API server calls a webhook, by its name. They are only
// used in dry runs.
var probes = map[string]string{
	"routed.endpointslice.vicinity.dev": `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: lab-probe, labels: {vicinity.dev/routed: "true"}}
addressType: IPv4
endpoints: []
`,
	"own-zone.endpointslice.vicinity.dev": `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: lab-probe, labels: {endpoint-slice-hints.resources.gardener.cloud/consider: "true"}}
addressType: IPv4
endpoints: []
`,
	"service.vicinity.dev": `
apiVersion: v1
kind: Service
metadata: {name: lab-probe, annotations: {endpointslice.kubernetes.io/same-zone: Prefer}}
spec: {ports: [{port: 80}]}
`,
	"routingpolicy.vicinity.dev": `
apiVersion: vicinity.dev/v1alpha1
kind: RoutingPolicy
metadata: {name: lab-probe}
spec: {}
`,
	"clusterroutingpolicy.vicinity.dev": `
apiVersion: vicinity.dev/v1alpha1
kind: ClusterRoutingPolicy
metadata: {name: lab-probe}
spec: {namespaceSelector: {}}
`,
	"topologydisruptionbudget.vicinity.dev": `
apiVersion: vicinity.dev/v1alpha1
kind: TopologyDisruptionBudget
metadata: {name: lab-probe}
spec: {maxUnavailable: 1}
`,
}

// unprobed are webhooks that are called in namespaces with a label of their own, or for pods of StatefulSets, alone. The same
// programs serve them as serve the others.
var unprobed = []string{
	"pod.vicinity.dev", "deployment.scale.vicinity.dev", "replicaset.scale.vicinity.dev", "statefulset.scale.vicinity.dev", "ordinal.vicinity.dev",
}

// waitWebhook waits until the API server gets an answer from a webhook. Vicinity's webhooks
// fail open, so the result of a request does not show that; the API server's metrics do.
func (c *Client) waitWebhook(ctx context.Context, name string) error {
	if slices.Contains(unprobed, name) {
		return nil
	}
	text, known := probes[name]
	if !known {
		return fmt.Errorf("webhook %s cannot be tried: nothing is known for which it is called", name)
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		return fmt.Errorf("trying webhook %s: %w", name, err)
	}
	return kube.Wait(ctx, "the API server to be answered by webhook "+name, func(ctx context.Context) (string, error) {
		resource, err := c.Resource(object, metav1.NamespaceDefault)
		if err != nil {
			return "", err
		}
		before, err := c.answers(ctx, name)
		if err != nil {
			return "", err
		}
		// A refusal is an answer, too.
		_, refused := resource.Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: kube.FieldManager})
		after, err := c.answers(ctx, name)
		switch {
		case err != nil:
			return "", err
		case after > before:
			return "", nil
		case refused != nil:
			return refused.Error(), nil
		}
		return "it was called in vain or not at all", nil
	})
}

// answers is the API server's count of answers from a webhook.
func (c *Client) answers(ctx context.Context, name string) (float64, error) {
	metrics, err := c.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("reading the metrics of the API server: %w", err)
	}
	return countAnswers(string(metrics), name), nil
}

// countAnswers sums the calls of a webhook that were answered. A call without answer has
// another code than 200 and is not rejected, or has code 0.
func countAnswers(metrics, name string) float64 {
	sum := 0.0
	for line := range strings.Lines(metrics) {
		labels, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if !strings.HasPrefix(labels, "apiserver_admission_webhook_request_total{") || !strings.Contains(labels, fmt.Sprintf("name=%q", name)) {
			continue
		}
		rejected := strings.Contains(labels, `rejected="true"`) && !strings.Contains(labels, `code="0"`)
		if count, err := strconv.ParseFloat(value, 64); err == nil && (rejected || strings.Contains(labels, `code="200"`)) {
			sum += count
		}
	}
	return sum
}
