package controlplane

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vicinity.dev/vicinity/lab/cri"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

var update = flag.Bool("update", false, "rewrite the golden files of command lines")

// The argument that makes this program the gateway of a test.
const (
	gatewayArgument = "serve-gateway"
	runtimeArgument = "serve-runtime"
)

func TestMain(m *testing.M) {
	if len(os.Args) != 3 {
		os.Exit(m.Run())
	}
	serve := map[string]func(context.Context, string) error{gatewayArgument: serveGateway, runtimeArgument: serveRuntime}[os.Args[1]]
	if serve == nil {
		os.Exit(m.Run())
	}
	if err := serve(context.Background(), os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serveRuntime(ctx context.Context, folder string) error {
	dir := state.At(folder)
	return cri.Run(ctx, cri.Options{State: dir, Kubeconfig: dir.ComponentKubeconfig(Kubelet)})
}

func serveGateway(ctx context.Context, folder string) error {
	dir := state.At(folder)
	lab, err := dir.Load()
	if err != nil {
		return err
	}
	c, err := New(Config{Dir: dir, Shape: lab.Shape, Port: lab.Port})
	if err != nil {
		return err
	}
	return c.ServeGateway(ctx, os.Stderr)
}

// shapes are the kinds of lab that differ in what a control plane does.
func shapes(t *testing.T) map[string]shape.Shape {
	t.Helper()
	all := map[string]shape.Options{
		"usual":              {Name: "golden"},
		"ha":                 {Name: "golden", HA: true, Zones: []string{"a"}, NodesPerZone: []int{1}},
		"control-plane-only": {Name: "golden", ControlPlaneOnly: true, EvictionRequests: true},
		"large":              {Name: "golden", FakeNodes: 5000, SingleStack: true, Proxy: "none"},
		"only-ha":            {Name: "golden", ControlPlaneOnly: true, HA: true},
	}
	made := map[string]shape.Shape{}
	for name, options := range all {
		s, err := shape.FromOptions(options)
		if err != nil {
			t.Fatal(err)
		}
		made[name] = s
	}
	return made
}

// TestCommandLines compares every command line of a lab, and where it runs, with a
// golden file, so that a change of what a component is told is seen for what it is.
func TestCommandLines(t *testing.T) {
	for name, s := range shapes(t) {
		t.Run(name, func(t *testing.T) {
			c := newTestControlPlane(t, s)
			var text strings.Builder
			for _, component := range c.components() {
				fmt.Fprintf(&text, "%s in %q\n", component.name, component.namespace)
				for _, arg := range component.args {
					fmt.Fprintf(&text, "    %s\n", arg)
				}
			}
			config, err := os.ReadFile(c.config.Dir.Conf(schedulerConfigFile))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&text, "%s\n%s", schedulerConfigFile, config)
			if kubelets := c.ofKinds(Kubelet); len(kubelets) > 0 {
				file := kubeletConfigFile(s.Nodes()[0])
				if config, err = os.ReadFile(c.config.Dir.Conf(file)); err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&text, "%s\n%s", file, config)
			}
			got := strings.ReplaceAll(text.String(), c.config.Dir.Path(), "STATE")

			golden := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("the command lines are not those of %s any more (go test -update rewrites it):\n%s", golden, got)
			}
		})
	}
}

func newTestControlPlane(t *testing.T, s shape.Shape) *ControlPlane {
	t.Helper()
	dir, err := state.Create(t.TempDir(), s.Name)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Dir: dir, Shape: s, Port: firstPort, Program: "kubernetes", Gateway: []string{"gateway", "serve"}, Runtime: []string{"runtime", "serve"}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestComponents(t *testing.T) {
	c := newTestControlPlane(t, shapes(t)["ha"])
	want := []string{"etcd", "kube-apiserver", "kube-apiserver-2", "gateway", "kube-controller-manager", "kube-scheduler", "runtime", "kubelet-a-1", "kube-proxy-a-1"}
	if got := c.Components(); !slices.Equal(got, want) {
		t.Errorf("components are %v, want %v", got, want)
	}
	ctx := t.Context()
	wrong := `component "kubelet": this lab has etcd, kube-apiserver, `
	for name, act := range map[string]func(string) error{
		"start":  func(name string) error { return c.StartComponent(ctx, name) },
		"stop":   func(name string) error { return c.StopComponent(ctx, name) },
		"kill":   func(name string) error { return c.KillComponent(ctx, name) },
		"pause":  c.PauseComponent,
		"resume": func(name string) error { return c.ResumeComponent(ctx, name) },
		"ready":  func(name string) error { return c.Ready(ctx, name) },
	} {
		if err := act("kubelet"); err == nil || !strings.HasPrefix(err.Error(), wrong) {
			t.Errorf("%s of a component that does not exist: %v, want %s…", name, err, wrong)
		}
	}
	if err := c.Ready(ctx, Etcd); err == nil || err.Error() != "etcd does not run" {
		t.Errorf("readiness of a component that was not started: %v", err)
	}
	if err := c.StopComponent(ctx, Etcd); err != nil {
		t.Errorf("stopping a component that was not started: %v", err)
	}
}

// TestEnvironment checks that what a user has set for other programs is not passed on.
func TestEnvironment(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://proxy.example:3128")
	t.Setenv("KUBECONFIG", "/somewhere/else")
	t.Setenv("PATH", "/bin")
	t.Setenv("HOME", "/house")
	t.Setenv("TMPDIR", "/scratch")
	want := []string{"PATH=/bin:/usr/sbin", "HOME=/house", "TMPDIR=/scratch"}
	if got := Environment(); !slices.Equal(got, want) {
		t.Errorf("the environment is %v, want %v", got, want)
	}
}

// TestFreePort takes a lab's ports away and sees it get others.
func TestFreePort(t *testing.T) {
	first, err := FreePort(t.Context(), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	if again, err := FreePort(t.Context(), t.Name()); err != nil || again != first {
		t.Errorf("the second time the port is %d (%v), want %d as before", again, err, first)
	}
	listen(t, first+Ports-1)
	other, err := FreePort(t.Context(), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	if other >= first && other < first+Ports {
		t.Errorf("port %d is given although %d is taken", other, first+Ports-1)
	}
	if PortFree(t.Context(), first) || !PortFree(t.Context(), other) {
		t.Errorf("port %d is said to be free, or %d not to be", first, other)
	}
	if third, err := FreePort(t.Context(), t.Name(), other); err != nil || third == first || third == other {
		t.Errorf("port %d (%v) is given although it is not free, or another lab's", third, err)
	}
}
