package conventions_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"testing"
)

// undocumented looks at the files of one package, without tests.
func undocumented(files []source) []string {
	var violations []string
	teaches := false
	for _, s := range files {
		teaches = teaches || s.file.Doc.Text() != ""
		for _, declaration := range s.file.Decls {
			for _, name := range undocumentedNames(declaration) {
				violations = append(violations, fmt.Sprintf("%s: %s is exported and not documented", s.at(name), name.Name))
			}
		}
	}
	if len(files) > 0 && !teaches {
		violations = append(violations, fmt.Sprintf("%s: package %s has no comment that says what it is for", files[0].name, files[0].file.Name.Name))
	}
	return violations
}

// understood are methods of which there is nothing to say but what every reader
// knows: they make a type an error.
var understood = []string{"Error", "Unwrap"}

// undocumentedNames are the exported names of a declaration that nothing is said
// about. The comment of a group speaks for all its constants or variables.
func undocumentedNames(declaration ast.Decl) []*ast.Ident {
	var names []*ast.Ident
	check := func(name *ast.Ident, comments ...*ast.CommentGroup) {
		if !name.IsExported() {
			return
		}
		for _, comment := range comments {
			if comment.Text() != "" {
				return
			}
		}
		names = append(names, name)
	}
	switch d := declaration.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil || exportedType(d.Recv.List[0].Type) && !slices.Contains(understood, d.Name.Name) {
			check(d.Name, d.Doc)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if d.Lparen == token.NoPos {
					check(s.Name, d.Doc)
				} else {
					check(s.Name, s.Doc)
				}
			case *ast.ValueSpec:
				for _, name := range s.Names {
					check(name, d.Doc, s.Doc, s.Comment)
				}
			}
		}
	}
	return names
}

// exportedType reports whether the type of a receiver is exported.
func exportedType(receiver ast.Expr) bool {
	switch r := receiver.(type) {
	case *ast.Ident:
		return r.IsExported()
	case *ast.StarExpr:
		return exportedType(r.X)
	case *ast.IndexExpr:
		return exportedType(r.X)
	case *ast.IndexListExpr:
		return exportedType(r.X)
	}
	return false
}

func TestExportedNamesAreDocumented(t *testing.T) {
	for _, p := range list(t) {
		if ours(p.ImportPath) {
			report(t, undocumented(p.sources(t, p.GoFiles, p.IgnoredGoFiles)))
		}
	}
}

func TestUndocumentedNamesAreFound(t *testing.T) {
	for _, test := range []struct {
		name string
		text string
		want []string
	}{
		{
			name: "documented",
			text: `// Package p is for something.
package p

// Type is.
type Type struct{}

// Do does.
func (*Type) Do() {}

func (*Type) Error() string { return "" }

// The constants.
const (
	A = 1
	B = 2
)

var (
	C = 3 // is three
	d = 4
)

type hidden struct{}

func (hidden) String() string { return "" }

func (hidden) do() {}
`,
		},
		{
			name: "no package comment",
			text: "package p\n",
			want: []string{"package p has no comment"},
		},
		{
			name: "a directive is no comment",
			text: "//go:generate true\npackage p\n",
			want: []string{"package p has no comment"},
		},
		{
			name: "undocumented",
			text: `// Package p is for something.
package p

type Type struct{}

func (*Type) Do() {}

type Many[A, B any] struct{}

func (Many[A, B]) Each() {}

func Make() {}

const (
	A = 1
	// B is two.
	B = 2
)

// The types.
type (
	One int
	// Two is.
	Two int
)
`,
			want: []string{
				"p.go:4:6: Type is", "p.go:6:14: Do is", "Many is", "Each is", "Make is", "A is", "One is",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			expect(t, undocumented([]source{parse(t, "p.go", test.text)}), test.want...)
		})
	}
	t.Run("one comment speaks for all files of a package", func(t *testing.T) {
		expect(t, undocumented([]source{
			parse(t, "a.go", "package p\n"),
			parse(t, "b.go", "// Package p is for something.\npackage p\n"),
		}))
	})
}
