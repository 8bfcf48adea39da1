package evictions

import (
	"bytes"
	"context"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/release"
	"vicinity.dev/vicinity/lab/test/bench/meter"
)

// Calls counts the requests of Vicinity's pods to the API.
type Calls struct {
	client *lab.Client
	byPod  map[string]float64
}

const metricsPort = 8080

// ControllerSelector selects the pods of the controller.
const ControllerSelector = "app.kubernetes.io/component=controller"

// CountCalls returns a counter of the requests of the controller's pods.
func CountCalls(client *lab.Client) *Calls {
	return &Calls{client: client, byPod: map[string]float64{}}
}

// Total returns the number of requests so far. A pod that has ended since the last call counts as it
// did then.
func (c *Calls) Total(ctx context.Context) (total float64, err error) {
	pods, err := c.client.CoreV1().Pods(release.Namespace).List(ctx, metav1.ListOptions{LabelSelector: ControllerSelector})
	if err != nil {
		return 0, err
	}
	for i := range pods.Items {
		text, err := c.client.CoreV1().Pods(release.Namespace).ProxyGet("http", pods.Items[i].Name, strconv.Itoa(metricsPort), "/metrics", nil).DoRaw(ctx)
		if err != nil {
			continue // it starts or ends
		}
		if c.byPod[pods.Items[i].Name], err = meter.SumMetric(bytes.NewReader(text), "rest_client_requests_total", ""); err != nil {
			return 0, err
		}
	}
	for _, n := range c.byPod {
		total += n
	}
	return total, nil
}
