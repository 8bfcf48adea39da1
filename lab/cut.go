package lab

import (
	"context"
	"slices"

	"vicinity.dev/vicinity/lab/agent"
	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/shape"
)

// cuts are the nodes and zones that are cut off. In a lab without network they are the stopped nodes.
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

func isCutOff(node shape.Node, cuts fabric.Cuts) bool {
	return slices.Contains(cuts.Zones, node.Zone) || slices.Contains(cuts.Nodes, node.Name)
}

// waitUnlessCutOff waits until the nodes are ready. It ignores nodes that are cut off.
func (c *Cluster) waitUnlessCutOff(ctx context.Context, names ...string) error {
	cuts, err := c.cuts()
	if err != nil {
		return err
	}
	var connected []string
	for _, name := range names {
		if node, ok := c.Shape().Node(name); ok && !isCutOff(node, cuts) {
			connected = append(connected, name)
		}
	}
	if len(connected) == 0 {
		return nil
	}
	client, err := c.Client()
	if err != nil {
		return err
	}
	return client.WaitNodes(ctx, true, connected...)
}

func (c *Cluster) changeCuts(change func(*fabric.Fabric) error) error {
	network, err := c.network()
	if err != nil {
		return err
	}
	return change(network)
}
