package conventions_test

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// read returns the text of a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	inlineCode  = regexp.MustCompile("`([^`\n]+)`")
	makeCommand = regexp.MustCompile(`(?:^|[;&|]|\$)\s*(?:[A-Z_]+=\S*\s+)*make\b([^;&|#]*)`)
	makeTarget  = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):[^=\n]*## .`)
	targetName  = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
)

// makeCommands returns the targets that the code in a Markdown text asks make for, in order.
func makeCommands(markdown string) []string {
	var code []string
	fenced := false
	for line := range strings.Lines(markdown) {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			fenced = !fenced
		case fenced:
			code = append(code, strings.TrimSpace(line))
		default:
			for _, span := range inlineCode.FindAllStringSubmatch(line, -1) {
				code = append(code, span[1])
			}
		}
	}
	var targets []string
	for _, line := range code {
		for _, command := range makeCommand.FindAllStringSubmatch(line, -1) {
			for word := range strings.FieldsSeq(command[1]) {
				if targetName.MatchString(word) {
					targets = append(targets, word)
				}
			}
		}
	}
	return targets
}

func TestCommandsInDocumentsExist(t *testing.T) {
	var targets []string // listed by make help
	for _, match := range makeTarget.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets = append(targets, match[1])
	}
	for _, document := range []string{"README.md", "CONTRIBUTING.md"} {
		commands := makeCommands(read(t, document))
		if len(commands) == 0 {
			t.Errorf("%s shows no make command, and it should say how to build and test", document)
		}
		for _, command := range commands {
			if !slices.Contains(targets, command) {
				t.Errorf("%s says make %s; the documented targets of the Makefile are %s", document, command, strings.Join(targets, ", "))
			}
		}
	}
}

// fuzzTargets returns the fuzz targets in the files of a package, each as its folder and name.
func fuzzTargets(files []source) []string {
	var targets []string
	for _, s := range files {
		for _, declaration := range s.file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if ok && function.Recv == nil && strings.HasPrefix(function.Name.Name, "Fuzz") {
				targets = append(targets, "./"+filepath.ToSlash(filepath.Dir(s.name))+" "+function.Name.Name)
			}
		}
	}
	return targets
}
