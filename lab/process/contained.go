package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"vicinity.dev/vicinity/lab/state"
)

// FindContained finds a process of a lab that the lab did not start by itself, but that
// a container of it is: it runs the program with a name, leads its session, and carries
// a variable in its environment. Without one the error is ErrNotFound. The process has
// no record; name is what messages call it.
func FindContained(d state.Dir, name, program, variable string) (*Process, error) {
	all, err := pids()
	if err != nil {
		return nil, fmt.Errorf("finding process %q: %w", name, err)
	}
	for _, pid := range all {
		if !runs(pid, program) || !carries(pid, Marker(d), variable) {
			continue
		}
		stat, err := ReadStat(pid)
		// One that ended meanwhile is none.
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

// runs reports whether a process was started as a program of a name.
func runs(pid int, program string) bool {
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	path, _, _ := bytes.Cut(command, []byte{0})
	return filepath.Base(string(path)) == program
}

// carries reports whether a process has all of some entries in its environment.
func carries(pid int, entries ...string) bool {
	// What cannot be read has ended, or is another user's and so not ours.
	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	text := slices.Concat([]byte{0}, environment, []byte{0})
	return !slices.ContainsFunc(entries, func(entry string) bool { return !bytes.Contains(text, []byte("\x00"+entry+"\x00")) })
}
