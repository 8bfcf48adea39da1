package cri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"vicinity.dev/vicinity/lab/image"
	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/lab/shape"
)

// container is a container of a sandbox. The node's lock guards fields that change.
type container struct {
	containerRecord
	sandbox *sandbox
	folder  string
	// ended is closed when the container has ended or failed to start.
	ended chan struct{}

	begun, finished time.Time
	process, keeper processID
	exitCode        int32
	// failure says why the container could not be started.
	failure string
}

// containerRecord is for a later runtime, beside the keeper's records.
type containerRecord struct {
	ID      string                      `json:"id"`
	Created time.Time                   `json:"created"`
	Config  *runtimeapi.ContainerConfig `json:"config"`
}

const containerFile = "container.json"

// temporary are folders that a container has of its own, in place of the machine's.
var temporary = []struct{ name, target string }{{"tmp", "/tmp"}, {"var-tmp", "/var/tmp"}}

// makeFolders makes the container's folder, and its own folders in it.
func (c *container) makeFolders() error {
	for _, t := range temporary {
		folder := filepath.Join(c.folder, t.name)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return err
		}
		if err := os.Chmod(folder, 0o777|fs.ModeSticky); err != nil {
			return err
		}
	}
	return nil
}

func (s *sandbox) newContainer(record containerRecord) *container {
	return &container{
		containerRecord: record, sandbox: s, ended: make(chan struct{}),
		folder: filepath.Join(s.folder, containersFolder, record.ID),
	}
}

func (c *container) logPath() string {
	return filepath.Join(c.sandbox.Config.LogDirectory, c.Config.LogPath)
}

// imageName is the name in the pod's specification. Otherwise the kubelet would name the image by its
// ID.
func (c *container) imageName() string {
	return cmp.Or(c.Config.GetImage().GetUserSpecifiedImage(), c.Config.GetImage().GetImage())
}

// CreateContainer records a container, without starting it.
func (n *node) CreateContainer(_ context.Context, r *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	s, err := n.findSandbox(r.PodSandboxId)
	if err != nil {
		return nil, err
	}
	c := s.newContainer(containerRecord{ID: newID(), Created: time.Now(), Config: r.Config})
	if err := c.makeFolders(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(c.folder))
	}
	if err := makeSources(r.Config.GetMounts()); err != nil {
		return nil, errors.Join(err, os.RemoveAll(c.folder))
	}
	spec, err := n.specOf(c)
	if err == nil {
		err = errors.Join(writeJSON(filepath.Join(c.folder, specFile), spec), writeJSON(filepath.Join(c.folder, containerFile), c.containerRecord))
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(c.folder))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.containers[c.ID] = c
	return &runtimeapi.CreateContainerResponse{ContainerId: c.ID}, nil
}

// makeSources makes missing folders of hostPath volumes without a type: a kubelet leaves that to the
// runtime.
func makeSources(volumes []*runtimeapi.Mount) error {
	for _, v := range volumes {
		if _, err := os.Stat(v.HostPath); !errors.Is(err, fs.ErrNotExist) {
			continue // the start of the container reports other faults
		}
		if err := os.MkdirAll(v.HostPath, 0o755); err != nil {
			return fmt.Errorf("making the folder of a hostPath volume: %w", err)
		}
	}
	return nil
}

func (n *node) specOf(c *container) (containerSpec, error) {
	config, s := c.Config, c.sandbox
	image, err := n.runtime.Images.Resolve(c.imageName())
	if err != nil {
		return containerSpec{}, err
	}
	spec := containerSpec{
		Image: c.imageName(), Args: image.Command(config.Command, config.Args), Env: n.environmentOf(c, image.Variables()), Root: image.Root, Alone: image.Alone,
		Network: shape.NamespacePath(n.namespaceOf(s)), MountSpace: ownMounts(), Hostname: s.Config.Hostname,
		Log: onMachine(n.runtime.State, c.logPath()), Input: config.Stdin || config.Tty, Starter: append(slices.Clone(n.runtime.Self), becomeCommand),
		programSpec: programSpec{Dir: cmp.Or(config.WorkingDir, "/"), User: image.User, Group: image.Group},
	}
	if s.inHostNetwork() {
		spec.Hostname = n.Name
	}
	// First, so that volumes can cover them.
	for _, t := range temporary {
		spec.Mounts = append(spec.Mounts, mount{Source: filepath.Join(c.folder, t.name), Target: t.target})
	}
	resolver := filepath.Join(s.folder, resolverFile)
	if _, err := os.Stat(resolver); errors.Is(err, fs.ErrNotExist) && image.Alone {
		resolver = MachineResolver // other containers see it among the machine's files
	}
	if _, err := os.Stat(resolver); err == nil {
		spec.Mounts = append(spec.Mounts, mount{Source: resolver, Target: MachineResolver})
	}
	for _, m := range config.Mounts {
		spec.Mounts = append(spec.Mounts, mount{Source: m.HostPath, Target: m.ContainerPath, ReadOnly: m.Readonly})
	}
	spec.Mounts = append(spec.Mounts, mountsOfImage(image, config.Mounts)...)
	security := config.GetLinux().GetSecurityContext()
	if security.GetRunAsUser() != nil {
		spec.User = new(uint32(security.RunAsUser.Value))
	}
	if security.GetRunAsGroup() != nil {
		spec.Group = new(uint32(security.RunAsGroup.Value))
	}
	for _, group := range security.GetSupplementalGroups() {
		spec.Groups = append(spec.Groups, uint32(group))
	}
	spec.HostProcesses = security.GetNamespaceOptions().GetPid() == runtimeapi.NamespaceMode_NODE
	spec.Forbidden, err = droppedCapabilities(security.GetCapabilities())
	return spec, err
}

// mountsOfImage returns the mounts that the pod's volumes do not cover.
func mountsOfImage(image image.Image, volumes []*runtimeapi.Mount) []mount {
	var mounts []mount
	add := func(source, target string) {
		isCovered := slices.ContainsFunc(volumes, func(v *runtimeapi.Mount) bool {
			return strings.HasPrefix(target+"/", strings.TrimSuffix(filepath.Clean(v.ContainerPath), "/")+"/")
		})
		if !isCovered {
			mounts = append(mounts, mount{Source: source, Target: target, ReadOnly: true, OfImage: true})
		}
	}
	if image.Program != "" {
		add(image.Program, image.MountPath)
	}
	for _, target := range slices.Sorted(maps.Keys(image.Mounts)) {
		add(image.Mounts[target], target)
	}
	return mounts
}

// environmentOf joins the image's environment, the location for the lab's own programs, and the pod's.
// A later entry replaces an earlier one.
func (n *node) environmentOf(c *container, image []string) []string {
	pod := c.sandbox.Config.GetMetadata()
	addrs := c.sandbox.Addresses
	if c.sandbox.inHostNetwork() {
		addrs = n.shape.NodeAddrs(n.Node)
	}
	texts := make([]string, len(addrs))
	for i, addr := range addrs {
		texts[i] = addr.String()
	}
	entries := append([]string{"PATH=" + systemPath, "HOME=/root"}, image...)
	entries = append(entries,
		"HOSTNAME="+cmp.Or(c.sandbox.Config.Hostname, n.Name),
		"VICINITY_POD="+pod.GetName(), "VICINITY_NAMESPACE="+pod.GetNamespace(), NodeVariable(n.Name),
		"VICINITY_ZONE="+n.Zone, "VICINITY_REGION="+n.Region, "VICINITY_POD_IPS="+strings.Join(texts, ","),
	)
	for _, v := range c.Config.Envs {
		entries = append(entries, v.Key+"="+string(v.Value))
	}
	index := map[string]int{}
	var list []string
	for _, entry := range append(entries, n.runtime.marker) {
		name, _, _ := strings.Cut(entry, "=")
		if at, ok := index[name]; ok {
			list[at] = entry
			continue
		}
		index[name] = len(list)
		list = append(list, entry)
	}
	return list
}

func (n *node) findContainer(id string) (*container, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.containers[id]; c != nil {
		return c, nil
	}
	return nil, status.Errorf(codes.NotFound, "container %q not found", id)
}

func (n *node) containersOf(s *sandbox) []*container {
	n.mu.Lock()
	defer n.mu.Unlock()
	var found []*container
	for _, c := range n.containers {
		if c.sandbox == s {
			found = append(found, c)
		}
	}
	return found
}

// StartContainer starts a container. If that fails, the container has ended.
func (n *node) StartContainer(_ context.Context, r *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	c, err := n.findContainer(r.ContainerId)
	if err != nil {
		return nil, err
	}
	n.runtime.starts <- struct{}{}
	b, keeper, err := n.runtime.startKeeper(c.folder)
	<-n.runtime.starts
	if err == nil && b.Error != "" {
		err = errors.New(b.Error)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		if keeper != nil {
			go func() { _ = keeper.Wait() }()
		}
		c.begun, c.finished, c.exitCode, c.failure = time.Now(), time.Now(), startFailed, err.Error()
		close(c.ended)
		return nil, err
	}
	c.markStarted(b)
	n.watch(c, func() {
		// The keeper's own exit code says nothing about the container.
		_ = keeper.Wait()
	})
	return &runtimeapi.StartContainerResponse{}, nil
}

// markStarted records that the container started. The caller holds the node's lock.
func (c *container) markStarted(b startReport) {
	c.begun, c.process, c.keeper = b.At, b.Process, b.Keeper
}

// watch waits until the container's keeper has ended, and then reads the exit that it recorded.
func (n *node) watch(c *container, reap func()) {
	go func() {
		if err := process.AwaitEnd(context.Background(), c.keeper.ID, c.keeper.exists); err != nil {
			n.runtime.Log.Error("waiting for the end of a container failed", "container", c.ID, "error", err)
		}
		reap()
		e, err := readExit(c.folder, c.process)
		if err != nil {
			n.runtime.Log.Error("exit of a container cannot be read", "container", c.ID, "error", err)
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		c.finished, c.exitCode = e.At, e.ExitCode
		close(c.ended)
	}()
}

// readExit reads how a container ended, after the end of its keeper.
func readExit(folder string, process processID) (exitReport, error) {
	var e exitReport
	err := readJSON(filepath.Join(folder, endFile), &e)
	if err == nil {
		return e, nil
	}
	// Without its keeper a container has neither a log nor an exit code: kill it.
	if process.isAlive() {
		if killed := killContainer(process.ID); killed != nil {
			err = errors.Join(err, killed)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return exitReport{At: time.Now(), ExitCode: 137}, err
}

// StopContainer asks a container to terminate, and kills it after the timeout.
func (n *node) StopContainer(ctx context.Context, r *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	c, err := n.findContainer(r.ContainerId)
	if err != nil {
		return &runtimeapi.StopContainerResponse{}, nil // it was removed
	}
	return &runtimeapi.StopContainerResponse{}, n.stopContainer(ctx, c, time.Duration(r.Timeout)*time.Second)
}

func (n *node) stopContainer(ctx context.Context, c *container, grace time.Duration) error {
	n.mu.Lock()
	process, runs := c.process, c.state() == runtimeapi.ContainerState_CONTAINER_RUNNING
	n.mu.Unlock()
	if !runs {
		return nil
	}
	if grace > 0 {
		if err := process.signal(stopSignal(c.Config)); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-c.ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
	}
	if err := process.killGroup(); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	select {
	case <-c.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func stopSignal(config *runtimeapi.ContainerConfig) unix.Signal {
	if config.StopSignal != runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		if s := unix.SignalNum(config.StopSignal.String()); s != 0 {
			return s
		}
	}
	return unix.SIGTERM
}

// RemoveContainer removes a container, and kills it if it runs.
func (n *node) RemoveContainer(ctx context.Context, r *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	c, err := n.findContainer(r.ContainerId)
	if err != nil {
		return &runtimeapi.RemoveContainerResponse{}, nil
	}
	return &runtimeapi.RemoveContainerResponse{}, n.removeContainer(ctx, c)
}

func (n *node) removeContainer(ctx context.Context, c *container) error {
	if err := n.stopContainer(ctx, c, 0); err != nil {
		return err
	}
	if err := os.RemoveAll(c.folder); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.containers, c.ID)
	return nil
}

func (c *container) state() runtimeapi.ContainerState {
	switch {
	case !c.finished.IsZero():
		return runtimeapi.ContainerState_CONTAINER_EXITED
	case !c.begun.IsZero():
		return runtimeapi.ContainerState_CONTAINER_RUNNING
	}
	return runtimeapi.ContainerState_CONTAINER_CREATED
}

// status returns the container's status for the kubelet. The caller holds the node's lock.
func (c *container) status() *runtimeapi.ContainerStatus {
	image := c.imageName()
	result := &runtimeapi.ContainerStatus{
		Id: c.ID, Metadata: c.Config.Metadata, State: c.state(), CreatedAt: c.Created.UnixNano(), ExitCode: c.exitCode,
		Image: &runtimeapi.ImageSpec{Image: image}, ImageRef: imageID(image), ImageId: imageID(image),
		Labels: c.Config.Labels, Annotations: c.Config.Annotations, Mounts: c.Config.Mounts, LogPath: c.logPath(),
		Message: c.failure, StopSignal: c.Config.StopSignal,
	}
	if !c.begun.IsZero() {
		result.StartedAt = c.begun.UnixNano()
	}
	if !c.finished.IsZero() {
		result.FinishedAt = c.finished.UnixNano()
		switch {
		case c.failure != "":
			result.Reason = "StartError"
		case c.exitCode == 0:
			result.Reason = "Completed"
		default:
			result.Reason = "Error"
		}
	}
	return result
}

// ContainerStatus returns the state of a container.
func (n *node) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	c, err := n.findContainer(r.ContainerId)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return &runtimeapi.ContainerStatusResponse{Status: c.status()}, nil
}

// ListContainers lists the containers that match a filter.
func (n *node) ListContainers(_ context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	filter := r.GetFilter()
	n.mu.Lock()
	defer n.mu.Unlock()
	answer := &runtimeapi.ListContainersResponse{}
	for _, c := range n.containers {
		if filter.GetId() != "" && filter.GetId() != c.ID || filter.GetPodSandboxId() != "" && filter.GetPodSandboxId() != c.sandbox.ID ||
			filter.GetState() != nil && filter.State.State != c.state() || !hasLabels(c.Config.Labels, filter.GetLabelSelector()) {
			continue
		}
		s := c.status()
		answer.Containers = append(answer.Containers, &runtimeapi.Container{
			Id: c.ID, PodSandboxId: c.sandbox.ID, Metadata: s.Metadata, Image: s.Image, ImageRef: s.ImageRef, ImageId: s.ImageId,
			State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels, Annotations: s.Annotations,
		})
	}
	return answer, nil
}

// ReopenContainerLog starts a new log file after the kubelet has renamed the old one.
func (n *node) ReopenContainerLog(_ context.Context, r *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	c, err := n.findContainer(r.ContainerId)
	if err != nil {
		return nil, err
	}
	if err := c.keeper.signal(reopenLog); err != nil {
		return nil, fmt.Errorf("container %q: reopening the log: %w", c.ID, err)
	}
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}

// ListContainerStats measures what containers write to / itself, and nothing else. CPU, memory and swap are set but empty, because a
// kubelet counts absent ones as 0.
func (n *node) ListContainerStats(_ context.Context, r *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	answer, now := &runtimeapi.ListContainerStatsResponse{}, time.Now().UnixNano()
	for _, c := range n.containers {
		if id := r.GetFilter().GetPodSandboxId(); id != "" && id != c.sandbox.ID {
			continue
		}
		var root unix.Statfs_t
		if unix.Statfs(fmt.Sprintf("/proc/%d/root", c.process.ID), &root) != nil || !c.process.isAlive() {
			continue
		}
		answer.Stats = append(answer.Stats, &runtimeapi.ContainerStats{
			Attributes:    &runtimeapi.ContainerAttributes{Id: c.ID, Metadata: c.Config.Metadata, Labels: c.Config.Labels, Annotations: c.Config.Annotations},
			Cpu:           &runtimeapi.CpuUsage{Timestamp: now},
			Memory:        &runtimeapi.MemoryUsage{Timestamp: now},
			Swap:          &runtimeapi.SwapUsage{Timestamp: now},
			WritableLayer: &runtimeapi.FilesystemUsage{Timestamp: now, UsedBytes: &runtimeapi.UInt64Value{Value: (root.Blocks - root.Bfree) * uint64(root.Bsize)}},
		})
	}
	return answer, nil
}

// UpdateContainerResources does nothing: the lab limits nothing.
func (n *node) UpdateContainerResources(context.Context, *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}
