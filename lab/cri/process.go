package cri

import (
	"fmt"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/lab/process"
)

// findProcess identifies the process that has a number now. It fails if the process has ended.
func findProcess(pid int) (processID, error) {
	stat, err := process.ReadStat(pid)
	if err == nil && stat.Ended() {
		err = processID{ID: pid}.exitedError()
	}
	return processID{ID: pid, Start: stat.StartTicks}, err
}

// isAlive reports whether the process runs. It is false for a zombie.
func (p processID) isAlive() bool {
	found, err := findProcess(p.ID)
	return err == nil && found == p
}

// exitedError is the error of joining a process that has exited.
func (p processID) exitedError() error { return fmt.Errorf("process %d: it ended", p.ID) }

// exists reports whether the process runs or is a zombie.
func (p processID) exists() bool {
	stat, err := process.ReadStat(p.ID)
	return err == nil && stat.StartTicks == p.Start
}

func (p processID) signal(s unix.Signal) error {
	if !p.isAlive() {
		return unix.ESRCH
	}
	return unix.Kill(p.ID, s)
}

func (p processID) killGroup() error {
	if !p.isAlive() {
		return unix.ESRCH
	}
	return unix.Kill(-p.ID, unix.SIGKILL)
}

// processID identifies a process by number and start time, since the kernel reuses numbers.
type processID struct {
	ID    int    `json:"pid"`
	Start uint64 `json:"start"`
}
