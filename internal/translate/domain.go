package translate

import (
	"maps"
	"slices"
)

// Domains are the nodes by their value of the label key, in the order of names. Nodes
// without the label are in none.
func (c *Cluster) Domains(key string) map[string][]string {
	domains := map[string][]string{}
	for name, at := range c.nodes {
		if value := at.labels[key]; value != "" {
			domains[value] = append(domains[value], name)
		}
	}
	for _, nodes := range domains {
		slices.Sort(nodes)
	}
	return domains
}

// HasNode reports whether there is a node of the name.
func (c *Cluster) HasNode(name string) bool {
	_, found := c.nodes[name]
	return found
}

// Names are the names of all nodes, in order.
func (c *Cluster) Names() []string {
	return slices.Sorted(maps.Keys(c.nodes))
}
