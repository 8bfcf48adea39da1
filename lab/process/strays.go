package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

// Strays finds all processes of a lab, recorded or not: those that carry its marker,
// and those in any of the network namespaces named. This process is none.
func Strays(d state.Dir, namespaces ...string) ([]int, error) {
	belongs, err := belonging(d, namespaces)
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

// belonging tells the processes of a lab from all others.
func belonging(d state.Dir, namespaces []string) (func(pid int) bool, error) {
	marker := []byte("\x00" + Marker(d) + "\x00")
	// A namespace is a file with a number on a device.
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
	self := os.Getpid()
	return func(pid int) bool {
		if pid == self {
			return false
		}
		// What cannot be read has ended, or is another user's and so not ours.
		environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			return false
		}
		if bytes.Contains(slices.Concat([]byte{0}, environment, []byte{0}), marker) {
			return true
		}
		if len(own) == 0 {
			return false
		}
		in, err := inodeOf(fmt.Sprintf("/proc/%d/ns/net", pid))
		return err == nil && own[in]
	}, nil
}

// StopAll ends all processes of a lab, as Strays finds them: it asks all at once, and
// kills what is left after the grace, or when the context ends. Records are removed.
func StopAll(ctx context.Context, d state.Dir, grace time.Duration, namespaces ...string) error {
	belongs, err := belonging(d, namespaces)
	if err != nil {
		return err
	}
	if grace > 0 {
		if err := endAll(ctx, belongs, grace); err != nil {
			return fmt.Errorf("stopping the processes of lab %q: %w", d.Name(), err)
		}
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

// endAll asks processes to end and waits for them, no longer than the grace.
func endAll(ctx context.Context, wanted func(pid int) bool, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	handles, err := openAll(wanted)
	defer func() {
		for _, h := range handles {
			h.close()
		}
	}()
	if err != nil {
		return err
	}
	for _, h := range handles {
		if err := errors.Join(h.signal(unix.SIGTERM), h.signal(unix.SIGCONT)); err != nil {
			return err
		}
	}
	for _, h := range handles {
		// The grace is over for all when it is for one.
		if h.wait(ctx) != nil {
			return nil
		}
	}
	return nil
}

// killAll kills processes until there are none, since one may start another before it
// is killed itself.
func killAll(wanted func(pid int) bool) error {
	for {
		handles, err := openAll(wanted)
		for _, h := range handles {
			if err == nil {
				err = h.end(context.Background(), 0)
			}
			h.close()
		}
		if err != nil || len(handles) == 0 {
			return err
		}
	}
}

// openAll opens handles on all processes that are wanted.
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
