package cri

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// at is some time, and seconds.
func at(seconds float64) time.Time {
	return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
}

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
	for stream, want := range map[string]string{"": "one\ntwo\nthree\nfour", "stdout": "one\ntwo\nfour", "stderr": "three\n"} {
		var b strings.Builder
		s := logStream{path: path, to: &b, stream: stream}
		if err := s.copy(t.Context()); err != nil || b.String() != want {
			t.Errorf("%s: got %q, %v, want %q", stream, b.String(), err, want)
		}
	}
}

// A log is followed from its end on, and into the one that takes its place.
func TestLogIsFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	w, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	w.line("stdout", []byte("before\n"))
	r, to := io.Pipe()
	begun, ended := make(chan struct{}), make(chan struct{})
	over := func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	}
	s := logStream{path: path, to: to, follow: true, ended: over, begun: func() { close(begun) }}
	go func() { _ = to.CloseWithError(s.copy(t.Context())) }()
	<-begun
	w.line("stdout", []byte("one\n"))
	if err := os.Rename(path, path+".full"); err != nil {
		t.Fatal(err)
	}
	w.line("stdout", []byte("two\n"))
	w.reopen()
	w.line("stdout", []byte("three\n"))
	close(ended)
	if got, err := io.ReadAll(r); err != nil || string(got) != "one\ntwo\nthree\n" {
		t.Errorf("got %q, %v", got, err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
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
