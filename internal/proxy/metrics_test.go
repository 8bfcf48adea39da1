package proxy

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"vicinity.dev/vicinity/internal/proxy/accounting"
)

// gathered are all metrics of a proxy, those of accounting among them.
func gathered(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	for _, c := range newMetrics(func(string) int { return 0 }).all() {
		registry.MustRegister(c)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

func TestMetricsAreWellNamed(t *testing.T) {
	families := gathered(t)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Errorf("%s: %s", problem.Metric, problem.Text)
	}
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "vicinity_proxy_") {
			t.Errorf("%s does not say whose it is", family.GetName())
		}
	}
}

const metricsDocument = "../../docs/reference/proxy.md"

var metricRow = regexp.MustCompile("(?m)^\\| `(vicinity_proxy_[a-z_]+)` \\| (\\w+) \\| ?([^|]*?) ?\\| ([^|]*) \\| [^|]+ \\|$")

// The reference has a row for each metric, with its type, labels and help, and no other.
func TestMetricsAreDocumented(t *testing.T) {
	text, err := os.ReadFile(metricsDocument)
	if err != nil {
		t.Fatal(err)
	}
	var has, documented []string
	for _, family := range gathered(t) {
		var labels []string
		for _, label := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, label.GetName())
		}
		slices.Sort(labels)
		has = append(has, fmt.Sprintf("%s %s [%s] %s", family.GetName(), strings.ToLower(family.GetType().String()), strings.Join(labels, " "), family.GetHelp()))
	}
	ofAccounting := make(chan *prometheus.Desc, 100)
	accountant, err := accounting.New(accounting.Options{SourceZone: func() string { return "" }, Resolve: newIndex().resolve})
	if err != nil {
		t.Fatal(err)
	}
	accountant.Describe(ofAccounting)
	close(ofAccounting)
	for description := range ofAccounting {
		has = append(has, nameOf(description))
	}
	for _, row := range metricRow.FindAllStringSubmatch(string(text), -1) {
		labels := strings.Fields(strings.NewReplacer("`", "", ",", "").Replace(row[3]))
		slices.Sort(labels)
		one := fmt.Sprintf("%s %s [%s] %s", row[1], row[2], strings.Join(labels, " "), row[4])
		if slices.Contains(has, row[1]) {
			one = row[1]
		}
		documented = append(documented, one)
	}
	slices.Sort(has)
	slices.Sort(documented)
	for _, one := range has {
		if !slices.Contains(documented, one) {
			t.Errorf("%s does not have\n%s", metricsDocument, one)
		}
	}
	for _, one := range documented {
		if !slices.Contains(has, one) {
			t.Errorf("there is no metric\n%s", one)
		}
	}
}

// nameOf is the name of a metric that has no values yet.
func nameOf(description *prometheus.Desc) string {
	_, rest, _ := strings.Cut(description.String(), `fqName: "`)
	name, _, _ := strings.Cut(rest, `"`)
	return name
}
