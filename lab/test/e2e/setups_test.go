package e2e_test

import (
	"context"
	"slices"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
)

// ownLabs is for areas whose promises all bring up labs themselves.
var ownLabs = &setup{name: "own labs"}

// zones is a cluster of three zones in two regions, with two nodes each, both proxies, and all parts of
// Vicinity, installed from the packaged chart. The lab brings no CoreDNS: vicinity-dns runs twice, as a Deployment of the
// chart, and as the cluster's DNS server, which configureNames makes and the promises of names ask.
var zones = &setup{
	name: "zones",
	shape: func() shape.Shape {
		s := shaped(shape.Options{Name: "zones", Regions: []string{"west", "west", "east"}, DNS: string(shape.DNSNone)})
		s.Proxy = shape.ProxyBoth
		for z := range s.Zones {
			for n := range s.Zones[z].Nodes {
				node := &s.Zones[z].Nodes[n]
				if rack := racks[node.Name]; rack != "" {
					node.Labels = map[string]string{rackLabel: rack}
				}
			}
		}
		return s
	},
	prepare: func(ctx context.Context, c *lab.Cluster) error {
		if err := installZones(ctx, c); err != nil {
			return err
		}
		return configureNames(ctx, c)
	},
}

// installZones installs the packaged chart with all parts, as the promises of zones need it.
func installZones(ctx context.Context, c *lab.Cluster) error {
	all := []string{"dns.enabled=true", "disruption.enabled=true", "rollouts.enabled=true"}
	return c.InstallRelease(ctx, packageFolder, slices.Concat(all, locateAll, quickValues)...)
}

// fleet is a cluster of nodes that have no network, whose pods are ready at once, and a node in each zone for
// the controller. It serves EvictionRequests.
var fleet = &setup{
	name: "fleet",
	shape: func() shape.Shape {
		return shaped(shape.Options{
			Name: "fleet", NodesPerZone: []int{1}, FakeNodes: 9, SingleStack: true, EvictionRequests: true, DNS: string(shape.DNSNone),
		})
	},
	prepare: func(ctx context.Context, c *lab.Cluster) error {
		return c.InstallVicinity(ctx, "disruption.enabled=true", "disruption.evictionRequests=true",
			"rollouts.enabled=true", "rollouts.scaleDown=true", "rollouts.pacing=true", "rollouts.ordinals=true")
	},
}

// shaped is the shape of constant options.
func shaped(o shape.Options) shape.Shape {
	s, err := shape.FromOptions(o)
	if err != nil {
		panic(err)
	}
	return s
}
