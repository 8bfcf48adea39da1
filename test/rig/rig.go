// Package rig gives tests a control plane: the real API server and controllers of
// Kubernetes, in a lab whose nodes and pods are only objects. It starts in seconds, needs
// no root, and ends with the test. The lab is a module of its own, so rig runs its program,
// bin/vicinity-lab.
package rig

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"vicinity.dev/vicinity/internal/built"
	"vicinity.dev/vicinity/internal/kube"
)

const deadline = 2 * time.Minute

// Shape is what differs between control planes.
type Shape struct {
	Name string // tells labs of a process apart
	// Zones have one node each. The default is that of "vicinity lab up".
	Zones       []string
	SingleStack bool // without IPv6
	FakeNodes   int  // nodes whose pods are ready at once, and run nothing
	// EvictionRequests has the API server serve them.
	EvictionRequests bool
}

// ControlPlane belongs to a test or subtest.
type ControlPlane struct {
	testing.TB
	*kube.Client
	Kubeconfig string // the path of the file
}

// Start starts a control plane. It skips short tests, and those for which the lab's
// programs are not built.
func Start(t testing.TB, s Shape) ControlPlane {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a control plane, which takes a while")
	}
	program, err := built.Program("vicinity-lab", "vicinity-kubernetes")
	if err != nil {
		t.Skip(err)
	}
	l := lab{program: program, name: fmt.Sprintf("%s-%d", s.Name, os.Getpid()), folder: t.TempDir()}
	up := []string{"up", "--control-plane-only", "--vicinity=false", fmt.Sprintf("--single-stack=%t", s.SingleStack)}
	if s.EvictionRequests {
		up = append(up, "--eviction-requests")
	}
	if s.FakeNodes > 0 {
		up = append(up, fmt.Sprintf("--fake-nodes=%d", s.FakeNodes))
	}
	if len(s.Zones) > 0 {
		up = append(up, "--nodes-per-zone=1", "--zones="+strings.Join(s.Zones, ","))
	}
	if _, err := l.run(t.Context(), up...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's context has ended by now.
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		if t.Failed() {
			logs, err := l.run(ctx, "logs", "--component")
			t.Logf("the control plane's logs end with\n%s%v", logs, err)
		}
		if _, err := l.run(ctx, "down"); err != nil {
			t.Error(err)
		}
	})
	kubeconfig, err := l.run(t.Context(), "kubeconfig")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig = strings.TrimSpace(kubeconfig)
	client, err := kube.New(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return ControlPlane{TB: t, Client: client, Kubeconfig: kubeconfig}
}

// lab is a lab of the program bin/vicinity-lab.
type lab struct{ program, name, folder string }

// run runs a command of the lab and returns what it prints.
func (l lab) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, l.program, append(args, "--name", l.name)...)
	cmd.Env = append(os.Environ(), "VICINITY_LAB_DIR="+l.folder)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("vicinity-lab %s: %w\n%s", strings.Join(args, " "), err, said.String())
	}
	return string(out), nil
}

// For returns the control plane for a subtest.
func (c ControlPlane) For(t testing.TB) ControlPlane {
	c.TB = t
	return c
}

// Make applies the objects of a YAML text, those without a namespace in the given one.
func (c ControlPlane) Make(namespace, manifests string) {
	c.Helper()
	if err := c.Apply(c.Context(), namespace, manifests); err != nil {
		c.Fatal(err)
	}
}

// Define installs Vicinity's CRDs.
func (c ControlPlane) Define() {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), deadline)
	defer cancel()
	if err := c.ApplyCRDs(ctx); err != nil {
		c.Fatal(err)
	}
}

// Await waits until nothing is missing.
func (c ControlPlane) Await(what string, missing func(context.Context) (string, error)) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), deadline)
	defer cancel()
	if err := kube.Wait(ctx, what, missing); err != nil {
		c.Fatal(err)
	}
}
