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
	return append(plane.Components(), c.agents(c.lab.Shape.Nodes()...)...), nil
}

// agents are the names of the agents that care for nodes.
func (c *Cluster) agents(nodes ...shape.Node) []string {
	if !c.lab.Shape.AgentPerNode {
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
	return slices.Contains(c.agents(c.lab.Shape.Nodes()...), component)
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
	spec := process.Spec{Name: name, Args: c.internal("agent")}
	if node, ok := strings.CutPrefix(name, agentName+"-"); ok {
		spec.Args = append(spec.Args, "--node", node)
	}
	if !c.lab.Shape.ControlPlaneOnly {
		spec.Namespace = shape.FabricNamespace(c.lab.Shape.Name)
	}
	_, err := process.Start(c.dir, spec)
	return err
}

// StartComponent starts a component unless it runs, and waits until it is ready.
func (c *Cluster) StartComponent(ctx context.Context, name string) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if c.isAgent(name) {
		return c.startAgent(name)
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
		return running.Resume()
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
// name.
func (c *Cluster) ComponentLogs(w io.Writer, tail *int64, names ...string) error {
	all, err := c.Components()
	if err != nil {
		return err
	}
	prefix := len(names) == 0
	if prefix {
		names = all
		if tail == nil {
			tail = new(int64)
			*tail = defaultTail
		}
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			return fmt.Errorf("component %q is unknown; this lab has %s", name, strings.Join(all, ", "))
		}
		text, err := os.ReadFile(c.dir.Log(name))
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

// lastLines are as many lines from the end of a text, or all.
func lastLines(text []byte, count *int64) [][]byte {
	if len(text) == 0 {
		return nil
	}
	lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	if count != nil && int64(len(lines)) > *count {
		lines = lines[int64(len(lines))-*count:]
	}
	return lines
}
