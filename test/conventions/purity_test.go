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

// isPureKind reports whether packages of a kind are pure: the same input gives the same outcome,
// anywhere and at any time.
func isPureKind(k kind) bool { return k == ground || k == front || k == judge }

// apiTypes are the import paths that pure packages above the ground may import.
var apiTypes = []string{
	"k8s.io/api", "k8s.io/apimachinery", "k8s.io/component-helpers/resource", "k8s.io/component-helpers/scheduling/corev1/nodeaffinity", "k8s.io/utils/net",
}

// workers are the folders of pure packages that may start goroutines.
var workers = []string{"internal/simulate"}

// shared are the folders of pure packages that may have locks, since they are read while they are
// changed. They start no goroutines.
var shared = map[string][]string{"internal/names/locate": {"sync"}}

// workersOnly are packages that only workers may import, and shellOnly packages that no pure package
// may import, each with the alternative.
var (
	workersOnly = map[string]string{
		"context":     "pure code does not wait, so there is nothing to cancel",
		"runtime":     "take machine-dependent values as arguments",
		"sync":        "use a value, and have the back door pass in memory and shared state, as in intent.Tools",
		"sync/atomic": "use a value, and have the back door pass in memory and shared state, as in intent.Tools",
	}
	shellOnly = map[string]string{
		"crypto/rand":                          "it is random; take a seed as an argument",
		"hash/maphash":                         "it is random; use hash/fnv",
		"log":                                  "return the message as data, and have the back door log it",
		"log/slog":                             "return the message as data, and have the back door log it",
		"net":                                  "use net/netip for addresses, and have the back door connect",
		"os":                                   "take the content as an argument, and have the back door read it",
		"os/exec":                              "have the back door run it",
		"os/signal":                            "have the back door wait for it",
		"syscall":                              "have the back door call it",
		"k8s.io/apimachinery/pkg/util/rand":    "it is random; take a seed as an argument",
		"k8s.io/apimachinery/pkg/util/runtime": "return errors",
		"k8s.io/apimachinery/pkg/util/uuid":    "it is random; take an identifier as an argument",
		"k8s.io/apimachinery/pkg/util/wait":    "return when to look again, and have the back door wait",
		"k8s.io/apimachinery/pkg/watch":        "take objects as arguments, and have the back door watch",
	}
)

// clocks are functions whose result depends on the time.
var clocks = map[string][]string{
	"time":                                 {"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"},
	"k8s.io/apimachinery/pkg/apis/meta/v1": {"Now", "NowMicro"},
}

// seeded are the names of the random packages that do not use the program's shared source.
var seeded = []string{"ChaCha8", "New", "NewChaCha8", "NewPCG", "NewSource", "NewZipf", "PCG", "Rand", "Source", "Source64", "Zipf"}

func inAny(place string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool { return within(place, folder) })
}

// importFault says what is wrong with an import of a pure package and what to do, or is empty. logs
// are the packages of the standard library that reach a logger.
func importFault(folder, imported string, logs []string) string {
	standard := !strings.Contains(strings.Split(imported, "/")[0], ".")
	instead, impure := shellOnly[imported]
	if !impure && !inAny(folder, workers) && !slices.Contains(shared[folder], imported) {
		instead, impure = workersOnly[imported]
	}
	k, _ := kindOf(folder)
	switch {
	case impure:
		return instead
	case slices.Contains(logs, imported):
		return "it reaches a logger; have the back door do what it is for"
	case standard, ours(imported), k != ground && inAny(imported, apiTypes): // the house checks imports within the project
		return ""
	case k == ground:
		return "ground imports only the standard library; take its result as an argument"
	}
	return "a pure package imports only the standard library and API types; take its result, a function or an interface as an argument"
}

// isPure fails for impure code in a file of a pure package.
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

	const starts = "it starts a goroutine: return the work as data, and have the back door do it"
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

// makesNoBareClusters fails for clusters in a shell that are made without package capacity: they
// cannot evaluate expressions, and so answer each CEL capacity with a fault.
func makesNoBareClusters(t *testing.T, s source) {
	t.Helper()
	name := ""
	for _, spec := range s.file.Imports {
		if spec.Path.Value == strconv.Quote(module+"/internal/routing/intent") {
			if name = "intent"; spec.Name != nil {
				name = spec.Name.Name
			}
		}
	}
	ast.Inspect(s.file, func(node ast.Node) bool {
		if n, ok := node.(*ast.SelectorExpr); ok && n.Sel.Name == "NewCluster" && name != "" {
			if of, ok := n.X.(*ast.Ident); ok && of.Name == name {
				t.Errorf("%s uses %s.NewCluster, whose clusters cannot evaluate expressions: use capacity.NewCluster", s.at(node), name)
			}
		}
		return true
	})
}

func TestShellsMakeClustersThatReadExpressions(t *testing.T) {
	for _, p := range list(t) {
		if k, _ := kindOf(p.path()); !ours(p.ImportPath) || isPureKind(k) || p.path() == "internal/routing/capacity" {
			continue
		}
		for _, s := range p.sources(t, p.GoFiles, p.IgnoredGoFiles) {
			makesNoBareClusters(t, s)
		}
	}
}

func TestGroundAndFrontsArePure(t *testing.T) {
	packages := list(t)
	logs := loggers(packages)
	for _, p := range packages {
		if k, _ := kindOf(p.path()); !ours(p.ImportPath) || !isPureKind(k) {
			continue
		}
		for _, s := range p.sources(t, p.GoFiles, p.IgnoredGoFiles) {
			isPure(t, s, logs)
		}
	}
}
