package lab

import (
	"context"
	"fmt"

	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/shape"
)

// CutZone cuts a zone off from all others and from the control plane.
func (c *Cluster) CutZone(ctx context.Context, name string) error {
	return c.changeZone(ctx, name, func(shape.Zone) error {
		return c.changeCuts(func(network *fabric.Fabric) error { return network.CutZone(name) })
	})
}

// HealZone reverts CutZone, and waits until the zone's nodes are ready. Stopped nodes stay stopped.
func (c *Cluster) HealZone(ctx context.Context, name string) error {
	return c.changeZone(ctx, name, func(zone shape.Zone) error {
		if err := c.changeCuts(func(network *fabric.Fabric) error { return network.HealZone(name) }); err != nil {
			return err
		}
		var names []string
		for _, node := range zone.Nodes {
			names = append(names, node.Name)
		}
		return c.waitUnlessCutOff(ctx, names...)
	})
}

func (c *Cluster) changeZone(ctx context.Context, name string, do func(shape.Zone) error) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	zone, ok := c.Shape().Zone(name)
	if !ok {
		return fmt.Errorf("zone %q: lab %q has no zone of this name", name, c.dir.Name())
	}
	return do(zone)
}
