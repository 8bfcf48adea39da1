package charts_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/strvals"
)

// schema has the parts of a JSON schema that the chart uses.
type schema struct {
	Description          string             `json:"description"`
	Type                 any                `json:"type"`
	Enum                 []string           `json:"enum"`
	Pattern              string             `json:"pattern"`
	Maximum              *int               `json:"maximum"`
	Properties           map[string]*schema `json:"properties"`
	AdditionalProperties any                `json:"additionalProperties"`
}

// value is a value that users can set.
type value struct {
	path []string
	schema
	byDefault any
}

func (v value) name() string { return strings.Join(v.path, ".") }

// global is a field that charts pass to their subcharts. Vicinity ignores it.
const global = "global"

// readSchema reads the chart's schema.
func readSchema(t *testing.T) *schema {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	s := &schema{}
	if err := json.Unmarshal(text, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// values returns all values of the schema, by name.
func values(t *testing.T) []value {
	t.Helper()
	var all []value
	var walk func(s *schema, path []string, defaults any)
	walk = func(s *schema, path []string, defaults any) {
		// A misspelled value must cause an error.
		if s.Type == "object" && len(s.Properties) > 0 && s.AdditionalProperties != false {
			t.Errorf("the schema of %q allows unknown values", path)
		}
		// A group of values with a description counts as a value.
		if s.Description != "" {
			all = append(all, value{path: path, schema: *s, byDefault: defaults})
			return
		}
		fields, _ := defaults.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			if len(path) == 0 && name == global {
				continue
			}
			if _, ok := fields[name]; !ok {
				t.Errorf("%s is in values.schema.json and not in values.yaml", strings.Join(append(path, name), "."))
			}
			walk(s.Properties[name], append(slices.Clone(path), name), fields[name])
		}
		for name := range fields {
			if s.Properties[name] == nil {
				t.Errorf("%s is in values.yaml and not in values.schema.json", strings.Join(append(path, name), "."))
			}
		}
	}
	walk(readSchema(t), nil, load(t).Values)
	if len(all) < 30 {
		t.Fatalf("found %d values", len(all))
	}
	return all
}

var (
	commentLine = regexp.MustCompile(`^ *# (.+)$`)
	keyLine     = regexp.MustCompile(`^( *)([A-Za-z]+):`)
)

// comments returns the comments right above the values of values.yaml, by name.
func comments(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	var path []string
	comment := ""
	for line := range strings.Lines(string(text)) {
		if match := commentLine.FindStringSubmatch(strings.TrimSuffix(line, "\n")); match != nil {
			comment = match[1]
			continue
		}
		if match := keyLine.FindStringSubmatch(line); match != nil {
			path = append(path[:len(match[1])/2], match[2])
			found[strings.Join(path, ".")] = comment
		}
		comment = ""
	}
	return found
}

func TestEveryValueIsCommented(t *testing.T) {
	found := comments(t)
	for _, v := range values(t) {
		if found[v.name()] != v.Description {
			t.Errorf("%s is described in values.schema.json by %q, and the line above it in values.yaml is %q", v.name(), v.Description, found[v.name()])
		}
	}
}

// other returns an allowed value that is not the default.
func (v value) other(t *testing.T) any {
	t.Helper()
	switch was := v.byDefault.(type) {
	case bool:
		return !was
	case float64:
		if v.Maximum != nil && int(was)+2 > *v.Maximum {
			return int(was) - 2
		}
		return int(was) + 2 // the next number may be another port
	case string:
		for _, allowed := range v.Enum {
			if allowed != was {
				return allowed
			}
		}
		for _, candidate := range []string{"other", "7s", "7%", "host:7", "sha256:" + strings.Repeat("0f", 32)} {
			if candidate != was && regexp.MustCompile(v.Pattern).MatchString(candidate) {
				return candidate
			}
		}
	}
	if types, ok := v.Type.([]any); ok && slices.Contains(types, any("boolean")) {
		return v.name() != "routing.enabled" && v.name() != "routing.hints.enabled" // which the profile of the test switches on
	}
	switch strings.TrimPrefix(strings.TrimPrefix(v.name(), "proxy."), "dns.") {
	case "clusterIP":
		return "10.96.0.99"
	case "upstreams":
		return []any{"192.0.2.53"}
	case "resources":
		return map[string]any{"limits": map[string]any{"memory": "3Gi"}}
	case "detectLocal.mode":
		return "NodeCIDR"
	case "healthPort", "metricsPort":
		return 10300
	case "conntrack.maxPerCore", "conntrack.min":
		return 1 << 20
	case "clusterCIDRs", "nodePortAddresses", "externalIPs":
		return []any{"192.0.2.0/24"}
	case "image.pullSecrets":
		return []any{map[string]any{"name": "other"}}
	case "tolerations":
		return []any{map[string]any{"operator": "Exists"}, map[string]any{"key": "other", "operator": "Exists"}}
	case "affinity":
		return map[string]any{"nodeAffinity": map[string]any{"preferredDuringSchedulingIgnoredDuringExecution": []any{}}}
	case "routing.excludedNamespaces":
		return []any{"other"}
	}
	if v.Type == "object" {
		return map[string]any{"other": "value"}
	}
	t.Fatalf("%s: no allowed value but %v is known", v.name(), v.byDefault)
	return nil
}

// nested puts a value at its path.
func nested(path []string, leaf any) map[string]any {
	for _, name := range slices.Backward(path[1:]) {
		leaf = map[string]any{name: leaf}
	}
	return map[string]any{path[0]: leaf}
}

// put sets a value at its path.
func put(values map[string]any, path []string, leaf any) {
	for _, name := range path[:len(path)-1] {
		below, ok := values[name].(map[string]any)
		if !ok {
			below = map[string]any{}
			values[name] = below
		}
		values = below
	}
	values[path[len(path)-1]] = leaf
}

// Every value must change the rendered objects.
func TestEveryValueIsUsed(t *testing.T) {
	// Values of a feature have no effect while the feature is off.
	const on = "proxy.enabled=true,dns.enabled=true,locators.enabled=true,disruption.enabled=true,rollouts.scaleDown=true,rollouts.enabled=true,monitoring.serviceMonitors.enabled=true,monitoring.rules.enabled=true,monitoring.dashboards.enabled=true"
	before := rendered(t, on)
	for _, v := range values(t) {
		set := map[string]any{}
		if v.name() == "proxy.enabled" {
			set = nested(v.path, false)
		} else {
			if err := strvals.ParseInto(on, set); err != nil {
				t.Fatal(err)
			}
			leaf := v.other(t)
			if strings.Contains(on, v.name()+"=true") {
				leaf = false
			}
			put(set, v.path, leaf)
			// Without metrics, monitors and rules are empty.
			if v.name() == "metrics.enabled" {
				put(set, []string{"monitoring", "serviceMonitors", "enabled"}, false)
				put(set, []string{"monitoring", "rules", "enabled"}, false)
			}
		}
		r, err := renderValues(t, set)
		if err != nil {
			t.Errorf("%s: %v", v.name(), err)
			continue
		}
		if r.Manifest == before.Manifest {
			t.Errorf("%s: %v changes nothing", v.name(), v.other(t))
		}
		objects(t, r)
	}
}

func TestInvalidValuesAreRefused(t *testing.T) {
	for _, test := range []struct{ set, names string }{
		{"replicas=0", "/replicas"},
		{"routing.shrinkGrace=2h", "/routing/shrinkGrace"},
		{"routing.groups.handBackGrace=61m", "/routing/groups/handBackGrace"},
		{"routing.excludedNamespaces={A_B}", "/routing/excludedNamespaces/0"},
		{"image.digest=latest", "/image/digest"},
		{"proxy.apiServer=https://10.0.0.1:443", "/proxy/apiServer"},
		{"proxy.apiServer=fd00::1:443", "/proxy/apiServer"},
		{"proxy.clusterCIDRs={10.0.0.0}", "/proxy/clusterCIDRs/0"},
		{"proxy.detectLocal.interfaceNamePrefix=veth*", "/proxy/detectLocal/interfaceNamePrefix"},
		{"proxy.nodePortAddresses={eth0}", "/proxy/nodePortAddresses/0"},
		{"proxy.externalIPs={All}", "/proxy/externalIPs/0"},
		{"proxy.minSyncPeriod=2h", "/proxy/minSyncPeriod"},
		{"proxy.enabled=true,proxy.maxServiceElements=2000000,proxy.maxElements=1000000", "proxy.maxServiceElements: 2000000 is more than proxy.maxElements, which is 1000000"},
		{"proxy.conntrack.tcpEstablishedTimeout=90ms", "/proxy/conntrack/tcpEstablishedTimeout"},
		{"proxy.enabled=true,proxy.metricsPort=10266", "proxy.metricsPort: 10266 is already the port of proxy.healthPort; choose another"},
		{"proxy.enabled=true,proxy.allServices=true,proxy.healthPort=10249", "proxy.metricsPort: 10249 is already the port of proxy.healthPort; choose another"},
		{"proxy.maxUnavailable=101%", "/proxy/maxUnavailable"},
		{"monitoring.serviceMonitors.interval=30s1m", "/monitoring/serviceMonitors/interval"},
		{"monitoring.rules.runbookBase=https://example.org/run books", "/monitoring/rules/runbookBase"},
		{"metrics.enabled=false,monitoring.serviceMonitors.enabled=true", "monitoring.serviceMonitors.enabled: true is not allowed without metrics.enabled"},
		{"metrics.enabled=false,monitoring.rules.enabled=true", "monitoring.rules.enabled: true is not allowed without metrics.enabled"},
		{"metrics.port=8081", "metrics.port: 8081 is already the port of the health checks; choose another"},
		{"webhooks.port=8081", "webhooks.port: 8081 is already the port of the health checks; choose another"},
		{"webhooks.port=8080", "webhooks.port: 8080 is already the port of metrics.port; choose another"},
		{"webhooks.port=6060,profiling.enabled=true", "webhooks.port: 6060 is already the port of profiling; choose another"},
		{"fullnameOverride=UPPER", `"UPPER" is not a valid prefix for names of objects`},
	} {
		if _, err := render(t, test.set); err == nil || !strings.Contains(err.Error(), test.names) {
			t.Errorf("%s is not refused by name: %v", test.set, err)
		}
	}
}

// A program that refuses a duration would crash and restart forever.
func TestDurationsMatchThePrograms(t *testing.T) {
	longest := map[string]time.Duration{
		"routing.shrinkGrace": time.Hour, "routing.groups.handBackGrace": time.Hour, "routing.replanAfter": 24 * time.Hour,
		"proxy.minSyncPeriod": time.Minute, "proxy.accounting.interval": time.Hour,
	}
	candidates := []string{
		"0s", "0.5s", "500ms", "9999ms", "9s", "59.9s", "60s", "1m", "1m0s", "61s", "1m30s", "90s", "999s", "3599s", "3599.9s", "3600s", "5m0.5s",
		"59m59s", "60m", "1h", "1h0m0s", "1h1s", "1h0m1s", "2h", "60m1s", "61m", "99m", "3600.5s", "3601s", "9999s", "36000s", "24h", "24h0m0s", "24h0m1s",
		"25h", "1440m", "1441m", "86400s", "86400.5s", "86401s", "1000000000ms",
	}
	found := 0
	for _, v := range values(t) {
		text, ok := v.byDefault.(string)
		if _, err := time.ParseDuration(text); !ok || err != nil {
			continue
		}
		found++
		pattern, most := regexp.MustCompile(v.Pattern), longest[v.name()]
		for _, text := range append(candidates, text) {
			d, err := time.ParseDuration(text)
			if err != nil {
				t.Fatal(err)
			}
			if accepted := pattern.MatchString(text); accepted != (d <= most) {
				t.Errorf("%s: %s is accepted: %t; at most %s is allowed", v.name(), text, accepted, most)
			}
		}
		for _, text := range []string{"", "10", "soon", "-1s", "s", "1d"} {
			if pattern.MatchString(text) {
				t.Errorf("%s: %q is accepted", v.name(), text)
			}
		}
	}
	if found != len(longest) {
		t.Errorf("found %d durations, want %d", found, len(longest))
	}
}
