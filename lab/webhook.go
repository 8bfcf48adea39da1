package lab

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// webhooks are the names of those in the configurations of a name.
func (c *Client) webhooks(ctx context.Context, configuration string) ([]string, error) {
	var names []string
	mutating, err := c.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, configuration, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading the webhooks of %s: %w", configuration, err)
	} else if err == nil {
		for i := range mutating.Webhooks {
			names = append(names, mutating.Webhooks[i].Name)
		}
	}
	validating, err := c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, configuration, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading the webhooks of %s: %w", configuration, err)
	} else if err == nil {
		for i := range validating.Webhooks {
			names = append(names, validating.Webhooks[i].Name)
		}
	}
	return names, nil
}

// probes are objects for which the API server calls a webhook, by its name. They are
// only tried, never stored.
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
}

// waitWebhook waits until the API server has an answer of a webhook. All of Vicinity's
// fail open, so that what becomes of an object does not say whether a webhook was asked:
// the API server's own count does.
func (c *Client) waitWebhook(ctx context.Context, name string) error {
	text, known := probes[name]
	if !known {
		return fmt.Errorf("webhook %s cannot be tried: nothing is known for which it is called", name)
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		return fmt.Errorf("trying webhook %s: %w", name, err)
	}
	return Wait(ctx, "the API server to be answered by webhook "+name, func(ctx context.Context) (string, error) {
		resource, err := c.resource(object, metav1.NamespaceDefault)
		if err != nil {
			return "", err
		}
		before, err := c.answers(ctx, name)
		if err != nil {
			return "", err
		}
		// A refusal is an answer, too.
		_, refused := resource.Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: fieldManager})
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

// answers is how often the API server had an answer of a webhook, as it counts itself.
func (c *Client) answers(ctx context.Context, name string) (float64, error) {
	metrics, err := c.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("reading the metrics of the API server: %w", err)
	}
	return countAnswers(string(metrics), name), nil
}

// countAnswers adds the calls of a webhook up that ended in an answer. One that could
// not be made, or whose answer could not be read, has the code of the failure and is not
// a rejection, or the code 0.
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
