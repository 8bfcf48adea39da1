package fabric

import (
	"fmt"
	"slices"

	"github.com/google/nftables"
)

// CutNode cuts a node off from all others and from the control plane. Packets are dropped
// silently, as when a cable is pulled. Pods on the node still reach each other.
func (f *Fabric) CutNode(name string) error { return f.setNodeCut(name, true) }

// HealNode reverts CutNode.
func (f *Fabric) HealNode(name string) error { return f.setNodeCut(name, false) }

func (f *Fabric) setNodeCut(name string, cut bool) error {
	node, err := f.node(name)
	if err != nil {
		return err
	}
	err = f.inRules(func(conn *nftables.Conn, r rules) error {
		return setElement(conn, r.cutNodes, linkKey(node), cut)
	})
	if err != nil {
		return fmt.Errorf("%s node %q: %w", cutVerb(cut), name, err)
	}
	return nil
}

// CutZone cuts a zone off from all others and from the control plane.
func (f *Fabric) CutZone(zone string) error { return f.setZoneCut(zone, true) }

// HealZone reverts CutZone. Nodes that CutNode cut off stay cut off.
func (f *Fabric) HealZone(zone string) error { return f.setZoneCut(zone, false) }

func (f *Fabric) setZoneCut(zone string, cut bool) error {
	if _, ok := f.shape.Zone(zone); !ok {
		return fmt.Errorf("zone %q: lab %q has no zone of this name", zone, f.shape.Name)
	}
	err := f.inRules(func(conn *nftables.Conn, r rules) error {
		return setElement(conn, r.cutZones, zoneKey(zone), cut)
	})
	if err != nil {
		return fmt.Errorf("%s zone %q: %w", cutVerb(cut), zone, err)
	}
	return nil
}

func setElement(conn *nftables.Conn, set *nftables.Set, key []byte, present bool) error {
	if !present {
		return removeElement(conn, set, key)
	}
	return conn.SetAddElements(set, []nftables.SetElement{{Key: key}})
}

func cutVerb(cut bool) string {
	if cut {
		return "cutting off"
	}
	return "healing"
}

// Cuts are the nodes and zones that CutNode and CutZone cut off, in the order of the shape.
type Cuts struct{ Nodes, Zones []string }

// Cuts returns the nodes and zones that are cut off.
func (f *Fabric) Cuts() (Cuts, error) {
	var cutNodes, cutZones []nftables.SetElement
	err := f.inRules(func(conn *nftables.Conn, r rules) (err error) {
		if cutNodes, err = conn.GetSetElements(r.cutNodes); err != nil {
			return err
		}
		cutZones, err = conn.GetSetElements(r.cutZones)
		return err
	})
	if err != nil {
		return Cuts{}, fmt.Errorf("reading the cuts: %w", err)
	}
	var cuts Cuts
	for _, node := range f.shape.Nodes() {
		if hasElement(cutNodes, linkKey(node)) {
			cuts.Nodes = append(cuts.Nodes, node.Name)
		}
	}
	for _, zone := range f.shape.Zones {
		if hasElement(cutZones, zoneKey(zone.Name)) {
			cuts.Zones = append(cuts.Zones, zone.Name)
		}
	}
	return cuts, nil
}

func hasElement(elements []nftables.SetElement, key []byte) bool {
	return slices.ContainsFunc(elements, func(e nftables.SetElement) bool { return slices.Equal(e.Key, key) })
}

// ZonePair is a direction between two zones, or within one.
type ZonePair struct {
	From, To string
}

// Traffic returns the bytes that the nodes of each zone, with their pods, have sent to nodes of
// each zone since the lab came up. It does not count traffic inside a node, with the control
// plane, or dropped by a cut. Pairs without traffic are missing.
func (f *Fabric) Traffic() (map[ZonePair]uint64, error) {
	traffic := map[ZonePair]uint64{}
	err := f.inRules(func(conn *nftables.Conn, r rules) error {
		elements, err := conn.GetSetElements(r.traffic)
		if err != nil {
			return err
		}
		pairs := f.zonePairs()
		for _, element := range elements {
			if pair, known := pairs[string(element.Key)]; known && element.Counter != nil {
				traffic[pair] = element.Counter.Bytes
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the traffic between zones: %w", err)
	}
	return traffic, nil
}

func (f *Fabric) zonePairs() map[string]ZonePair {
	pairs := map[string]ZonePair{}
	for _, from := range f.shape.Zones {
		for _, to := range f.shape.Zones {
			pairs[string(pairKey(from.Name, to.Name))] = ZonePair{From: from.Name, To: to.Name}
		}
	}
	return pairs
}
