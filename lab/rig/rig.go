// Package rig gives tests a control plane: the real API server and controllers of
// Kubernetes, in a lab whose nodes and pods are only objects. It starts in seconds, needs
// no root, and ends with the test.
package rig

import (
	"context"
	"testing"
	"time"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
)

const deadline = 2 * time.Minute

// ControlPlane belongs to a test or subtest.
type ControlPlane struct {
	testing.TB
	*lab.Client
}

// Start starts a control plane. It skips short tests, and those for which the lab's
// programs are not built.
func Start(t testing.TB, options shape.Options) ControlPlane {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a control plane, which takes a while")
	}
	if err := lab.Built(); err != nil {
		t.Skip(err)
	}
	options.ControlPlaneOnly = true
	s, err := shape.FromOptions(options)
	if err != nil {
		t.Fatal(err)
	}
	client, err := lab.Start(t, s).Client()
	if err != nil {
		t.Fatal(err)
	}
	return ControlPlane{t, client}
}

// For returns the control plane for a subtest.
func (c ControlPlane) For(t testing.TB) ControlPlane { return ControlPlane{t, c.Client} }

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
	if err := lab.Wait(ctx, what, missing); err != nil {
		c.Fatal(err)
	}
}
