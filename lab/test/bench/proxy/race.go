package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/test/bench/meter"
)

// race measures connections by the rules of both proxies at the same time. Each has its own node and
// serves all Services there. They swap nodes each time, so that neither the node nor the moment
// matters.
func (b *bench) race(ctx context.Context) error {
	if !b.peer {
		return nil
	}
	if err := b.handBack(ctx); err != nil {
		return err
	}
	target, err := b.current(ctx)
	if err != nil {
		return err
	}
	// The Service does not lead to the other end, which is idle.
	nodes := []shape.Node{b.cluster.node, b.cluster.ends[(b.turn+1)%2].node}
	for i := range races {
		if err := b.raceOnce(ctx, target, nodes[i%2], nodes[(i+1)%2]); err != nil {
			return err
		}
	}
	return nil
}

// raceOnce measures with kube-proxy on one node and vicinity-proxy on the other.
func (b *bench) raceOnce(ctx context.Context, target end, peerNode, ownNode shape.Node) (err error) {
	b.Say("both proxies, kube-proxy on %s and vicinity-proxy on %s", peerNode.Name, ownNode.Name)
	var ways []way
	for _, one := range []struct {
		who   string
		node  shape.Node
		flags []string
	}{
		{kubeProxy, peerNode, nil},
		{vicinity, ownNode, []string{"--all-services"}},
	} {
		if err := b.clear(ctx, one.node); err != nil {
			return err
		}
		proxy, failed := b.contend(one.who, one.node, one.flags...)
		if failed != nil {
			return failed
		}
		defer func() {
			err = errors.Join(err, proxy.Stop(), b.clear(context.WithoutCancel(ctx), one.node))
		}()
		namespace := shape.NodeNamespace(b.Cluster.Shape().Name, one.node.Index)
		limited, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("%s takes too long to start", one.who))
		defer cancel()
		if _, err := (prober{namespace}).until(limited, aim{to: b.cluster.live, want: target.letter, inRow: alone, pause: often}, time.Now()); err != nil {
			return err
		}
		ways = append(ways, way{namespace, b.cluster.live}, way{namespace, netip.AddrPortFrom(target.address, endpointPort)})
	}
	if err := b.Rest(ctx); err != nil {
		return err
	}
	all, err := times(ctx, connects, ways...)
	if err != nil {
		return err
	}
	for i, who := range []string{kubeProxy, vicinity} {
		figures := b.figures.of(who, b.cluster.made)
		figures.raced = append(figures.raced, meter.Quantile(all[2*i].took, 0.5))
		figures.racedDirect = append(figures.racedDirect, meter.Quantile(all[2*i+1].took, 0.5))
		b.count(figures, all[2*i:2*i+2])
	}
	return nil
}
