package endpoint

import (
	"slices"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/topology"
)

// Client is the place of a client: a node with its labels. A client at an unknown place is like a node without a name
// and labels: it sees all groups, and only the tier "*" reaches an endpoint for it.
type Client struct {
	// Node is the name of the node.
	Node string
	// Zone is the value of the label topology.kubernetes.io/zone.
	Zone string
	// Labels are the labels that tiers may name.
	Labels map[string]string
}

// Use says how a client uses a group.
type Use struct {
	// Visible says that the client's zone sees the group.
	Visible bool
	// Weight is the group's weight for the client's zone, zero without one.
	Weight int32
	// tiers is an index of Choice.tiers plus one. It is zero if the client uses only endpoints on its own node.
	tiers int
}

// Used reports whether the client uses the group for traffic that may leave the node.
func (u Use) Used() bool { return u.tiers > 0 }

// Rank is the distance of an endpoint: less is nearer.
type Rank int

// None is the rank of an endpoint that no tier reaches. Ranks must fit into five bits.
const None Rank = 1<<5 - 1

// Choice finds the nearest endpoints of some groups. Call Read for each group, then Begin, then Consider for each
// endpoint, and then Takes. Another Begin starts over with other endpoints.
type Choice struct {
	client Client
	// tiers are the different tiers of the used groups. The client uses the nearest endpoints of each.
	tiers []clientTiers
	hard  bool
}

// NewChoice returns a choice for a client.
func NewChoice(client Client) Choice { return Choice{client: client} }

// Read returns how the client uses a group: not at all if its zone does not see it, and only on its own node if the
// group is in the zone for traffic that stays on a node.
func (c *Choice) Read(g *v1alpha1.EndpointGroup) Use {
	zone := c.client.Zone
	if zone != "" {
		if _, hidden := g.Labels[v1alpha1.LabelNotForPrefix+zone]; hidden {
			return Use{}
		}
	}
	c.hard = c.hard || topology.Tiers(g.Spec.Tiers).Hard()
	u := Use{Visible: true}
	named := slices.IndexFunc(g.Spec.Consumers, func(c v1alpha1.GroupConsumer) bool { return c.Zone == zone })
	switch {
	case zone == "":
		// Weights are by zone. A client without a zone uses all endpoints equally.
	case named >= 0:
		u.Weight = g.Spec.Consumers[named].Weight
	case g.Spec.LocalOnly && slices.ContainsFunc(g.Spec.Endpoints, func(e v1alpha1.GroupEndpoint) bool { return e.Zone == zone }):
		return u
	}
	u.tiers = c.withTiers(g.Spec.Tiers)
	return u
}

// withTiers returns the index of tiers in the choice, plus one.
func (c *Choice) withTiers(keys []string) int {
	for i := range c.tiers {
		if slices.Equal(c.tiers[i].keys, keys) {
			return i + 1
		}
	}
	// The memory of an earlier choice is used again.
	c.tiers = slices.Grow(c.tiers, 1)[:len(c.tiers)+1]
	c.tiers[len(c.tiers)-1].read(&c.client, keys)
	return len(c.tiers)
}

// Hard reports whether the client sees a group with hard tiers.
func (c *Choice) Hard() bool { return c.hard }

// Rank returns the first tier of the group that reaches the endpoint, or None. Without tiers it is 0.
func (c *Choice) Rank(u Use, e *v1alpha1.GroupEndpoint) Rank {
	if !u.Used() {
		return None
	}
	return c.tiers[u.tiers-1].rank(e)
}

// Begin forgets the considered endpoints. It reports whether there are tiers: without any the choice takes all
// endpoints, considered or not.
func (c *Choice) Begin() bool {
	constrained := false
	for i := range c.tiers {
		c.tiers[i].nearest = 0
		if len(c.tiers[i].keys) > 0 {
			c.tiers[i].nearest, constrained = None-1, true
		}
	}
	return constrained
}

// Consider notes a usable endpoint. It reports whether the endpoint is at least as near as all before it.
func (c *Choice) Consider(u Use, rank Rank) bool {
	if rank == None || rank > c.tiers[u.tiers-1].nearest {
		return false
	}
	c.tiers[u.tiers-1].nearest = rank
	return true
}

// Takes reports whether an endpoint is among the nearest.
func (c *Choice) Takes(u Use, rank Rank) bool {
	return rank != None && rank == c.tiers[u.tiers-1].nearest
}

// Same reports whether two groups with one address have the same endpoint. An address that passes to another pod is in
// the groups of both for a while.
func Same(a, b *v1alpha1.GroupEndpoint) bool { return a.Node == b.Node }
