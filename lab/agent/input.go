package agent

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// closeInput is the signal that tells a keeper that nobody will write to its container
// any more.
const closeInput = unix.SIGUSR1

// endInput lets the process read its input to the end. The descriptor stays, so that
// its number never comes to mean another file.
func (k *keeper) endInput() {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil || k.input == 0 {
		return
	}
	defer null.Close()
	_ = unix.Dup3(int(null.Fd()), k.input, unix.O_CLOEXEC)
}

// openInput opens what the container reads: a pipe or a terminal, of which the keeper
// holds the other end, so that it stays when an agent goes.
func (a *attempt) openInput() (*os.File, error) {
	keeper, err := unix.PidfdOpen(a.Keeper.ID, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the container's input: %w", err)
	}
	defer func() { _ = unix.Close(keeper) }()
	// Who is open now stays who it is.
	if !a.Keeper.alive() {
		return nil, fmt.Errorf("opening the container's input: process %d: it ended", a.Keeper.ID)
	}
	fd, err := unix.PidfdGetfd(keeper, a.Input, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the container's input: %w", err)
	}
	// A container that does not read must not hold up who leaves.
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "stdin"), nil
}
