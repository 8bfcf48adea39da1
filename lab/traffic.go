package lab

import (
	"vicinity.dev/vicinity/lab/fabric"
)

// Traffic is what the nodes of each zone sent to nodes of each zone, as a cloud would count
// it: without traffic inside a node.
type Traffic map[fabric.ZonePair]fabric.Traffic

// Traffic is that since the lab came up.
func (c *Cluster) Traffic() (Traffic, error) {
	network, err := c.network()
	if err != nil {
		return nil, err
	}
	traffic, err := network.Traffic()
	return Traffic(traffic), err
}

// Since returns the difference to an earlier measurement.
func (t Traffic) Since(before Traffic) Traffic {
	since := Traffic{}
	for pair, now := range t {
		then := before[pair]
		since[pair] = fabric.Traffic{Bytes: now.Bytes - then.Bytes, Packets: now.Packets - then.Packets}
	}
	return since
}

// Between is the traffic from one zone to another, or within one.
func (t Traffic) Between(from, to string) fabric.Traffic {
	return t[fabric.ZonePair{From: from, To: to}]
}

// CrossZone is the traffic between zones.
func (t Traffic) CrossZone() fabric.Traffic {
	return t.sum(func(pair fabric.ZonePair) bool { return pair.From != pair.To })
}

// All is the traffic between nodes.
func (t Traffic) All() fabric.Traffic {
	return t.sum(func(fabric.ZonePair) bool { return true })
}

func (t Traffic) sum(counts func(fabric.ZonePair) bool) fabric.Traffic {
	var sum fabric.Traffic
	for pair, traffic := range t {
		if counts(pair) {
			sum.Bytes += traffic.Bytes
			sum.Packets += traffic.Packets
		}
	}
	return sum
}
