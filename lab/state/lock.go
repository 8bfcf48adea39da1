package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const lockPoll = 50 * time.Millisecond

// Lock prevents other processes from changing the lab until unlock is called or this process ends.
// While another process holds the lock, it waits until the context ends. If the lab does not
// exist, the error is ErrNotFound.
func (d Dir) Lock(ctx context.Context) (unlock func(), err error) { return d.lock(ctx, false) }

// Claim is Lock for making or removing a lab: it creates the folder if it is missing.
func (d Dir) Claim(ctx context.Context) (unlock func(), err error) { return d.lock(ctx, true) }

func (d Dir) lock(ctx context.Context, claim bool) (unlock func(), err error) {
	for {
		file, err := d.tryLock(claim)
		if err != nil {
			return nil, fmt.Errorf("locking lab %q: %w", d.Name(), err)
		}
		if file != nil {
			// Closing the only descriptor releases the lock.
			return func() { _ = file.Close() }, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lab %q is being changed by process %s; wait for it, or stop it: %w",
				d.Name(), d.lockHolder(), ctx.Err())
		case <-time.After(lockPoll):
		}
	}
}

// tryLock returns the locked file, or nil if another process holds the lock. Before a claim has
// the lock, it creates only the folder and the lock file, since the holder may be removing the
// folder.
func (d Dir) tryLock(claim bool) (*os.File, error) {
	how := os.O_RDWR
	if claim {
		how |= os.O_CREATE
		if err := os.MkdirAll(d.path, 0o700); err != nil {
			return nil, err
		}
	}
	file, err := os.OpenFile(d.join(lockFile), how, 0o600)
	switch {
	case errors.Is(err, fs.ErrNotExist) && claim:
		return nil, nil // the folder was just removed
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrNotFound
	case err != nil:
		return nil, err
	}
	locked, err := d.flock(file, claim)
	if !locked || err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

func (d Dir) flock(file *os.File, claim bool) (bool, error) {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	// The previous holder may have removed the file together with the lab: then this lock has no
	// effect.
	if !d.isLockFile(file) {
		return false, nil
	}
	if claim {
		if err := d.create(); err != nil {
			return false, err
		}
	}
	return true, writeHolder(file)
}

func (d Dir) isLockFile(file *os.File) bool {
	open, err := file.Stat()
	if err != nil {
		return false
	}
	found, err := os.Stat(d.join(lockFile))
	return err == nil && os.SameFile(open, found)
}

func writeHolder(file *os.File) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := file.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	return err
}

func (d Dir) lockHolder() string {
	holder, err := os.ReadFile(d.join(lockFile))
	if err != nil || len(holder) == 0 {
		return "unknown"
	}
	return strings.TrimSpace(string(holder))
}
