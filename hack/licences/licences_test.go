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

const bsd = `Copyright (c) 2026 Somebody
All rights reserved.

Redistribution and use in source and binary forms, with or without modification, are permitted provided that the following conditions are met:
1. Redistributions of source code must retain the above copyright notice, this list of conditions and the following disclaimer.
2. Redistributions in binary form must reproduce the above copyright notice, this list of conditions and the following disclaimer in the
   documentation and/or other materials provided with the distribution.
3. All advertising materials mentioning features or use of this software must display the following acknowledgement: This product includes software
   developed by Somebody.
4. Neither the name of Somebody nor the names of its contributors may be used to endorse or promote products derived from this software without
   specific prior written permission.

THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS "AS IS" AND ANY EXPRESS OR IMPLIED WARRANTIES, INCLUDING, BUT NOT LIMITED TO, THE
IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE ARE DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT HOLDER OR CONTRIBUTORS BE
LIABLE FOR ANY DIRECT, INDIRECT, INCIDENTAL, SPECIAL, EXEMPLARY, OR CONSEQUENTIAL DAMAGES (INCLUDING, BUT NOT LIMITED TO, PROCUREMENT OF SUBSTITUTE
GOODS OR SERVICES; LOSS OF USE, DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER CAUSED AND ON ANY THEORY OF LIABILITY, WHETHER IN CONTRACT, STRICT
LIABILITY, OR TORT (INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE OF THIS SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH
DAMAGE.
`

// without is a text without what is from one phrase to another.
func without(text, from, to string) string {
	before, after, _ := strings.Cut(text, from)
	_, after, _ = strings.Cut(after, to)
	return before + to + after
}

func TestClassify(t *testing.T) {
	const good, clause = "The Software shall be used for Good, not Evil.\n\n", `"Commons Clause" License Condition v1.0
The grant of rights under the License will not include, and the License does not grant to you, the right to Sell the Software.

`
	bsd3 := without(bsd, "3. All", "4. Neither")
	bsd2 := without(bsd, "3. All", "THIS SOFTWARE IS")
	own, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ text, want, fault string }{
		"MIT":          {text: mit, want: "MIT"},
		"in comments":  {text: "// " + strings.ReplaceAll(mit, "\n", "\n// "), want: "MIT"},
		"ours":         {text: string(own), want: "Apache-2.0"},
		"two":          {text: mit + string(own), want: "MIT AND Apache-2.0"},
		"MIT twice":    {text: mit + mit, want: "MIT"},
		"BSD of three": {text: bsd3, want: "BSD-3-Clause"},
		"BSD of two":   {text: bsd2, want: "BSD-2-Clause"},
		"BSD and ours": {text: bsd3 + string(own), want: "BSD-3-Clause AND Apache-2.0"},
		// Clauses that make another licence of one that is known.
		"BSD of four":          {text: bsd, fault: "no licence that is known"},
		"BSD of four and ours": {text: bsd + string(own), fault: `the text of Apache-2.0 and besides the words "advertising materials"`},
		"BSD without a change": {text: strings.Replace(bsd2, "THIS SOFTWARE IS", "3. Redistributions may not be modified.\nTHIS SOFTWARE IS", 1), fault: "no licence that is known"},
		"for good":             {text: strings.Replace(mit, "THE SOFTWARE IS", good+"THE SOFTWARE IS", 1), fault: "no licence that is known"},
		"for good at the end":  {text: mit + good, fault: `the text of MIT and besides the words "for good"`},
		"not to be sold":       {text: clause + mit, fault: `the text of MIT and besides the words "commons clause"`},
		"ours, not to be sold": {text: clause + string(own), fault: `the text of Apache-2.0 and besides the words "commons clause"`},
		"for members":          {text: "Only members of the club have a licence.\n" + mit, fault: `the text of MIT and besides the word "only"`},
		"with a clause":        {text: mit + strings.Repeat("The Software may not be sold. ", 20), fault: "the text of MIT and "},
		"without words":        {text: strings.Replace(mit, "WITHOUT WARRANTY", "WITH WARRANTY", 1), fault: "no licence that is known"},
		"GPL":                  {text: "GNU GENERAL PUBLIC LICENSE Version 3, 29 June 2007", fault: "no licence that is known"},
		"nothing":              {text: "", fault: "no licence that is known"},
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
