package cri

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// startTimeout is how long a keeper may take to report.
const startTimeout = 30 * time.Second

// startKeeper starts a keeper for a folder and returns its report. The keeper has its own session
// and survives the runtime.
func (r *host) startKeeper(folder string) (startReport, *exec.Cmd, error) {
	report, pipe, err := os.Pipe()
	if err != nil {
		return startReport{}, nil, err
	}
	defer report.Close()
	cmd := r.command(keepCommand, folder)
	cmd.ExtraFiles = []*os.File{pipe}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = pipe.Close()
	if err != nil {
		return startReport{}, nil, fmt.Errorf("starting the keeper: %w", err)
	}
	if err := report.SetReadDeadline(time.Now().Add(startTimeout)); err != nil {
		return startReport{}, cmd, err
	}
	var b startReport
	line, err := bufio.NewReader(report).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &b)
	}
	if err != nil {
		return startReport{}, cmd, errors.Join(fmt.Errorf("the keeper did not report: %w", err), killKeeper(cmd.Process))
	}
	return b, cmd, nil
}

// killKeeper kills a keeper that did not report, and the processes that it started.
func killKeeper(keeper *os.Process) error {
	// Paused first, so that it starts no more processes.
	if err := keeper.Signal(syscall.SIGSTOP); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", keeper.Pid))
	failed := []error{err}
	for _, list := range lists {
		children, err := os.ReadFile(list)
		if err != nil {
			continue // the thread ended
		}
		for _, child := range strings.Fields(string(children)) {
			pid, err := strconv.Atoi(child)
			if err == nil {
				err = killContainer(pid)
			}
			failed = append(failed, err)
		}
	}
	if err := keeper.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}
