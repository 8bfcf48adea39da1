package conventions_test

import (
	"fmt"
	"slices"
	"testing"
)

// unlinked are the folders that a command does not link, with all below them, in the
// project or as import paths: what it does not use takes memory wherever it runs.
var unlinked = map[string][]string{
	"cmd/vicinity-proxy": {
		"internal/allocate", "internal/simulate", "internal/explain", "internal/translate", "internal/routing",
		"github.com/google/cel-go",
		// The clients of all APIs, 9 MiB on each node, and the events library, which links
		// them too.
		"k8s.io/client-go/kubernetes", "k8s.io/client-go/tools/events",
	},
}

// linkViolations are the packages that a command links and should not.
func linkViolations(packages []pkg, folders map[string][]string) []string {
	var violations []string
	for _, p := range packages {
		for _, folder := range folders[p.path()] {
			is := func(path string) bool { return within(path, folder) || within(path, module+"/"+folder) }
			if i := slices.IndexFunc(p.Deps, is); i >= 0 {
				violations = append(violations, fmt.Sprintf("%s links %s: it must do without %s", p.path(), p.Deps[i], folder))
			}
		}
	}
	return violations
}

func TestCommandsLinkWhatTheyUse(t *testing.T) {
	packages := list(t)
	for command := range unlinked {
		if !slices.ContainsFunc(packages, func(p pkg) bool { return p.path() == command }) {
			t.Errorf("there is no command %s", command)
		}
	}
	report(t, linkViolations(packages, unlinked))
}

func TestLinkViolationsAreFound(t *testing.T) {
	folders := map[string][]string{"cmd/a": {"internal/simulate", "k8s.io/client-go/kubernetes"}}
	for _, test := range []struct {
		name string
		p    pkg
		want []string
	}{
		{"nothing", pkg{ImportPath: module + "/cmd/a", Deps: []string{"os", "k8s.io/client-go/rest", module + "/internal/topology"}}, nil},
		{"of the project", pkg{ImportPath: module + "/cmd/a", Deps: []string{module + "/internal/simulate"}}, []string{"cmd/a links vicinity.dev/vicinity/internal/simulate"}},
		{"of others, below", pkg{ImportPath: module + "/cmd/a", Deps: []string{"k8s.io/client-go/kubernetes/scheme"}}, []string{"cmd/a links k8s.io/client-go/kubernetes/scheme: it must do without k8s.io/client-go/kubernetes"}},
		{"another command", pkg{ImportPath: module + "/cmd/b", Deps: []string{module + "/internal/simulate"}}, nil},
	} {
		t.Run(test.name, func(t *testing.T) { expect(t, linkViolations([]pkg{test.p}, folders), test.want...) })
	}
}
