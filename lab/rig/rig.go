// Package rig gives a test a control plane to write objects to: the real API server,
// with Kubernetes' own controllers beside it, in a lab whose nodes and pods are objects
// and nothing else. It takes seconds to come up, needs no root, and goes with the test.
package rig

import (
	"context"
	"testing"
	"time"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
)

// deadline is how long a test waits for what takes a moment on a machine at rest.
const deadline = 2 * time.Minute

// ControlPlane is one with the test that it is for, or a part of the test.
type ControlPlane struct {
	testing.TB
	*lab.Client
}

// Start brings a control plane up of the shape that options ask for. It skips a test
// that is to be short, and one for which the programs of a lab are not built.
func Start(t testing.TB, looks shape.Options) ControlPlane {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a control plane, which takes a while")
	}
	if err := lab.Built(); err != nil {
		t.Skip(err)
	}
	looks.ControlPlaneOnly = true
	s, err := shape.FromOptions(looks)
	if err != nil {
		t.Fatal(err)
	}
	client, err := lab.Start(t, s).Client()
	if err != nil {
		t.Fatal(err)
	}
	return ControlPlane{t, client}
}

// For is the control plane for a part of the test.
func (c ControlPlane) For(t testing.TB) ControlPlane { return ControlPlane{t, c.Client} }

// Make creates or changes the objects of a YAML text, those that name no namespace in
// the one given.
func (c ControlPlane) Make(namespace, manifests string) {
	c.Helper()
	if err := c.Apply(c.Context(), namespace, manifests); err != nil {
		c.Fatal(err)
	}
}

// Define has the API serve Vicinity's own resources.
func (c ControlPlane) Define() {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), deadline)
	defer cancel()
	if err := c.ApplyCRDs(ctx); err != nil {
		c.Fatal(err)
	}
}

// Await waits until a condition holds, which says what is missing.
func (c ControlPlane) Await(what string, missing func(context.Context) (string, error)) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), deadline)
	defer cancel()
	if err := lab.Wait(ctx, what, missing); err != nil {
		c.Fatal(err)
	}
}
