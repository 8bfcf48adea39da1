package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// describeMachine says on what figures are taken.
func describeMachine() (string, error) {
	var system unix.Utsname
	if err := unix.Uname(&system); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d CPUs, Linux %s, %s, load %s before the lab is up",
		runtime.NumCPU(), unix.ByteSliceToString(system.Release[:]), runtime.Version(), loadNow()), nil
}

// loadNow is how many threads ran or wanted to, as a mean over the last minute, in words
// of the kernel.
func loadNow() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
