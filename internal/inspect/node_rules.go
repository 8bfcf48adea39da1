package inspect

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/routing/kubeproxy"
	"vicinity.dev/vicinity/internal/routing/stock"
	"vicinity.dev/vicinity/internal/topology"
)

// rule returns the rule that chose the endpoints of a port.
func (e *nodeView) rule(family ruleset.Family, port *ruleset.ServicePort) NodeRule {
	if !e.groupsOf(family) {
		return e.hintRule(family, port.Name)
	}
	var rule NodeRule
	for _, group := range e.Seen {
		if group.Spec.AddressType != FamilyName(family) {
			continue
		}
		if len(rule.Tiers) > 0 && !slices.Equal(rule.Tiers, group.Spec.Tiers) {
			rule.Why = "the tiers of the groups are changing; the tiers of one group are shown"
			break
		}
		rule.Tiers = group.Spec.Tiers
	}
	switch {
	case len(rule.Tiers) == 0 && e.Zone == "":
		rule.Text = "the node has no zone, so it uses the endpoints of all groups alike"
	case len(rule.Tiers) == 0:
		rule.Text = "the endpoints that the plan gives to " + e.Zone
	default:
		rule.Tier = e.tier(family, port.Name, len(rule.Tiers))
		rule.Text = e.tierText(&rule)
	}
	if len(port.Cluster) > 0 && !e.states[port.Cluster[0].Addr()].IsReady() {
		rule.Why = "no endpoint that the node may use is ready; terminating ones that still serve are used"
	}
	return rule
}

// groupsOf reports whether a family is served from groups.
func (e *nodeView) groupsOf(family ruleset.Family) bool {
	return slices.ContainsFunc(e.Seen, func(g *v1alpha1.EndpointGroup) bool { return g.Spec.AddressType == FamilyName(family) })
}

// tier returns the first tier with an endpoint for the node, empty if none has: the first with which, without further
// tiers, the proxy would have an endpoint.
func (e *nodeView) tier(family ruleset.Family, port string, most int) string {
	for n := 1; n <= most; n++ {
		cut, last := make([]*v1alpha1.EndpointGroup, len(e.Seen)), ""
		for i, group := range e.Seen {
			cut[i] = group.DeepCopy()
			if len(group.Spec.Tiers) >= n {
				last = group.Spec.Tiers[n-1]
				cut[i].Spec.Tiers = group.Spec.Tiers[:n]
			}
		}
		for _, f := range compile.Service(e.input(cut), e.options).Families {
			for i := range f.Ports {
				if f.Family == family && f.Ports[i].Name == port && len(f.Ports[i].Cluster) > 0 && last != "" {
					return last
				}
			}
		}
	}
	return ""
}

func (e *nodeView) tierText(rule *NodeRule) string {
	texts := make([]string, len(rule.Tiers))
	for i, key := range rule.Tiers {
		texts[i] = key
		if key == topology.Anywhere {
			texts[i] = "anywhere"
		}
	}
	order := strings.Join(texts, ", then ")
	switch rule.Tier {
	case "":
		if topology.Tiers(rule.Tiers).Hard() {
			order += ", and nothing else"
		}
		return order + "; none has an endpoint for the node"
	case topology.Anywhere:
		return order + "; no endpoint is nearer"
	}
	value := e.Node.Labels[rule.Tier]
	if rule.Tier == topology.Hostname {
		value = cmp.Or(value, e.Node.Name)
	}
	return fmt.Sprintf("%s; the nearest with an endpoint is %s=%s", order, rule.Tier, value)
}

// hintRule returns the hints that chose the endpoints of a port.
func (e *nodeView) hintRule(family ruleset.Family, fullName string) NodeRule {
	_, name, _ := strings.Cut(fullName, ":")
	for _, port := range e.stockPorts() {
		if port.Family == FamilyName(family) && port.Name == name {
			choice := port.Index().Choose(e.Node.Name, e.Zone)
			return NodeRule{Text: stockRule(choice, e.Node.Name, e.Zone), Why: choice.Why}
		}
	}
	return NodeRule{Text: "all endpoints", Why: "the Service has no endpoint"}
}

// stockPorts returns the ports as stock proxies see them, also for slices of another proxy.
func (e *nodeView) stockPorts() []stock.Port {
	var all []*discoveryv1.EndpointSlice
	for _, slice := range e.Slices {
		bare := *slice
		bare.Labels = maps.Clone(slice.Labels)
		delete(bare.Labels, v1alpha1.LabelServiceProxyName)
		all = append(all, &bare)
	}
	return stock.Ports(all)
}

// stockRule returns the hints by which kube-proxy chooses.
func stockRule(choice stock.Choice, node, zone string) string {
	switch choice.Mode {
	case kubeproxy.SameNode:
		return "the endpoints that hints give to the node " + node
	case kubeproxy.SameZone:
		return "the endpoints that hints give to the zone " + zone
	}
	return "all endpoints"
}
