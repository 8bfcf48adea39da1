package agent

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// findProcess describes the process that has a number now.
func findProcess(pid int) (process, error) {
	start, err := startTime(pid)
	return process{ID: pid, Start: start}, err
}

// alive reports whether a process still runs. One that ended and waits for its parent
// to notice does not.
func (p process) alive() bool {
	if p.ID <= 0 {
		return false
	}
	start, err := startTime(p.ID)
	return err == nil && start == p.Start
}

// same reports whether a process that still runs, or ended and was not waited for yet,
// is the one that is meant.
func (p process) same() bool {
	if p.ID <= 0 {
		return false
	}
	_, start, err := readStat(p.ID)
	return err == nil && start == p.Start
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

// startTime is when a process that did not end started, in clock ticks since the
// machine did.
func startTime(pid int) (uint64, error) {
	state, start, err := readStat(pid)
	if err == nil && (state == 'Z' || state == 'X') {
		err = fmt.Errorf("process %d: it ended", pid)
	}
	return start, err
}

func readStat(pid int) (state byte, start uint64, err error) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, 0, err
	}
	// The name of the program, in parentheses, may hold anything.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	const startField = 19
	if len(fields) <= startField {
		return 0, 0, fmt.Errorf("process %d: its stat has %d fields after its name, it should have more than %d", pid, len(fields), startField)
	}
	start, err = strconv.ParseUint(string(fields[startField]), 10, 64)
	return fields[0][0], start, err
}
