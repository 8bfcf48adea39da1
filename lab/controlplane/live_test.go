package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

// startPatience is how long a control plane may take on a machine that is busy.
const startPatience = 3 * time.Minute

// live brings up a control plane of real processes with its nodes, and takes it down with the
// test.
func live(t *testing.T, options shape.Options) *ControlPlane {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a control plane, which takes a while")
	}
	program, err := filepath.Abs("../../bin/vicinity-kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		t.Skipf("%s is not built; make kubernetes builds it", program)
	}
	s, err := shape.FromOptions(options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), startPatience)
	defer cancel()
	if !s.ControlPlaneOnly {
		if os.Geteuid() != 0 {
			t.Skip("makes network namespaces, which needs root")
		}
		if err := fabric.Check(); err != nil {
			t.Skip(err)
		}
		if err := EnsureNft(ctx, os.Stderr); err != nil {
			t.Skip(err)
		}
	}
	dir, err := state.Create(t.TempDir(), s.Name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { takeDown(t, dir, s) })
	if !s.ControlPlaneOnly {
		if _, err := fabric.Up(s); err != nil {
			t.Fatal(err)
		}
	}
	port, err := FreePort(ctx, s.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Save(state.Lab{Shape: s, Port: port}); err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{
		Dir: dir, Shape: s, Port: port, Program: program,
		Gateway: []string{os.Args[0], gatewayArgument, dir.Path()}, Runtime: []string{os.Args[0], runtimeArgument, dir.Path()},
	})
	if err != nil {
		t.Fatal(err)
	}
	bringUp(ctx, t, c)
	return c
}

func bringUp(ctx context.Context, t *testing.T, c *ControlPlane) {
	t.Helper()
	begin := time.Now()
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	api := time.Since(begin)
	if err := c.StartNodes(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.StartProxies(); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("the API is ready after %.1f s, all components after %.1f s", api.Seconds(), time.Since(begin).Seconds())
	reportMemory(t, c)
}

func apiOf(c *ControlPlane) string { return "https://" + c.addrs.inside.String() }

// reportMemory logs what each process holds: its own, and its share of what it shares.
func reportMemory(t *testing.T, c *ControlPlane) {
	t.Helper()
	var shares, resident int
	var text strings.Builder
	for _, name := range c.Components() {
		running, err := c.process(name)
		if err != nil {
			t.Fatal(err)
		}
		rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", running.PID))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(rollup)) {
			var kib int
			if _, err := fmt.Sscanf(line, "Pss: %d kB", &kib); err == nil {
				fmt.Fprintf(&text, " %s %d", name, kib>>10)
				shares += kib
			}
			if _, err := fmt.Sscanf(line, "Rss: %d kB", &kib); err == nil {
				resident += kib
			}
		}
	}
	t.Logf("memory in MiB:%s, in all %d (%d if what is shared counts for each)", text.String(), shares>>10, resident>>10)
}

// takeDown removes all of a lab, and checks that nothing is left.
func takeDown(t *testing.T, dir state.Dir, s shape.Shape) {
	t.Helper()
	if t.Failed() {
		entries, _ := filepath.Glob(dir.Log("*"))
		for _, path := range entries {
			text, _ := os.ReadFile(path)
			t.Logf("%s:\n%s", filepath.Base(path), text[max(0, len(text)-2000):])
		}
	}
	// What they would save is removed.
	if err := process.StopAll(dir); err != nil {
		t.Error(err)
	}
	if err := fabric.Down(s.Name); err != nil {
		t.Error(err)
	}
	if strays, err := process.Strays(dir); err != nil || len(strays) > 0 {
		t.Errorf("processes are left: %v %v", strays, err)
	}
	if left, err := fabric.Namespaces(s.Name); err != nil || len(left) > 0 {
		t.Errorf("network namespaces are left: %v %v", left, err)
	}
}

// as makes a client for a user of the lab.
func as(t *testing.T, c *ControlPlane, id Identity) *client {
	t.Helper()
	ca, err := OpenAuthority(c.config.Dir.PKI(""))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(id)
	if err != nil {
		t.Fatal(err)
	}
	user, err := newClient(c.dial(c.namespace), ca.PEM, &pair)
	if err != nil {
		t.Fatal(err)
	}
	return user
}

const keptPath = "/api/v1/namespaces/default/configmaps/kept"

// keep writes an object that must still be there later.
func keep(t *testing.T, c *ControlPlane) {
	t.Helper()
	object := []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: kept}}")
	if err := c.admin.apply(t.Context(), apiOf(c)+keptPath, object); err != nil {
		t.Fatal(err)
	}
}

func TestControlPlane(t *testing.T) {
	c := live(t, shape.Options{Name: "test-cp", Zones: []string{"a", "b"}, NodesPerZone: []int{3}})
	ctx := t.Context()

	t.Run("rights", func(t *testing.T) {
		for _, test := range []struct {
			id      Identity
			path    string
			allowed bool
		}{
			{Identity{Name: "somebody"}, "/api/v1/nodes", false},
			{Identity{Name: "somebody", Groups: []string{groupMasters}}, "/api/v1/nodes", true},
			{Identity{Name: userAgent, Groups: []string{groupNodes}}, "/api/v1/pods", true},
			{Identity{Name: userAgent, Groups: []string{groupNodes}}, "/apis/apps/v1/deployments", false},
			{Identity{Name: userProxy}, "/apis/discovery.k8s.io/v1/endpointslices", true},
			{Identity{Name: userProxy}, "/api/v1/secrets", false},
			// A kubelet by its name may see its own Node and no other.
			{Identity{Name: "system:node:a-1", Groups: []string{groupNodes}}, "/api/v1/nodes/a-1", true},
			{Identity{Name: "system:node:a-1", Groups: []string{groupNodes}}, "/api/v1/nodes/b-1", false},
		} {
			err := as(t, c, test.id).get(ctx, apiOf(c)+test.path)
			if test.allowed && err != nil {
				t.Errorf("%s: %v", test.id.Name, err)
			}
			if !test.allowed && (err == nil || !strings.Contains(err.Error(), "403 Forbidden")) {
				t.Errorf("%s of %s: %v, want it forbidden", test.path, test.id.Name, err)
			}
		}
		// The API server may ask a kubelet, whether that answers yet or not.
		kubelet := apiOf(c) + "/api/v1/nodes/a-1/proxy/pods"
		if err := as(t, c, Identity{Name: userKubeletClient}).get(ctx, kubelet); err != nil && strings.Contains(err.Error(), "403 Forbidden") {
			t.Errorf("the API server asks a node: %v, want it allowed", err)
		}
		if err := c.anonymous.get(ctx, apiOf(c)+"/api/v1/nodes"); err == nil || !strings.Contains(err.Error(), "403 Forbidden") {
			t.Errorf("nodes without a certificate: %v, want it forbidden", err)
		}
	})

	t.Run("restart", func(t *testing.T) {
		keep(t, c)
		for _, name := range []string{KubeAPIServer, Etcd, ControllerManager, Scheduler, Gateway, KubeProxy + "-a-1"} {
			if err := c.KillComponent(ctx, name); err != nil {
				t.Fatal(err)
			}
			if err := c.Ready(ctx, name); err == nil || err.Error() != name+" does not run" {
				t.Errorf("%s was killed and is %v", name, err)
			}
			begin := time.Now()
			startPatiently(t, c, name)
			t.Logf("%s is ready again after %.1f s", name, time.Since(begin).Seconds())
		}
		if err := c.admin.get(ctx, apiOf(c)+keptPath); err != nil {
			t.Errorf("after etcd was killed: %v", err)
		}
		startPatiently(t, c, c.Components()...)
	})

	t.Run("pause", func(t *testing.T) {
		if err := c.PauseComponent(KubeAPIServer); err != nil {
			t.Fatal(err)
		}
		if err := c.Ready(ctx, KubeAPIServer); err == nil || err.Error() != "kube-apiserver is paused" {
			t.Errorf("the API server was paused and is %v", err)
		}
		if err := c.ResumeComponent(ctx, KubeAPIServer); err != nil {
			t.Fatal(err)
		}
		if err := c.Ready(ctx, KubeAPIServer); err != nil {
			t.Errorf("the API server was resumed and is %v", err)
		}
	})

	t.Run("crash", func(t *testing.T) {
		// A component that cannot start says why, at once.
		if err := c.StopComponent(ctx, Scheduler); err != nil {
			t.Fatal(err)
		}
		config := c.config.Dir.Conf(schedulerConfigFile)
		good, err := os.ReadFile(config)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(config, []byte("kind: Nonsense"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := c.StartComponent(ctx, Scheduler); err == nil || !strings.HasPrefix(err.Error(), "kube-scheduler has ended: ") {
			t.Errorf("starting the scheduler with a wrong configuration: %v", err)
		}
		if err := os.WriteFile(config, good, 0o600); err != nil {
			t.Fatal(err)
		}
		startPatiently(t, c, Scheduler)
	})

	t.Run("stop", func(t *testing.T) {
		keep(t, c)
		for _, name := range slices.Backward(c.Components()) {
			if err := c.StopComponent(ctx, name); err != nil {
				t.Fatal(err)
			}
		}
		if strays, err := process.Strays(c.config.Dir); err != nil || len(strays) > 0 {
			t.Errorf("after all was stopped there are processes %v %v", strays, err)
		}
		ctx, cancel := context.WithTimeout(ctx, startPatience)
		defer cancel()
		bringUp(ctx, t, c)
		if err := c.admin.get(ctx, apiOf(c)+keptPath); err != nil {
			t.Errorf("after all was stopped and started again: %v", err)
		}
	})
}

// startPatiently starts components and waits for them as long as a busy machine needs.
func startPatiently(t *testing.T, c *ControlPlane, names ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startPatience)
	defer cancel()
	for _, name := range names {
		if err := c.StartComponent(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
}
