package agent

import (
	"fmt"

	"golang.org/x/sys/unix"

	labprocess "vicinity.dev/vicinity/lab/process"
)

// findProcess describes the process that has a number now, if it did not end.
func findProcess(pid int) (process, error) {
	stat, err := labprocess.ReadStat(pid)
	if err == nil && stat.Ended() {
		err = fmt.Errorf("process %d: it ended", pid)
	}
	return process{ID: pid, Start: stat.StartTicks}, err
}

// alive reports whether a process still runs. One that ended and waits for its parent
// to notice does not.
func (p process) alive() bool {
	found, err := findProcess(p.ID)
	return err == nil && found == p
}

// same reports whether a process that still runs, or ended and was not waited for yet,
// is the one that is meant.
func (p process) same() bool {
	stat, err := labprocess.ReadStat(p.ID)
	return err == nil && stat.StartTicks == p.Start
}

// signal sends a signal to the process and nobody else.
func (p process) signal(s unix.Signal) error {
	if !p.alive() {
		return unix.ESRCH
	}
	return unix.Kill(p.ID, s)
}

// killGroup kills the process and all that it left in its process group.
func (p process) killGroup() error {
	if !p.alive() {
		return unix.ESRCH
	}
	return unix.Kill(-p.ID, unix.SIGKILL)
}
