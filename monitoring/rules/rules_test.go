package rules_test

import (
	"bytes"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"vicinity.dev/vicinity/monitoring/catalog"
	"vicinity.dev/vicinity/monitoring/rules"
)

// update has the tests write what they would compare: "make generate".
var update = flag.Bool("update", false, "write the rules of the chart and their tables in the documentation anew")

const (
	file     = "../../charts/vicinity/monitoring/rules.yaml"
	document = "../../docs/monitoring.md"
	runbooks = "../../docs/runbooks"
)

func TestFileOfTheChartIsCurrent(t *testing.T) {
	text, err := rules.File()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if has, err := os.ReadFile(file); err != nil || !bytes.Equal(has, text) {
		t.Errorf("%s is not what the code makes of it (%v): make generate writes it anew", file, err)
	}
}

func TestPrometheusReadsTheFile(t *testing.T) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, problems := rulefmt.Parse(text, false, model.LegacyValidation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, problem := range problems {
		t.Error(problem)
	}
}

// What rules ask for is there, and a recording has the labels that it says.
func TestRulesAskForWhatThereIs(t *testing.T) {
	c, err := catalog.Read("../../docs/reference")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules.Recordings() {
		for _, problem := range c.Problems(r.Expr) {
			t.Errorf("%s: %s", r.Name, problem)
		}
		c.Add(r.Name, r.Labels)
	}
	for _, a := range rules.Alerts() {
		for _, problem := range c.Problems(a.Expr) {
			t.Errorf("%s: %s", a.Name, problem)
		}
	}
}

var alertName = regexp.MustCompile(`^Vicinity[A-Z][A-Za-z]+$`)

// Each alert says what is, what that means and what to do, and its runbook names it.
func TestAlertsLeadOn(t *testing.T) {
	names := map[string]bool{}
	for _, a := range rules.Alerts() {
		switch {
		case !alertName.MatchString(a.Name) || names[a.Name]:
			t.Errorf("%s is no name of an alert, or is there twice", a.Name)
		case !strings.HasSuffix(a.Summary, ".") || !strings.HasSuffix(a.Description, "."):
			t.Errorf("%s: summary and description are sentences", a.Name)
		case strings.Contains(a.Description, "{{"):
			t.Errorf("%s: what differs from alert to alert belongs into the summary", a.Name)
		case a.Severity != rules.Critical && a.Severity != rules.Warning:
			t.Errorf("%s: severity %q is neither critical nor warning", a.Name, a.Severity)
		}
		names[a.Name] = true
		text, err := os.ReadFile(filepath.Join(runbooks, a.Runbook))
		if err != nil {
			t.Errorf("%s: %v", a.Name, err)
		} else if !strings.Contains(string(text), "`"+a.Name+"`") {
			t.Errorf("%s does not say that it is the runbook of %s", a.Runbook, a.Name)
		}
	}
}

// tables are the parts of the documentation that follow from the rules.
func tables() map[string]string {
	alerts := "| alert | severity | after | runbook |\n| --- | --- | --- | --- |\n"
	for _, a := range rules.Alerts() {
		after := "at once"
		if a.For > 0 {
			after = model.Duration(a.For).String()
		}
		alerts += fmt.Sprintf("| `%s` | %s | %s | [%s](runbooks/%s) |\n", a.Name, a.Severity, after, strings.TrimSuffix(a.Runbook, ".md"), a.Runbook)
	}
	recordings := "| series | labels | says |\n| --- | --- | --- |\n"
	for _, r := range rules.Recordings() {
		labels := ""
		if len(r.Labels) > 0 {
			labels = "`" + strings.Join(r.Labels, "`, `") + "`"
		}
		recordings += fmt.Sprintf("| `%s` | %s | %s |\n", r.Name, labels, r.Says)
	}
	return map[string]string{"alerts": alerts, "recordings": recordings}
}

func TestTablesOfTheDocumentationAreCurrent(t *testing.T) {
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	made := string(text)
	for name, table := range tables() {
		begin, end := "<!-- "+name+": written by make generate -->\n", "<!-- end of "+name+" -->"
		before, rest, found := strings.Cut(made, begin)
		_, after, ended := strings.Cut(rest, end)
		if !found || !ended {
			t.Fatalf("%s has no part between %q and %q", document, begin, end)
		}
		made = before + begin + "\n" + table + "\n" + end + after
	}
	if *update {
		if err := os.WriteFile(document, []byte(made), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if made != string(text) {
		t.Errorf("%s does not have the tables of the rules: make generate writes them anew", document)
	}
}
