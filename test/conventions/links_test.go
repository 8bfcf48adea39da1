package conventions_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// unlinked are the folders that a command does not link, with all below them, in the
// project or as import paths: what it does not use takes memory wherever it runs. What
// judges what others have read has no client and no flags.
var unlinked = map[string][]string{
	"cmd/vicinity-proxy": {
		"internal/allocate", "internal/simulate", "internal/routing/controller", "internal/routing/explain", "internal/routing/intent",
		"github.com/google/cel-go",
		// The clients of all APIs, 9 MiB on each node, and the events library, which links
		// them too.
		"k8s.io/client-go/kubernetes", "k8s.io/client-go/tools/events",
		"lab", "helm.sh/helm/v4",
	},
	"cmd/vicinity-dns": {
		"internal/allocate", "internal/simulate", "internal/routing", "internal/proxy", "internal/disruption", "internal/cli",
		"github.com/google/cel-go", "lab", "helm.sh/helm/v4",
		// The providers of clouds.
		"github.com/Azure", "cloud.google.com/go", "github.com/aws/aws-sdk-go-v2/service/route53",
	},
	"internal/inspect":        {"k8s.io/client-go", "github.com/spf13", "github.com/prometheus"},
	"cmd/vicinity":            {"lab", "helm.sh/helm/v4"},
	"cmd/vicinity-controller": {"lab", "helm.sh/helm/v4"},
}

// confined are folders, in the project or as import paths, which only files whose names
// begin so may import. Tests may import anything.
var confined = map[string][]string{
	"lab":             {"lab/"},
	"helm.sh/helm/v4": {"lab/release/"},
	// The tests of dashboards and rules are in a module of their own.
	"github.com/prometheus/prometheus": {"monitoring/"},
}

// isConfined fails for each import of a file that only others may have.
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
				t.Errorf("%s: it imports %s: only %s may; move what needs it there", s.at(spec), imported, strings.Join(users, " and "))
			}
		}
	}
}

func TestTheLabIsForFew(t *testing.T) {
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
				t.Errorf("%s links %s: it must do without %s", command, packages[at].Deps[i], folder)
			}
		}
	}
}
