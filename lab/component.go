package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab/agent"
	"vicinity.dev/vicinity/lab/controlplane"
	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/lab/shape"
)

// agentName is the component that stands in for the kubelets. Where each node has its
// own, the node's name follows.
const agentName = "agent"

// agentGrace is how long an agent may take to end in order.
const agentGrace = 5 * time.Second

// Components are the names of all components of the lab.
func (c *Cluster) Components() ([]string, error) {
	plane, err := c.controlPlane()
	if err != nil {
		return nil, err
	}
	nodes := c.Shape().Nodes()
	return slices.Concat(plane.Components(), c.agents(nodes...), c.proxies(nodes...)), nil
}

// agents are the names of the agents that care for nodes.
func (c *Cluster) agents(nodes ...shape.Node) []string {
	if !c.Shape().AgentPerNode {
		return []string{agentName}
	}
	var names []string
	for _, node := range nodes {
		names = append(names, agentName+"-"+node.Name)
	}
	return names
}

// isAgent reports whether a component is an agent of this lab.
func (c *Cluster) isAgent(component string) bool {
	return slices.Contains(c.agents(c.Shape().Nodes()...), component)
}

// startAgents starts the agents of nodes unless they run.
func (c *Cluster) startAgents(nodes ...shape.Node) error {
	for _, name := range c.agents(nodes...) {
		if err := c.startAgent(name); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) startAgent(name string) error {
	if running, err := process.Find(c.dir, name); err == nil && running.Alive() {
		return nil
	}
	spec := process.Spec{Name: name, Args: c.internal("agent"), Env: controlplane.Environment()}
	if node, ok := strings.CutPrefix(name, agentName+"-"); ok {
		spec.Args = append(spec.Args, "--node", node)
	}
	if !c.Shape().ControlPlaneOnly {
		spec.Namespace = shape.FabricNamespace(c.Shape().Name)
	}
	_, err := process.Start(c.dir, spec)
	return err
}

// agentReady is an error until an agent has registered the nodes that it stands in for,
// or has taken them over from the one before it, which their heartbeats tell: in the
// status of a Node only an agent that begins renews them.
func (c *Cluster) agentReady(ctx context.Context, running *process.Process) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	stopped, err := agent.StoppedNodes(c.dir)
	if err != nil {
		return err
	}
	// From the API server's memory, which thousands of nodes do not burden.
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("asking the API for its nodes: %w", err)
	}
	heard := map[string]bool{}
	for i := range list.Items {
		heard[list.Items[i].Name] = heardSince(&list.Items[i], running.Started)
	}
	var missing []string
	for _, node := range c.Shape().Nodes() {
		own := running.Name == agentName || running.Name == agentName+"-"+node.Name
		if own && !heard[node.Name] && !slices.Contains(stopped, node.Name) {
			missing = append(missing, node.Name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("it has not registered %s", listSome(missing))
	}
	return nil
}

// heardSince reports whether a node said how it is after a time. Nodes say the time in
// whole seconds.
func heardSince(node *corev1.Node, since time.Time) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.LastHeartbeatTime.Unix() >= since.Unix()
	})
}

// waitAgent waits until an agent is ready, it has ended, or the context ends.
func (c *Cluster) waitAgent(ctx context.Context, name string) error {
	running, err := process.Find(c.dir, name)
	if err != nil {
		return err
	}
	ended := false
	err = Wait(ctx, name+" to be ready", func(ctx context.Context) (string, error) {
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

// StartComponent starts a component unless it runs, and waits until it is ready. One
// that is a pod is started by its node: then it only waits.
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
	if node, ok := c.proxied(name); ok {
		return c.waitProxy(ctx, node)
	}
	plane, err := c.controlPlane()
	if err != nil {
		return err
	}
	return plane.StartComponent(ctx, name)
}

// StopComponent ends a component in order.
func (c *Cluster) StopComponent(ctx context.Context, name string) error {
	return c.endComponent(ctx, name, agentGrace)
}

// KillComponent ends a component at once, as a crash does.
func (c *Cluster) KillComponent(ctx context.Context, name string) error {
	return c.endComponent(ctx, name, 0)
}

func (c *Cluster) endComponent(ctx context.Context, name string, grace time.Duration) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if node, ok := c.proxied(name); ok {
		return c.endProxy(ctx, node, grace)
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

// PauseComponent freezes a component: it keeps its connections and answers nothing.
func (c *Cluster) PauseComponent(ctx context.Context, name string) error {
	return c.holdComponent(ctx, name, true)
}

// ResumeComponent lets a paused component go on, and waits until it is ready.
func (c *Cluster) ResumeComponent(ctx context.Context, name string) error {
	return c.holdComponent(ctx, name, false)
}

func (c *Cluster) holdComponent(ctx context.Context, name string, pause bool) error {
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
	if node, ok := c.proxied(name); ok {
		return c.holdProxy(ctx, node, pause)
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

// defaultTail is how many lines of a component's log are shown when all are asked for.
const defaultTail = 10

// ComponentLogs prints the end of the logs of components: of the one named, all of it
// or its last lines; of all components their last lines, each after the component's
// name. A tail below 0 is all.
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

// componentLog is all that a component has printed.
func (c *Cluster) componentLog(name string) ([]byte, error) {
	if node, ok := c.proxied(name); ok {
		return agent.ContainerLog(c.dir, proxyImage, node.Name)
	}
	return os.ReadFile(c.dir.Log(name))
}

// lastLines are as many lines from the end of a text; nil or below 0 is all.
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
