package cri

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// adopt takes over the sandboxes and containers that an earlier runtime recorded for the node.
func (n *node) adopt() error {
	records, err := readSandboxes(n.runtime.State)
	if err != nil {
		return err
	}
	for _, record := range records {
		if record.Node.Name != n.Name {
			continue
		}
		s := &sandbox{sandboxRecord: *record, folder: n.runtime.State.Pod(record.ID)}
		n.sandboxes[s.ID] = s
		if s.Slot != 0 && !s.Stopped {
			n.slots.Hold(s.Slot)
		}
		if !s.Made {
			// The kubelet makes another one.
			if err := n.end(s); err != nil {
				return err
			}
		}
		if err := n.adoptContainers(s); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) adoptContainers(s *sandbox) error {
	folders, err := os.ReadDir(filepath.Join(s.folder, containersFolder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, folder := range folders {
		var record containerRecord
		err := readJSON(filepath.Join(s.folder, containersFolder, folder.Name(), containerFile), &record)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		c := s.newContainer(record)
		n.containers[c.ID] = c
		var b startReport
		err = readJSON(filepath.Join(c.folder, beginFile), &b)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // never started
		case err != nil:
			return err
		case b.Error != "":
			c.begun, c.finished, c.exitCode, c.failure = b.At, b.At, startFailed, b.Error
			close(c.ended)
			continue
		}
		c.markStarted(b)
		if c.keeper.isAlive() {
			n.runtime.Log.Info("container adopted", "node", n.Name, "container", c.Config.GetMetadata().GetName(), "pid", c.process.ID)
			n.watch(c, func() {})
			continue
		}
		e, err := readExit(c.folder, c.process)
		if err != nil {
			return err
		}
		c.finished, c.exitCode = e.At, e.ExitCode
		if c.finished.IsZero() {
			c.finished = time.Now()
		}
		close(c.ended)
	}
	return nil
}
