package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Stat is what the kernel says of a process, as far as it matters to a lab.
type Stat struct {
	// State is a letter, as ps shows it.
	State byte
	// Session is the number of the session that the process is in.
	Session int
	// StartTicks is when the process started, in ticks since the machine did.
	StartTicks uint64
}

// Ended reports whether nothing of the process is left but its number, which its
// parent has yet to give back.
func (s Stat) Ended() bool { return s.State == 'Z' || s.State == 'X' }

// ReadStat asks the kernel about the process that has a number now.
func ReadStat(pid int) (Stat, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Stat{}, err
	}
	return parseStat(data)
}

// parseStat reads a line of /proc/PID/stat. The second field is the program's name in
// parentheses and may hold anything, so the fields are counted from the last one.
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

// bootID names the boot of the machine, since which start times count.
func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading the id of this boot: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}

// pids are the numbers of all processes.
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
