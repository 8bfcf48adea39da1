package cri

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

// ContainerLog returns what the containers of an image printed on a node, oldest first, as
// far as the state folder still has it. It does not need the API. The error is
// fs.ErrNotExist if there is no log.
func ContainerLog(d state.Dir, image, node string) ([]byte, error) {
	found, err := filepath.Glob(filepath.Join(d.Pods(), "*", containersFolder, "*", specFile))
	if err != nil {
		return nil, err
	}
	type log struct {
		path string
		info fs.FileInfo
	}
	var logs []log
	for _, path := range found {
		var spec containerSpec
		if err := readJSON(path, &spec); errors.Is(err, fs.ErrNotExist) {
			continue // the pod went
		} else if err != nil {
			return nil, err
		}
		if shape.Image(spec.Image) != image || !slices.Contains(spec.Env, NodeVariable(node)) {
			continue
		}
		if info, err := os.Stat(spec.Log); err == nil {
			logs = append(logs, log{spec.Log, info})
		}
	}
	if len(logs) == 0 {
		return nil, fs.ErrNotExist
	}
	slices.SortFunc(logs, func(a, b log) int { return a.info.ModTime().Compare(b.info.ModTime()) })
	var all bytes.Buffer
	for _, l := range logs {
		stream := logStream{path: l.path, to: &all}
		if err := stream.copy(context.Background()); err != nil {
			return nil, err
		}
	}
	return all.Bytes(), nil
}
