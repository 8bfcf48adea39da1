// Package rules has the recording rules and the alerts for Prometheus. It says what is
// recorded, when somebody has to look, and where to read on. It does not know a cluster:
// thresholds are facts of Vicinity, and none is about how much traffic is much.
//
// The chart and users without it read the file that the tests of this package write.
package rules

import (
	"bytes"
	"fmt"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"go.yaml.in/yaml/v3"
)

// Jobs of Prometheus whose targets are the pods of a program. The chart's monitors name
// them so.
const (
	JobController = "vicinity-controller"
	JobProxy      = "vicinity-proxy"
	JobDNS        = "vicinity-dns"
)

// RunbookBase stands in the file for where runbooks are; who installs the rules replaces it.
const RunbookBase = "RUNBOOK_BASE"

// Severity says how soon somebody has to look.
type Severity string

// The severities.
const (
	// Critical is for what users notice now, or what is not protected now.
	Critical Severity = "critical"
	// Warning is for what gets worse, or has no effect although somebody asked for it.
	Warning Severity = "warning"
)

// Recording is a series that Prometheus keeps ready.
type Recording struct {
	Name string
	Expr string
	// Labels are those of its series.
	Labels []string
	// Says is a sentence about its values.
	Says string
}

// Alert is something that somebody has to look at.
type Alert struct {
	Name     string
	Expr     string
	For      time.Duration
	Severity Severity
	// Summary is a sentence with the labels of the alert.
	Summary string
	// Description says what it means and what to do next.
	Description string
	// Runbook is a file of docs/runbooks.
	Runbook string
}

// group is a list of rules that are evaluated one after the other. An alert that nothing of a
// program is there is in a group that is installed only with the program: controller, proxy.absent
// and dns.absent.
type group struct {
	name       string
	recordings []Recording
	alerts     []Alert
}

func groups() []group {
	return []group{
		{name: "vicinity.traffic", recordings: Recordings()},
		{name: "vicinity.controller", alerts: controllerAlerts()},
		{name: "vicinity.routing", alerts: routingAlerts()},
		{name: "vicinity.proxy.absent", alerts: proxyAbsentAlerts()},
		{name: "vicinity.proxy", alerts: proxyAlerts()},
		{name: "vicinity.dns.absent", alerts: dnsAbsentAlerts()},
		{name: "vicinity.dns", alerts: dnsAlerts()},
		{name: "vicinity.disruption", alerts: disruptionAlerts()},
	}
}

// Alerts are all alerts in the order of the file.
func Alerts() []Alert {
	var all []Alert
	for _, g := range groups() {
		all = append(all, g.alerts...)
	}
	return all
}

const header = `# Recording rules and alerts of Vicinity for Prometheus. "make generate" writes this file
# from monitoring/rules. RUNBOOK_BASE stands for where docs/runbooks is served; the chart
# puts monitoring.rules.runbookBase there.
`

// File is the file of all rules.
func File() ([]byte, error) {
	var all rulefmt.RuleGroups
	for _, g := range groups() {
		all.Groups = append(all.Groups, g.format())
	}
	text := bytes.NewBufferString(header)
	encoder := yaml.NewEncoder(text)
	encoder.SetIndent(2)
	if err := encoder.Encode(all); err != nil {
		return nil, fmt.Errorf("writing the rules: %w", err)
	}
	return text.Bytes(), encoder.Close()
}

func (g group) format() rulefmt.RuleGroup {
	made := rulefmt.RuleGroup{Name: g.name}
	for _, r := range g.recordings {
		made.Rules = append(made.Rules, rulefmt.Rule{Record: r.Name, Expr: r.Expr})
	}
	for _, a := range g.alerts {
		made.Rules = append(made.Rules, rulefmt.Rule{
			Alert: a.Name, Expr: a.Expr, For: model.Duration(a.For),
			Labels: map[string]string{"severity": string(a.Severity)},
			Annotations: map[string]string{
				"summary": a.Summary, "description": a.Description, "runbook_url": RunbookBase + "/" + a.Runbook,
			},
		})
	}
	return made
}
