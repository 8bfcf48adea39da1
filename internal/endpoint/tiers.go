package endpoint

import (
	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/topology"
)

// clientTiers are tiers with the client's values of their keys.
type clientTiers struct {
	node string
	keys []string
	// own are the values of the keys, empty where the node has none.
	own     []string
	nearest Rank
}

// Value returns the client's value of a key, empty if it has none. Without a hostname label that is the name of the
// node.
func (c *Client) Value(key string) string {
	switch key {
	case topology.Zone:
		return c.Zone
	case topology.Hostname:
		if c.Labels[key] == "" {
			return c.Node
		}
	}
	return c.Labels[key]
}

func (t *clientTiers) read(c *Client, keys []string) {
	t.node, t.keys, t.own, t.nearest = c.Node, keys, t.own[:0], 0
	for _, key := range keys {
		t.own = append(t.own, c.Value(key))
	}
}

func (t *clientTiers) rank(e *v1alpha1.GroupEndpoint) Rank {
	if len(t.keys) == 0 {
		return 0
	}
	for i := range t.keys {
		if t.reaches(i, e) {
			return min(Rank(i), None-1)
		}
	}
	return None
}

// reaches reports whether the endpoint is in the node's domain of a key. An endpoint on the node is in all its domains,
// even if groups lack the labels yet. The exception is an empty domain of a group: the nodes of that domain would
// overload the endpoint.
func (t *clientTiers) reaches(i int, e *v1alpha1.GroupEndpoint) bool {
	key, own := t.keys[i], t.own[i]
	domain, given := e.Domains[key]
	switch {
	case key == topology.Anywhere:
		return true
	case own == "" || given && domain == "":
		return false
	case e.Node != "" && e.Node == t.node:
		return true
	case key == topology.Zone:
		return e.Zone == own
	case key == topology.Hostname:
		// Groups omit a hostname that equals the node's name.
		if given {
			return domain == own
		}
		return e.Node == own
	}
	return domain == own
}
