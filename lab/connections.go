package lab

import "vicinity.dev/vicinity/lab/fabric"

// Connections lists the tracked connections of a node with their endpoints, including ended
// ones that have not expired.
func (c *Cluster) Connections(node string) ([]fabric.Connection, error) {
	network, err := c.network()
	if err != nil {
		return nil, err
	}
	return network.Connections(node)
}
