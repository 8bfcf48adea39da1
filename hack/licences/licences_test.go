package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the list of licences anew")

const (
	root      = "../.."
	reference = "docs/reference/licences.md"
)

// What is shipped is under licences that are allowed, and the list of them is current.
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
			t.Errorf("%s is in no program, or not in the texts", d.Module)
		}
	}
	if len(all) < 50 {
		t.Errorf("there are %d modules; are they still found?", len(all))
	}
}

const mit = `Copyright (c) 2026 Somebody

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files (the "Software"), to
deal in the Software without restriction, including without limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or
sell copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS
IN THE SOFTWARE.
`

func TestClassify(t *testing.T) {
	own, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ text, want, fault string }{
		"MIT":           {text: mit, want: "MIT"},
		"in comments":   {text: "// " + strings.ReplaceAll(mit, "\n", "\n// "), want: "MIT"},
		"ours":          {text: string(own), want: "Apache-2.0"},
		"two":           {text: mit + string(own), want: "MIT AND Apache-2.0"},
		"with a clause": {text: mit + strings.Repeat("The Software may not be sold. ", 20), fault: "the text of MIT and "},
		"without words": {text: strings.Replace(mit, "WITHOUT WARRANTY", "WITH WARRANTY", 1), fault: "no licence that is known"},
		"GPL":           {text: "GNU GENERAL PUBLIC LICENSE Version 3, 29 June 2007", fault: "no licence that is known"},
		"nothing":       {text: "", fault: "no licence that is known"},
	} {
		got, err := classify(test.text)
		if got != test.want || (err == nil) != (test.fault == "") || err != nil && !strings.Contains(err.Error(), test.fault) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestWhatMayNotBeShipped(t *testing.T) {
	for _, test := range []struct {
		files []file
		fault string
	}{
		{[]file{{Name: "LICENSE", Licences: "MIT"}, {Name: "NOTICE"}}, ""},
		{[]file{{Name: "NOTICE"}}, "example.com/m v1.2.3 has no licence file: it may not be passed on"},
		{[]file{{Name: "LICENSE", Licences: "MIT AND GPL-3.0-only"}, {Name: "COPYING", Licences: "AGPL-3.0-only"}}, "example.com/m v1.2.3 is under AGPL-3.0-only, GPL-3.0-only; allowed are 0BSD, Apache-2.0, "},
	} {
		d := &dependency{Module: "example.com/m", Version: "v1.2.3", Files: test.files}
		if err := d.check(); (err == nil) != (test.fault == "") || err != nil && !strings.HasPrefix(err.Error(), test.fault) {
			t.Errorf("%v: %v", test.files, err)
		}
	}
	// A text that nobody has looked at is found when it is read.
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "LICENSE"), []byte("All rights reserved."), 0o600); err != nil {
		t.Fatal(err)
	}
	d := &dependency{Module: "example.com/m", Version: "v1.2.3"}
	if err := d.read(map[string]string{folder: folder}); err != nil {
		t.Fatal(err)
	}
	if err := d.check(); err == nil || !strings.Contains(err.Error(), "LICENSE of example.com/m v1.2.3") || !strings.Contains(err.Error(), sum("all rights reserved")) {
		t.Errorf("a text that is not known: %v", err)
	}
}
