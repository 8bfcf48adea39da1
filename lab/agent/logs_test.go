package agent

import (
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestLogs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	w, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	second := 0.0
	w.now = func() time.Time { second++; return at(second) }
	w.copy("stdout", strings.NewReader("one\ntwo\n"))
	w.copy("stderr", strings.NewReader("three\n"))
	w.copy("stdout", strings.NewReader("four"))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"":                               "one\ntwo\nthree\nfour",
		"tailLines=2":                    "three\nfour",
		"tailLines=0":                    "",
		"limitBytes=5":                   "one\nt",
		"stream=Stderr":                  "three\n",
		"sinceSeconds=2":                 "three\nfour",
		"timestamps=true&tailLines=1":    "2026-01-02T03:04:09Z four",
		"sinceTime=2026-01-02T03:04:09Z": "four",
		"follow=true":                    "one\ntwo\nthree\nfour",
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		options, err := parseLogOptions(values, at(5))
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		s := logStream{logOptions: options, path: path, to: &b, ended: func() bool { return true }}
		if err := s.copy(t.Context()); err != nil || b.String() != want {
			t.Errorf("%s: got %q, %v, want %q", query, b.String(), err, want)
		}
	}
	for _, query := range []string{"tailLines=-1", "follow=perhaps", "stream=Both", "sinceSeconds=0"} {
		values, _ := url.ParseQuery(query)
		if _, err := parseLogOptions(values, at(5)); err == nil {
			t.Errorf("%s is taken", query)
		}
	}
}
