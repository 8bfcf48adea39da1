package routing

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// widen gives zones that may use none of the endpoints with some port all that have
// it: the plan is about endpoints, and in a Service whose endpoints differ in their
// ports a zone's own may lack one.
func (p *groupPlanner) widen() {
	if len(p.parts) < 2 || p.hard || p.decided == nil {
		return
	}
	type port struct {
		name     string
		protocol corev1.Protocol
	}
	having := map[port][]*bucket{}
	var ports []port
	for _, b := range p.order {
		if !b.ready() {
			continue
		}
		for _, had := range b.part.ports {
			key := port{had.Name, had.Protocol}
			if having[key] == nil {
				ports = append(ports, key)
			}
			having[key] = append(having[key], b)
		}
	}
	for _, key := range ports {
		for _, zone := range p.zones {
			if slices.ContainsFunc(having[key], func(b *bucket) bool { return b.consumers.has(zone) }) {
				continue
			}
			for _, b := range having[key] {
				if !slices.Contains(b.extra, zone) {
					b.extra = append(b.extra, zone)
				}
			}
			note := fmt.Sprintf("not all endpoints have port %q, and none that has it is planned for zone %s: the zone uses all that do, whatever load that makes", key.name, zone)
			if !slices.Contains(p.notes, note) {
				p.notes = append(p.notes, note)
			}
		}
	}
}

// ready reports whether any endpoint that is ready is to be in the bucket.
func (b *bucket) ready() bool {
	return slices.ContainsFunc(b.part.endpoints, func(c *carried) bool { return c.wants == b })
}
