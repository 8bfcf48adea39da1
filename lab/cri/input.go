package cri

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// closeInput is the signal that makes a keeper close its end of the container's input.
const closeInput = unix.SIGUSR1

// endInput closes the input, so that the process reads to its end. The descriptor then
// refers to /dev/null: its number must not be reused for another file.
func (k *keeper) endInput() {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil || k.input == 0 {
		return
	}
	defer null.Close()
	_ = unix.Dup3(int(null.Fd()), k.input, unix.O_CLOEXEC)
}

// openInput opens the container's input, a pipe or a terminal. The keeper holds the other
// end, so that the input survives the runtime.
func (c *container) openInput() (*os.File, error) {
	keeper, err := unix.PidfdOpen(c.keeper.ID, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the container's input: %w", err)
	}
	defer func() { _ = unix.Close(keeper) }()
	// The descriptor is open: from here on the process ID cannot change its meaning.
	if !c.keeper.isAlive() {
		return nil, fmt.Errorf("opening the container's input: process %d: it ended", c.keeper.ID)
	}
	fd, err := unix.PidfdGetfd(keeper, c.input, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the container's input: %w", err)
	}
	// A container that does not read must not block the writer from leaving.
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "stdin"), nil
}
