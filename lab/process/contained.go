package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"vicinity.dev/vicinity/lab/state"
)

// FindContained finds a process in a container of a lab by its program and a variable in its
// environment. The process leads its session and has no record. If no process matches, the error
// is ErrNotFound. The name is for messages.
func FindContained(d state.Dir, name, program, variable string) (*Process, error) {
	all, err := pids()
	if err != nil {
		return nil, fmt.Errorf("finding process %q: %w", name, err)
	}
	for _, pid := range all {
		if !runsProgram(pid, program) || !hasEnv(pid, Marker(d), variable) {
			continue
		}
		stat, err := ReadStat(pid)
		// The process may have ended in the meantime.
		if err != nil || stat.Ended() || stat.Session != pid {
			continue
		}
		boot, err := bootID()
		if err != nil {
			return nil, err
		}
		return &Process{Name: name, PID: pid, StartTicks: stat.StartTicks, Boot: boot, dir: d}, nil
	}
	return nil, fmt.Errorf("process %q of lab %q: %w", name, d.Name(), ErrNotFound)
}

// runsProgram reports whether a process was started as a program with the given name.
func runsProgram(pid int, program string) bool {
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	path, _, _ := bytes.Cut(command, []byte{0})
	return filepath.Base(string(path)) == program
}

// hasEnv reports whether a process has all of the entries in its environment.
func hasEnv(pid int, entries ...string) bool {
	// An unreadable process has ended, or belongs to another user and so not to the lab.
	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	text := slices.Concat([]byte{0}, environment, []byte{0})
	return !slices.ContainsFunc(entries, func(entry string) bool { return !bytes.Contains(text, []byte("\x00"+entry+"\x00")) })
}
