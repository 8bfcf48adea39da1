package conventions_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// unlinked has the folders that a command must not link, in the project or as import paths: unused
// code takes memory on every node. Commands that only judge have no client and no flags.
var unlinked = map[string][]string{
	"cmd/vicinity-proxy": {
		"internal/allocate", "internal/simulate", "internal/routing/controller", "internal/routing/explain", "internal/routing/intent",
		"github.com/google/cel-go",
		// The clients of all APIs take 9 MiB on each node, and the events library links them too.
		"k8s.io/client-go/kubernetes", "k8s.io/client-go/tools/events",
		"lab", "helm.sh/helm/v4",
	},
	"cmd/vicinity-dns": {
		"internal/allocate", "internal/simulate", "internal/routing", "internal/proxy", "internal/disruption", "internal/cli",
		"github.com/google/cel-go", "lab", "helm.sh/helm/v4",
		// Cloud providers.
		"github.com/Azure", "cloud.google.com/go", "github.com/aws/aws-sdk-go-v2/service/route53",
	},
	"internal/inspect":        {"k8s.io/client-go", "github.com/spf13", "github.com/prometheus"},
	"cmd/vicinity":            {"lab", "helm.sh/helm/v4"},
	"cmd/vicinity-controller": {"lab", "helm.sh/helm/v4"},
}

// confined has the folders that only files with these prefixes may import. Tests may import anything.
var confined = map[string][]string{
	"lab":             {"lab/"},
	"helm.sh/helm/v4": {"lab/release/"},
	// The tests of dashboards and rules are a module of their own.
	"github.com/prometheus/prometheus": {"monitoring/"},
}

// isConfined fails for each import that only other files may have.
func isConfined(t *testing.T, s source) {
	t.Helper()
	for _, folder := range slices.Sorted(maps.Keys(confined)) {
		users := confined[folder]
		if slices.ContainsFunc(users, func(user string) bool { return strings.HasPrefix(s.name, user) }) {
			continue
		}
		for _, spec := range s.file.Imports {
			imported := strings.Trim(spec.Path.Value, "\"`")
			if within(imported, folder) || within(imported, module+"/"+folder) {
				t.Errorf("%s imports %s, which only %s may: move the code there", s.at(spec), imported, strings.Join(users, " and "))
			}
		}
	}
}

func TestConfinedImports(t *testing.T) {
	for _, p := range list(t) {
		if !ours(p.ImportPath) {
			continue
		}
		for _, s := range p.sources(t, p.GoFiles, p.IgnoredGoFiles) {
			isConfined(t, s)
		}
	}
}

func TestCommandsLinkWhatTheyUse(t *testing.T) {
	packages := list(t)
	for command, folders := range unlinked {
		at := slices.IndexFunc(packages, func(p pkg) bool { return p.path() == command })
		if at < 0 {
			t.Errorf("there is no package %s", command)
			continue
		}
		for _, folder := range folders {
			is := func(path string) bool { return within(path, folder) || within(path, module+"/"+folder) }
			if i := slices.IndexFunc(packages[at].Deps, is); i >= 0 {
				t.Errorf("%s links %s, but must not link %s", command, packages[at].Deps[i], folder)
			}
		}
	}
}
