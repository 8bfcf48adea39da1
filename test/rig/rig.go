// Package rig gives tests a control plane: the real API server and controllers of Kubernetes, in a lab
// whose nodes and pods are only objects. Tests can share one: VICINITY_CONTROL_PLANE is the path of
// its kubeconfig. Without it each test starts its own, which takes seconds and needs no root. A test
// finds the control plane as "vicinity lab up" leaves it, with Vicinity's CRDs, whatever ran before.
//
// The tempting reuse of node names is wrong: Kubernetes remembers the health of nodes by name, and
// takes a node that is made again for dead. So each test uses its own names for the nodes that it
// makes.
//
// The lab is another Go module, so rig runs its program, bin/vicinity-lab.
package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/test/built"
	"vicinity.dev/vicinity/test/kube"
)

const (
	deadline = 2 * time.Minute
	// Shared is the environment variable with the kubeconfig of the shared control plane.
	Shared = "VICINITY_CONTROL_PLANE"
	// FakeNodes is the number of nodes fake-1 and so on. Like those of zone-a-1, zone-b-1 and
	// zone-c-1, their pods are ready at once and run nothing.
	FakeNodes = 9
)

// up has the arguments that start a control plane with the shape that tests expect. The Makefile has
// the same arguments.
var up = []string{"up", "--control-plane-only", "--vicinity=false", "--nodes-per-zone=1", fmt.Sprintf("--fake-nodes=%d", FakeNodes), "--eviction-requests"}

// ControlPlane is the control plane of a test or subtest.
type ControlPlane struct {
	testing.TB
	*kube.Client
	Kubeconfig string // path of the file
}

// Start gives a test a control plane, which it has alone until it ends. It skips short tests, and
// tests for which the lab's programs are not built.
func Start(t testing.TB) ControlPlane {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane, which takes a while")
	}
	kubeconfig := os.Getenv(Shared)
	if kubeconfig == "" {
		kubeconfig = startOwn(t)
	} else {
		lock(t, kubeconfig)
	}
	client, err := kube.New(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c := ControlPlane{TB: t, Client: client, Kubeconfig: kubeconfig}
	if os.Getenv(Shared) == "" {
		c.installCRDs()
	} else {
		c.restore()
	}
	return c
}

// startOwn starts a control plane and stops it at the end of the test.
func startOwn(t testing.TB) (kubeconfig string) {
	t.Helper()
	program, err := built.Program("vicinity-lab", "vicinity-kubernetes")
	if err != nil {
		t.Skip(err)
	}
	l := lab{program: program, name: fmt.Sprintf("test-%d", os.Getpid()), folder: t.TempDir()}
	if _, err := l.run(t.Context(), up...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's context has ended.
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		if t.Failed() {
			logs, err := l.run(ctx, "logs")
			t.Logf("the control plane's logs end with\n%s%v", logs, err)
		}
		if _, err := l.run(ctx, "down"); err != nil {
			t.Error(err)
		}
	})
	path, err := l.run(t.Context(), "kubeconfig")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(path)
}

// lab is a lab of bin/vicinity-lab.
type lab struct{ program, name, folder string }

// run runs a command of the lab and returns its output.
func (l lab) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, l.program, append(args, "--name", l.name)...)
	cmd.Env = append(os.Environ(), "VICINITY_LAB_DIR="+l.folder)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("vicinity-lab %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out), nil
}

// For returns the control plane for a subtest.
func (c ControlPlane) For(t testing.TB) ControlPlane {
	c.TB = t
	return c
}

// Make applies the objects of a YAML text; namespace is the default.
func (c ControlPlane) Make(namespace, manifests string) {
	c.Helper()
	if err := c.Apply(c.Context(), namespace, manifests); err != nil {
		c.Fatal(err)
	}
}

func (c ControlPlane) installCRDs() {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), deadline)
	defer cancel()
	if err := c.ApplyCRDs(ctx); err != nil {
		c.Fatal(err)
	}
}

// Halls puts a number of fake nodes, at most 3, into each of the domains a, b and c in order: fake-1
// is in a.
func Halls(each int) map[string]string {
	halls := map[string]string{}
	for i := range 3 * each {
		halls[fmt.Sprintf("fake-%d", i+1)] = string('a' + rune(i/each))
	}
	return halls
}

// Label sets a label on nodes by name, and removes it from all other nodes.
func (c ControlPlane) Label(key string, values map[string]string) {
	c.Helper()
	nodes, err := c.CoreV1().Nodes().List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	for i := range nodes.Items {
		value, given := values[nodes.Items[i].Name]
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{key: map[bool]any{true: value}[given]}}})
		if err == nil {
			_, err = c.CoreV1().Nodes().Patch(c.Context(), nodes.Items[i].Name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		if err != nil {
			c.Fatal(err)
		}
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
