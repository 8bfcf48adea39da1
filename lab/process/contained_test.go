package process_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"vicinity.dev/vicinity/lab/process"
)

func TestFindContained(t *testing.T) {
	d := newDir(t)
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("there is no program sleep to be found")
	}
	program := filepath.Join(t.TempDir(), "prog")
	if err := os.Symlink(sleep, program); err != nil {
		t.Fatal(err)
	}
	run := func(path, node string, leads bool) int {
		t.Helper()
		cmd := exec.Command(path, "1000")
		cmd.Env = []string{process.Marker(d), "NODE=" + node}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: leads}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // a part of the test ends some
			_ = cmd.Wait()         // by a signal
		})
		return cmd.Process.Pid
	}
	run(sleep, "one", true)     // another program
	run(program, "two", true)   // another node
	run(program, "one", false)  // of a session that another leads
	run(program, "one-2", true) // a name that begins alike
	if _, err := process.FindContained(d, "x", "prog", "NODE=one"); !errors.Is(err, process.ErrNotFound) {
		t.Fatalf("before there is one the error is %v", err)
	}
	pid := run(program, "one", true)
	var found *process.Process
	waitFor(t, "found", func() bool {
		found, err = process.FindContained(d, "x", "prog", "NODE=one")
		return err == nil
	})
	if found.PID != pid || found.Name != "x" || !found.Alive() {
		t.Fatalf("found %+v, want process %d", found, pid)
	}
	if err := found.Pause(); err != nil || !found.Paused() {
		t.Errorf("it is not paused: %v", err)
	}
	if err := found.Resume(); err != nil || found.Paused() {
		t.Errorf("it is still paused: %v", err)
	}
	if err := found.Kill(t.Context()); err != nil || found.Alive() {
		t.Errorf("it is still alive: %v", err)
	}
}
