package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerStats measures a container.
func (n *node) ContainerStats(_ context.Context, r *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	c, err := n.findContainer(r.ContainerId)
	if err != nil {
		return nil, err
	}
	stats, err := c.measure()
	return &runtimeapi.ContainerStatsResponse{Stats: stats}, err
}

// ListContainerStats measures the containers that run and that a filter names.
func (n *node) ListContainerStats(_ context.Context, r *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	filter := r.GetFilter()
	n.mu.Lock()
	var running []*container
	for _, c := range n.containers {
		if c.state() != runtimeapi.ContainerState_CONTAINER_RUNNING || filter.GetId() != "" && filter.GetId() != c.ID ||
			filter.GetPodSandboxId() != "" && filter.GetPodSandboxId() != c.sandbox.ID || !hasLabels(c.Config.Labels, filter.GetLabelSelector()) {
			continue
		}
		running = append(running, c)
	}
	n.mu.Unlock()
	answer := &runtimeapi.ListContainerStatsResponse{}
	for _, c := range running {
		stats, err := c.measure()
		if err != nil {
			if !c.keeper.isAlive() {
				continue // it ended in the meantime
			}
			return nil, err
		}
		answer.Stats = append(answer.Stats, stats)
	}
	return answer, nil
}

// measure measures what a container has written. Its CPU, memory and swap are present but
// empty, since the kubelet takes what is absent for 0.
func (c *container) measure() (*runtimeapi.ContainerStats, error) {
	written, err := c.writtenBytes()
	if err != nil {
		return nil, fmt.Errorf("container %q: measuring its storage: %w", c.ID, err)
	}
	now := time.Now().UnixNano()
	return &runtimeapi.ContainerStats{
		Attributes:    &runtimeapi.ContainerAttributes{Id: c.ID, Metadata: c.Config.Metadata, Labels: c.Config.Labels, Annotations: c.Config.Annotations},
		Cpu:           &runtimeapi.CpuUsage{Timestamp: now},
		Memory:        &runtimeapi.MemoryUsage{Timestamp: now},
		Swap:          &runtimeapi.SwapUsage{Timestamp: now},
		WritableLayer: &runtimeapi.FilesystemUsage{Timestamp: now, UsedBytes: &runtimeapi.UInt64Value{Value: written}},
	}, nil
}

// writtenBytes is the space that the container's files outside of volumes take, without those
// of its image. What it writes to the machine's own folders is not known.
func (c *container) writtenBytes() (uint64, error) {
	var written uint64
	for _, t := range temporary {
		bytes, err := folderBytes(filepath.Join(c.folder, t.name))
		if err != nil {
			return 0, err
		}
		written += bytes
	}
	layers, err := layerBytes(c.layers, func(fd int, stat *unix.Statfs_t) error {
		return unix.Statfs(fmt.Sprintf("/proc/%d/fd/%d", c.keeper.ID, fd), stat)
	})
	if err != nil {
		return 0, err
	}
	// Asked after the descriptors were used: now they were the keeper's, not another process'.
	if !c.keeper.isAlive() {
		return 0, fmt.Errorf("process %d: it ended", c.keeper.ID)
	}
	// A container can remove the files of its image.
	return written + max(layers, c.imageBytes) - c.imageBytes, nil
}

// layerBytes is the space that is used in layers.
func layerBytes(layers []int, statfs func(int, *unix.Statfs_t) error) (uint64, error) {
	var used uint64
	for _, layer := range layers {
		var stat unix.Statfs_t
		if err := statfs(layer, &stat); err != nil {
			return 0, fmt.Errorf("reading the use of a file system in memory: %w", err)
		}
		used += (stat.Blocks - stat.Bfree) * uint64(stat.Bsize)
	}
	return used, nil
}

// folderBytes is the space that the files in a folder and below take.
func folderBytes(folder string) (uint64, error) {
	type file struct{ device, number uint64 }
	var used uint64
	counted := map[file]bool{}
	err := filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil && !entry.IsDir() {
			info, err = entry.Info()
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was removed in the meantime
		}
		if err != nil || info == nil {
			return err
		}
		stat := info.Sys().(*syscall.Stat_t)
		if stat.Nlink > 1 {
			if counted[file{stat.Dev, stat.Ino}] {
				return nil
			}
			counted[file{stat.Dev, stat.Ino}] = true
		}
		used += uint64(stat.Blocks) * blockSize
		return nil
	})
	return used, err
}

// blockSize is the unit of the blocks that a file takes, on any file system.
const blockSize = 512
