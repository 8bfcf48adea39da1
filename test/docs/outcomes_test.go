package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/explain"
)

const outcomes = "docs/reference/outcomes.md"

// text is a file of the repository.
func text(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// parsed are the files of a package without its tests.
func parsed(t *testing.T, folder string) []*ast.File {
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

// texts are the values of string literals in a part of a file.
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

// declared are the text values of the constants and the keys of the variables of a
// package whose name fits.
func declared(t *testing.T, folder string, fits func(name string) bool) []string {
	t.Helper()
	var all []string
	for _, file := range parsed(t, folder) {
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
		t.Fatalf("nothing of the kind is declared in %s", folder)
	}
	return all
}

// rows are the first cells of the rows of the table below a heading, without code
// marks.
func rows(t *testing.T, document, heading string) []string {
	t.Helper()
	_, after, found := strings.Cut(document, "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no heading %q", outcomes, heading)
	}
	section, _, _ := strings.Cut(after, "\n## ")
	var all []string
	for _, match := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		all = append(all, match[1])
	}
	slices.Sort(all)
	return all
}

// words are those that the reason of a Service's condition is made of.
func words(t *testing.T) []string {
	t.Helper()
	return declared(t, "internal/routing", func(name string) bool {
		return name == "stateWords" || strings.HasPrefix(name, "word") || strings.HasPrefix(name, "Trouble")
	})
}

func sorted(texts []string) []string {
	slices.Sort(texts)
	return slices.Compact(texts)
}

func TestReasonsAreDocumented(t *testing.T) {
	if got, want := rows(t, text(t, outcomes), "The condition of a Service"), sorted(words(t)); !slices.Equal(got, want) {
		t.Errorf("%s has the reasons %q, the code has %q", outcomes, got, want)
	}
}

// An event's reason is "Topology" and a word, or one that is written out.
func TestEventsAreDocumented(t *testing.T) {
	var want []string
	for _, word := range words(t) {
		want = append(want, "Topology"+word)
	}
	for _, file := range append(parsed(t, "internal/controller/routing"), parsed(t, "internal/routing")...) {
		for _, text := range texts(file) {
			if strings.HasPrefix(text, "Topology") && text != "Topology" {
				want = append(want, text)
			}
		}
	}
	if got, want := rows(t, text(t, outcomes), "Events"), sorted(want); !slices.Equal(got, want) {
		t.Errorf("%s has the events %q, the code has %q", outcomes, got, want)
	}
}

// Every rule has its message, as the condition says it.
func TestMessagesAreDocumented(t *testing.T) {
	var want []string
	add := func(o allocate.Outcome) {
		o.Threshold = allocate.DefaultOverloadThreshold
		want = append(want, explain.Brief(o))
	}
	for _, rule := range declared(t, "internal/allocate", func(name string) bool { return strings.HasPrefix(name, "Rule") }) {
		algorithm := allocate.Optimal
		if allocate.Rule(rule) == allocate.RuleOneZone {
			add(allocate.Outcome{Rule: allocate.RuleOneZone, Algorithm: algorithm, Zones: 1})
			algorithm = allocate.Auto // which alone counts zones that have capacity
		}
		add(allocate.Outcome{Rule: allocate.Rule(rule), Algorithm: algorithm})
	}
	add(allocate.Outcome{Rule: allocate.RulePlanned, Algorithm: allocate.Optimal, State: allocate.Allocated, Undivided: true})
	add(allocate.Outcome{Rule: allocate.RulePlanned, Algorithm: allocate.Optimal, State: allocate.Allocated, Figures: allocate.Figures{Overload: 1}})
	add(allocate.Outcome{Rule: allocate.RulePlanned, Algorithm: allocate.Auto, State: allocate.Allocated})
	add(allocate.Outcome{Rule: allocate.RuleOverload, Algorithm: allocate.Optimal, Overload: math.Inf(1)})
	want = append(want, explain.Brief(allocate.Outcome{Rule: allocate.RulePlanned, State: allocate.Allocated, Algorithm: allocate.Flow}))
	if got, want := rows(t, text(t, outcomes), "Messages"), sorted(want); !slices.Equal(got, want) {
		t.Errorf("%s has the messages\n%s\nthe code has\n%s", outcomes, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestReasonsOfPoliciesAreDocumented(t *testing.T) {
	document := text(t, outcomes)
	found := 0
	for _, file := range parsed(t, "internal/controller/routing") {
		ast.Inspect(file, func(n ast.Node) bool {
			var reasons []string
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Reason" {
					reasons = texts(n.Value)
				}
			case *ast.AssignStmt:
				for i, left := range n.Lhs {
					if field, ok := left.(*ast.SelectorExpr); ok && field.Sel.Name == "Reason" && i < len(n.Rhs) {
						reasons = append(reasons, texts(n.Rhs[i])...)
					}
				}
			}
			for _, reason := range reasons {
				found++
				if !strings.Contains(document, "| `Accepted` | `True` | `"+reason+"` |") && !strings.Contains(document, "| `Accepted` | `False` | `"+reason+"` |") {
					t.Errorf("%s does not have the reason %q of a policy", outcomes, reason)
				}
			}
			return true
		})
	}
	if found < 2 {
		t.Errorf("found %d reasons of policies in the code", found)
	}
}

// What the conditions of a budget can say, and its events, are in the tables of the outcomes.
func TestOutcomesOfBudgetsAreDocumented(t *testing.T) {
	document := text(t, outcomes)
	_, after, _ := strings.Cut(document, "\n## The conditions of a budget\n")
	section, _, _ := strings.Cut(after, "\n## ")
	var got []string
	for _, match := range regexp.MustCompile("(?m)^\\| `[A-Za-z]+` \\| `(?:True|False|Unknown)` \\| `([A-Za-z]+)` \\|").FindAllStringSubmatch(section, -1) {
		got = append(got, match[1])
	}
	want := declared(t, "internal/controller/budget", func(name string) bool { return strings.HasPrefix(name, "reason") && name != "reasonOfEvictions" })
	want = append(want, declared(t, "internal/coverage", func(name string) bool { return strings.HasPrefix(name, "Reason") })...)
	if got, want := sorted(got), sorted(want); !slices.Equal(got, want) {
		t.Errorf("%s has the reasons %q of budgets, the code has %q", outcomes, got, want)
	}
	events := declared(t, "internal/controller/budget", func(name string) bool { return strings.HasPrefix(name, "event") })
	if got, want := rows(t, document, "Events of budgets"), sorted(events); !slices.Equal(got, want) {
		t.Errorf("%s has the events %q of budgets, the code has %q", outcomes, got, want)
	}
}

// Labels and annotations of Vicinity are in the outcomes or in the API reference.
func TestLabelsAreDocumented(t *testing.T) {
	document := text(t, outcomes) + text(t, "docs/reference/api.md")
	names := declared(t, "api/v1alpha1", func(name string) bool {
		return strings.HasPrefix(name, "Label") || strings.HasPrefix(name, "Annotation")
	})
	for _, name := range names {
		if strings.Contains(name, "vicinity.dev/") && !strings.Contains(document, "`"+strings.TrimSuffix(name, "/")) {
			t.Errorf("neither %s nor the API reference has %q", outcomes, name)
		}
	}
}
