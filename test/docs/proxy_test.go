package docs_test

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/internal/proxy/kernel"
)

const (
	proxyGuide     = "docs/proxy.md"
	proxyReference = "docs/reference/proxy.md"
	// renderedProxy is the chart with vicinity-proxy beside kube-proxy.
	renderedProxy = "lab/test/charts/testdata/proxy.yaml"
)

// proxyFolders are those whose code says things to users.
var proxyFolders = []string{
	"internal/proxy", "internal/proxy/accounting", "internal/proxy/cluster", "internal/proxy/events", "internal/proxy/lease", "cmd/vicinity-proxy",
}

// section is the part of a document under a title.
func section(t *testing.T, document, title string) string {
	t.Helper()
	_, rest, found := strings.Cut(text(t, document), "\n## "+title+"\n")
	if !found {
		t.Fatalf("%s has no part %q", document, title)
	}
	part, _, _ := strings.Cut(rest, "\n## ")
	return part
}

// firstCells are what is between backquotes at the beginning of the rows of tables.
func firstCells(part string) []string {
	var all []string
	for _, match := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(part, -1) {
		all = append(all, match[1])
	}
	return all
}

// callTexts are the texts that calls of a method have as an argument, by its place.
func callTexts(t *testing.T, method string, place int) []string {
	t.Helper()
	var all []string
	for _, folder := range proxyFolders {
		for _, file := range parsed(t, folder) {
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) <= place {
					return true
				}
				if selector, ok := call.Fun.(*ast.SelectorExpr); ok && selector.Sel.Name == method {
					if _, literal := call.Args[place].(*ast.BasicLit); literal {
						all = append(all, texts(call.Args[place])...)
					}
				}
				return true
			})
		}
	}
	return all
}

func TestOldestKernelIsDocumented(t *testing.T) {
	stated := regexp.MustCompile(`Linux (\d+\.\d+)\s+or\s+newer`)
	for _, document := range []string{proxyGuide, proxyReference} {
		match := stated.FindStringSubmatch(text(t, document))
		if match == nil || match[1] != kernel.MinimumKernel {
			t.Errorf("%s says %q, the proxy asks for %s", document, match, kernel.MinimumKernel)
		}
	}
}

// Every reason of an event is in the reference, and none that is not.
func TestEventsOfTheProxyAreDocumented(t *testing.T) {
	got, want := firstCells(section(t, proxyReference, "Events")), callTexts(t, "Event", 2)
	slices.Sort(got)
	slices.Sort(want)
	if want = slices.Compact(want); len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("%s has the events %q, the proxy writes %q", proxyReference, got, want)
	}
}

// The messages to look for are those that there are.
func TestLogsOfTheProxyAreAsDocumented(t *testing.T) {
	said := slices.Concat(callTexts(t, "Info", 0), callTexts(t, "Error", 1))
	documented := firstCells(section(t, proxyReference, "Logs"))
	if len(documented) == 0 {
		t.Errorf("%s has no messages", proxyReference)
	}
	for _, message := range documented {
		if !slices.Contains(said, message) {
			t.Errorf("%s has the message %q, which nothing says", proxyReference, message)
		}
	}
}

// What fails is counted by steps, each of which the reference explains.
func TestStepsOfTheProxyAreDocumented(t *testing.T) {
	found, reference := 0, section(t, proxyReference, "Metrics")
	for _, file := range parsed(t, "internal/proxy") {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Names) != 1 || !strings.HasPrefix(spec.Names[0].Name, "step") || len(spec.Values) != 1 {
				return true
			}
			if _, literal := spec.Values[0].(*ast.BasicLit); literal {
				found++
				if step := texts(spec.Values[0])[0]; !strings.Contains(reference, "`"+step+"`") {
					t.Errorf("%s does not explain the step %q", proxyReference, step)
				}
			}
			return true
		})
	}
	if found == 0 {
		t.Error("the proxy has no steps; are they still constants?")
	}
}

// A metric that any document names is in the reference, whose table another test keeps
// current. What Prometheus records has a colon before the name of the metric.
func TestMetricsOfTheProxyExist(t *testing.T) {
	known := firstCells(section(t, proxyReference, "Metrics"))
	named := regexp.MustCompile(`:?vicinity_proxy_[a-z_]+`)
	found := 0
	for name, document := range documents(t) {
		for _, metric := range named.FindAllString(document, -1) {
			if strings.HasPrefix(metric, ":") {
				continue
			}
			found++
			base := metric
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				base = strings.TrimSuffix(base, suffix)
			}
			if !slices.Contains(known, metric) && !slices.Contains(known, base) && metric != "vicinity_proxy_" {
				t.Errorf("%s names the metric %s, which %s does not have", name, metric, proxyReference)
			}
		}
	}
	if found == 0 {
		t.Error("no document names a metric of the proxy")
	}
}

func TestPermissionsOfTheProxyAreDocumented(t *testing.T) {
	// This the proxy may do where it serves all Services.
	alone := []rbacv1.PolicyRule{{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list", "watch"}}}
	want, guide := granted("all namespaces", alone), granted("", alone)
	for manifest := range strings.SplitSeq(text(t, renderedProxy), "\n---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(manifest), &role); err != nil || role.Name != "vicinity-proxy" {
			continue
		}
		switch role.Kind {
		case "ClusterRole":
			want = append(want, granted("all namespaces", role.Rules)...)
			guide = append(guide, granted("", role.Rules)...)
		case "Role":
			want = append(want, granted("own namespace", role.Rules)...)
			guide = append(guide, granted("", role.Rules)...)
		}
	}
	slices.Sort(want)
	var got []string
	row := regexp.MustCompile(`(?m)^(\| (?:all namespaces|own namespace) \| [^|]* \| [^|]* \|) [^|]* \|$`)
	for _, match := range row.FindAllStringSubmatch(section(t, proxyReference, "Permissions"), -1) {
		got = append(got, match[1])
	}
	slices.Sort(got)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("%s has\n%s\nthe chart grants\n%s", proxyReference, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// The guide says the same in other columns.
	part := section(t, proxyGuide, "What it may do")
	for _, row := range guide {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		if resource, verbs := cells[0], cells[1]; !strings.Contains(part, "| "+resource+": "+verbs+" |") && !strings.Contains(part, "| "+resource+": "+verbs+";") {
			t.Errorf("%s does not say %s: %s", proxyGuide, resource, verbs)
		}
	}
}
