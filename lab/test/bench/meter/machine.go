package meter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// describeMachine says on what figures are taken.
func describeMachine() (string, error) {
	var system unix.Utsname
	if err := unix.Uname(&system); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d CPUs, Linux %s, %s, load %s before the lab is up",
		runtime.NumCPU(), unix.ByteSliceToString(system.Release[:]), runtime.Version(), LoadNow()), nil
}

// LoadNow is how many threads ran or wanted to, as a mean over the last minute, in words
// of the kernel.
func LoadNow() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// ticks are the times that all CPUs computed and rested, in units of the kernel.
type ticks struct{ busy, idle int64 }

// parseTicks reads the first line of /proc/stat.
func parseTicks(stat string) (ticks, error) {
	const idle, wait, guest = 3, 4, 8 // what guests take is in what programs take
	line, _, _ := strings.Cut(stat, "\n")
	fields, found := strings.CutPrefix(line, "cpu ")
	if !found {
		return ticks{}, fmt.Errorf("the first line of /proc/stat is %q, want that of all CPUs", line)
	}
	var t ticks
	for i, field := range strings.Fields(fields) {
		n, err := strconv.ParseInt(field, 10, 64)
		switch {
		case err != nil:
			return ticks{}, fmt.Errorf("reading /proc/stat: %w", err)
		case i == idle || i == wait:
			t.idle += n
		case i < guest:
			t.busy += n
		}
	}
	if t.busy+t.idle == 0 {
		return ticks{}, errors.New("/proc/stat counts nothing")
	}
	return t, nil
}

const (
	// quietShare is how much of the machine may be busy while it is quiet, and quietSeconds
	// for how long it must be.
	quietShare   = 0.1
	quietSeconds = 3
	// quietTime is how long to wait for that: others may be at work on the machine.
	quietTime = 5 * time.Minute
)

// isQuiet waits until the machine has done what there was to do, and reports whether it has.
func isQuiet(ctx context.Context) (bool, error) {
	read := func() (ticks, error) {
		text, err := os.ReadFile("/proc/stat")
		if err != nil {
			return ticks{}, err
		}
		return parseTicks(string(text))
	}
	before, err := read()
	if err != nil {
		return false, err
	}
	for until, calm := time.Now().Add(quietTime), 0; time.Now().Before(until); {
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(time.Second):
		}
		now, err := read()
		if err != nil {
			return false, err
		}
		busy, idle := now.busy-before.busy, now.idle-before.idle
		before = now
		calm++
		if float64(busy) > quietShare*float64(busy+idle) {
			calm = 0
		}
		if calm == quietSeconds {
			return true, nil
		}
	}
	return false, nil
}
