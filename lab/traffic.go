package lab

import (
	"vicinity.dev/vicinity/lab/fabric"
)

// Traffic has the bytes that the nodes of each zone sent to nodes of each zone. As a cloud does, it
// does not count traffic inside a node.
type Traffic map[fabric.ZonePair]uint64

// Traffic returns the traffic since the lab came up.
func (c *Cluster) Traffic() (Traffic, error) {
	network, err := c.network()
	if err != nil {
		return nil, err
	}
	return network.Traffic()
}

// Since returns the difference to an earlier measurement.
func (t Traffic) Since(before Traffic) Traffic {
	since := Traffic{}
	for pair, bytes := range t {
		since[pair] = bytes - before[pair]
	}
	return since
}

// Between returns the traffic from one zone to another, or within one.
func (t Traffic) Between(from, to string) uint64 { return t[fabric.ZonePair{From: from, To: to}] }

// CrossZone returns the traffic between zones.
func (t Traffic) CrossZone() uint64 {
	var sum uint64
	for pair, bytes := range t {
		if pair.From != pair.To {
			sum += bytes
		}
	}
	return sum
}

// All returns the traffic between nodes.
func (t Traffic) All() uint64 {
	var sum uint64
	for _, bytes := range t {
		sum += bytes
	}
	return sum
}
