package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/test/kube"
)

// ImpairZone makes the uplink of a zone lose and delay packets. It replaces an earlier impairment.
func (c *Cluster) ImpairZone(ctx context.Context, name string, i shape.Impairment) error {
	if err := i.Validate(); err != nil {
		return err
	}
	return c.setImpairment(ctx, name, i)
}

// RepairZone reverts ImpairZone.
func (c *Cluster) RepairZone(ctx context.Context, name string) error {
	return c.setImpairment(ctx, name, shape.Impairment{})
}

func (c *Cluster) setImpairment(ctx context.Context, name string, i shape.Impairment) error {
	return c.changeZone(ctx, name, func(shape.Zone) error {
		network, err := c.network()
		if err != nil {
			return err
		}
		delay := "delay-" + name
		if err := c.stop(ctx, delay, 0); err != nil {
			return err
		}
		if i.Delay.Duration > 0 {
			if err := c.startDelay(ctx, network, delay, name, i.Delay.Duration); err != nil {
				return fmt.Errorf("impairing zone %q: %w", name, err)
			}
		}
		if err := network.SetImpairment(name, i); err != nil {
			return err
		}
		now := c.current()
		impaired := map[string]shape.Impairment{}
		maps.Copy(impaired, now.Impaired)
		if impaired[name] = i; i == (shape.Impairment{}) {
			delete(impaired, name)
		}
		now.Impaired = impaired
		return c.save(now)
	})
}

// startDelay starts the process that delays the packets of a zone, and waits until it works.
func (c *Cluster) startDelay(ctx context.Context, network *fabric.Fabric, name, zone string, delay time.Duration) error {
	started, err := process.Start(c.dir, process.Spec{
		Name:      name,
		Args:      append(c.internal("delay"), "--queue", strconv.Itoa(int(fabric.ZoneQueue(zone))), "--time", delay.String()),
		Namespace: shape.FabricNamespace(c.Shape().Name),
	})
	if err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err = kube.Wait(waiting, name+" to read its queue; see "+c.dir.Log(name), func(context.Context) (string, error) {
		return "", network.CheckQueue(zone)
	})
	if err != nil {
		return errors.Join(err, started.Kill(ctx))
	}
	return nil
}
