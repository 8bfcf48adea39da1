package doctor

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// zone is a summary of the nodes of a zone.
type zone struct {
	nodes, ready int
	regions      map[string]string // a node of each
}

// nodeZones returns the zones of all nodes, and the nodes without a zone that take pods of users.
func nodeZones(nodes []*corev1.Node) (zones map[string]*zone, without []*corev1.Node) {
	zones = map[string]*zone{}
	for _, node := range nodes {
		name := node.Labels[corev1.LabelTopologyZone]
		if name == "" {
			if len(intent.ControlPlaneTaints(node)) == 0 {
				without = append(without, node)
			}
			continue
		}
		z := zones[name]
		if z == nil {
			z = &zone{regions: map[string]string{}}
			zones[name] = z
		}
		z.nodes++
		if intent.IsReady(node) {
			z.ready++
		}
		region := node.Labels[corev1.LabelTopologyRegion]
		if region == "" {
			continue // it has the region of its zone
		}
		if first, known := z.regions[region]; !known || node.Name < first {
			z.regions[region] = node.Name
		}
	}
	return zones, without
}

// checkZones checks the labels of nodes, and for nodes that no zone counts.
func (e *examination) checkZones() {
	nodes := slices.DeleteFunc(slices.Clone(e.Nodes), func(node *corev1.Node) bool {
		return e.isPassing(node) && (!intent.IsReady(node) || node.Labels[corev1.LabelTopologyZone] == "")
	})
	if len(nodes) == 0 {
		return
	}
	for _, node := range nodes {
		if !intent.IsReady(node) {
			e.add(nodeNotReady, objectOf("Node", node), fmt.Sprintf("Node %s is not ready%s.", node.Name, notReadyReason(node)), "kubectl describe node "+node.Name)
		}
	}
	zones, without := nodeZones(nodes)
	switch {
	case len(zones) == 0 && len(nodes) == 1:
		return // there is nothing to choose between
	case len(zones) == 0:
		e.add(zonesMissing, clusterObject, fmt.Sprintf("None of %s has the label %s.", plaintext.Plural(len(nodes), "node"), corev1.LabelTopologyZone),
			"kubectl get nodes -L "+corev1.LabelTopologyZone)
		return
	}
	for _, node := range without {
		what := fmt.Sprintf("Node %s has no label %s.", node.Name, corev1.LabelTopologyZone)
		if old := node.Labels[corev1.LabelFailureDomainBetaZone]; old != "" {
			what = fmt.Sprintf("Node %s has its zone in the label %s alone, which does not count: it is %s.", node.Name, corev1.LabelFailureDomainBetaZone, old)
		}
		e.add(nodeWithoutZone, objectOf("Node", node), what, fmt.Sprintf("kubectl label node %s %s=ZONE", node.Name, corev1.LabelTopologyZone))
	}
	names := slices.Sorted(maps.Keys(zones))
	alike := map[string]string{}
	for _, name := range names {
		z, object := zones[name], Object{Kind: "Zone", Name: name}
		selector := "kubectl get nodes -l " + corev1.LabelTopologyZone + "=" + name
		if z.ready == 0 {
			e.add(zoneWithoutReadyNode, object, fmt.Sprintf("None of %s of zone %q is ready.", plaintext.Plural(z.nodes, "node"), name), selector)
		}
		if len(z.regions) > 1 {
			e.add(zoneInTwoRegions, object, fmt.Sprintf("Zone %q has nodes in different regions: %s.", name, regionText(z.regions)), selector+" -L "+corev1.LabelTopologyRegion)
		}
		// The smaller zone is more likely the mistake.
		key, less := plain(name), name
		if other, known := alike[key]; known {
			if zones[other].nodes < z.nodes {
				less, other = other, less
			}
			e.add(zonesLookAlike, Object{Kind: "Zone", Name: less}, fmt.Sprintf("Zone %q, of %s, looks like zone %q.", less, plaintext.Plural(zones[less].nodes, "node"), other),
				"kubectl get nodes -l "+corev1.LabelTopologyZone+"="+less)
			alike[key] = other
		} else {
			alike[key] = name
		}
	}
	if len(names) == 1 && len(without) == 0 {
		e.add(oneZone, Object{Kind: "Zone", Name: names[0]}, fmt.Sprintf("All nodes are in zone %q.", names[0]), "kubectl get nodes -L "+corev1.LabelTopologyZone)
	}
}

var (
	separators    = regexp.MustCompile(`[-_.]+`)
	betweenDigits = regexp.MustCompile(`([0-9])[-_.]+([0-9])`)
)

// plain returns the name of a zone without characters that people mistype. A separator between two numbers counts: 1-11
// is not 11-1.
func plain(name string) string {
	name = betweenDigits.ReplaceAllString(strings.ToLower(name), "$1/$2")
	return separators.ReplaceAllString(name, "")
}

func regionText(regions map[string]string) string {
	var texts []string
	for _, region := range slices.Sorted(maps.Keys(regions)) {
		texts = append(texts, fmt.Sprintf("%q (node %s)", region, regions[region]))
	}
	return strings.Join(texts, ", ")
}

// notReadyReason returns the node's own reason, with a colon before.
func notReadyReason(node *corev1.Node) string {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady && c.Reason != "" {
			return ": " + c.Reason
		}
	}
	return ""
}
