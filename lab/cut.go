package lab

import (
	"context"
	"slices"

	"vicinity.dev/vicinity/lab/agent"
	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/shape"
)

// cuts are the nodes and zones that are cut off now. In a lab without network a node
// that is silent is as good as cut off.
func (c *Cluster) cuts() (fabric.Cuts, error) {
	if c.Shape().ControlPlaneOnly {
		stopped, err := agent.StoppedNodes(c.dir)
		return fabric.Cuts{Nodes: stopped}, err
	}
	network, err := c.network()
	if err != nil {
		return fabric.Cuts{}, err
	}
	return network.Cuts()
}

// changeCuts cuts something off or heals it, and tells the agents which nodes cannot be
// heard any more: they do not speak through their nodes' links. It is the only place
// where that is decided, so that a node which is cut off twice, alone and with its zone,
// speaks again when the last of both is healed.
func (c *Cluster) changeCuts(change func(*fabric.Fabric) error) error {
	network, err := c.network()
	if err != nil {
		return err
	}
	if err := change(network); err != nil {
		return err
	}
	cuts, err := network.Cuts()
	if err != nil {
		return err
	}
	for _, node := range c.Shape().Nodes() {
		tell := agent.StartNode
		if silent(node, cuts) {
			tell = agent.StopNode
		}
		if err := tell(c.dir, node.Name); err != nil {
			return err
		}
	}
	return nil
}

// silent reports whether nothing of a node reaches the control plane.
func silent(node shape.Node, cuts fabric.Cuts) bool {
	reach, cut := cuts.Zones[node.Zone]
	return cut && reach == fabric.Everything || slices.Contains(cuts.Nodes, node.Name)
}

// waitUnlessSilent waits until those of the nodes are ready that can be.
func (c *Cluster) waitUnlessSilent(ctx context.Context, names ...string) error {
	cuts, err := c.cuts()
	if err != nil {
		return err
	}
	var heard []string
	for _, name := range names {
		if node, ok := c.Shape().Node(name); ok && !silent(node, cuts) {
			heard = append(heard, name)
		}
	}
	if len(heard) == 0 {
		return nil
	}
	client, err := c.Client()
	if err != nil {
		return err
	}
	return client.WaitNodes(ctx, true, heard...)
}
