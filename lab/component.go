package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab/agent"
	"vicinity.dev/vicinity/lab/controlplane"
	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/test/kube"
)

// Components are the names of all components of the lab.
func (c *Cluster) Components() ([]string, error) {
	plane, err := c.controlPlane()
	if err != nil {
		return nil, err
	}
	return append(plane.Components(), c.proxies(c.Shape().Nodes()...)...), nil
}

// startNodes starts what is missing of the nodes: the agent, and kubelets.
func (c *Cluster) startNodes(ctx context.Context, plane *controlplane.ControlPlane) error {
	if err := c.declareNodes(ctx); err != nil {
		return err
	}
	return plane.StartNodes(ctx)
}

// declareNodes makes the Nodes before their kubelets do, with fields that a kubelet does not know (pod
// CIDRs) or may not set (labels of kubernetes.io).
func (c *Cluster) declareNodes(ctx context.Context) error {
	s := c.Shape()
	if s.ControlPlaneOnly {
		return nil
	}
	client, err := c.Client()
	if err != nil {
		return err
	}
	for _, n := range s.Nodes() {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: maps.Clone(n.Labels)}}
		for _, cidr := range s.NodePodCIDRs(n) {
			node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, cidr.String())
		}
		node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
		if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("making Node %s: %w", n.Name, err)
		}
	}
	return nil
}

// agentReady returns an error until the agent has registered its nodes, or taken over those of an
// earlier agent: only a starting agent renews the heartbeats in their status.
func (c *Cluster) agentReady(ctx context.Context) error {
	running, err := process.Find(c.dir, controlplane.Agent)
	if err != nil {
		return err
	}
	client, err := c.Client()
	if err != nil {
		return err
	}
	stopped, err := agent.StoppedNodes(c.dir)
	if err != nil {
		return err
	}
	// The API server's cache is cheap for thousands of nodes.
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("asking the API for its nodes: %w", err)
	}
	ready := map[string]bool{}
	for i := range list.Items {
		ready[list.Items[i].Name] = heartbeatSince(&list.Items[i], running.Started)
	}
	var missing []string
	nodes := c.Shape().FakeNodeList()
	if c.Shape().ControlPlaneOnly {
		nodes = append(nodes, c.Shape().Nodes()...)
	}
	for _, node := range nodes {
		if !ready[node.Name] && !slices.Contains(stopped, node.Name) {
			missing = append(missing, node.Name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the agent has not registered %s", kube.Abbreviate(missing))
	}
	return nil
}

// heartbeatSince reports whether a node's last heartbeat is at or after a time. It compares whole
// seconds, the precision of heartbeats.
func heartbeatSince(node *corev1.Node, since time.Time) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.LastHeartbeatTime.Unix() >= since.Unix()
	})
}

// changeComponent calls a function for a component while the lab is locked.
func (c *Cluster) changeComponent(ctx context.Context, name string, do func() error) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.checkComponent(name); err != nil {
		return err
	}
	return do()
}

func (c *Cluster) checkComponent(name string) error {
	all, err := c.Components()
	if err == nil && !slices.Contains(all, name) {
		err = fmt.Errorf("component %q is unknown; this lab has %s", name, strings.Join(all, ", "))
	}
	return err
}

// StartComponent starts a component unless it runs, and waits until it is ready. For a pod it only
// waits: its node starts it.
func (c *Cluster) StartComponent(ctx context.Context, name string) error {
	return c.changeComponent(ctx, name, func() error { return c.start(ctx, name) })
}

func (c *Cluster) start(ctx context.Context, name string) error {
	if node, ok := c.proxyNode(name); ok {
		return c.waitProxy(ctx, node)
	}
	plane, err := c.controlPlane()
	if err != nil {
		return err
	}
	return plane.StartComponent(ctx, name)
}

// stopGrace is how long a component may take to terminate.
const stopGrace = 10 * time.Second

// StopComponent terminates a component, if it runs. If it is a pod, its node starts another one.
func (c *Cluster) StopComponent(ctx context.Context, name string) error {
	return c.changeComponent(ctx, name, func() error { return c.stop(ctx, name, stopGrace) })
}

// KillComponent kills a component.
func (c *Cluster) KillComponent(ctx context.Context, name string) error {
	return c.changeComponent(ctx, name, func() error { return c.stop(ctx, name, 0) })
}

func (c *Cluster) stop(ctx context.Context, name string, grace time.Duration) error {
	running, err := c.findComponent(name)
	if errors.Is(err, process.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	return running.Stop(ctx, grace)
}

// PauseComponent freezes a component, which keeps its connections but does not answer.
func (c *Cluster) PauseComponent(ctx context.Context, name string) error {
	return c.changeComponent(ctx, name, func() error {
		running, err := c.findComponent(name)
		if err != nil {
			return err
		}
		return running.Pause()
	})
}

// ResumeComponent continues a paused component, and waits until it is ready.
func (c *Cluster) ResumeComponent(ctx context.Context, name string) error {
	return c.changeComponent(ctx, name, func() error {
		running, err := c.findComponent(name)
		if err != nil {
			return err
		}
		if err := running.Resume(); err != nil {
			return err
		}
		return c.start(ctx, name)
	})
}

// defaultTail is the number of lines per component when the logs of all are shown.
const defaultTail = 10

// ComponentLogs prints the last lines of the logs of components. A negative tail means all lines.
// Without names it prints the logs of all components, each line with the name of its component.
func (c *Cluster) ComponentLogs(w io.Writer, tail *int64, names ...string) error {
	prefix := len(names) == 0
	if prefix {
		var err error
		if names, err = c.Components(); err != nil {
			return err
		}
		if tail == nil {
			tail = new(int64(defaultTail))
		}
	}
	for _, name := range names {
		if err := c.checkComponent(name); err != nil {
			return err
		}
		text, err := c.componentLog(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		for _, line := range lastLines(text, tail) {
			if prefix {
				fmt.Fprintf(w, "%s: ", name)
			}
			if _, err := fmt.Fprintf(w, "%s\n", line); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Cluster) componentLog(name string) ([]byte, error) {
	if node, ok := c.proxyNode(name); ok {
		return c.proxyLog(node)
	}
	return os.ReadFile(c.dir.Log(name))
}

// lastLines returns the last lines of a text, or all lines if count is nil or negative.
func lastLines(text []byte, count *int64) [][]byte {
	if len(text) == 0 {
		return nil
	}
	lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	if count != nil && *count >= 0 && int64(len(lines)) > *count {
		lines = lines[int64(len(lines))-*count:]
	}
	return lines
}
