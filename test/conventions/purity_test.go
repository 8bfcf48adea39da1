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

// impure are the functions of the standard library that make an outcome depend on
// when and where it is computed. Time is an argument of the core.
var impure = map[string][]string{
	"time": {"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"},
}

// seeded are the names of the random packages that do not use the source that all
// of a program shares.
var seeded = []string{"ChaCha8", "New", "NewChaCha8", "NewPCG", "NewSource", "NewZipf", "PCG", "Rand", "Source", "Source64", "Zipf"}

// unpredictable are packages whose every name is random.
var unpredictable = []string{"crypto/rand", "hash/maphash"}

// workers are the parts of the core that may start goroutines.
var workers = []string{"internal/simulate"}

// purityViolations looks at a file of the core.
func purityViolations(s source) []string {
	var violations []string
	found := func(node ast.Node, what string) {
		violations = append(violations, fmt.Sprintf("%s: %s", s.at(node), what))
	}
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
		if slices.Contains(unpredictable, importPath) {
			found(spec, fmt.Sprintf("%s is random, and the core gives the same outcome for the same input", importPath))
		}
		if name == "." {
			found(spec, fmt.Sprintf("%s is imported without a name, which hides what is used of it", importPath))
		}
		imported[name] = importPath
	}

	part, _, _ := place(path.Dir(s.name))
	mayStart := slices.Contains(workers, part)
	ast.Inspect(s.file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.GoStmt:
			if !mayStart {
				found(n, fmt.Sprintf("a goroutine is started; only %s may", strings.Join(workers, " and ")))
			}
		case *ast.CallExpr:
			// A sync.WaitGroup starts goroutines too.
			if call, ok := n.Fun.(*ast.SelectorExpr); ok && call.Sel.Name == "Go" && !mayStart {
				found(n, fmt.Sprintf("a goroutine is started; only %s may", strings.Join(workers, " and ")))
			}
		case *ast.SelectorExpr:
			name, ok := n.X.(*ast.Ident)
			if !ok {
				return true
			}
			switch importPath := imported[name.Name]; {
			case slices.Contains(impure[importPath], n.Sel.Name):
				found(n, fmt.Sprintf("%s.%s asks the machine, and in the core time is an argument", name.Name, n.Sel.Name))
			case strings.TrimSuffix(importPath, "/v2") == "math/rand" && !slices.Contains(seeded, n.Sel.Name):
				found(n, fmt.Sprintf("%s.%s uses the random source of the whole program; use one made from a seed", name.Name, n.Sel.Name))
			}
		}
		return true
	})
	return violations
}

func TestCoreIsPure(t *testing.T) {
	for _, p := range list(t) {
		if !inCore(p) {
			continue
		}
		for _, s := range p.sources(t, p.GoFiles, p.IgnoredGoFiles) {
			report(t, purityViolations(s))
		}
	}
}

func TestImpurityIsFound(t *testing.T) {
	for _, test := range []struct {
		name string
		file string
		text string
		want []string
	}{
		{
			name: "durations and seeds",
			text: `package p
import ("math/rand/v2"; "time")
var limit = 3 * time.Second
func f(now time.Time) float64 { return rand.New(rand.NewPCG(1, 2)).Float64() * now.Sub(time.Time{}).Seconds() }`,
		},
		{
			name: "the clock",
			text: `package p
import "time"
func f(then time.Time) { _ = time.Now(); time.Sleep(time.Since(then)) }`,
			want: []string{"p.go:3:30: time.Now", "time.Sleep", "time.Since"},
		},
		{
			name: "the clock by another name, as a value",
			text: `package p
import clock "time"
var now = clock.Now`,
			want: []string{"clock.Now asks the machine"},
		},
		{
			name: "the clock without a name",
			text: `package p
import . "time"
var now = Now()`,
			want: []string{"time is imported without a name"},
		},
		{
			name: "a method that is named like a clock",
			text: `package p
type stage struct{}
func (stage) Now() int { return 0 }
func f(time stage) int { return time.Now() }`,
		},
		{
			name: "the random source of the program",
			text: `package p
import ("math/rand/v2"; old "math/rand")
func f() int { return rand.IntN(3) + old.Intn(3) }`,
			want: []string{"rand.IntN uses the random source", "old.Intn uses the random source"},
		},
		{
			name: "a random package",
			text: `package p
import _ "crypto/rand"`,
			want: []string{"crypto/rand is random"},
		},
		{
			name: "goroutines",
			text: `package p
import "sync"
func f() { var group sync.WaitGroup; go f(); group.Go(f) }`,
			want: []string{"p.go:3:38: a goroutine is started; only internal/simulate may", "a goroutine is started"},
		},
		{
			name: "goroutines of the simulation",
			file: "internal/simulate/p.go",
			text: `package p
func f() { go f() }`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := test.file
			if file == "" {
				file = "internal/allocate/p.go"
			}
			expect(t, purityViolations(parse(t, file, test.text)), test.want...)
		})
	}
}
