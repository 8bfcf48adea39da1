package process_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/lab/state"
)

// deadline limits the wait for what must happen.
const deadline = 10 * time.Second

// newDir returns a state folder whose processes end with the test.
func newDir(t *testing.T) state.Dir {
	t.Helper()
	d, err := state.Create(t.TempDir(), "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := process.StopAll(d); err != nil {
			t.Error(err)
		}
	})
	return d
}

// shell starts a script under a name.
func shell(t *testing.T, d state.Dir, name, script string) *process.Process {
	t.Helper()
	p, err := process.Start(d, process.Spec{Name: name, Args: []string{"/bin/sh", "-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// waitFor waits until a condition holds.
func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			t.Fatalf("after %s: not %s", deadline, what)
		case <-tick.C:
		}
	}
}

// waitLog waits until a log has a text.
func waitLog(t *testing.T, path, text string) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%q in %s", text, filepath.Base(path)), func() bool {
		content, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(content), text)
	})
}

func strays(t *testing.T, d state.Dir) []int {
	t.Helper()
	found, err := process.Strays(d)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestStopKillsAfterGrace(t *testing.T) {
	d := newDir(t)
	p := shell(t, d, "deaf", `trap '' TERM; echo ready; while :; do sleep 0.01; done`)
	waitLog(t, d.Log("deaf"), "ready")
	if err := p.Stop(t.Context(), 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if p.Alive() {
		t.Error("the process is alive after Stop")
	}

	// The end of the context ends the grace.
	p = shell(t, d, "deaf", `trap '' TERM; echo again; while :; do sleep 0.01; done`)
	waitLog(t, d.Log("deaf"), "again")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Stop(ctx, time.Hour); err != nil {
		t.Fatal(err)
	}
	if p.Alive() {
		t.Error("the process is alive after Stop with a context that ended")
	}
}

func TestStopEndsSession(t *testing.T) {
	d := newDir(t)
	p := shell(t, d, "parent", `sleep 1000 & echo child $!; echo ready; wait`)
	waitLog(t, d.Log("parent"), "ready")
	// While the child starts another program, it has no environment to find it by.
	waitFor(t, "parent and child to be strays", func() bool { return len(strays(t, d)) == 2 })
	if err := p.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := strays(t, d); len(left) > 0 {
		t.Errorf("Strays() after Kill = %v", left)
	}
}

// A process that reuses the number of an ended one is not mistaken for it.
func TestProcessNumbersAreReused(t *testing.T) {
	d := newDir(t)
	p := shell(t, d, "a", "exec sleep 1000")
	for change, edit := range map[string]func(string) string{
		"start": func(s string) string {
			return strings.Replace(s, fmt.Sprintf(`"startTicks":%d`, p.StartTicks), `"startTicks":1`, 1)
		},
		"boot": func(s string) string { return strings.Replace(s, p.Boot, "another", 1) },
	} {
		record, err := os.ReadFile(d.Record("a"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(d.Record("b"), []byte(strings.Replace(edit(string(record)), `"a"`, `"b"`, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		other, err := process.Find(d, "b")
		if err != nil {
			t.Fatal(err)
		}
		if other.Alive() {
			t.Errorf("a process of another %s is alive", change)
		}
		if err := other.Kill(t.Context()); err != nil {
			t.Error(err)
		}
		if !p.Alive() {
			t.Fatalf("a process of another %s was killed", change)
		}
	}
}

func TestStraysWithoutRecord(t *testing.T) {
	d, other := newDir(t), newDir(t)
	mine, theirs := shell(t, d, "a", "sleep 1000 & wait"), shell(t, other, "a", "exec sleep 1000")
	// The command was killed before it wrote the record.
	if err := os.Remove(d.Record("a")); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "a child among the strays", func() bool { return len(strays(t, d)) == 2 })
	if found := strays(t, d); !slices.Contains(found, mine.PID) || slices.Contains(found, theirs.PID) {
		t.Errorf("Strays() = %v, want %d and not %d", found, mine.PID, theirs.PID)
	}
	for range 2 {
		if err := process.StopAll(d); err != nil {
			t.Fatal(err)
		}
	}
	if left := strays(t, d); len(left) > 0 {
		t.Errorf("Strays() after StopAll = %v", left)
	}
	if !theirs.Alive() {
		t.Error("StopAll ended a process of another lab")
	}
}

// OnThread never uses the main thread, and its thread ends: this process does not stay in a namespace
// that it entered.
func TestOnThread(t *testing.T) {
	seen := map[int]bool{}
	for range 20 {
		err := process.OnThread(func() error {
			if unix.Gettid() == os.Getpid() {
				t.Error("OnThread called its function on the main thread")
			}
			seen[unix.Gettid()] = true
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := errors.New("no")
	if err := process.OnThread(func() error { return want }); !errors.Is(err, want) {
		t.Errorf("OnThread() = %v, want %v", err, want)
	}
	for tid := range seen {
		waitFor(t, fmt.Sprintf("the end of thread %d", tid), func() bool {
			_, err := os.Stat(filepath.Join("/proc/self/task", strconv.Itoa(tid)))
			return errors.Is(err, fs.ErrNotExist)
		})
	}
}
