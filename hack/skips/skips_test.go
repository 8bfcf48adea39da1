package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSummarize(t *testing.T) {
	for _, test := range []struct {
		name   string
		events string
		output string // with the counts
		err    string
	}{
		{
			name: "passing tests say no more than their package",
			events: `{"Action":"start","Package":"x/a"}
{"Action":"run","Package":"x/a","Test":"TestOne"}
{"Action":"output","Package":"x/a","Test":"TestOne","Output":"=== RUN   TestOne\n"}
{"Action":"output","Package":"x/a","Test":"TestOne","Output":"    a_test.go:7: a log\n"}
{"Action":"output","Package":"x/a","Test":"TestOne","Output":"--- PASS: TestOne (0.00s)\n"}
{"Action":"pass","Package":"x/a","Test":"TestOne","Elapsed":0}
{"Action":"output","Package":"x/a","Output":"PASS\n"}
{"Action":"output","Package":"x/a","Output":"ok  \tx/a\t0.002s\n"}
{"Action":"pass","Package":"x/a","Elapsed":0.002}
{"Action":"start","Package":"x/b"}
{"Action":"output","Package":"x/b","Output":"?   \tx/b\t[no test files]\n"}
{"Action":"skip","Package":"x/b","Elapsed":0}
`,
			output: `ok  	x/a	0.002s
?   	x/b	[no test files]
1 passed, 0 failed, 0 skipped
`,
		},
		{
			name: "a failing test is shown with its parent, without the tests beside it",
			events: `{"Action":"start","Package":"x/a"}
{"Action":"run","Package":"x/a","Test":"TestOne"}
{"Action":"output","Package":"x/a","Test":"TestOne","Output":"=== RUN   TestOne\n"}
{"Action":"run","Package":"x/a","Test":"TestOne/good"}
{"Action":"output","Package":"x/a","Test":"TestOne/good","Output":"    a_test.go:7: good\n"}
{"Action":"run","Package":"x/a","Test":"TestOne/bad"}
{"Action":"output","Package":"x/a","Test":"TestOne/bad","Output":"    a_test.go:8: bad\n"}
{"Action":"output","Package":"x/a","Test":"TestOne","Output":"--- FAIL: TestOne (0.00s)\n"}
{"Action":"output","Package":"x/a","Test":"TestOne/good","Output":"    --- PASS: TestOne/good (0.00s)\n"}
{"Action":"pass","Package":"x/a","Test":"TestOne/good"}
{"Action":"output","Package":"x/a","Test":"TestOne/bad","Output":"    --- FAIL: TestOne/bad (0.00s)\n"}
{"Action":"fail","Package":"x/a","Test":"TestOne/bad"}
{"Action":"fail","Package":"x/a","Test":"TestOne"}
{"Action":"output","Package":"x/a","Output":"FAIL\n"}
{"Action":"output","Package":"x/a","Output":"FAIL\tx/a\t0.002s\n"}
{"Action":"fail","Package":"x/a"}
`,
			output: `--- FAIL: TestOne (0.00s)
    a_test.go:8: bad
    --- FAIL: TestOne/bad (0.00s)
FAIL
FAIL	x/a	0.002s
failed x/a.TestOne/bad
    a_test.go:8: bad
1 passed, 2 failed, 0 skipped
`,
			err: "2 failed",
		},
		{
			name: "packages run side by side",
			events: `{"Action":"start","Package":"x/a"}
{"Action":"start","Package":"x/b"}
{"Action":"run","Package":"x/a","Test":"TestSame"}
{"Action":"run","Package":"x/b","Test":"TestSame"}
{"Action":"output","Package":"x/a","Test":"TestSame","Output":"    a_test.go:1: of a\n"}
{"Action":"output","Package":"x/b","Test":"TestSame","Output":"    b_test.go:1: of b\n"}
{"Action":"fail","Package":"x/b","Test":"TestSame"}
{"Action":"pass","Package":"x/a","Test":"TestSame"}
{"Action":"output","Package":"x/b","Output":"FAIL\tx/b\t0.001s\n"}
{"Action":"fail","Package":"x/b"}
{"Action":"output","Package":"x/a","Output":"ok  \tx/a\t0.001s\n"}
{"Action":"pass","Package":"x/a"}
`,
			output: `    b_test.go:1: of b
FAIL	x/b	0.001s
ok  	x/a	0.001s
failed x/b.TestSame
    b_test.go:1: of b
1 passed, 1 failed, 0 skipped
`,
			err: "1 failed",
		},
		{
			name: "a package that does not build has failed",
			events: `{"ImportPath":"x/a [x/a.test]","Action":"build-output","Output":"# x/a\n"}
{"ImportPath":"x/a [x/a.test]","Action":"build-output","Output":"a/a.go:3:1: undefined: y\n"}
{"ImportPath":"x/a [x/a.test]","Action":"build-fail"}
{"Action":"start","Package":"x/a"}
{"Action":"output","Package":"x/a","Output":"FAIL\tx/a [build failed]\n"}
{"Action":"fail","Package":"x/a","FailedBuild":"x/a [x/a.test]"}
`,
			output: `# x/a
a/a.go:3:1: undefined: y
FAIL	x/a [build failed]
0 passed, 1 failed, 0 skipped
`,
			err: "1 failed",
		},
		{
			name: "a test that ends its process is shown",
			events: `{"Action":"start","Package":"x/a"}
{"Action":"run","Package":"x/a","Test":"TestOne"}
{"Action":"output","Package":"x/a","Test":"TestOne","Output":"panic: broken\n"}
{"Action":"output","Package":"x/a","Output":"FAIL\tx/a\t0.002s\n"}
{"Action":"fail","Package":"x/a"}
`,
			output: `panic: broken
FAIL	x/a	0.002s
0 passed, 1 failed, 0 skipped
`,
			err: "1 failed",
		},
		{
			name: "skipped tests give their reasons",
			events: `{"Action":"start","Package":"x/a"}
{"Action":"run","Package":"x/a","Test":"TestOne"}
{"Action":"output","Package":"x/a","Test":"TestOne","Output":"=== RUN   TestOne\n"}
{"Action":"output","Package":"x/a","Test":"TestOne","Output":"    a_test.go:6: looking around\n"}
{"Action":"output","Package":"x/a","Test":"TestOne","Output":"    a_test.go:7: needs\n"}
{"Action":"output","Package":"x/a","Test":"TestOne","Output":"        a browser\n"}
{"Action":"output","Package":"x/a","Test":"TestOne","Output":"--- SKIP: TestOne (0.00s)\n"}
{"Action":"skip","Package":"x/a","Test":"TestOne"}
{"Action":"run","Package":"x/a","Test":"TestTwo/sub"}
{"Action":"output","Package":"x/a","Test":"TestTwo/sub","Output":"    --- SKIP: TestTwo/sub (0.00s)\n"}
{"Action":"skip","Package":"x/a","Test":"TestTwo/sub"}
{"Action":"output","Package":"x/a","Output":"ok  \tx/a\t0.002s\n"}
{"Action":"pass","Package":"x/a"}
`,
			output: `ok  	x/a	0.002s
0 passed, 0 failed, 2 skipped
skipped x/a.TestOne: needs a browser (allowed: tested elsewhere)
skipped x/a.TestTwo/sub: no reason given
`,
		},
		{
			name: "a run that was cut off is no success",
			events: `{"Action":"start","Package":"x/a"}
{"Action":"run","Package":"x/a","Test":"TestOne"}
{"Action":"output","Package":"x/a","Test":"TestOne","Output":"    a_test.go:6: last words\n"}
{"Action":"run","Pack`,
			output: `{"Action":"run","Pack    a_test.go:6: last words
failed x/a.TestOne
    a_test.go:6: last words
0 passed, 0 failed, 0 skipped
`,
			err: "the run ended before these packages did: x/a",
		},
		{
			name:   "a run of nothing is no success",
			events: "go: no module here\n",
			output: "go: no module here\n0 passed, 0 failed, 0 skipped\n",
			err:    "no package was tested",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			summary, err := summarize(strings.NewReader(test.events), &out)
			if err != nil {
				t.Fatal(err)
			}
			summary.print(&out, map[string]string{"x/a.TestOne": "tested elsewhere"})
			if out.String() != test.output {
				t.Errorf("got:\n%s\nwant:\n%s", out.String(), test.output)
			}
			got := ""
			if err := summary.err(); err != nil {
				got = err.Error()
			}
			if got != test.err {
				t.Errorf("error %q, want %q", got, test.err)
			}
		})
	}
}

func TestUnlisted(t *testing.T) {
	s := summary{skipped: []skip{{test: "x/a.TestOne"}, {test: "x/a.TestTwo"}, {test: "x/a.TestTwo/sub"}}}
	for _, test := range []struct {
		allowed map[string]string
		want    int
	}{
		{nil, 3},
		{map[string]string{"x/a.TestTwo": "why"}, 2},
		{map[string]string{"x/a.TestOne": "why", "x/a.TestTwo": "why", "x/a.TestTwo/sub": "why", "x/b.TestGone": "why"}, 0},
	} {
		if got := s.unlisted(test.allowed); got != test.want {
			t.Errorf("%v: %d unlisted, want %d", test.allowed, got, test.want)
		}
	}
}

func TestReadAllowed(t *testing.T) {
	got, err := readAllowed(strings.NewReader("# comment\n\n  x/a.TestOne   needs the moon \nx/a.TestTwo/sub why not\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"x/a.TestOne": "needs the moon", "x/a.TestTwo/sub": "why not"}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}

	_, err = readAllowed(strings.NewReader("# comment\nx/a.TestOne \n"))
	if err == nil || !strings.Contains(err.Error(), `line 2: "x/a.TestOne" has no reason`) {
		t.Errorf("error %v, want one that names line 2 and the test", err)
	}
}

// The list in use must be readable, and the program must say which list is not.
func TestListOfTheProject(t *testing.T) {
	file, err := os.Open(filepath.Join("..", "..", "test", "skips.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := readAllowed(file); err != nil {
		t.Error(err)
	}
	if err := run(true, "missing.txt"); err == nil || !strings.Contains(err.Error(), "missing.txt") {
		t.Errorf("error %v, want one that names the missing list", err)
	}
}
