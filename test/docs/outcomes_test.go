package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const outcomes = "docs/reference/outcomes.md"

func text(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// parsePackage returns the files of a package without its tests.
func parsePackage(t *testing.T, folder string) []*ast.File {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// texts returns the string literals in a part of a file.
func texts(node ast.Node) []string {
	var all []string
	ast.Inspect(node, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if value, err := strconv.Unquote(literal.Value); err == nil {
				all = append(all, value)
			}
		}
		return true
	})
	return all
}

// declaredTexts returns the text values of the constants and the keys of the variables of a package whose
// name matches.
func declaredTexts(t *testing.T, folder string, fits func(name string) bool) []string {
	t.Helper()
	var all []string
	for _, file := range parsePackage(t, folder) {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i, name := range spec.Names {
				if i < len(spec.Values) && fits(name.Name) {
					all = append(all, texts(spec.Values[i])...)
				}
			}
			return true
		})
	}
	if len(all) == 0 {
		t.Fatalf("no matching declaration is in %s", folder)
	}
	return all
}

// rows returns the first cells of the table below a heading of outcomes.md, without code marks.
func rows(t *testing.T, heading string) []string {
	t.Helper()
	var all []string
	for _, match := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section(t, outcomes, heading), -1) {
		all = append(all, match[1])
	}
	slices.Sort(all)
	return all
}

// reasonWords returns the parts of the reason of a Service's condition.
func reasonWords(t *testing.T) []string {
	t.Helper()
	return declaredTexts(t, "internal/routing", func(name string) bool {
		return name == "stateWords" || strings.HasPrefix(name, "word") || strings.HasPrefix(name, "Trouble")
	})
}

func sorted(texts []string) []string {
	slices.Sort(texts)
	return slices.Compact(texts)
}

func TestReasonsAreDocumented(t *testing.T) {
	if got, want := rows(t, "The condition of a Service"), sorted(reasonWords(t)); !slices.Equal(got, want) {
		t.Errorf("%s has the reasons %q, the code has %q", outcomes, got, want)
	}
}

// An event's reason is "Topology" and a word, or a literal.
func TestEventsAreDocumented(t *testing.T) {
	var want []string
	for _, word := range reasonWords(t) {
		want = append(want, "Topology"+word)
	}
	for _, file := range append(parsePackage(t, "internal/routing/controller"), parsePackage(t, "internal/routing")...) {
		for _, text := range texts(file) {
			if strings.HasPrefix(text, "Topology") && text != "Topology" {
				want = append(want, text)
			}
		}
	}
	if got, want := rows(t, "Events"), sorted(want); !slices.Equal(got, want) {
		t.Errorf("%s has the events %q, the code has %q", outcomes, got, want)
	}
}
