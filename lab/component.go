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

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab/agent"
	"vicinity.dev/vicinity/lab/controlplane"
	"vicinity.dev/vicinity/lab/cri"
	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/lab/shape"
)

// agentName is the component that stands in for nodes without network.
const agentName = controlplane.Agent

const agentGrace = 5 * time.Second

// Components are the names of all components of the lab.
func (c *Cluster) Components() ([]string, error) {
	plane, err := c.controlPlane()
	if err != nil {
		return nil, err
	}
	return slices.Concat(plane.Components(), c.agents(), c.proxies(c.Shape().Nodes()...)), nil
}

// agents is the agent, if the lab has nodes without network.
func (c *Cluster) agents() []string {
	if c.Shape().ControlPlaneOnly || c.Shape().FakeNodes > 0 {
		return []string{agentName}
	}
	return nil
}

func (c *Cluster) isAgent(component string) bool {
	return slices.Contains(c.agents(), component)
}

// startNodes starts what is missing of the nodes: the kubelets, and the agent.
func (c *Cluster) startNodes(ctx context.Context, plane *controlplane.ControlPlane) error {
	for _, name := range c.agents() {
		if err := c.startAgent(name); err != nil {
			return err
		}
	}
	if err := c.declareNodes(ctx); err != nil {
		return err
	}
	return plane.StartNodes(ctx)
}

// declareNodes makes the Nodes that the kubelets then take for theirs, with what a kubelet
// does not know, the ranges of its pods, and may not say, labels of kubernetes.io.
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

func (c *Cluster) startAgent(name string) error {
	if running, err := process.Find(c.dir, name); err == nil && running.Alive() {
		return nil
	}
	spec := process.Spec{Name: name, Args: c.internal("agent"), Env: controlplane.Environment()}
	if !c.Shape().ControlPlaneOnly {
		spec.Namespace = shape.FabricNamespace(c.Shape().Name)
	}
	_, err := process.Start(c.dir, spec)
	return err
}

// agentReady returns an error until an agent has registered its nodes, or has taken them
// over from an earlier one: only a starting agent renews the heartbeats in their status.
func (c *Cluster) agentReady(ctx context.Context, running *process.Process) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	stopped, err := agent.StoppedNodes(c.dir)
	if err != nil {
		return err
	}
	// From the API server's cache, which is cheap for thousands of nodes.
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
		return fmt.Errorf("it has not registered %s", kube.Abbreviate(missing))
	}
	return nil
}

// heartbeatSince reports whether a node's last heartbeat is not before a time. Heartbeats
// have whole seconds.
func heartbeatSince(node *corev1.Node, since time.Time) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.LastHeartbeatTime.Unix() >= since.Unix()
	})
}

func (c *Cluster) waitAgent(ctx context.Context, name string) error {
	running, err := process.Find(c.dir, name)
	if err != nil {
		return err
	}
	ended := false
	err = kube.Wait(ctx, name+" to be ready", func(ctx context.Context) (string, error) {
		if ended = !running.Alive(); ended {
			return "", nil
		}
		return "", c.agentReady(ctx, running)
	})
	if ended {
		return fmt.Errorf("%s has ended; see %s", name, c.dir.Log(name))
	}
	return err
}

// StartComponent starts a component unless it runs, and waits until it is ready. It only
// waits for one that is a pod, which its node starts.
func (c *Cluster) StartComponent(ctx context.Context, name string) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if c.isAgent(name) {
		if err := c.startAgent(name); err != nil {
			return err
		}
		return c.waitAgent(ctx, name)
	}
	if node, ok := c.proxyNode(name); ok {
		return c.waitProxy(ctx, node)
	}
	plane, err := c.controlPlane()
	if err != nil {
		return err
	}
	return plane.StartComponent(ctx, name)
}

// StopComponent terminates a component.
func (c *Cluster) StopComponent(ctx context.Context, name string) error {
	return c.stopComponent(ctx, name, agentGrace)
}

// KillComponent kills a component.
func (c *Cluster) KillComponent(ctx context.Context, name string) error {
	return c.stopComponent(ctx, name, 0)
}

func (c *Cluster) stopComponent(ctx context.Context, name string, grace time.Duration) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if node, ok := c.proxyNode(name); ok {
		return c.stopProxy(ctx, node, grace)
	}
	plane, err := c.controlPlane()
	if err != nil {
		return err
	}
	switch {
	case c.isAgent(name):
		running, err := process.Find(c.dir, name)
		if errors.Is(err, process.ErrNotFound) {
			return nil
		} else if err != nil {
			return err
		}
		return running.Stop(ctx, grace)
	case grace == 0:
		return plane.KillComponent(ctx, name)
	}
	return plane.StopComponent(ctx, name)
}

// PauseComponent freezes a component, which keeps its connections but does not answer.
func (c *Cluster) PauseComponent(ctx context.Context, name string) error {
	return c.pauseComponent(ctx, name, true)
}

// ResumeComponent continues a paused component, and waits until it is ready.
func (c *Cluster) ResumeComponent(ctx context.Context, name string) error {
	return c.pauseComponent(ctx, name, false)
}

func (c *Cluster) pauseComponent(ctx context.Context, name string, pause bool) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if c.isAgent(name) {
		running, err := process.Find(c.dir, name)
		if err != nil {
			return err
		}
		if pause {
			return running.Pause()
		}
		if err := running.Resume(); err != nil {
			return err
		}
		return c.waitAgent(ctx, name)
	}
	if node, ok := c.proxyNode(name); ok {
		return c.pauseProxy(ctx, node, pause)
	}
	plane, err := c.controlPlane()
	if err != nil {
		return err
	}
	if pause {
		return plane.PauseComponent(name)
	}
	return plane.ResumeComponent(ctx, name)
}

// defaultTail is the number of lines per component when the logs of all are shown.
const defaultTail = 10

// ComponentLogs prints the last lines of the logs of components; a negative tail means all
// lines. Without names it prints the logs of all components, with their names before each
// line.
func (c *Cluster) ComponentLogs(w io.Writer, tail *int64, names ...string) error {
	all, err := c.Components()
	if err != nil {
		return err
	}
	prefix := len(names) == 0
	if prefix {
		names = all
		if tail == nil {
			tail = new(int64(defaultTail))
		}
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			return fmt.Errorf("component %q is unknown; this lab has %s", name, strings.Join(all, ", "))
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
		return cri.ContainerLog(c.dir, proxyImage, node.Name)
	}
	return os.ReadFile(c.dir.Log(name))
}

// lastLines returns the last lines of a text; all if count is nil or negative.
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
