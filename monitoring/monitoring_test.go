// Package monitoring_test checks the dashboards and the rules of the chart: they query only exported
// metrics, documents list each rule, and promtool runs the tests in the folder rules.
package monitoring_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

const (
	rulesFile        = "../charts/vicinity/monitoring/rules.yaml"
	dashboardsFolder = "../charts/vicinity/monitoring/dashboards"
	document         = "../docs/monitoring.md"
	references       = "../docs/reference"
	runbooks         = "../docs/runbooks"
)

// targetLabels are on all series of a target.
var targetLabels = []string{"job", "instance"}

// libraries maps series of libraries and of Kubernetes to their labels.
var libraries = map[string][]string{
	"up":                                          nil,
	"leader_election_master_status":               {"name"},
	"workqueue_depth":                             {"name", "controller", "priority"},
	"process_resident_memory_bytes":               nil,
	"process_cpu_seconds_total":                   nil,
	"rest_client_requests_total":                  {"code", "host", "method"},
	"coredns_dns_requests_total":                  {"server", "zone", "view", "proto", "family", "type"},
	"coredns_dns_responses_total":                 {"server", "zone", "view", "rcode", "plugin"},
	"coredns_dns_request_duration_seconds_bucket": {"server", "zone", "view", "le"},
	"apiserver_admission_webhook_fail_open_count": {"name", "type"},
	"apiserver_admission_webhook_rejection_count": {"name", "type", "operation", "error_type", "rejection_code"},
}

// catalog has the series that a query may use.
type catalog struct {
	// labels maps each series to its labels.
	labels map[string][]string
	// references is the text that names the values of labels.
	references string
}

var (
	metricRow    = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (counter|gauge|histogram):? ?([^|]*?) ?\\|")
	recordingRow = regexp.MustCompile("(?m)^\\| `([a-z0-9_]+:[a-z0-9_:]+)` \\| ?([^|]*?) ?\\|")
	labelName    = regexp.MustCompile(`\w+`)
)

// readCatalog reads the tables of metrics in the references, and the table of recorded series.
// test/conventions compares the references with the metrics that programs register.
func readCatalog(t *testing.T) *catalog {
	t.Helper()
	c := &catalog{labels: maps.Clone(libraries)}
	for _, name := range []string{"metrics.md", "proxy.md", "dns.md"} {
		c.references += read(t, filepath.Join(references, name))
	}
	for _, row := range metricRow.FindAllStringSubmatch(c.references, -1) {
		name, names := row[1], labelName.FindAllString(row[3], -1)
		if row[2] != "histogram" {
			c.labels[name] = names
			continue
		}
		c.labels[name+"_sum"], c.labels[name+"_count"] = names, names
		c.labels[name+"_bucket"] = slices.Concat(names, []string{"le"})
	}
	for _, row := range recordingRow.FindAllStringSubmatch(read(t, document), -1) {
		c.labels[row[1]] = labelName.FindAllString(row[2], -1)
	}
	return c
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	promQL = parser.NewParser(parser.Options{})
	// variables of dashboards are replaced where PromQL needs a number or a duration.
	variables = strings.NewReplacer("$__rate_interval", "5m", "$cost_per_gib", "0.01")
)

// faults lists the series, labels and values of labels in a query that no program exports.
func (c *catalog) faults(query string) []string {
	expr, err := promQL.ParseExpr(variables.Replace(query))
	if err != nil {
		return []string{err.Error()}
	}
	var faults, grouped []string
	has := slices.Clone(targetLabels)
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.AggregateExpr:
			grouped = append(grouped, n.Grouping...)
		case *parser.VectorSelector:
			for _, name := range seriesOf(n) {
				has = append(has, c.labels[name]...)
				faults = append(faults, c.findUnknown(name, n.LabelMatchers)...)
			}
		}
		return nil
	})
	for _, label := range grouped {
		if !slices.Contains(has, label) {
			faults = append(faults, fmt.Sprintf("no series of %s has the label %s", query, label))
		}
	}
	return faults
}

// seriesOf lists the series that a selector names, also as {__name__=~"a|b"}.
func seriesOf(n *parser.VectorSelector) []string {
	for _, m := range n.LabelMatchers {
		if m.Name == model.MetricNameLabel {
			return strings.Split(m.Value, "|")
		}
	}
	return []string{n.String()}
}

// values matches a value, or several such as "a|b". It does not match other patterns, variables or
// the empty value.
var values = regexp.MustCompile(`^[\w|-]+$`)

// findUnknown lists the labels and values in a selector of one series that do not exist.
func (c *catalog) findUnknown(series string, matchers []*labels.Matcher) []string {
	known, found := c.labels[series]
	if !found {
		return []string{"no program exports " + series}
	}
	var faults []string
	for _, m := range matchers {
		switch {
		case m.Name == model.MetricNameLabel, slices.Contains(targetLabels, m.Name):
		case !slices.Contains(known, m.Name):
			faults = append(faults, fmt.Sprintf("%s has no label %s", series, m.Name))
		case strings.Contains(series, "vicinity_") && values.MatchString(m.Value):
			for value := range strings.SplitSeq(m.Value, "|") {
				if !strings.Contains(c.references, "`"+value+"`") {
					faults = append(faults, fmt.Sprintf("no reference names the value %q of %s of %s", value, m.Name, series))
				}
			}
		}
	}
	return faults
}

func TestRulesQueryExportedMetrics(t *testing.T) {
	c := readCatalog(t)
	file, problems := rulefmt.ParseFile(rulesFile, false, model.LegacyValidation, promQL, slog.New(slog.DiscardHandler))
	if len(problems) > 0 {
		t.Fatal(errors.Join(problems...))
	}
	about, recordingTests := read(t, document), read(t, "rules/recordings.yaml")
	alerts := 0
	for _, group := range file.Groups {
		for _, r := range group.Rules {
			for _, fault := range c.faults(r.Expr) {
				t.Errorf("%s%s: %s", r.Record, r.Alert, fault)
			}
			if r.Alert == "" {
				if !strings.Contains(about, "\n| `"+r.Record+"` |") || !strings.Contains(recordingTests, " expr: "+r.Record+"\n") {
					t.Errorf("%s needs a row in %s and a test in rules/recordings.yaml", r.Record, document)
				}
				continue
			}
			alerts++
			runbook := strings.TrimPrefix(r.Annotations["runbook_url"], "RUNBOOK_BASE/")
			after := "at once"
			if r.For > 0 {
				after = r.For.String()
			}
			line := fmt.Sprintf("\n- [`%s`](runbooks/%s): %s, %s\n", r.Alert, runbook, r.Labels["severity"], after)
			if !strings.Contains(about, line) {
				t.Errorf("%s does not have the line %s", document, line)
			}
			if !strings.Contains(read(t, filepath.Join(runbooks, runbook)), "`"+r.Alert+"`") {
				t.Errorf("%s does not name the alert %s", runbook, r.Alert)
			}
			if cases := read(t, filepath.Join("rules", r.Alert+".yaml")); !strings.Contains(cases, "alertname: "+r.Alert+"\n") || !strings.Contains(cases, "exp_alerts:") {
				t.Errorf("rules/%s.yaml does not test the alert", r.Alert)
			}
		}
	}
	if listed := strings.Count(about, "\n- [`Vicinity"); listed != alerts {
		t.Errorf("%s lists %d alerts, want %d", document, listed, alerts)
	}
}

// labelValues matches the function by which a dashboard's variable lists the values of a label. Its
// first argument is a selector.
var labelValues = regexp.MustCompile(`^label_values\((.+), *\w+\)$`)

func TestDashboardsQueryExportedMetrics(t *testing.T) {
	c := readCatalog(t)
	files, err := filepath.Glob(filepath.Join(dashboardsFolder, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no dashboards: %v", dashboardsFolder, err)
	}
	for _, file := range files {
		var dashboard struct {
			UID    string
			Panels []struct {
				Type, Title, Description string
				Targets                  []struct{ Expr string }
			}
			Templating struct {
				List []struct{ Name, Definition string }
			}
		}
		if err := json.Unmarshal([]byte(read(t, file)), &dashboard); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if filepath.Base(file) != dashboard.UID+".json" || len(dashboard.Panels) == 0 {
			t.Errorf("%s has the UID %q, want its name, and %d panels", file, dashboard.UID, len(dashboard.Panels))
		}
		for _, variable := range dashboard.Templating.List {
			if variable.Definition == "" {
				continue
			}
			for _, fault := range c.faults(labelValues.ReplaceAllString(variable.Definition, "$1")) {
				t.Errorf("%s, variable %s: %s", file, variable.Name, fault)
			}
		}
		for _, panel := range dashboard.Panels {
			if panel.Type == "row" {
				continue
			}
			if panel.Description == "" || len(panel.Targets) == 0 {
				t.Errorf("%s: panel %q has no description or no query", file, panel.Title)
			}
			for _, target := range panel.Targets {
				for _, fault := range c.faults(target.Expr) {
					t.Errorf("%s, panel %q: %s", file, panel.Title, fault)
				}
			}
		}
	}
}

// TestRulesWithPromtool builds promtool with the tags of "make prometheus", and runs it on the rules
// and on their tests.
func TestRulesWithPromtool(t *testing.T) {
	if testing.Short() {
		t.Skip("builds promtool")
	}
	tests, err := filepath.Glob("rules/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	promtool := filepath.Join(t.TempDir(), "promtool")
	for _, command := range [][]string{
		{"go", "build", "-buildvcs=false", "-tags", "remove_all_sd,enable_kubernetes_sd", "-o", promtool, "github.com/prometheus/prometheus/cmd/promtool"},
		{promtool, "check", "rules", "--lint-fatal", rulesFile},
		slices.Concat([]string{promtool, "test", "rules"}, tests),
	} {
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", command, err, out)
		}
	}
}
