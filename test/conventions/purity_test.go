package conventions_test

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ring is a set of folders, with all below them, whose packages are pure: the same input
// gives the same outcome, wherever and whenever they are called.
type ring struct {
	folders []string
	// besides are the import paths, with all below them, that its packages may import besides
	// the standard library, its own ring, and those before it.
	besides []string
	// may says the same in words.
	may string
}

var rings = []ring{
	{
		folders: []string{
			"internal/topology", "internal/plaintext", "internal/netset", "internal/kubeproxy", "internal/allocate", "internal/disruption", "internal/spread", "internal/locate", "internal/simulate",
			"internal/proxy/ruleset", // which could be in ring two, and needs nothing of Kubernetes
		},
		may: "ring one may import the standard library and ring one",
	},
	{
		folders: []string{"internal/endpoint", "internal/location", "internal/translate", "internal/coverage", "internal/routing", "internal/convert", "internal/inspect", "internal/names", "internal/proxy/compile", "internal/proxy/view"},
		besides: []string{
			"k8s.io/api", "k8s.io/apimachinery", "k8s.io/component-helpers/scheduling/corev1/nodeaffinity", "k8s.io/utils/net", module + "/api",
		},
		may: "ring two may import the standard library, ring one, ring two, and API types (k8s.io/api, k8s.io/apimachinery, api) with how they match nodes (nodeaffinity) and write addresses (k8s.io/utils/net)",
	},
}

// workers are the folders of rings whose packages may start goroutines.
var workers = []string{"internal/simulate"}

// shared are the folders of rings whose packages are read while they are changed, and may
// have locks for that; they start no goroutines.
var shared = map[string][]string{"internal/locate": {"sync"}}

// workersOnly are packages that only workers may import, and shellOnly those that no package
// of a ring may, each with what to do instead.
var (
	workersOnly = map[string]string{
		"context":     "what is pure does not wait, so there is nothing to cancel",
		"runtime":     "take as an argument what depends on the machine",
		"sync":        "make it a value, and have the shell pass in what remembers or is shared, as translate.Tools",
		"sync/atomic": "make it a value, and have the shell pass in what remembers or is shared, as translate.Tools",
	}
	shellOnly = map[string]string{
		"crypto/rand":                          "it is random; take a seed as an argument",
		"hash/maphash":                         "it is random; use hash/fnv",
		"log":                                  "return as data what is to be said, and have the shell log it",
		"log/slog":                             "return as data what is to be said, and have the shell log it",
		"net":                                  "use net/netip for addresses, and have the shell connect",
		"os":                                   "take the content as an argument, and have the shell read it",
		"os/exec":                              "have the shell run it",
		"os/signal":                            "have the shell wait for it",
		"syscall":                              "have the shell call it",
		"k8s.io/apimachinery/pkg/util/rand":    "it is random; take a seed as an argument",
		"k8s.io/apimachinery/pkg/util/runtime": "return errors",
		"k8s.io/apimachinery/pkg/util/uuid":    "it is random; take what tells objects apart as an argument",
		"k8s.io/apimachinery/pkg/util/wait":    "return when to look again, and have the shell wait",
		"k8s.io/apimachinery/pkg/watch":        "take objects as arguments, and have the shell watch",
	}
)

// clocks are the functions that make an outcome depend on when it is computed.
var clocks = map[string][]string{
	"time":                                 {"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"},
	"k8s.io/apimachinery/pkg/apis/meta/v1": {"Now", "NowMicro"},
}

// seeded are the names of the random packages that do not use the source that all
// of a program shares.
var seeded = []string{"ChaCha8", "New", "NewChaCha8", "NewPCG", "NewSource", "NewZipf", "PCG", "Rand", "Source", "Source64", "Zipf"}

// ringOf is the place in rings of the ring that a folder of the project is in, or -1.
func ringOf(folder string) int {
	return slices.IndexFunc(rings, func(r ring) bool { return inAny(folder, r.folders) })
}

func inAny(place string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool { return within(place, folder) })
}

// importFault is what is wrong with an import of a package in a ring, and what to do, or
// nothing. logs are the packages of the standard library that reach a logger.
func importFault(folder, imported string, logs []string) string {
	standard := !strings.Contains(strings.Split(imported, "/")[0], ".")
	own, of := strings.CutPrefix(imported, module+"/")
	instead, ofShells := shellOnly[imported]
	if !ofShells && !inAny(folder, workers) && !slices.Contains(shared[folder], imported) {
		instead, ofShells = workersOnly[imported]
	}
	at := ringOf(folder)
	switch {
	case ofShells:
		return instead
	case slices.Contains(logs, imported):
		return "it reaches a logger; have the shell do what it is for"
	case standard, inAny(imported, rings[at].besides):
		return ""
	case of && ringOf(own) >= 0 && ringOf(own) <= at:
		return ""
	}
	return rings[at].may + "; take what this is for as an argument, a function or an interface, and have the shell pass it in"
}

// isPure fails for what a file of a package in a ring must not have.
func isPure(t *testing.T, s source, logs []string) {
	t.Helper()
	found := func(node ast.Node, what string) {
		t.Helper()
		t.Errorf("%s: %s", s.at(node), what)
	}
	folder := path.Dir(s.name)
	imported := make(map[string]string) // path by name in the file
	for _, spec := range s.file.Imports {
		importPath, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			found(spec, err.Error())
			continue
		}
		name := path.Base(strings.TrimSuffix(importPath, "/v2"))
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if fault := importFault(folder, importPath, logs); fault != "" {
			found(spec, fmt.Sprintf("it imports %s: %s", importPath, fault))
		}
		if name == "." {
			found(spec, fmt.Sprintf("it imports %s without a name, which hides what it uses of it: give it one", importPath))
		}
		imported[name] = importPath
	}

	const starts = "it starts a goroutine: return the work as data, and have the shell do it"
	ast.Inspect(s.file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.GoStmt:
			if !inAny(folder, workers) {
				found(n, starts)
			}
		case *ast.CallExpr:
			// A sync.WaitGroup starts goroutines too.
			if call, ok := n.Fun.(*ast.SelectorExpr); ok && call.Sel.Name == "Go" && !inAny(folder, workers) {
				found(n, starts)
			}
		case *ast.SelectorExpr:
			name, ok := n.X.(*ast.Ident)
			if !ok {
				return true
			}
			switch importPath := imported[name.Name]; {
			case slices.Contains(clocks[importPath], n.Sel.Name):
				found(n, fmt.Sprintf("it uses %s.%s: take the time as an argument, and return when to look again", name.Name, n.Sel.Name))
			case strings.TrimSuffix(importPath, "/v2") == "math/rand" && !slices.Contains(seeded, n.Sel.Name):
				found(n, fmt.Sprintf("it uses %s.%s, the random source of the whole program: use one made from a seed", name.Name, n.Sel.Name))
			}
		}
		return true
	})
}

// loggers are the packages of the standard library that log, or reach one that does.
func loggers(packages []pkg) []string {
	var logs []string
	for _, p := range packages {
		if p.Standard && slices.Contains(p.Deps, "log") {
			logs = append(logs, p.ImportPath)
		}
	}
	return logs
}

// makesNoBareClusters fails for clusters in a file of a shell that are made without package capacity: they
// cannot read expressions, and so answer each CEL capacity with a fault.
func makesNoBareClusters(t *testing.T, s source) {
	t.Helper()
	name := ""
	for _, spec := range s.file.Imports {
		if spec.Path.Value == strconv.Quote(module+"/internal/translate") {
			if name = "translate"; spec.Name != nil {
				name = spec.Name.Name
			}
		}
	}
	ast.Inspect(s.file, func(node ast.Node) bool {
		if n, ok := node.(*ast.SelectorExpr); ok && n.Sel.Name == "NewCluster" && name != "" {
			if of, ok := n.X.(*ast.Ident); ok && of.Name == name {
				t.Errorf("%s: it uses %s.NewCluster, whose clusters read no expressions: use capacity.NewCluster", s.at(node), name)
			}
		}
		return true
	})
}

func TestShellsMakeClustersThatReadExpressions(t *testing.T) {
	for _, p := range list(t) {
		if !ours(p.ImportPath) || ringOf(p.path()) >= 0 || p.path() == "internal/capacity" {
			continue
		}
		for _, s := range p.sources(t, p.GoFiles, p.IgnoredGoFiles) {
			makesNoBareClusters(t, s)
		}
	}
}

func TestRingsArePure(t *testing.T) {
	packages := list(t)
	logs := loggers(packages)
	for _, p := range packages {
		if !ours(p.ImportPath) || ringOf(p.path()) < 0 {
			continue
		}
		for _, s := range p.sources(t, p.GoFiles, p.IgnoredGoFiles) {
			isPure(t, s, logs)
		}
	}
}
