package proxy

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/cluster"
	"vicinity.dev/vicinity/internal/proxy/lease"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// taintedNode is a node with taints. A key without a name is the start-up taint.
func taintedNode(version string, keys ...string) *corev1.Node {
	node := aNode("a")
	node.ResourceVersion = version
	for _, key := range keys {
		if key == "" {
			key = v1alpha1.TaintProxyNotReady
		}
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
	}
	return node
}

// The taint is removed once, after failures more and more seldom, and no patch changes another taint.
func TestStartupTaintIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, refusal := taintedNode("1", "other", ""), errors.New("away")
		var patches []string
		failures := 0
		r := newTaintRemover(func() *corev1.Node { return node }, func(_ context.Context, name string, patch []byte) error {
			if name != "node-a" {
				t.Errorf("node %q is patched", name)
			}
			patches = append(patches, string(patch))
			return refusal
		}, func() { failures++ }, logr.Discard())
		ctx, cancel := context.WithCancel(t.Context())
		go r.run(ctx)
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		pass(time.Hour)
		if len(patches) > 0 {
			t.Errorf("patched by %q before the node is ready", patches)
		}
		signal(r.ready)
		pass(time.Hour)
		if n := len(patches); n < 50 || n > 66 || failures != n {
			t.Errorf("%d tries and %d failures in an hour without an answer", n, failures)
		}
		refusal = nil
		pass(2 * taintMost)
		expect := func(when string, want ...string) {
			t.Helper()
			signal(r.ready)
			pass(time.Second)
			if len(patches) != len(want) || len(want) > 0 && patches[0] != want[0] {
				t.Errorf("%s: patched by %q, want %q", when, patches, want)
			}
			patches = nil
		}
		patches = patches[failures:]
		const first = `{"op":"test","path":"/spec/taints/0/key","value":"vicinity.dev/proxy-not-ready"},{"op":"remove","path":"/spec/taints/0"}`
		const second = `{"op":"test","path":"/spec/taints/1/key","value":"vicinity.dev/proxy-not-ready"},{"op":"remove","path":"/spec/taints/1"}`
		expect("the API server answers", "["+second+"]")
		expect("the watch is late")
		node = taintedNode("2", "other")
		expect("the taint is gone")
		node = taintedNode("3", "", "", "other")
		expect("it is there again, with two effects", "["+second+","+first+"]")
		node = nil
		expect("the node is unknown")
		cancel()
		synctest.Wait()
	})
}

// A node is ready once the kernel has all that was listed, except for ports that it refuses.
func TestReadyOnceAllIsProgrammed(t *testing.T) {
	w := many(t, 3)
	ready := false
	w.onProgrammed = func(a lease.Acknowledgement) { ready = a.Ready }
	w.kernel.refuses = func(ruleset.Transaction) error { return errRefused }
	w.run(time.Minute)
	if ready {
		t.Error("the node is ready although the kernel has no rules")
	}
	w.refusing("10.1.1.2")
	w.run(time.Minute)
	if !ready || w.kernel.leads("10.1.1.2") || !w.kernel.leads("10.1.1.1") {
		t.Errorf("ready: %t, a port is refused: %t, another is programmed: %t", ready, !w.kernel.leads("10.1.1.2"), w.kernel.leads("10.1.1.1"))
	}
	w.put(aNode("b")) // whose groups are not listed yet
	w.run(time.Second)
	if ready {
		t.Error("the node is ready with the groups of another zone")
	}
}

// The taint goes after the rules are programmed and the Lease is written.
func TestStartupTaintGoesLast(t *testing.T) {
	server, k := newServer(t), newFakeKernel()
	sources := server.api.Sources
	sources[cluster.ResourceNodes].Put(taintedNode("", ""))
	sources[cluster.ResourceServices].Put(aService("web", "10.96.0.1"))
	sources[cluster.ResourceGroups].Put(aGroup("web", "web-1", "10.1.1.1"))
	var works atomic.Bool
	k.refuses = func(ruleset.Transaction) error {
		if works.Load() {
			return nil
		}
		return errRefused
	}
	patched := make(chan bool, 10)
	server.patchNode = func() {
		server.mu.Lock()
		defer server.mu.Unlock()
		patched <- k.leads("10.1.1.1") && server.lease != nil
		sources[cluster.ResourceNodes].Put(aNode("a"))
	}
	o := proxyOptions(server, k)
	o.StartupTaint = true
	runProxy(t, o, clock.RealClock{})
	eventually(t, "the Lease is written", func() bool {
		server.mu.Lock()
		defer server.mu.Unlock()
		return server.lease != nil
	})
	if len(patched) > 0 {
		t.Error("the taint is removed before the rules are programmed")
	}
	works.Store(true)
	eventually(t, "the taint is removed", func() bool { return len(patched) > 0 })
	if !<-patched {
		t.Error("the taint is removed before the rules are programmed and the Lease is written")
	}
}
