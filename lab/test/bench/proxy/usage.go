package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"vicinity.dev/vicinity/lab/test/bench/meter"
)

// cpu is the time that a program has computed, and the processes that it started and
// that ended. Its own is exact, that of others as exact as the kernel counts it.
func (p *program) cpu() (time.Duration, error) {
	pid := p.command.Process.Pid
	total, err := meter.CPU(pid, meter.Children)
	if err != nil {
		return 0, err
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
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

// memory is what a program holds, in bytes.
func (p *program) memory() (int64, error) {
	return meter.Memory(p.command.Process.Pid, meter.Resident)
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
