package lab

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab/agent"
	"vicinity.dev/vicinity/lab/controlplane"
	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/lab/shape"
)

// StopNode makes a node like a machine whose cable was pulled: its heartbeats end, and
// nothing reaches it or its pods. It does not wait for the cluster to notice.
func (c *Cluster) StopNode(ctx context.Context, name string) error {
	return c.changeNode(ctx, name, func() error {
		// Silent first, so that no heartbeat slips out once the node is said to be cut.
		if err := agent.StopNode(c.dir, name); err != nil {
			return err
		}
		return c.ofNetwork(func(network *fabric.Fabric) error { return network.CutNode(name) })
	})
}

// StartNode undoes StopNode and waits until the node is ready.
func (c *Cluster) StartNode(ctx context.Context, name string) error {
	return c.changeNode(ctx, name, func() error {
		err := c.ofNetwork(func(network *fabric.Fabric) error { return network.HealNode(name) })
		if err != nil {
			return err
		}
		if err := agent.StartNode(c.dir, name); err != nil {
			return err
		}
		client, err := c.Client()
		if err != nil {
			return err
		}
		return client.WaitNodes(ctx, true, name)
	})
}

// changeNode does something to a node while nobody else changes the lab.
func (c *Cluster) changeNode(ctx context.Context, name string, do func() error) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if _, ok := c.lab.Shape.Node(name); !ok {
		return fmt.Errorf("node %q: lab %q has no node of this name with a network", name, c.lab.Shape.Name)
	}
	return do()
}

// ofNetwork does something to the network, if the lab has one.
func (c *Cluster) ofNetwork(do func(*fabric.Fabric) error) error {
	if c.lab.Shape.ControlPlaneOnly {
		return nil
	}
	network, err := c.network()
	if err != nil {
		return err
	}
	return do(network)
}

// AddNode adds a node in the zone that it names, which may be new, and waits until it
// is ready. The node that is returned has a name and all that was left out.
func (c *Cluster) AddNode(ctx context.Context, node shape.Node) (shape.Node, error) {
	unlock, err := c.lock(ctx)
	if err != nil {
		return shape.Node{}, err
	}
	defer unlock()
	node.Index = c.lab.NextIndex
	changed, node, err := c.lab.Shape.With(node)
	if err != nil {
		return shape.Node{}, err
	}
	err = c.ofNetwork(func(network *fabric.Fabric) error { return network.AddNode(node) })
	if err != nil {
		return shape.Node{}, err
	}
	// The agent takes the node up from the file.
	c.lab.Shape, c.lab.NextIndex = changed, node.Index+1
	if err := c.dir.Save(c.lab); err != nil {
		return shape.Node{}, err
	}
	if err := c.startAgents(node); err != nil {
		return shape.Node{}, err
	}
	plane, err := c.controlPlane()
	if err != nil {
		return shape.Node{}, err
	}
	if err := plane.StartProxies(); err != nil {
		return shape.Node{}, err
	}
	if err := plane.Wait(ctx); err != nil {
		return shape.Node{}, err
	}
	client, err := c.Client()
	if err != nil {
		return shape.Node{}, err
	}
	return node, client.WaitNodes(ctx, true, node.Name)
}

// RemoveNode removes a node with its pods, as when a machine is scrapped: they are not
// evicted, and their controllers make others elsewhere.
func (c *Cluster) RemoveNode(ctx context.Context, name string) error {
	return c.changeNode(ctx, name, func() error {
		// The names follow from the shape with the node in it.
		var parts []string
		if c.lab.Shape.Proxy.KubeProxy() {
			parts = append(parts, controlplane.KubeProxy+"-"+name)
		}
		if c.lab.Shape.AgentPerNode {
			parts = append(parts, agentName+"-"+name)
		}
		client, err := c.Client()
		if err != nil {
			return err
		}
		before := c.lab.Shape
		c.lab.Shape = before.Without(name)
		if err := c.dir.Save(c.lab); err != nil {
			return err
		}
		for _, part := range parts {
			if err := c.kill(ctx, part); err != nil {
				return err
			}
		}
		err = client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting node %s: %w", name, err)
		}
		if before.ControlPlaneOnly {
			return nil
		}
		network, err := fabric.Open(before)
		if err != nil {
			return err
		}
		return network.RemoveNode(name)
	})
}

// kill ends a process of the lab by its name, if it runs.
func (c *Cluster) kill(ctx context.Context, name string) error {
	running, err := process.Find(c.dir, name)
	if errors.Is(err, process.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	return running.Kill(ctx)
}
