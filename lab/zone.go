package lab

import (
	"context"
	"fmt"
	"slices"

	"vicinity.dev/vicinity/lab/agent"
	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/shape"
)

// CutZone cuts a zone off from all others: its nodes reach each other, and with
// everything cut nothing else, not even the control plane.
func (c *Cluster) CutZone(ctx context.Context, name string, everything bool) error {
	return c.changeZone(ctx, name, func(zone shape.Zone, network *fabric.Fabric) error {
		reach := fabric.OtherZones
		if everything {
			reach = fabric.Everything
			// An agent does not speak through its nodes' links, so it must be told.
			for _, node := range zone.Nodes {
				if err := agent.StopNode(c.dir, node.Name); err != nil {
					return err
				}
			}
		}
		return network.CutZone(name, reach)
	})
}

// HealZone undoes CutZone, and waits until the zone's nodes are ready. A node that
// StopNode stopped stays so.
func (c *Cluster) HealZone(ctx context.Context, name string) error {
	return c.changeZone(ctx, name, func(zone shape.Zone, network *fabric.Fabric) error {
		if err := network.HealZone(name); err != nil {
			return err
		}
		stopped, _, err := network.Cuts()
		if err != nil {
			return err
		}
		var healed []string
		for _, node := range zone.Nodes {
			if slices.Contains(stopped, node.Name) {
				continue
			}
			healed = append(healed, node.Name)
			if err := agent.StartNode(c.dir, node.Name); err != nil {
				return err
			}
		}
		if len(healed) == 0 {
			return nil
		}
		client, err := c.Client()
		if err != nil {
			return err
		}
		return client.WaitNodes(ctx, true, healed...)
	})
}

// changeZone does something to a zone while nobody else changes the lab.
func (c *Cluster) changeZone(ctx context.Context, name string, do func(shape.Zone, *fabric.Fabric) error) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	zone, ok := c.lab.Shape.Zone(name)
	if !ok {
		return fmt.Errorf("zone %q: lab %q has no zone of this name", name, c.lab.Shape.Name)
	}
	network, err := c.network()
	if err != nil {
		return err
	}
	return do(zone, network)
}
