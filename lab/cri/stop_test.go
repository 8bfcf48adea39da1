package cri

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

// newTestNode returns a node whose containers use the network of this machine. Another node with the
// same folder adopts them.
func newTestNode(t *testing.T, d state.Dir) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("makes namespaces, which needs root")
	}
	s, err := shape.FromOptions(shape.Options{Name: "stops", Zones: []string{"a"}, NodesPerZone: []int{1}})
	if err != nil {
		t.Fatal(err)
	}
	r := testHost()
	r.State, r.Images, r.starts = d, Images{Program: "/bin/sh"}, make(chan struct{}, 1)
	n := &node{
		Node: s.Nodes()[0], shape: s, runtime: r,
		sandboxes: map[string]*sandbox{}, containers: map[string]*container{},
	}
	if err := n.adopt(); err != nil {
		t.Fatal(err)
	}
	return n
}

// testSandbox makes a sandbox whose pod has the given PID namespaces.
func (n *node) testSandbox(t *testing.T, processes runtimeapi.NamespaceMode) *sandbox {
	t.Helper()
	made, err := n.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod", Uid: newID()}, LogDirectory: t.TempDir(),
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE, Pid: processes},
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := n.findSandbox(made.PodSandboxId)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (n *node) testContainer(t *testing.T, s *sandbox, options *runtimeapi.NamespaceOption, args ...string) *container {
	t.Helper()
	made, err := n.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: s.ID, Config: &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: "lab/sleep"}, Command: args, LogPath: newID(),
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: options}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := n.findContainer(made.ContainerId)
	if err != nil {
		t.Fatal(err)
	}
	var spec containerSpec
	path := filepath.Join(c.folder, specFile)
	if err := readJSON(path, &spec); err != nil {
		t.Fatal(err)
	}
	// The test has no lab with a network and a mount namespace of kubelets.
	spec.Network, spec.MountSpace, spec.Hostname = "", "", ""
	if err := writeJSON(path, spec); err != nil {
		t.Fatal(err)
	}
	if _, err := n.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: c.ID}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.process.killGroup() }) // most have ended
	return c
}

func (n *node) testExec(t *testing.T, c *container, script string) string {
	t.Helper()
	answer, err := n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: c.ID, Cmd: []string{"sh", "-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(answer.Stdout) + string(answer.Stderr))
}

// Kubelets evict pods by these figures.
func TestWrittenBytesAreMeasured(t *testing.T) {
	n := newTestNode(t, state.At(t.TempDir()))
	own, other := n.testSandbox(t, runtimeapi.NamespaceMode_CONTAINER), n.testSandbox(t, runtimeapi.NamespaceMode_CONTAINER)
	options := own.Config.Linux.SecurityContext.NamespaceOptions
	c := n.testContainer(t, own, options, "sleep", "1000")
	for _, c := range []*container{c, n.testContainer(t, other, options, "sleep", "1000")} {
		defer func() {
			if _, err := n.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: c.ID}); err != nil {
				t.Error(err)
			}
		}()
	}
	measure := func() uint64 {
		answer, err := n.ListContainerStats(t.Context(), &runtimeapi.ListContainerStatsRequest{Filter: &runtimeapi.ContainerStatsFilter{PodSandboxId: own.ID}})
		if err != nil || len(answer.Stats) != 1 || answer.Stats[0].Attributes.Id != c.ID {
			t.Fatalf("measured %v (error %v), want container %s", answer, err, c.ID)
		}
		return answer.Stats[0].WritableLayer.UsedBytes.Value
	}
	before := measure()
	n.testExec(t, c, "head -c 3000000 /dev/zero >/written")
	if after := measure(); after < before+3_000_000 || after > before+4_000_000 {
		t.Errorf("after 3,000,000 bytes it measures %d, before %d", after, before)
	}
}

// A container without a handler for SIGTERM ends after its grace period, if its program is the first
// process of a PID namespace. A runtime that adopted it stops it as well.
func TestNodeStopsContainers(t *testing.T) {
	machine, err := os.ReadFile("/proc/1/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		processes runtimeapi.NamespaceMode
		first     string
		outlives  bool
		code      int32
	}{
		{runtimeapi.NamespaceMode_CONTAINER, "sleep", true, 137},
		{runtimeapi.NamespaceMode_NODE, strings.TrimSpace(string(machine)), false, 143},
	} {
		t.Run(test.processes.String(), func(t *testing.T) {
			d := state.At(t.TempDir())
			n := newTestNode(t, d)
			s := n.testSandbox(t, test.processes)
			options := s.Config.Linux.SecurityContext.NamespaceOptions
			c := n.testContainer(t, s, options, "sleep", "1000")
			n = newTestNode(t, d)
			if first := n.testExec(t, c, "cat /proc/1/comm"); first != test.first {
				t.Errorf("the container's first process is %q, want %q", first, test.first)
			}
			c, err := n.findContainer(c.ID)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if _, err := n.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: c.ID, Timeout: 1}); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took < time.Second && test.outlives {
				t.Errorf("the container was stopped after %v, before its grace period was over", took)
			}
			if answer, err := n.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: c.ID}); err != nil || answer.Status.ExitCode != test.code {
				t.Errorf("the container's status is %v, %v; want exit code %d", answer.GetStatus(), err, test.code)
			}
			if _, err := n.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.ID}); err != nil {
				t.Fatal(err)
			}
			waitGone(t, "the program", c.process)
			if _, err := n.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.ID}); err != nil {
				t.Fatal(err)
			}
			if left, err := filepath.Glob(filepath.Join(d.Pods(), "*")); err != nil || len(left) > 0 {
				t.Errorf("the removed sandbox has left %v, %v", left, err)
			}
		})
	}
}
