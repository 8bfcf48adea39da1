package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"vicinity.dev/vicinity/lab/state"
)

// stoppedFolder holds an empty file for each stopped node, by its name. The agent reads the
// folder every controlPeriod.
const (
	stoppedFolder = "stopped"
	controlPeriod = 100 * time.Millisecond
)

// StopNode makes a node without network silent: no heartbeats or statuses.
func StopNode(d state.Dir, node string) error {
	folder := filepath.Join(d.Path(), stoppedFolder)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("stopping node %q: %w", node, err)
	}
	if err := os.WriteFile(filepath.Join(folder, node), nil, 0o600); err != nil {
		return fmt.Errorf("stopping node %q: %w", node, err)
	}
	return nil
}

// StartNode undoes StopNode.
func StartNode(d state.Dir, node string) error {
	err := os.Remove(filepath.Join(d.Path(), stoppedFolder, node))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("starting node %q: %w", node, err)
	}
	return nil
}

// StoppedNodes returns the names of the stopped nodes.
func StoppedNodes(d state.Dir) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(d.Path(), stoppedFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading which nodes are stopped: %w", err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, nil
}

// watchControl stops and starts nodes by the control files, until the context ends.
func (a *agent) watchControl(ctx context.Context) {
	for sleep(ctx, controlPeriod) {
		stopped, err := StoppedNodes(a.State)
		if err != nil {
			a.Log.Error("control files cannot be read", "error", err)
			continue
		}
		a.setStopped(stopped)
	}
}
