package agent

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// kept is a container whose keeper runs, without a pod.
type kept struct {
	t       *testing.T
	folder  string
	attempt attempt
	ended   chan error
}

func keepContainer(t *testing.T, spec containerSpec) *kept {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("makes mount namespaces, which needs root")
	}
	k := &kept{t: t, folder: t.TempDir(), ended: make(chan error, 1)}
	spec.Env, spec.Dir, spec.Log = os.Environ(), "/", filepath.Join(k.folder, "log")
	if err := writeJSON(filepath.Join(k.folder, specFile), spec); err != nil {
		t.Fatal(err)
	}
	a := &agent{Options: Options{Keeper: []string{os.Args[0], keeperArgument}}, log: slog.Default()}
	b, cmd, err := a.keep(k.folder)
	if err != nil || b.Error != "" {
		t.Fatal(err, b.Error)
	}
	k.attempt = attempt{Process: b.Process, Keeper: b.Keeper, Input: b.Input}
	go func() { k.ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = b.Process.killGroup() }) // most have ended
	return k
}

func (k *kept) write(text string) *os.File {
	k.t.Helper()
	input, err := k.attempt.openInput()
	if err != nil {
		k.t.Fatal(err)
	}
	if _, err := io.WriteString(input, text); err != nil {
		k.t.Fatal(err)
	}
	return input
}

// printed waits until the log's text is as wanted.
func (k *kept) printed(want string) {
	k.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		var b strings.Builder
		s := logStream{logOptions: logOptions{tail: -1, limit: -1}, path: filepath.Join(k.folder, "log"), to: &b}
		if err := s.copy(k.t.Context()); err == nil && b.String() == want {
			return
		}
		if time.Now().After(deadline) {
			k.t.Fatalf("it printed %q, want %q", b.String(), want)
		}
	}
}

func (k *kept) ends(code int32) {
	k.t.Helper()
	select {
	case err := <-k.ended:
		if err != nil {
			k.t.Error(err)
		}
	case <-time.After(time.Minute):
		k.t.Fatal("it does not end")
	}
	var e end
	if err := readJSON(filepath.Join(k.folder, endFile), &e); err != nil || e.ExitCode != code {
		k.t.Errorf("ended with %d, %v; want %d", e.ExitCode, err, code)
	}
}

// The input stays open when one that wrote leaves, until the keeper is told otherwise.
func TestContainerReadsItsInput(t *testing.T) {
	k := keepContainer(t, containerSpec{Args: []string{"sh", "-c", "cat; exit 5"}, Input: true})
	for _, text := range []string{"one\n", "two"} {
		if err := k.write(text).Close(); err != nil {
			t.Fatal(err)
		}
	}
	k.printed("one\ntwo")
	if !k.attempt.Process.alive() {
		t.Fatal("it ended although its input did not")
	}
	if err := k.attempt.Keeper.signal(closeInput); err != nil {
		t.Fatal(err)
	}
	k.ends(5)
	if _, err := k.attempt.openInput(); err == nil {
		t.Error("the input of a container that ended can be opened")
	}
}

func TestContainerHasNoInput(t *testing.T) {
	k := keepContainer(t, containerSpec{Args: []string{"sh", "-c", "cat; echo none"}})
	if k.attempt.Input != 0 {
		t.Errorf("its input is %d", k.attempt.Input)
	}
	k.ends(0)
	k.printed("none\n")
}

func TestContainerHasATerminal(t *testing.T) {
	k := keepContainer(t, containerSpec{Args: []string{"sh", "-c", "stty -echo; tty -s && printf 'size? '; read x; stty size; exit 3"}, Input: true, Terminal: true})
	k.printed("size? ")
	input := k.write("")
	defer input.Close()
	if err := setSize(input, 40, 100); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(input, "go\n"); err != nil {
		t.Fatal(err)
	}
	k.ends(3)
	k.printed("size? 40 100\r\n")
}
