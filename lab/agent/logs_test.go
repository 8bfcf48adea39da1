package agent

import (
	"io"
	"net/url"
	"os"
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
	w.copy("stdout", strings.NewReader("one\ntwo\n"), false)
	w.copy("stderr", strings.NewReader("three\n"), false)
	w.copy("stdout", strings.NewReader("four"), false)
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

// With prompts, an incomplete line is logged at once.
func TestLogOfPrompts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	w, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	w.now = func() time.Time { return at(0) }
	r, program := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.copy("stdout", r, true)
	}()
	var want strings.Builder
	for _, step := range []struct{ printed, logged string }{
		{"name? ", "stdout P name? \n"},
		{"you\nagain", "stdout F you\n|stdout P again\n"},
		{"\n", "stdout F \n"},
	} {
		if _, err := io.WriteString(program, step.printed); err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(step.logged, "|") {
			want.WriteString(at(0).Format(logTime) + " " + line)
		}
		for deadline := time.Now().Add(time.Minute); ; {
			log, err := os.ReadFile(path)
			if err == nil && string(log) == want.String() {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("after %q the log is %q, %v; want %q", step.printed, log, err, want.String())
			}
		}
	}
	if err := program.Close(); err != nil {
		t.Fatal(err)
	}
	<-done
}
