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

	"vicinity.dev/vicinity/test/kube"
)

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

// waitWebhook waits until the API server gets an answer from a webhook that any object can trigger.
// Other webhooks need evictions or labelled namespaces; the same programs serve them. Vicinity's
// webhooks fail open, so only the API server's metrics show a failure.
func (c *Client) waitWebhook(ctx context.Context, name string) error {
	probes := map[string]map[string]any{}
	if err := yaml.Unmarshal([]byte(webhookProbes), &probes); err != nil {
		return fmt.Errorf("trying webhook %s: %w", name, err)
	}
	if probes[name] == nil {
		return nil
	}
	object := &unstructured.Unstructured{Object: probes[name]}
	return kube.Wait(ctx, "webhook "+name+" to answer the API server", func(ctx context.Context) (string, error) {
		resource, err := c.Resource(object, metav1.NamespaceDefault)
		if err != nil {
			return "", err
		}
		before, err := c.readAnswers(ctx, name)
		if err != nil {
			return "", err
		}
		// A refusal counts as an answer, too.
		_, refused := resource.Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: kube.FieldManager})
		after, err := c.readAnswers(ctx, name)
		switch {
		case err != nil:
			return "", err
		case after > before:
			return "", nil
		case refused != nil:
			return refused.Error(), nil
		}
		return "no call was answered", nil
	})
}

// readAnswers is the API server's count of answers of a webhook.
func (c *Client) readAnswers(ctx context.Context, name string) (float64, error) {
	metrics, err := c.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("reading the metrics of the API server: %w", err)
	}
	return countAnswers(string(metrics), name), nil
}

// countAnswers sums answered calls of a webhook. An unanswered call has another code than 200 without
// a rejection, or code 0.
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
