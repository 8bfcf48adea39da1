package cri

import (
	"os/exec"
	"testing"
	"time"
)

// What is closed takes no event of another that gets its descriptor.
func TestExitsThatAreClosedWaitNoMore(t *testing.T) {
	for range 20 {
		before, err := watchExits()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		p, err := findProcess(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		before.watch(p, func() { t.Error("what was closed calls a function") })
		before.close()
		before.watch(p, func() { t.Error("what was closed before calls a function") })
		after, err := watchExits()
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		after.watch(p, func() { close(ended) })
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatal("the end of a process is not noticed")
		}
		after.close()
	}
}
