package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// threats is the page whose tables name a test for each row.
const threats = "docs/threat-model.md"

// requirements is the page that names the test of each requirement, and the target of make that runs
// it.
const requirements = "docs/requirements.md"

var (
	span         = regexp.MustCompile("`([^`\n]+)`")
	functionName = regexp.MustCompile(`^([a-z][\w/-]*\.)?(Test|Benchmark|Fuzz)[A-Z]\w*$`)
	promiseName  = regexp.MustCompile(`^(routing|proxy|names|shift|disruption|rollouts|everything|doctor|console|release|metrics)/[a-z-]+$`)
)

// tiers are the targets of make that run test functions.
var tiers = []string{"check", "test", "soak"}

// ofFunction returns the tier of a function, by what it skips for.
const ofFunction = "any"

// evidence maps the tests that documents may name to their tiers: functions by name, also with their
// folder as in test/docs.TestCommands, and promises by area and name, as proxy/probe.
func evidence(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "bin" || entry.Name() == ".git"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		for _, declared := range file.Decls {
			function, ok := declared.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name := function.Name.Name
			if function.Recv == nil && functionName.MatchString(name) {
				all[name], all[filepath.ToSlash(folder)+"."+name] = ofFunction, ofFunction
			}
			if area, is := strings.CutSuffix(name, "Area"); is {
				for promise, tier := range promises(function) {
					all[area+"/"+promise] = tier
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// promises maps the names of a function's promises to their tiers.
func promises(function *ast.FuncDecl) map[string]string {
	tierOf := map[string]string{}
	ast.Inspect(function, func(n ast.Node) bool {
		list, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		fields := map[string]ast.Expr{}
		for _, element := range list.Elts {
			if pair, ok := element.(*ast.KeyValueExpr); ok {
				if key, ok := pair.Key.(*ast.Ident); ok {
					fields[key.Name] = pair.Value
				}
			}
		}
		if fields["keep"] == nil || fields["name"] == nil {
			return true
		}
		tier := "e2e"
		if in, ok := fields["tier"].(*ast.Ident); ok { // such as inTest
			tier = strings.ToLower(strings.TrimPrefix(in.Name, "in"))
		}
		for _, name := range texts(fields["name"]) {
			tierOf[name] = tier
		}
		return true
	})
	return tierOf
}

// testNames returns the names of tests or promises in the code spans of a text.
func testNames(text string) (names []string) {
	for _, match := range span.FindAllStringSubmatch(text, -1) {
		if functionName.MatchString(match[1]) || promiseName.MatchString(match[1]) {
			names = append(names, match[1])
		}
	}
	return names
}

// unshown returns the rows of tables with a last column "shown by" that name no test there.
func unshown(document string) (rows []string) {
	hasColumn := false
	for line := range strings.Lines(document) {
		line = strings.TrimSpace(line)
		cells := strings.Split(strings.Trim(line, "|"), "|")
		last := strings.TrimSpace(cells[len(cells)-1])
		switch {
		case !strings.HasPrefix(line, "|"):
			hasColumn = false
		case last == "shown by":
			hasColumn = true
		case hasColumn && !strings.HasPrefix(last, "---") && len(testNames(last)) == 0:
			rows = append(rows, line)
		}
	}
	return rows
}

// A test that a document names exists.
func TestNamedTestsExist(t *testing.T) {
	known, found := evidence(t), 0
	for document, text := range documents(t) {
		for _, name := range testNames(prose(text)) {
			found++
			if known[name] == "" {
				t.Errorf("%s names the test %s, which does not exist", document, name)
			}
		}
	}
	if found < 50 {
		t.Errorf("documents name %d tests, want at least 50; are they still marked as code?", found)
	}
}

// Each row of the threat model names a test.
func TestRowsAboutThreatsAreShown(t *testing.T) {
	for _, row := range unshown(text(t, threats)) {
		t.Errorf("%s has a row that names no test: %s", threats, row)
	}
	if !strings.Contains(text(t, threats), "| shown by |") {
		t.Errorf("%s has no column \"shown by\"", threats)
	}
}

// Each requirement names one test, and the target of make that runs it.
func TestRequirementsAreShown(t *testing.T) {
	known, rows := evidence(t), 0
	for line := range strings.Lines(text(t, requirements)) {
		line = strings.TrimSpace(line)
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if !strings.HasPrefix(line, "|") || len(cells) != 3 || strings.Contains(line, "| shown by |") || strings.HasPrefix(cells[0], " ---") {
			continue
		}
		rows++
		tests, tier := testNames(cells[1]), strings.Trim(cells[2], " `")
		switch {
		case len(tests) != 1 || known[tests[0]] == "":
			t.Errorf("%s: %s: it names the tests %q, want one existing test", requirements, line, tests)
		case known[tests[0]] == ofFunction && !slices.Contains(tiers, tier):
			t.Errorf("%s: %s: the target is %q, want one of %q", requirements, line, tier, tiers)
		case known[tests[0]] != ofFunction && known[tests[0]] != tier:
			t.Errorf("%s: %s: the promise runs with make %s", requirements, line, known[tests[0]])
		}
	}
	if rows < 50 {
		t.Errorf("%s has %d rows, want at least 50; are they still tables of three columns?", requirements, rows)
	}
}
