package lab

import (
	"context"
	"errors"
	"fmt"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab/agent"
	"vicinity.dev/vicinity/lab/controlplane"
	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

// StopNode disconnects a node: its heartbeats end, and nothing reaches it or its pods. It
// does not wait for the cluster to notice.
func (c *Cluster) StopNode(ctx context.Context, name string) error {
	return c.changeNode(ctx, name, func() error {
		if c.Shape().ControlPlaneOnly {
			return agent.StopNode(c.dir, name)
		}
		return c.changeCuts(func(network *fabric.Fabric) error { return network.CutNode(name) })
	})
}

// StartNode reverts StopNode and waits until the node is ready, unless its zone is cut off.
func (c *Cluster) StartNode(ctx context.Context, name string) error {
	return c.changeNode(ctx, name, func() error {
		var err error
		if c.Shape().ControlPlaneOnly {
			err = agent.StartNode(c.dir, name)
		} else {
			err = c.changeCuts(func(network *fabric.Fabric) error { return network.HealNode(name) })
		}
		if err != nil {
			return err
		}
		return c.waitUnlessCutOff(ctx, name)
	})
}

// changeNode calls a function for a node while the lab is locked.
func (c *Cluster) changeNode(ctx context.Context, name string, do func() error) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if _, ok := c.Shape().Node(name); !ok {
		return fmt.Errorf("node %q: lab %q has no node of this name with a network", name, c.Shape().Name)
	}
	return do()
}

// AddNode adds a node in a new or existing zone, and waits until it is ready. It returns
// the node with its defaults set. If it fails, the lab is as it was before.
func (c *Cluster) AddNode(ctx context.Context, node shape.Node) (shape.Node, error) {
	unlock, err := c.lock(ctx)
	if err != nil {
		return shape.Node{}, err
	}
	defer unlock()
	now := c.current()
	before := now.Shape
	node.Index = now.NextIndex
	if now.Shape, node, err = before.With(node); err != nil {
		return shape.Node{}, err
	}
	now.NextIndex = node.Index + 1
	cuts, err := c.cuts()
	if err != nil {
		return shape.Node{}, err
	}
	if isCutOff(node, cuts) {
		return shape.Node{}, fmt.Errorf("zone %q of node %q: it is cut off, and the node would not get ready; heal the zone first", node.Zone, node.Name)
	}
	if err := c.bringUpNode(ctx, now, node); err != nil {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), removalTimeout)
		defer cancel()
		return shape.Node{}, errors.Join(err, c.takeDownNode(limited, node, before))
	}
	return node, nil
}

// bringUpNode makes a new node of the given state.
func (c *Cluster) bringUpNode(ctx context.Context, now state.Lab, node shape.Node) error {
	if !now.Shape.ControlPlaneOnly {
		network, err := c.network()
		if err != nil {
			return err
		}
		if err := network.AddNode(node); err != nil {
			return err
		}
	}
	// The agent learns of the node from the file.
	if err := c.save(now); err != nil {
		return err
	}
	if err := c.startAgents(node); err != nil {
		return err
	}
	plane, err := c.controlPlane()
	if err != nil {
		return err
	}
	if err := plane.StartProxies(); err != nil {
		return err
	}
	if err := plane.Wait(ctx); err != nil {
		return err
	}
	client, err := c.Client()
	if err != nil {
		return err
	}
	return client.WaitNodes(ctx, true, node.Name)
}

// RemoveNode removes a node with its pods. They are not evicted; their controllers replace
// them.
func (c *Cluster) RemoveNode(ctx context.Context, name string) error {
	return c.changeNode(ctx, name, func() error {
		before := c.Shape()
		node, _ := before.Node(name)
		return c.takeDownNode(ctx, node, before.Without(name))
	})
}

// takeDownNode removes a node, even an incomplete one, and sets the shape to after. It goes
// on after errors.
func (c *Cluster) takeDownNode(ctx context.Context, node shape.Node, after shape.Shape) error {
	now := c.current()
	with := now.Shape
	now.Shape = after
	if err := c.save(now); err != nil {
		return err
	}
	failed := []error{c.kill(ctx, controlplane.KubeProxy+"-"+node.Name)}
	client, err := c.Client()
	if err != nil {
		return errors.Join(append(failed, err)...)
	}
	// An agent with other nodes ends the pods of this one. An agent of this node alone ends
	// first.
	if with.AgentPerNode {
		failed = append(failed, c.kill(ctx, agentName+"-"+node.Name), c.endPods(ctx, client, node))
	}
	err = client.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		failed = append(failed, fmt.Errorf("deleting node %s: %w", node.Name, err))
	}
	if _, made := with.Node(node.Name); made && !with.ControlPlaneOnly {
		network, err := fabric.Open(with)
		if err == nil {
			err = network.RemoveNode(node.Name)
		}
		failed = append(failed, err)
	}
	// Otherwise a later node of this name would be stopped.
	return errors.Join(append(failed, agent.StartNode(c.dir, node.Name))...)
}

// endPods removes the pods of a node without agent: their processes, networks and folders.
func (c *Cluster) endPods(ctx context.Context, client *Client, node shape.Node) error {
	if c.Shape().ControlPlaneOnly {
		return nil // there they are names and nothing else
	}
	pods, err := client.podsOn(ctx, node.Name)
	if err != nil {
		return err
	}
	// Pods in the host's network are in the node's namespace.
	namespaces := []string{shape.NodeNamespace(c.dir.Name(), node.Index)}
	var folders []string
	for i := range pods {
		id := string(pods[i].UID)
		namespaces = append(namespaces, shape.PodNamespace(c.dir.Name(), id))
		folders = append(folders, c.dir.Pod(id))
	}
	if err := process.KillIn(c.dir, folders, namespaces...); err != nil {
		return err
	}
	network, err := c.network()
	if err != nil {
		return err
	}
	var failed []error
	for i := range pods {
		failed = append(failed, network.RemovePod(node.Name, string(pods[i].UID)), os.RemoveAll(folders[i]))
	}
	return errors.Join(failed...)
}

func (c *Cluster) kill(ctx context.Context, name string) error {
	running, err := process.Find(c.dir, name)
	if errors.Is(err, process.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	return running.Kill(ctx)
}
