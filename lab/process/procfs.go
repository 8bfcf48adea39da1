package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Stat is a part of the kernel's status of a process.
type Stat struct {
	// State is a letter, as in ps.
	State byte
	// Session is the number of the process' session.
	Session int
	// StartTicks is the start time in ticks since the boot.
	StartTicks uint64
}

// Ended reports whether the process is a zombie or dead.
func (s Stat) Ended() bool { return s.State == 'Z' || s.State == 'X' }

// ReadStat reads the status of the process that currently has a number.
func ReadStat(pid int) (Stat, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Stat{}, err
	}
	return parseStat(data)
}

// parseStat parses /proc/PID/stat. Its second field is a name in parentheses that may contain any
// character, so fields are counted from the last parenthesis.
func parseStat(data []byte) (Stat, error) {
	const (
		stateField   = 3
		sessionField = 6
		startField   = 22
	)
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) <= startField-stateField || len(fields[0]) != 1 {
		return Stat{}, fmt.Errorf("process status %q has too few fields", data)
	}
	session, err := strconv.Atoi(string(fields[sessionField-stateField]))
	if err != nil {
		return Stat{}, fmt.Errorf("process status %q: reading the session: %w", data, err)
	}
	start, err := strconv.ParseUint(string(fields[startField-stateField]), 10, 64)
	if err != nil {
		return Stat{}, fmt.Errorf("process status %q: reading the start time: %w", data, err)
	}
	return Stat{State: fields[0][0], Session: session, StartTicks: start}, nil
}

func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading the id of this boot: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}

func pids() ([]int, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			all = append(all, pid)
		}
	}
	return all, nil
}
