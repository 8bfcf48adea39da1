package evictions

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/release"
)

// Calls counts the requests that Vicinity's pods send to the API.
type Calls struct {
	client *lab.Client
	byPod  map[string]Counts
}

// Counts are how many requests there were, by method and answer, as "PUT 409".
type Counts map[string]float64

// Sum is how many there were of all.
func (c Counts) Sum() (sum float64) {
	for _, n := range c {
		sum += n
	}
	return sum
}

// Since are the requests after an earlier count.
func (c Counts) Since(before Counts) Counts {
	since := Counts{}
	for kind, n := range c {
		since[kind] = n - before[kind]
	}
	return since
}

// Each says how many there were of each kind for each of some pods, the most first.
func (c Counts) Each(pods int) string {
	kinds := slices.SortedFunc(maps.Keys(c), func(a, b string) int { return cmp.Or(cmp.Compare(c[b], c[a]), cmp.Compare(a, b)) })
	var said []string
	for _, kind := range kinds {
		if each := c[kind] / float64(max(1, pods)); each >= 0.005 {
			said = append(said, fmt.Sprintf("%s %.2f", kind, each))
		}
	}
	return strings.Join(said, ", ")
}

const metricsPort = 8080

// ControllerSelector selects the pods of Vicinity's controller.
const ControllerSelector = "app.kubernetes.io/component=controller"

// CountCalls makes a counter.
func CountCalls(client *lab.Client) *Calls {
	return &Calls{client: client, byPod: map[string]Counts{}}
}

// Total is how many requests there were so far. Those of a pod that ended since the last call are
// as many as then.
func (c *Calls) Total(ctx context.Context) (Counts, error) {
	pods, err := c.client.CoreV1().Pods(release.Namespace).List(ctx, metav1.ListOptions{LabelSelector: ControllerSelector})
	if err != nil {
		return nil, err
	}
	for i := range pods.Items {
		text, err := c.client.CoreV1().Pods(release.Namespace).ProxyGet("http", pods.Items[i].Name, strconv.Itoa(metricsPort), "/metrics", nil).DoRaw(ctx)
		if err != nil {
			continue // it starts or ends
		}
		if c.byPod[pods.Items[i].Name], err = parseCalls(string(text)); err != nil {
			return nil, err
		}
	}
	total := Counts{}
	for _, counts := range c.byPod {
		for kind, n := range counts {
			total[kind] += n
		}
	}
	return total, nil
}

func parseCalls(metrics string) (Counts, error) {
	counts := Counts{}
	for line := range strings.Lines(metrics) {
		labels, found := strings.CutPrefix(line, "rest_client_requests_total{")
		if !found {
			continue
		}
		labels, value, _ := strings.Cut(labels, "} ")
		n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			return nil, fmt.Errorf("reading the metrics of the controller: %w", err)
		}
		counts[labelOf(labels, "method")+" "+labelOf(labels, "code")] += n
	}
	return counts, nil
}

// labelOf is the value of a label of a metric, which has no quotes in it.
func labelOf(labels, name string) string {
	_, rest, _ := strings.Cut(labels, name+`="`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}
