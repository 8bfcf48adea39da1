package commands

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vicinity.dev/vicinity/internal/command"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

// pretendUp writes down that labs are up of which nothing runs.
func pretendUp(t *testing.T, names ...string) (root string) {
	t.Helper()
	root = t.TempDir()
	t.Setenv("VICINITY_LAB_DIR", root)
	t.Setenv("VICINITY_KUBERNETES", "/bin/sh")
	for _, name := range names {
		dir, err := state.Create(root, name)
		if err != nil {
			t.Fatal(err)
		}
		s := shape.Default()
		s.Name = name
		if err := dir.Save(state.Lab{Shape: s, Up: true}); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// What a variable that is not set gives must not stand for the default.
func TestEmptyNamesAreRefused(t *testing.T) {
	pretendUp(t, "default")
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"down", "--name", ""}, "--name is empty"},
		{[]string{"status", "--name", ""}, "--name is empty"},
		{[]string{"up", "--name", "other", "--zones", ""}, "--zones is empty"},
	} {
		var out, err bytes.Buffer
		code := Main(t.Context(), test.args, strings.NewReader(""), &out, &err)
		if code != command.ExitUsage || !strings.Contains(err.String(), test.want) {
			t.Errorf("lab %q: exit code %d, %q, want %d and %q", test.args, code, &err, command.ExitUsage, test.want)
		}
	}
}

// What is wrong is said of the flag that says it, and of the field where a file does.
func TestErrorsNameFlags(t *testing.T) {
	pretendUp(t, "default")
	file := filepath.Join(t.TempDir(), "shape.yaml")
	if err := os.WriteFile(file, []byte("zones: [{name: a, nodes: [{name: fake-1}]}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args     []string
		variable string
		code     int
		want     string
	}{
		{args: []string{"up", "--fake-nodes", "-1"}, code: command.ExitUsage, want: "--fake-nodes -1: write a number from 0 to 20000"},
		{args: []string{"up", "--cross-zone-latency", "1h"}, code: command.ExitUsage, want: "--cross-zone-latency 1h0m0s: write a duration from 0s to 10s"},
		{args: []string{"up", "--proxy", "mine"}, code: command.ExitUsage, want: `--proxy "mine": write one of`},
		{args: []string{"up", "--dns", "bind"}, code: command.ExitUsage, want: `--dns "bind": write one of [vicinity coredns none]`},
		{args: []string{"up", "--dns", "coredns", "--proxy", "none"}, code: command.ExitUsage, want: `--dns "coredns": without a proxy on the nodes no pod reaches it`},
		{args: []string{"up", "--file", file, "--dns", "coredns", "--control-plane-only"}, code: command.ExitUsage, want: `--dns "coredns": pods do not run`},
		{args: []string{"dns", "bind"}, code: command.ExitUsage, want: `KIND "bind": write one of [vicinity coredns none]`},
		{args: []string{"dns", "vicinity", "--replicas", "0"}, code: command.ExitUsage, want: "--replicas 0 is not allowed"},
		{args: []string{"dig", "a.b"}, code: command.ExitUsage, want: "say who asks: either --pod or --node"},
		{args: []string{"dig", "a.b", "--pod", "x", "--node", "y"}, code: command.ExitUsage, want: "say who asks: either --pod or --node"},
		{args: []string{"dig", "a.b", "--pod", "x", "--server", "dns"}, code: command.ExitUsage, want: `--server "dns": write an IP address`},
		{args: []string{"dig", "a.b", "--pod", "x", "--subnet", "10.0.0.1"}, code: command.ExitUsage, want: `--subnet "10.0.0.1": write an address with a length`},
		{args: []string{"dig", "a.b", "--pod", "x", "--type", "B"}, code: command.ExitUsage, want: `--type "B": write a type of records`},
		{args: []string{"dig", "a..b", "--pod", "x"}, code: command.ExitUsage, want: `name "a..b": write a domain name`},
		{args: []string{"up", "--zones", "a,B"}, code: command.ExitUsage, want: `--zones "B": a zone's name is up to`},
		{args: []string{"up", "--zones", "a,a"}, code: command.ExitUsage, want: `--zones "a": another zone has this name`},
		{args: []string{"up", "--nodes-per-zone", "400"}, code: command.ExitUsage, want: "--zones: they have 1200 nodes in all, a lab has at most 500; fake nodes are for more"},
		{args: []string{"up", "--nodes-per-zone", "-1"}, code: command.ExitUsage, want: "--nodes-per-zone -1: write a number from 0 to 500"},
		{args: []string{"up", "--region", "R!"}, code: command.ExitUsage, want: `--region "R!": a region's name is up to`},
		{args: []string{"up", "--cpu", "many"}, code: command.ExitUsage, want: `--cpu "many": write cores`},
		{args: []string{"up", "--memory", "1,2"}, code: command.ExitUsage, want: "--memory: there are 2 values for 3 zones"},
		{args: []string{"up", "--node-labels", "kubernetes.io/hostname=x"}, code: command.ExitUsage, want: `--node-labels: "kubernetes.io/hostname" is set by the lab`},
		{args: []string{"up", "--name", "No!"}, code: command.ExitUsage, want: `--name "No!": a lab's name is up to`},
		{args: []string{"up", "--file", file, "--cross-region-latency", "-1s"}, code: command.ExitUsage, want: "--cross-region-latency -1s: write a duration"},
		{args: []string{"up", "--file", file, "--fake-nodes", "2"}, code: command.ExitFailure, want: `zones[0].nodes[0].name "fake-1": another node has this name`},
		{args: []string{"up", "--images", file + "-none"}, code: command.ExitFailure, want: "--images: open " + file + "-none: no such file"},
		{args: []string{"up", "--images", file}, code: command.ExitFailure, want: "--images " + file + `: field "zones" is unknown: write one of images`},
		{args: []string{"up", "--images", file, "--control-plane-only"}, code: command.ExitUsage, want: "--images has no effect: a lab that is only a control plane runs no containers"},
		{args: []string{"down", "--name", "No!"}, code: command.ExitUsage, want: `--name "No!": a lab's name is up to`},
		{args: []string{"down"}, variable: "No!", code: command.ExitUsage, want: `VICINITY_LAB_NAME "No!": a lab's name is up to`},
		{args: []string{"status", "--name", "No!"}, code: command.ExitUsage, want: `--name "No!": a lab's name is up to`},
		{args: []string{"node", "add", "--zone", "B", "--cpu", "x"}, code: command.ExitUsage, want: `--zone "B": a zone's name is up to`},
		{args: []string{"node", "add", "--zone", "zone-a", "--cpu", "x"}, code: command.ExitUsage, want: `--cpu "x": write cores`},
		{args: []string{"node", "add", "zone-b-1", "--zone", "zone-a"}, code: command.ExitUsage, want: `NODE "zone-b-1": another node has this name`},
	} {
		t.Setenv("VICINITY_LAB_NAME", test.variable)
		var out, err bytes.Buffer
		code := Main(t.Context(), test.args, strings.NewReader(""), &out, &err)
		if code != test.code || !strings.HasPrefix(err.String(), "vicinity lab: "+test.want) {
			t.Errorf("lab %q: exit code %d, %q, want %d and %q", test.args, code, &err, test.code, test.want)
		}
	}
}
