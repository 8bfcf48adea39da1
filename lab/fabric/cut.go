package fabric

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"

	"vicinity.dev/vicinity/lab/shape"
)

// CutNode cuts a node off from all others and from the control plane. What is sent is
// lost without an error, as when a cable is pulled somewhere in between. Pods on the
// node still reach each other. A node that is cut already stays cut.
func (f *Fabric) CutNode(name string) error { return f.setNode(name, true) }

// HealNode undoes CutNode.
func (f *Fabric) HealNode(name string) error { return f.setNode(name, false) }

func (f *Fabric) setNode(name string, cut bool) error {
	node, err := f.node(name)
	if err != nil {
		return err
	}
	err = f.inRules(func(conn *nftables.Conn, r rules) error {
		return setElement(conn, r.cutNodes, linkKey(node), cut)
	})
	if err != nil {
		return fmt.Errorf("%s node %q: %w", cutting(cut), name, err)
	}
	return nil
}

// Reach says from what a zone is cut off.
type Reach int

// The reaches of a cut.
const (
	// OtherZones leaves the zone's nodes with each other and with the control plane,
	// which is in no zone.
	OtherZones Reach = iota
	// Everything leaves the zone's nodes with each other.
	Everything
)

// CutZone cuts a zone off. A zone that is cut already is then cut as asked for now.
func (f *Fabric) CutZone(zone string, reach Reach) error {
	return f.setZone(zone, true, reach == Everything)
}

// HealZone undoes CutZone. Nodes that CutNode cut off stay so.
func (f *Fabric) HealZone(zone string) error { return f.setZone(zone, false, false) }

func (f *Fabric) setZone(zone string, cut, control bool) error {
	if _, ok := f.shape.Zone(zone); !ok {
		return fmt.Errorf("zone %q: lab %q has no zone of this name", zone, f.shape.Name)
	}
	err := f.inRules(func(conn *nftables.Conn, r rules) error {
		return errors.Join(
			setElement(conn, r.cutZones, zoneKey(zone), cut),
			setElement(conn, r.cutControl, zoneKey(zone), control),
		)
	})
	if err != nil {
		return fmt.Errorf("%s zone %q: %w", cutting(cut), zone, err)
	}
	return nil
}

func setElement(conn *nftables.Conn, set *nftables.Set, key []byte, present bool) error {
	if !present {
		return removeElement(conn, set, key)
	}
	return conn.SetAddElements(set, []nftables.SetElement{{Key: key}})
}

func cutting(cut bool) string {
	if cut {
		return "cutting off"
	}
	return "healing"
}

// Cuts are what is cut off.
type Cuts struct {
	// Nodes are those that CutNode cut off, in the order of the shape.
	Nodes []string
	// Zones are those that CutZone cut off, and from what.
	Zones map[string]Reach
}

// Cuts says what is cut off now.
func (f *Fabric) Cuts() (Cuts, error) {
	var cutNodes, cutZones, cutControl []nftables.SetElement
	err := f.inRules(func(conn *nftables.Conn, r rules) (err error) {
		if cutNodes, err = conn.GetSetElements(r.cutNodes); err != nil {
			return err
		}
		if cutZones, err = conn.GetSetElements(r.cutZones); err != nil {
			return err
		}
		cutControl, err = conn.GetSetElements(r.cutControl)
		return err
	})
	if err != nil {
		return Cuts{}, fmt.Errorf("reading what is cut off: %w", err)
	}
	cuts := Cuts{Zones: map[string]Reach{}}
	for _, node := range f.shape.Nodes() {
		if holds(cutNodes, linkKey(node)) {
			cuts.Nodes = append(cuts.Nodes, node.Name)
		}
	}
	for _, zone := range f.shape.Zones {
		if !holds(cutZones, zoneKey(zone.Name)) {
			continue
		}
		cuts.Zones[zone.Name] = OtherZones
		if holds(cutControl, zoneKey(zone.Name)) {
			cuts.Zones[zone.Name] = Everything
		}
	}
	return cuts, nil
}

func holds(elements []nftables.SetElement, key []byte) bool {
	return slices.ContainsFunc(elements, func(e nftables.SetElement) bool { return slices.Equal(e.Key, key) })
}

// ZonePair is a direction: from a zone to another, or within one.
type ZonePair struct {
	From, To string
}

// Traffic is what was sent.
type Traffic struct {
	Bytes, Packets uint64
}

// Traffic is what nodes of each zone have sent to nodes of each zone since the lab came
// up, host and pods alike, counted where it leaves the fabric. Zones that sent nothing
// are missing. Traffic inside a node and with the control plane is not counted, nor
// what a cut dropped. Packets are those that the kernel forwarded: several that were
// sent at once may count as one, so bytes are the better measure.
func (f *Fabric) Traffic() (map[ZonePair]Traffic, error) {
	traffic := map[ZonePair]Traffic{}
	err := f.inRules(func(conn *nftables.Conn, r rules) error {
		elements, err := conn.GetSetElements(r.moved)
		if err != nil {
			return err
		}
		pairs := f.pairs()
		for _, element := range elements {
			if pair, known := pairs[string(element.Key)]; known && element.Counter != nil {
				traffic[pair] = Traffic{Bytes: element.Counter.Bytes, Packets: element.Counter.Packets}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the traffic between zones: %w", err)
	}
	return traffic, nil
}

// pairs are all pairs of zones by their keys.
func (f *Fabric) pairs() map[string]ZonePair {
	pairs := map[string]ZonePair{}
	each(f.shape, func(from, to shape.Zone) {
		pairs[string(pairKey(from.Name, to.Name))] = ZonePair{From: from.Name, To: to.Name}
	})
	return pairs
}

// each calls a function with all pairs of zones.
func each(s shape.Shape, f func(from, to shape.Zone)) {
	for _, from := range s.Zones {
		for _, to := range s.Zones {
			f(from, to)
		}
	}
}
