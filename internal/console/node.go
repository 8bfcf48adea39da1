package console

import (
	"context"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/inspect"
)

// nodeView is one node, with its zone.
type nodeView struct {
	// UID is that of the node.
	UID  types.UID         `json:"uid"`
	Node inspect.NodePlace `json:"node"`
	Zone inspect.ZonePlace `json:"zone"`
	// KnowsProxies says that Leases may be read.
	KnowsProxies bool `json:"knowsProxies"`
	// Budgets are those that have a domain which the node is in. Those that allow the least come first.
	Budgets []inspect.NodeBudget `json:"budgets"`
	// More is how many are left out.
	More int `json:"moreBudgets,omitempty"`
}

// budgetsShown is how many budgets of a node are listed.
const budgetsShown = 50

func (c *console) nodeView(ctx context.Context, r *http.Request, s *snapshot) (any, *about, error) {
	name := r.PathValue("name")
	at := slices.IndexFunc(s.nodes, func(n *corev1.Node) bool { return n.Name == name })
	switch {
	case at >= 0:
	case slices.Contains(s.unread, inspect.KindNodes):
		return nil, nil, notFoundf("Node %s is not shown: Nodes may not be read", name)
	case slices.Contains(s.waiting, inspect.KindNodes):
		return nil, nil, notFoundf("Node %s is not known yet: Nodes are still being read", name)
	default:
		return nil, nil, notFoundf("there is no Node %q", name)
	}
	a := c.about(s)
	proxies := c.proxies(ctx, s, &a)
	places := inspect.PlacesOf(s.cluster, s.nodes, proxies, c.now())
	a.NotKnown = append(a.NotKnown, places.Warnings...)
	v := &nodeView{UID: s.nodes[at].UID, Node: places.Nodes[at], KnowsProxies: proxies != nil}
	for _, region := range places.Regions {
		for _, zone := range region.Zones {
			if zone.Zone == v.Node.Zone {
				v.Zone = zone
			}
		}
	}
	v.Budgets, v.More = firstOf(inspect.NodeBudgets(s.written, s.nodes[at].Labels), budgetsShown)
	return v, &a, nil
}
