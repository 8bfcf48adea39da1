package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"vicinity.dev/vicinity/lab/dnsquery"
	"vicinity.dev/vicinity/lab/shape"
)

// The headless Services of namesNearest, by their keys.
var keysOf = map[string]string{
	"soft":      hostnameKey + "," + zoneKey + ",*",
	"hard-node": hostnameKey,
	"hard-zone": hostnameKey + "," + zoneKey,
}

// namesNearest has a pod on each of six nodes, and clients on all of them: these get their
// node's pod, without it those of their zone, and without these all or nothing, as the keys
// say. Clients are pods, over both families, and the nodes themselves.
func namesNearest(ctx context.Context, s *scene) (string, error) {
	services := ""
	for _, name := range slices.Sorted(maps.Keys(keysOf)) {
		services += headlessOf(name, keysAnnotation, keysOf[name])
	}
	nodes := s.cluster.Shape().Nodes()
	var placed []string
	left := map[string]string{} // pods by their nodes
	for i, node := range nodes {
		placed = append(placed, node.Name)
		left[node.Name] = fmt.Sprintf("echo-%s-%d", node.Name, i)
	}
	if err := s.namedPods(ctx, services, placed...); err != nil {
		return "", err
	}
	clients, err := s.fromClients(ctx)
	if err != nil {
		return "", err
	}
	right := 0
	var counts []string
	for _, gone := range []string{"", "zone-a-1", "zone-a-2"} {
		if gone != "" {
			if err := s.removePod(ctx, left[gone]); err != nil {
				return "", err
			}
			delete(left, gone)
		}
		var all []asked
		empty := 0
		for _, node := range nodes {
			for service := range keysOf {
				want := nearestPods(service, node, nodes, left)
				if want == noRecords {
					empty++
				}
				q := dnsquery.Query{Name: s.fqdn(service)}
				for _, q.Type = range []string{"A", "AAAA"} {
					all = append(all, asked{clients[node.Name], q, want})
				}
				q.Type = "A"
				all = append(all, asked{s.fromNode(node), q, want})
			}
		}
		n, err := s.answers(ctx, all)
		if err != nil {
			return "", fmt.Errorf("with %d pods: %w", len(left), err)
		}
		right += n
		counts = append(counts, fmt.Sprintf("%d pods, nothing near for %d of %d", len(left), empty, len(nodes)*len(keysOf)))
	}
	return fmt.Sprintf("%d answers of 3 Services to pods and nodes are those of the node, its zone, or all, or NODATA with the SOA where keys are hard (%s)",
		right, strings.Join(counts, "; ")), nil
}

// nearestPods is what a client on a node is to get of a Service of namesNearest.
func nearestPods(service string, node shape.Node, nodes []shape.Node, left map[string]string) string {
	if pod := left[node.Name]; pod != "" {
		return pod
	}
	var inZone []string
	for _, other := range nodes {
		if pod := left[other.Name]; pod != "" && other.Zone == node.Zone {
			inZone = append(inZone, pod)
		}
	}
	switch {
	case service != "hard-node" && len(inZone) > 0:
		return strings.Join(sortedCopy(inZone), " ")
	case service == "soft":
		return strings.Join(slices.Sorted(maps.Values(left)), " ")
	}
	return noRecords
}
