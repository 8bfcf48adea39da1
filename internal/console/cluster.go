package console

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/routing/explain"
)

type clusterView struct {
	Regions  []inspect.RegionPlace `json:"regions"`
	Nodes    []inspect.NodePlace   `json:"nodes"`
	Paging   paging                `json:"paging"`
	Warnings []string              `json:"warnings,omitempty"`
	// ZoneShifts are those in force.
	ZoneShifts []inspect.ShiftStatus `json:"zoneShifts,omitempty"`
	All        int                   `json:"allNodes"`
	// KnowsProxies reports whether Leases may be read.
	KnowsProxies bool `json:"knowsProxies"`

	Query nodeQuery `json:"-"`
}

// nodeQuery filters the list of nodes.
type nodeQuery struct {
	Text  string
	Zone  string // as shown: nodes without a zone have a word for it
	State string
}

func (*clusterView) title() string { return "Cluster" }

func (*clusterView) parts() []part { return []part{partCluster, partProxies} }

func (c *console) clusterView(ctx context.Context, r *http.Request, s *snapshot) (view, *about, error) {
	query := r.URL.Query()
	q := nodeQuery{Text: query.Get("q"), Zone: query.Get("zone")}
	var err error
	if q.State, err = oneOf(query, "state", "notReady", "cordoned", "notCounted", "noProxy"); err != nil {
		return nil, nil, err
	}
	a := c.about(s)
	proxies := c.proxies(ctx, s, &a)
	places := inspect.PlacesOf(s.cluster, s.nodes, proxies, c.now())
	v := &clusterView{Regions: places.Regions, Warnings: places.Warnings, All: len(places.Nodes), KnowsProxies: proxies != nil, Query: q}
	v.ZoneShifts = inspect.AcceptedShifts(s.wide.Shifts, c.now())
	nodes := slices.DeleteFunc(places.Nodes, func(n inspect.NodePlace) bool { return !q.wants(&n) })
	if v.Paging, err = pageOf(r, len(nodes)); err != nil {
		return nil, nil, err
	}
	v.Nodes = window(nodes, v.Paging)
	return v, &a, nil
}

// proxies returns the proxies of all nodes, or nil if Leases may not be read.
func (c *console) proxies(ctx context.Context, s *snapshot, a *about) []inspect.NodeProxy {
	leases, notKnown := c.leases.read(ctx, s.home)
	if notKnown != "" {
		a.NotKnown = append(a.NotKnown, notKnown)
		return nil
	}
	return inspect.NodeProxies(s.nodes, leases)
}

func (q *nodeQuery) wants(n *inspect.NodePlace) bool {
	if !strings.Contains(n.Node, q.Text) || q.Zone != "" && explain.ZoneName(n.Zone) != q.Zone {
		return false
	}
	switch q.State {
	case "notReady":
		return !n.Ready
	case "cordoned":
		return n.Cordoned
	case "notCounted":
		return !n.Counts
	case "noProxy":
		return n.Proxy == inspect.ProxyNone || n.Proxy == inspect.ProxySilent
	}
	return true
}
