package allocate

import "math/bits"

// homing finds the home zones of the endpoints of cells, so that as much traffic as possible stays
// in its zone. Groups of the transport are cells.
type homing struct {
	transport
	cells []cell
}

// load sets up the transport. An endpoint at home is worth its zone's load. Only the order of the
// loads matters, because of the polymatroid in inZoneOverlapping. So ranks stand for the loads;
// their sums are exact.
func (o *homing) load(p *Planner, cells []cell, traffic []int) {
	o.clear(len(p.zones), len(cells))
	o.cells = cells
	var load [coverZones]float64
	for i, z := range traffic {
		width := 0
		for g := range cells {
			if cells[g].mask>>i&1 != 0 {
				width += cells[g].count
			}
		}
		load[i] = p.expected[z] / float64(width)
	}
	for z := range p.zones {
		o.supply[z] = p.zones[z].Endpoints
	}
	for i, z := range traffic {
		rank := 1
		for j := range traffic {
			if load[j] < load[i]-tolerance {
				rank++
			}
		}
		for g := range cells {
			if cells[g].mask>>i&1 != 0 {
				// Any number of kept endpoints is worth less than one rank.
				o.worth[z*o.groups+g] = rank * (p.endpoints + 1)
			}
		}
	}
	for g := range cells {
		o.demand[g] = cells[g].count
	}
	for i := range p.prior.Groups {
		prior := &p.prior.Groups[i]
		mask := consumerMask(p, prior, traffic)
		for g := range cells {
			if cells[g].mask != mask {
				continue
			}
			for _, m := range prior.Members {
				o.keep[m.Zone*o.groups+g] += m.Endpoints
			}
		}
	}
}

// build makes the groups of the planner's plan.
func (o *homing) build(p *Planner, traffic []int) {
	for g := range o.cells {
		for h := range o.homes {
			p.plan.member(h, o.sent[h*o.groups+g])
		}
		if mask := o.cells[g].mask; bits.OnesCount32(mask) == len(traffic) {
			for z := range p.zones {
				p.plan.consumer(z, 1)
			}
		} else {
			for ; mask != 0; mask &= mask - 1 {
				p.plan.consumer(traffic[bits.TrailingZeros32(mask)], 1)
			}
		}
		p.plan.close()
	}
}
