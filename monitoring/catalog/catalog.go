// Package catalog knows which metrics there are, and judges whether a query asks for them.
//
// What Vicinity has is in tables of its references, which tests beside the metrics compare
// with what is registered. Of libraries it lists what is used here. It reads no cluster.
package catalog

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// Metric is what a query may ask of a metric.
type Metric struct {
	Type   string
	Labels []string
}

// Catalog has the metrics that there are, by name.
type Catalog struct {
	metrics map[string]Metric
	// documents is the text of the references, which name the values of labels.
	documents string
}

// references have the tables of metrics.
var references = []string{"metrics.md", "proxy.md", "dns.md"}

// targetLabels are those that all series of a target have, however it is scraped.
var targetLabels = []string{"job", "instance"}

const (
	counter   = "counter"
	gauge     = "gauge"
	histogram = "histogram"
)

// libraries are the metrics of libraries and of Kubernetes that queries use.
var libraries = map[string]Metric{
	"up":                                          {gauge, nil},
	"leader_election_master_status":               {gauge, []string{"name"}},
	"workqueue_depth":                             {gauge, []string{"name", "controller", "priority"}},
	"process_resident_memory_bytes":               {gauge, nil},
	"process_cpu_seconds_total":                   {counter, nil},
	"rest_client_requests_total":                  {counter, []string{"code", "host", "method"}},
	"coredns_dns_requests_total":                  {counter, []string{"server", "zone", "view", "proto", "family", "type"}},
	"coredns_dns_responses_total":                 {counter, []string{"server", "zone", "view", "rcode", "plugin"}},
	"coredns_dns_request_duration_seconds":        {histogram, []string{"server", "zone", "view"}},
	"apiserver_admission_webhook_fail_open_count": {counter, []string{"name", "type"}},
	"apiserver_admission_webhook_rejection_count": {counter, []string{"name", "type", "operation", "error_type", "rejection_code"}},
}

var row = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (counter|gauge|histogram) \\| ?([^|]*?) ?\\| [^|]* \\| [^|]+ \\|$")

// Read reads the tables below a folder of references.
func Read(folder string) (*Catalog, error) {
	c := &Catalog{metrics: maps.Clone(libraries)}
	for _, name := range references {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return nil, fmt.Errorf("reading the metrics that there are: %w", err)
		}
		c.documents += string(text)
		found := row.FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 {
			return nil, fmt.Errorf("reading the metrics that there are: %s has no table of them", name)
		}
		for _, match := range found {
			c.metrics[match[1]] = Metric{match[2], strings.Fields(strings.NewReplacer("`", "", ",", "").Replace(match[3]))}
		}
	}
	return c, nil
}

// Add adds a series that is recorded.
func (c *Catalog) Add(name string, labels []string) { c.metrics[name] = Metric{gauge, labels} }

// variables of dashboards stand where PromQL has something else.
var variables = strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h", "$cost_per_gib", "0.01")

// Expand puts values in the place of the variables that PromQL does not parse.
func Expand(query string) string { return variables.Replace(query) }

// Parse parses a query.
func Parse(query string) (parser.Expr, error) {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(Expand(query))
	if err != nil {
		return nil, fmt.Errorf("parsing %s: %w", query, err)
	}
	return expr, nil
}

// Problems are the sentences that say what a query asks for that there is not.
func (c *Catalog) Problems(query string) []string {
	expr, err := Parse(query)
	if err != nil {
		return []string{err.Error()}
	}
	var problems []string
	asked := slices.Clone(targetLabels)
	parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			found, of := c.selected(n)
			problems = append(problems, found...)
			asked = append(asked, of...)
			problems = append(problems, c.misused(n, path)...)
		case *parser.Call:
			if n.Func.Name == "label_replace" || n.Func.Name == "label_join" {
				asked = append(asked, text(n.Args[1]))
			}
		}
		return nil
	})
	need := func(labels []string, operation string) {
		for _, label := range labels {
			if !slices.Contains(asked, label) {
				problems = append(problems, fmt.Sprintf("%s has the label %s, which none of its metrics has: %s", operation, label, query))
			}
		}
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.AggregateExpr:
			need(n.Grouping, n.Op.String())
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				need(n.VectorMatching.MatchingLabels, n.Op.String())
				need(n.VectorMatching.Include, n.Op.String())
			}
		case *parser.Call:
			if n.Func.Name == "label_replace" {
				if from := text(n.Args[3]); from != "" {
					need([]string{from}, n.Func.Name)
				}
			}
		}
		return nil
	})
	return problems
}

func text(expr parser.Expr) string {
	literal, ok := expr.(*parser.StringLiteral)
	if !ok {
		return ""
	}
	return literal.Val
}

// selected says what is wrong with a selector, and which labels its series have.
func (c *Catalog) selected(n *parser.VectorSelector) (problems, has []string) {
	names, problem := namesOf(n)
	if problem != "" {
		return []string{problem}, nil
	}
	for _, name := range names {
		metric, found := c.find(name)
		if !found {
			problems = append(problems, fmt.Sprintf("there is no metric %s", name))
			continue
		}
		has = append(has, metric.Labels...)
		for _, m := range n.LabelMatchers {
			switch {
			case m.Name == model.MetricNameLabel || slices.Contains(targetLabels, m.Name):
			case !slices.Contains(metric.Labels, m.Name):
				problems = append(problems, fmt.Sprintf("%s has no label %s", name, m.Name))
			case isOwn(name):
				for _, value := range valuesOf(m) {
					if !c.names(value) {
						problems = append(problems, fmt.Sprintf("no reference knows %s %q, which is asked of %s", m.Name, value, name))
					}
				}
			}
		}
	}
	return problems, has
}

// valuesOf are the values that a matcher names; a pattern names none.
func valuesOf(m *labels.Matcher) []string {
	switch {
	case m.Type == labels.MatchRegexp || m.Type == labels.MatchNotRegexp:
		return m.SetMatches()
	case m.Value == "":
		return nil
	}
	return []string{m.Value}
}

// names reports whether a reference names the value of a label, or a dashboard chooses it.
func (c *Catalog) names(value string) bool {
	return strings.HasPrefix(value, "$") || strings.Contains(c.documents, "`"+value+"`")
}

func isOwn(name string) bool { return strings.Contains(name, "vicinity_") }

// namesOf are the metrics that a selector chooses.
func namesOf(n *parser.VectorSelector) (names []string, problem string) {
	if n.Name != "" {
		return []string{n.Name}, ""
	}
	for _, m := range n.LabelMatchers {
		if m.Name == model.MetricNameLabel && m.Type == labels.MatchRegexp {
			return strings.Split(m.Value, "|"), ""
		}
	}
	return nil, fmt.Sprintf("%s does not say which metrics it chooses", n)
}

// find knows a metric also by the names of its series.
func (c *Catalog) find(name string) (Metric, bool) {
	if metric, found := c.metrics[name]; found {
		return metric, metric.Type != histogram
	}
	for _, ending := range []string{"_bucket", "_sum", "_count"} {
		base, is := strings.CutSuffix(name, ending)
		metric := c.metrics[base]
		if !is || metric.Type != histogram {
			continue
		}
		has := slices.Clone(metric.Labels)
		if ending == "_bucket" {
			has = append(has, "le")
		}
		return Metric{counter, has}, true
	}
	return Metric{}, false
}

// overTime are functions of counters, which make no sense of anything else.
var overTime = []string{"rate", "increase", "irate"}

// misused says if a counter is taken as it is, or a gauge as a counter.
func (c *Catalog) misused(n *parser.VectorSelector, path []parser.Node) []string {
	metric, found := c.find(n.Name)
	if !found {
		return nil
	}
	isRate := slices.ContainsFunc(path, func(node parser.Node) bool {
		call, ok := node.(*parser.Call)
		return ok && slices.Contains(overTime, call.Func.Name)
	})
	switch {
	case metric.Type == counter && !isRate:
		return []string{fmt.Sprintf("%s is a counter, and is used without a rate", n.Name)}
	case metric.Type == gauge && isRate:
		return []string{fmt.Sprintf("%s is no counter, and a rate is made of it", n.Name)}
	}
	return nil
}
