package docs_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

const (
	// rendered is the chart with default values, which its own tests keep current.
	rendered   = "lab/test/charts/testdata/default.yaml"
	controller = "docs/reference/controller.md"
)

// describeRules returns a table row for each resource of a role.
func describeRules(scope string, rules []rbacv1.PolicyRule) []string {
	var all []string
	verbs := map[string][]string{}
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				base, sub, divided := strings.Cut(resource, "/")
				name := strings.TrimSuffix(base+"."+group, ".")
				if divided {
					name += "/" + sub
				}
				row := "| " + scope + " | `" + name + "`"
				if len(rule.ResourceNames) > 0 {
					row += ", the one named `" + strings.Join(rule.ResourceNames, "`, `") + "`"
				}
				verbs[row] = append(verbs[row], rule.Verbs...)
			}
		}
	}
	for row, list := range verbs {
		all = append(all, row+" | "+strings.Join(list, ", ")+" |")
	}
	return all
}

// grantedRows returns a table row for each resource of the roles of one name in a rendered chart.
func grantedRows(t *testing.T, chart, name, everywhere string) []string {
	t.Helper()
	var all []string
	for manifest := range strings.SplitSeq(text(t, chart), "\n---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(manifest), &role); err != nil || role.Name != name {
			continue
		}
		switch role.Kind {
		case "ClusterRole":
			all = append(all, describeRules(everywhere, role.Rules)...)
		case "Role":
			all = append(all, describeRules("own namespace", role.Rules)...)
		}
	}
	return all
}

// permissionRow matches a scope, its resources and their verbs.
var permissionRow = regexp.MustCompile(`(?m)^\| (cluster|own namespace) \| ([^|]*) \| ([^|]*) \|$`)

func TestPermissionsOfTheControllerAreDocumented(t *testing.T) {
	want := grantedRows(t, rendered, "vicinity-controller", "cluster")
	slices.Sort(want)
	var got []string
	for _, match := range permissionRow.FindAllStringSubmatch(text(t, controller), -1) {
		resources := []string{match[2]}
		if !strings.Contains(match[2], ", the one named ") {
			resources = strings.Split(match[2], ", ")
		}
		for _, resource := range resources {
			got = append(got, "| "+match[1]+" | "+resource+" | "+match[3]+" |")
		}
	}
	slices.Sort(got)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("%s has\n%s\nthe chart grants\n%s", controller, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
