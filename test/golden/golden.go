// Package golden compares texts with files. With -update, as in "make generate", it writes the files.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files and references")

// IsUpdate reports whether files are written.
func IsUpdate() bool { return *update }

// Compare fails the test unless a file has the text.
func Compare(t testing.TB, file, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	lines, wanted := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	n := 0
	for n < min(len(lines), len(wanted)) && lines[n] == wanted[n] {
		n++
	}
	t.Errorf("%s differs from line %d on; \"make generate\" rewrites it. Got:\n%s\nwant:\n%s",
		file, n+1, strings.Join(lines[n:], "\n"), strings.Join(wanted[n:], "\n"))
}

// CompareBetween fails the test unless a file has a text between two markers.
func CompareBetween(t testing.TB, file, begin, end, got string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begun := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !begun || !ended {
		t.Fatalf("%s has no %q followed by %q", file, begin, end)
	}
	Compare(t, file, before+begin+got+end+after)
}
