// Package conventions_test checks the rules of the project: which package may import which, what pure
// packages must not use, what must be documented, and that the commands in the documentation exist.
package conventions_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	module = "vicinity.dev/vicinity"
	// root is the path of the repository.
	root = "../.."
)

// pkg is a package in the output of the go command.
type pkg struct {
	Dir        string
	ImportPath string
	Standard   bool
	Imports    []string // direct
	Deps       []string // direct and indirect
	// Files of the package by kind. Ignored are those of other platforms.
	GoFiles, IgnoredGoFiles, TestGoFiles, XTestGoFiles []string
}

// path returns the package's path in the repository.
func (p pkg) path() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
}

// ours reports whether an import path belongs to this project.
func ours(importPath string) bool {
	return importPath == module || strings.HasPrefix(importPath, module+"/")
}

// modules are the folders of the project's modules.
var modules = []string{".", "lab", "monitoring"}

// list asks the go command for all packages of the project and their dependencies.
func list(t *testing.T) []pkg {
	t.Helper()
	var packages []pkg
	seen := map[string]bool{}
	for _, module := range modules {
		for _, p := range listModule(t, module) {
			if !seen[p.ImportPath] {
				seen[p.ImportPath] = true
				packages = append(packages, p)
			}
		}
	}
	return packages
}

func listModule(t *testing.T, folder string) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-buildvcs=false", "-deps",
		"-json=Dir,ImportPath,Standard,Imports,Deps,GoFiles,IgnoredGoFiles,TestGoFiles,XTestGoFiles", "./...")
	cmd.Dir = filepath.Join(root, folder)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var packages []pkg
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("reading the output of go list: %v", err)
		}
		packages = append(packages, p)
	}
	if !slices.ContainsFunc(packages, func(p pkg) bool { return ours(p.ImportPath) }) {
		t.Fatal("go list found no package of the project")
	}
	return packages
}

// source is a parsed file.
type source struct {
	name string // path from the root of the repository
	set  *token.FileSet
	file *ast.File
}

// at returns the position of a node, for messages.
func (s source) at(node ast.Node) string {
	return s.set.Position(node.Pos()).String()
}

func parse(t *testing.T, name, text string) source {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return source{name: name, set: set, file: file}
}

// sources parses files of a package.
func (p pkg) sources(t *testing.T, files ...[]string) []source {
	t.Helper()
	var all []source
	for _, name := range slices.Concat(files...) {
		text, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, parse(t, filepath.ToSlash(filepath.Join(p.path(), name)), string(text)))
	}
	return all
}
