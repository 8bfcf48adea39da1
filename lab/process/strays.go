package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

// Strays finds all processes of a lab, recorded or not, by its marker and by the given network
// namespaces. It leaves out this process.
func Strays(d state.Dir, namespaces ...string) ([]int, error) {
	belongs, err := ownedBy(d, namespaces)
	if err != nil {
		return nil, err
	}
	all, err := pids()
	if err != nil {
		return nil, fmt.Errorf("looking for processes of lab %q: %w", d.Name(), err)
	}
	strays := slices.DeleteFunc(all, func(pid int) bool { return !belongs(pid) })
	slices.Sort(strays)
	return strays, nil
}

func ownedBy(d state.Dir, namespaces []string) (func(pid int) bool, error) {
	inside, err := insideOf(namespaces)
	if err != nil {
		return nil, err
	}
	self := os.Getpid()
	return func(pid int) bool { return pid != self && (hasMarker(d, pid) || inside(pid)) }, nil
}

func hasMarker(d state.Dir, pid int) bool {
	return hasEnv(pid, Marker(d))
}

func insideOf(namespaces []string) (func(pid int) bool, error) {
	// A namespace is identified by device and inode number.
	type inode struct{ device, number uint64 }
	inodeOf := func(path string) (inode, error) {
		info, err := os.Stat(path)
		if err != nil {
			return inode{}, err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return inode{}, fmt.Errorf("%s has no inode", path)
		}
		return inode{device: stat.Dev, number: stat.Ino}, nil
	}
	own := map[inode]bool{}
	for _, namespace := range namespaces {
		in, err := inodeOf(shape.NamespacePath(namespace))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("looking for processes in network namespace %q: %w", namespace, err)
		}
		own[in] = true
	}
	return func(pid int) bool {
		if len(own) == 0 {
			return false
		}
		in, err := inodeOf(fmt.Sprintf("/proc/%d/ns/net", pid))
		return err == nil && own[in]
	}, nil
}

// StopAll kills all processes that Strays finds, and removes their records.
func StopAll(d state.Dir, namespaces ...string) error {
	belongs, err := ownedBy(d, namespaces)
	if err != nil {
		return err
	}
	if err := killAll(belongs); err != nil {
		return fmt.Errorf("stopping the processes of lab %q: %w", d.Name(), err)
	}
	entries, err := os.ReadDir(d.Run())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the records of processes: %w", err)
	}
	for _, entry := range entries {
		path := d.Run() + "/" + entry.Name()
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the records of processes: %w", err)
		}
	}
	return nil
}

// killAll kills processes until none is left, since a process may start another before it is
// killed.
func killAll(wanted func(pid int) bool) error {
	for {
		handles, err := openAll(wanted)
		for _, h := range handles {
			if err == nil {
				err = h.terminate(context.Background(), 0)
			}
			h.close()
		}
		if err != nil || len(handles) == 0 {
			return err
		}
	}
}

func openAll(wanted func(pid int) bool) ([]*handle, error) {
	all, err := pids()
	if err != nil {
		return nil, err
	}
	var handles []*handle
	for _, pid := range all {
		if !wanted(pid) {
			continue
		}
		h, err := openHandle(pid, func() bool { return wanted(pid) })
		if err != nil {
			return handles, err
		}
		if h != nil {
			handles = append(handles, h)
		}
	}
	return handles, nil
}
