package meter

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func describeMachine() (string, error) {
	var system unix.Utsname
	if err := unix.Uname(&system); err != nil {
		return "", err
	}
	text, err := os.ReadFile("/proc/loadavg")
	load, _, _ := strings.Cut(string(text), " ")
	return fmt.Sprintf("%d CPUs, Linux %s, %s, load %s before the lab is up",
		runtime.NumCPU(), unix.ByteSliceToString(system.Release[:]), runtime.Version(), load), err
}

// ticks are the busy and the idle time of all CPUs, in units of the kernel.
type ticks struct{ busy, idle int64 }

func readTicks() (ticks, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return ticks{}, err
	}
	var user, nice, system, idle, wait, interrupts, soft, stolen int64
	_, err = fmt.Sscanf(string(stat), "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &wait, &interrupts, &soft, &stolen)
	if err != nil {
		return ticks{}, fmt.Errorf("reading /proc/stat: %w", err)
	}
	return ticks{busy: user + nice + system + interrupts + soft + stolen, idle: idle + wait}, nil
}

const (
	// The machine is quiet if it was busy for at most quietShare of quietSeconds.
	quietShare   = 0.1
	quietSeconds = 3
	// quietTime limits the wait for that: other programs may use the machine.
	quietTime = 5 * time.Minute
)

// isQuiet waits until the machine is quiet, and reports whether it is.
func isQuiet(ctx context.Context) (bool, error) {
	before, err := readTicks()
	if err != nil {
		return false, err
	}
	for until, calm := time.Now().Add(quietTime), 0; time.Now().Before(until); {
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(time.Second):
		}
		now, err := readTicks()
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
