package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is the unit of times in /proc, the same on all of Linux' platforms.
const ticksPerSecond = 100

// cpu is the time that a program has computed, and the processes that it started and
// that ended. Its own is exact, that of others as exact as the kernel counts it.
func (p *program) cpu() (time.Duration, error) {
	folder := fmt.Sprintf("/proc/%d", p.command.Process.Pid)
	stat, err := os.ReadFile(folder + "/stat")
	if err != nil {
		return 0, err
	}
	total, err := parseChildren(string(stat))
	if err != nil {
		return 0, err
	}
	threads, err := filepath.Glob(folder + "/task/*/schedstat")
	if err != nil {
		return 0, err
	}
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			continue // it ended
		}
		var nanoseconds int64
		if _, err := fmt.Sscan(string(text), &nanoseconds); err != nil {
			return 0, fmt.Errorf("reading %s: %w", thread, err)
		}
		total += time.Duration(nanoseconds)
	}
	return total, nil
}

// parseChildren reads /proc/PID/stat, whose second field is a name in parentheses that
// may hold anything.
func parseChildren(stat string) (time.Duration, error) {
	const user, system = 16 - 3, 17 - 3 // places after that of the name
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= system {
		return 0, fmt.Errorf("process status %q has too few fields", stat)
	}
	var ticks int64
	for _, field := range []string{fields[user], fields[system]} {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("process status %q: %w", stat, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}

// memory is what a program holds, in bytes.
func (p *program) memory() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid))
	if err != nil {
		return 0, err
	}
	return parseResident(string(text))
}

// parseResident reads /proc/PID/status.
func parseResident(status string) (int64, error) {
	for line := range strings.Lines(status) {
		if value, found := strings.CutPrefix(line, "VmRSS:"); found {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("memory %q: %w", line, err)
			}
			return kib << 10, nil
		}
	}
	return 0, errors.New("the kernel does not say how much memory it is")
}

// sumMetric adds up the values of a metric whose labels hold a text.
func sumMetric(metrics io.Reader, name, label string) (float64, error) {
	total := 0.0
	lines := bufio.NewScanner(metrics)
	for lines.Scan() {
		series, value, found := strings.Cut(lines.Text(), " ")
		base, labels, _ := strings.Cut(series, "{")
		if !found || base != name || !strings.Contains(labels, label) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("metric %q: %w", lines.Text(), err)
		}
		total += n
	}
	return total, lines.Err()
}
