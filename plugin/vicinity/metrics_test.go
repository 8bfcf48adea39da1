package vicinity

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/locate"
)

// What is counted is in the README and, with its type, labels and words, in the reference.
func TestMetricsAreDocumented(t *testing.T) {
	w := newWorld(t)
	w.headless("web", zone, "1@a1 1@b1")
	before := testutil.ToFloat64(answerCount.WithLabelValues("", outcomeNearest))
	w.ask(onA1, webName, dns.TypeA)
	if got := testutil.ToFloat64(answerCount.WithLabelValues("", outcomeNearest)); got != before+1 {
		t.Errorf("%v answers were counted, and then %v", before, got)
	}
	malformedCount.WithLabelValues(resourceLocators)
	objectCount.WithLabelValues(resourceNodes)
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	reference, err := os.ReadFile("../../docs/reference/dns.md")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "coredns_vicinity_") {
			continue
		}
		found++
		var labels []string
		for _, label := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+label.GetName()+"`")
		}
		slices.Sort(labels)
		row := fmt.Sprintf("| `%s` | %s | %s | %s |", family.GetName(), strings.ToLower(family.GetType().String()), strings.Join(labels, ", "), family.GetHelp())
		if !strings.Contains(string(reference), row) {
			t.Errorf("the reference has no row %s", row)
		}
		if !strings.Contains(string(readme), family.GetName()+"{") {
			t.Errorf("the README does not name %s", family.GetName())
		}
	}
	if want := strings.Count(string(reference), "| `coredns_vicinity_"); found != want {
		t.Errorf("there are %d metrics, the reference has %d", found, want)
	}
	problems, err := promlint.NewWithMetricFamilies(slices.DeleteFunc(families, func(f *dto.MetricFamily) bool { return !strings.HasPrefix(f.GetName(), "coredns_vicinity_") })).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// The words for what located a client are those that documents have.
func TestSourcesAreDocumented(t *testing.T) {
	reference, err := os.ReadFile("../../docs/reference/dns.md")
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, source := range []locate.Source{locate.NodeAddress, locate.PodLocator, locate.PodRange, 0} {
		words = append(words, "`"+source.String()+"`")
	}
	if row := "| `located` | " + strings.Join(words, ", ") + " |"; !strings.Contains(string(reference), row) {
		t.Errorf("the reference has no row %s", row)
	}
}

// Ranges of a node that its network does not use are no mistake.
func TestMalformedNodes(t *testing.T) {
	count := func() float64 { return testutil.ToFloat64(malformedCount.WithLabelValues(resourceNodes)) }
	c := newCluster()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{"projectcalico.org/IPv4Address": "192.0.2.1/24"}}}
	node.Spec.PodCIDRs = []string{"10.244.0.0/24"}
	before := count()
	c.setNode(node)
	if after := count(); after != before {
		t.Errorf("it counts %v, was %v", after, before)
	}
	node.Annotations, node.Spec.PodCIDRs = nil, []string{"10.244.0.0"}
	c.setNode(node)
	if after := count(); after != before+1 {
		t.Errorf("it counts %v, was %v", after, before)
	}
}
