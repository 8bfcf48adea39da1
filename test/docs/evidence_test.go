package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// threats is the page whose tables say which test shows each row.
const threats = "docs/threat-model.md"

// requirements is the page that names the test of each requirement, and the target of make that runs it.
const requirements = "docs/requirements.md"

var (
	span         = regexp.MustCompile("`([^`\n]+)`")
	functionName = regexp.MustCompile(`^([a-z][\w/-]*\.)?(Test|Benchmark|Fuzz)[A-Z]\w*$`)
	promiseName  = regexp.MustCompile(`^(routing|proxy|names|disruption|rollouts|everything|doctor|console|release|metrics)/[a-z-]+$`)
)

// tiers are the targets of make that run tests, the quickest first.
var tiers = []string{"check", "test", "e2e", "soak"}

// evidence maps the tests that documents may name to their tiers: functions by their names, also with their folders as in
// test/docs.TestCommands, and promises by their areas and names, as proxy/probe.
func evidence(t *testing.T) map[string]string {
	t.Helper()
	packages := map[string][]*ast.FuncDecl{}
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
			if function, ok := declared.(*ast.FuncDecl); ok {
				packages[filepath.ToSlash(folder)] = append(packages[filepath.ToSlash(folder)], function)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, folder := range slices.Sorted(maps.Keys(packages)) {
		functions := packages[folder]
		tierOf := tiersOf(functions)
		for _, function := range functions {
			name := function.Name.Name
			if function.Recv == nil && functionName.MatchString(name) {
				all[name], all[folder+"."+name] = tierOf[name], tierOf[name]
			}
			if area, is := strings.CutSuffix(name, "Area"); is {
				for promise, tier := range promises(function) {
					all[area+"/"+promise] = tier
				}
			}
		}
	}
	return all
}

// keyOf names a function of a package, a method after its receiver: scene.run.
func keyOf(function *ast.FuncDecl) string {
	if _, of := receiver(function); of != "" {
		return of + "." + function.Name.Name
	}
	return function.Name.Name
}

// receiver is the name and the type of a method's receiver.
func receiver(function *ast.FuncDecl) (name, of string) {
	if function.Recv == nil {
		return "", ""
	}
	field := function.Recv.List[0]
	ast.Inspect(field.Type, func(n ast.Node) bool { // *T, T[P]
		if ident, ok := n.(*ast.Ident); ok && of == "" {
			of = ident.Name
		}
		return of == ""
	})
	if len(field.Names) > 0 {
		name = field.Names[0].Name
	}
	return name, of
}

// tiersOf maps the functions of a package, by their keys, to their tiers. make check does not run a test that skips with
// -short, that uses a control plane, or that calls such a function.
func tiersOf(functions []*ast.FuncDecl) map[string]string {
	tierOf := map[string]string{}
	for _, function := range functions {
		tierOf[keyOf(function)] = tiers[0]
	}
	for changed := true; changed; {
		changed = false
		for _, function := range functions {
			if slices.Index(tiers, tierOf[keyOf(function)]) < slices.Index(tiers, needs(function, tierOf)) {
				tierOf[keyOf(function)], changed = needs(function, tierOf), true
			}
		}
	}
	return tierOf
}

// needs is the highest tier that the body of a function asks for. Without types, a call on anything but the function's
// own receiver counts as one of the quickest method of that name.
func needs(function *ast.FuncDecl, tierOf map[string]string) string {
	highest := 0
	atLeast := func(tier string) { highest = max(highest, slices.Index(tiers, tier)) }
	self, of := receiver(function)
	ast.Inspect(function, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			switch {
			case !calls(n.Body, "Skip") && !calls(n.Body, "Skipf"):
			case calls(n.Cond, "Short"):
				atLeast("test")
			case slices.Contains(texts(n.Cond), "E2E_SOAK"):
				atLeast("soak")
			}
		case *ast.CallExpr:
			switch called := n.Fun.(type) {
			case *ast.Ident:
				atLeast(tierOf[called.Name])
			case *ast.SelectorExpr:
				on, _ := called.X.(*ast.Ident)
				switch {
				case on != nil && on.Name == "rig":
					atLeast("test")
				case on != nil && self != "" && on.Name == self && tierOf[of+"."+called.Sel.Name] != "":
					atLeast(tierOf[of+"."+called.Sel.Name])
				default:
					atLeast(quickestMethod(called.Sel.Name, tierOf))
				}
			}
		}
		return true
	})
	return tiers[highest]
}

// quickestMethod is the lowest tier of the methods of that name, or empty.
func quickestMethod(name string, tierOf map[string]string) string {
	quickest := ""
	for key, tier := range tierOf {
		if strings.HasSuffix(key, "."+name) && (quickest == "" || slices.Index(tiers, tier) < slices.Index(tiers, quickest)) {
			quickest = tier
		}
	}
	return quickest
}

// calls reports whether a method or a function of another package is called by that name.
func calls(node ast.Node, name string) (found bool) {
	ast.Inspect(node, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			called, ok := call.Fun.(*ast.SelectorExpr)
			found = found || ok && called.Sel.Name == name
		}
		return true
	})
	return found
}

// promises maps the names of the promises that a function lists to their tiers.
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
		if in, ok := fields["tier"].(*ast.Ident); ok { // as inTest
			tier = strings.ToLower(strings.TrimPrefix(in.Name, "in"))
		}
		for _, name := range texts(fields["name"]) {
			tierOf[name] = tier
		}
		return true
	})
	return tierOf
}

// named are what a text has in marks of code that are names of tests, or of promises.
func named(text string) (names []string) {
	for _, match := range span.FindAllStringSubmatch(text, -1) {
		if functionName.MatchString(match[1]) || promiseName.MatchString(match[1]) {
			names = append(names, match[1])
		}
	}
	return names
}

// unshown are the rows of tables with a last column "shown by" that name no test there.
func unshown(document string) (rows []string) {
	shown := false
	for line := range strings.Lines(document) {
		line = strings.TrimSpace(line)
		cells := strings.Split(strings.Trim(line, "|"), "|")
		last := strings.TrimSpace(cells[len(cells)-1])
		switch {
		case !strings.HasPrefix(line, "|"):
			shown = false
		case last == "shown by":
			shown = true
		case shown && !strings.HasPrefix(last, "---") && len(named(last)) == 0:
			rows = append(rows, line)
		}
	}
	return rows
}

// A test that a document names as what shows something is there.
func TestNamedTestsExist(t *testing.T) {
	known, found := evidence(t), 0
	for document, text := range documents(t) {
		for _, name := range named(prose(text)) {
			found++
			if known[name] == "" {
				t.Errorf("%s names the test %s, which is not there", document, name)
			}
		}
	}
	if found < 50 {
		t.Errorf("documents name %d tests; are they still marked as code?", found)
	}
}

// What holds each threat is shown, row by row.
func TestRowsAboutThreatsAreShown(t *testing.T) {
	for _, row := range unshown(text(t, threats)) {
		t.Errorf("%s has a row that names no test: %s", threats, row)
	}
	if !strings.Contains(text(t, threats), "| shown by |") {
		t.Errorf("%s has no column \"shown by\"", threats)
	}
}

// Each requirement names one test, and the quickest target of make that runs it.
func TestRequirementsAreShown(t *testing.T) {
	known, rows := evidence(t), 0
	for line := range strings.Lines(text(t, requirements)) {
		line = strings.TrimSpace(line)
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if !strings.HasPrefix(line, "|") || len(cells) != 3 || strings.Contains(line, "| shown by |") || strings.HasPrefix(cells[0], " ---") {
			continue
		}
		rows++
		tests, tier := named(cells[1]), strings.Trim(cells[2], " `")
		switch {
		case len(tests) != 1 || known[tests[0]] == "":
			t.Errorf("%s: %s: it names the tests %q, want one that is there", requirements, line, tests)
		case known[tests[0]] != tier:
			t.Errorf("%s: %s: the test is one of make %s", requirements, line, known[tests[0]])
		}
	}
	if rows < 50 {
		t.Errorf("%s has %d rows; are they still tables of three columns?", requirements, rows)
	}
}
