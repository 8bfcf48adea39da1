package compile

import (
	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/topology"
)

// nodeTiers are tiers with the values that the node has for their keys.
type nodeTiers struct {
	node string
	keys []string
	// own are the values of the keys, empty where the node has none.
	own []string
}

// tiers finds the node's values of keys. Without a label for its hostname that is its name.
func (n *Node) tiers(keys []string) nodeTiers {
	t := nodeTiers{node: n.Name, keys: keys, own: make([]string, len(keys))}
	for i, key := range keys {
		switch key {
		case topology.Zone:
			t.own[i] = n.Zone
		case topology.Hostname:
			if t.own[i] = n.Labels[key]; t.own[i] == "" {
				t.own[i] = n.Name
			}
		default:
			t.own[i] = n.Labels[key]
		}
	}
	return t
}

// none is the rank of an endpoint that no tier reaches.
const none = rankMask

// rank is the first tier that reaches the endpoint, or none. Without tiers it is 0.
func (t *nodeTiers) rank(e *v1alpha1.GroupEndpoint) int {
	if len(t.keys) == 0 {
		return 0
	}
	for i := range t.keys {
		if t.reaches(i, e) {
			return min(i, none-1)
		}
	}
	return none
}

// reaches reports whether the endpoint is in the node's domain of a key. An endpoint on the
// node is in all its domains, even if groups do not have the labels yet, except where a
// group has an empty domain: then the nodes of that domain would overload it.
func (t *nodeTiers) reaches(i int, e *v1alpha1.GroupEndpoint) bool {
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
		// Groups leave out a hostname that is the node's name.
		if given {
			return domain == own
		}
		return e.Node == own
	}
	return domain == own
}
