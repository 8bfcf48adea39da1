package compile

import (
	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/topology"
)

// nodeTiers are tiers with the places of the node.
type nodeTiers struct {
	node string
	keys []string
	// own are the values of the keys on the node, empty where it has none.
	own []string
}

// tiers finds the node's places of some keys. Where the node has no label for its
// hostname it is called by its name, as endpoints on it are.
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

// none is farther than any tier, of which there are fewer.
const none = rankMask

// rank is the first tier that has the endpoint, or none. Without tiers it is the first.
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

// reaches reports whether the endpoint is in the node's place of a key. What is on the
// node is in all places of the node, whatever the groups know of its labels so far, but
// for those of which groups say that they have it no more: their nodes would overload it.
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
		// Groups leave out what is the node's name.
		if given {
			return domain == own
		}
		return e.Node == own
	}
	return domain == own
}
