package lab

import "vicinity.dev/vicinity/lab/fabric"

// Connections lists what the kernel tracks on a node: which endpoint each connection
// was given, and what is left of those that have ended.
func (c *Cluster) Connections(node string) ([]fabric.Connection, error) {
	network, err := c.network()
	if err != nil {
		return nil, err
	}
	return network.Connections(node)
}
