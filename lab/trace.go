package lab

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/lab/state"
)

// Traces are all network namespaces, processes and files of a lab on this machine, whether
// it is up or not. A lab that was taken down has none.
func Traces(name string, options Options) ([]string, error) {
	options, err := options.complete()
	if err != nil {
		return nil, err
	}
	namespaces, err := fabric.Namespaces(name)
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(options.Root, name)
	pids, err := process.Strays(state.At(folder), namespaces...)
	if err != nil {
		return nil, err
	}
	var traces []string
	for _, namespace := range namespaces {
		traces = append(traces, "network namespace "+namespace)
	}
	for _, pid := range pids {
		command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || len(command) == 0 {
			continue // it has ended
		}
		traces = append(traces, "process "+strconv.Itoa(pid)+" "+string(bytes.ReplaceAll(command, []byte{0}, []byte{' '})))
	}
	if _, err := os.Lstat(folder); err == nil {
		traces = append(traces, "folder "+folder)
	}
	slices.Sort(traces)
	return traces, nil
}
