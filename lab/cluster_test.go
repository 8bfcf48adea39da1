package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vicinity.dev/vicinity/lab/controlplane"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

// pretended is a lab without network that is up by its state, without processes.
func pretended(t *testing.T) *Cluster {
	t.Helper()
	root := t.TempDir()
	dir, err := state.Create(root, "pretended")
	if err != nil {
		t.Fatal(err)
	}
	s, err := shape.FromOptions(shape.Options{Name: "pretended", ControlPlaneOnly: true, Zones: []string{"a"}, NodesPerZone: []int{1}})
	if err != nil {
		t.Fatal(err)
	}
	port, err := controlplane.FreePort(t.Context(), s.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Save(state.Lab{Shape: s, Port: port, Up: true, NextIndex: 2}); err != nil {
		t.Fatal(err)
	}
	c, err := Open("pretended", Options{Root: root, Kubernetes: "/bin/sh"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// A command that changes a lab does not bring a removed lab back.
func TestChangesOfRemovedLab(t *testing.T) {
	c := pretended(t)
	if err := c.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.StopNode(t.Context(), "a-1"); err == nil || !strings.HasPrefix(err.Error(), `there is no lab "pretended"`) {
		t.Errorf("stopping a node of a removed lab: %v", err)
	}
	if _, err := os.Stat(c.dir.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of the removed lab exists: %v", err)
	}
}

// vicinity-kubernetes may link to another release when a lab is opened again.
func TestLabKeepsItsKubernetes(t *testing.T) {
	folder := t.TempDir()
	link := filepath.Join(folder, "vicinity-kubernetes")
	options := Options{Program: filepath.Join(folder, "vicinity")}
	choose := func(release string) string {
		t.Helper()
		path := filepath.Join(folder, release)
		if err := os.WriteFile(path, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if err := os.Symlink(release, link); err != nil {
			t.Fatal(err)
		}
		return path
	}
	oldest := choose("oldest")
	chosen, err := options.kubernetes()
	if err != nil || chosen != oldest {
		t.Fatalf("a new lab runs %q: %v; want %q", chosen, err, oldest)
	}
	newest := choose("newest")
	found := state.Lab{Kubernetes: chosen}
	named := options
	named.Kubernetes = newest
	for _, test := range []struct {
		options Options
		found   state.Lab
		want    string
	}{
		{options, found, oldest},
		{named, found, newest},
		{options, state.Lab{}, newest},
		{options, state.Lab{Kubernetes: filepath.Join(folder, "removed")}, newest},
	} {
		if got, err := test.options.kubernetesOf(test.found); err != nil || got != test.want {
			t.Errorf("with --kubernetes=%q, a lab of %q runs %q: %v; want %q", test.options.Kubernetes, test.found.Kubernetes, got, err, test.want)
		}
	}
}
