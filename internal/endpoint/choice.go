package endpoint

import (
	"slices"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/topology"
)

// Client is where a client is: a node with its labels. A client of which nothing is known is
// like a node without a name and labels: it sees all groups, and of tiers only "*" reaches
// an endpoint for it.
type Client struct {
	// Node is the name of the node.
	Node string
	// Zone is the value of the label topology.kubernetes.io/zone.
	Zone string
	// Labels are those that tiers may name.
	Labels map[string]string
}

// Use is what a client does with a group.
type Use struct {
	// Visible says that the group is not kept from the client's zone.
	Visible bool
	// Weight is that of the group's endpoints as the group says it, zero if it says none.
	Weight int32
	// tiers is an index of Choice.tiers plus one, zero if the client uses nothing of the group
	// but what must stay on its node.
	tiers int
}

// Used reports whether the client uses the group for what may go anywhere.
func (u Use) Used() bool { return u.tiers > 0 }

// Rank says how near an endpoint is, less is nearer.
type Rank int

// None is the rank of an endpoint that no tier reaches. All ranks fit into five bits.
const None Rank = 1<<5 - 1

// Choice finds the nearest endpoints among those of some groups. Groups are read first, then
// each endpoint is considered, and then the choice says which it takes. It may begin again
// with others.
type Choice struct {
	client Client
	// tiers are the different ones of the groups that the client uses. It uses the nearest
	// endpoints of each.
	tiers []clientTiers
	hard  bool
}

// NewChoice returns a choice for a client.
func NewChoice(client Client) Choice { return Choice{client: client} }

// Read says what the client does with a group: it uses the group unless that is not for its
// zone, or is there for traffic that stays on a node only.
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
		// Weights are by zone. A client without a zone uses all endpoints alike.
	case named >= 0:
		u.Weight = g.Spec.Consumers[named].Weight
	case g.Spec.LocalOnly && slices.ContainsFunc(g.Spec.Endpoints, func(e v1alpha1.GroupEndpoint) bool { return e.Zone == zone }):
		return u
	}
	u.tiers = c.withTiers(g.Spec.Tiers)
	return u
}

// withTiers is the place of tiers among those of the choice, plus one.
func (c *Choice) withTiers(keys []string) int {
	for i := range c.tiers {
		if slices.Equal(c.tiers[i].keys, keys) {
			return i + 1
		}
	}
	// An entry that a choice before has left keeps its memory.
	c.tiers = slices.Grow(c.tiers, 1)[:len(c.tiers)+1]
	c.tiers[len(c.tiers)-1].read(&c.client, keys)
	return len(c.tiers)
}

// Hard reports whether a group that the client sees has tiers that leave it nothing rather
// than an endpoint that they do not reach.
func (c *Choice) Hard() bool { return c.hard }

// Rank is the first tier of the group that reaches the endpoint, or None. Without tiers it
// is 0.
func (c *Choice) Rank(u Use, e *v1alpha1.GroupEndpoint) Rank {
	if !u.Used() {
		return None
	}
	return c.tiers[u.tiers-1].rank(e)
}

// Begin forgets the endpoints that were considered. It reports whether there are tiers: if
// not, the choice takes all, and considering them changes nothing.
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

// Consider takes note of an endpoint that can be used. It reports whether the endpoint is as
// near as the nearest so far, or nearer.
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

// Same reports whether what two groups say of one address is about the same endpoint. An
// address that passes to another pod is in the groups of both for a while.
func Same(a, b *v1alpha1.GroupEndpoint) bool { return a.Node == b.Node }
