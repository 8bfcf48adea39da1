package licences

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the list of licences")

const (
	root      = "../../.."
	reference = "docs/reference/licences.md"
)

// Shipped programs have only allowed licences, and the list of them is current.
func TestReferenceIsCurrent(t *testing.T) {
	all, err := dependencies(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if err := d.check(); err != nil {
			t.Error(err)
		}
	}
	file, want := filepath.Join(root, reference), page(all)
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != want {
		t.Errorf("%s is not current: make generate writes it", reference)
	}
	whole := texts(all)
	for _, d := range all {
		if !strings.Contains(whole, d.Module) || len(d.Programs) == 0 {
			t.Errorf("%s has no program, or is not in the texts", d.Module)
		}
	}
	if len(all) < 50 {
		t.Errorf("only %d modules found, want at least 50", len(all))
	}
}

const mit = `Copyright (c) 2026 Example Authors

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files (the "Software"), to
deal in the Software without restriction, including without limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or
sell copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS
IN THE SOFTWARE.
`

// A module may be shipped if all its texts are known and allowed licences.
func TestWhatMayBeShipped(t *testing.T) {
	apache, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		file, text string
		licences   []string
		fault      string
	}{
		"MIT":                {file: "LICENSE", text: mit, licences: []string{"MIT"}},
		"MIT, in comments":   {file: "LICENSE.txt", text: "// " + strings.ReplaceAll(mit, "\n", "\n// "), licences: []string{"MIT"}},
		"MIT and Apache-2.0": {file: "COPYING", text: mit + string(apache), licences: []string{"Apache-2.0", "MIT"}},
		"not for evil":       {file: "LICENSE", text: strings.Replace(mit, "THE SOFTWARE IS", "The Software shall be used for Good, not Evil.\n\nTHE SOFTWARE IS", 1), fault: "example.com/m v1.2.3"},
		"MIT and a clause":   {file: "LICENSE", text: mit + strings.Repeat("The Software may not be sold. ", 20), fault: "of it is a known licence"},
		"no permission":      {file: "LICENSE", text: "All rights reserved.", fault: "of it is a known licence"},
		"a notice":           {file: "NOTICE", text: "Made by Example Authors.", fault: "has no licence file"},
	} {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, test.file), []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		d := &dependency{Module: "example.com/m", Version: "v1.2.3"}
		if err := d.read(map[string]string{folder: folder}); err != nil {
			t.Fatal(err)
		}
		err := d.check()
		if (err == nil) != (test.fault == "") || err != nil && !strings.Contains(err.Error(), test.fault) || err == nil && !slices.Equal(d.licences(), test.licences) {
			t.Errorf("%s: %q, %v", name, d.licences(), err)
		}
	}
}

// page is the content of docs/reference/licences.md.
func page(all []*dependency) string {
	var b strings.Builder
	b.WriteString(`# Licences

The modules that are linked into Vicinity's programs for Linux on amd64 and arm64, with the licences in each module's files. Vicinity itself is under
the [Apache License 2.0](../../LICENSE). ` + "`make generate`" + ` writes this list. A test fails if the list is not current, or if a licence is not one of
these: ` + strings.Join(allowed, ", ") + `. ` + "`make notices`" + ` writes all texts to ` + "`bin/THIRD_PARTY_NOTICES`" + `.

| module | version | licences | part of |
| --- | --- | --- | --- |
`)
	for _, d := range all {
		module, programs := d.Module, make([]string, len(d.Programs))
		if d.Version != "" {
			module = "`" + module + "`"
		}
		for i, program := range d.Programs {
			programs[i] = "`" + program + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", module, d.Version, strings.Join(d.licences(), ", "), strings.Join(programs, ", "))
	}
	return b.String()
}
