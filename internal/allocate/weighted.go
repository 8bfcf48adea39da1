package allocate

// localWeighted gives each zone exactly what it expects. Whole endpoints move as
// in local; the fractions that remain are served by endpoints that each are a group
// of their own, shared by several zones in proportion, the home zone first.
func (p *Planner) localWeighted() verdict {
	n := len(p.zones)
	p.size = grow(p.size, n)
	p.given = grow(p.given, n*n)
	for z := range p.zones {
		p.size[z] = p.zones[z].Endpoints
	}
	for {
		giver, receiver := p.extremes()
		if p.lack(receiver) < 1-tolerance || p.lack(giver) > -1+tolerance {
			break
		}
		p.give(giver, receiver)
	}
	// A zone that expects less than it has shares the endpoints beyond the whole
	// part of what it expects.
	p.lacks = grow(p.lacks, n)
	p.shared = grow(p.shared, n)
	for z := range p.zones {
		p.lacks[z] = p.lack(z)
		for p.lacks[z] < -tolerance {
			p.shared[z]++
			p.lacks[z]++
		}
	}
	for z := range p.zones {
		p.given[z*n+z] -= p.shared[z]
		p.members(z)
		p.plan.consumer(z, 1)
		p.plan.close()
	}
	for home := range p.zones {
		for range p.shared[home] {
			p.shareOne(home)
		}
	}
	return verdict{rule: RulePlanned}
}

// extremes are the zones with the most to spare and with the greatest lack.
func (p *Planner) extremes() (giver, receiver int) {
	for z := 1; z < len(p.zones); z++ {
		if p.lack(z) > p.lack(receiver)+tolerance {
			receiver = z
		}
		if p.lack(z) < p.lack(giver)-tolerance {
			giver = z
		}
	}
	return giver, receiver
}

// lack is how many endpoints the zone has fewer than expected.
func (p *Planner) lack(z int) float64 {
	return p.expected[z] - float64(p.size[z])
}

// shareOne adds a group of one of the home zone's endpoints. Its consumers take
// what they lack, the home zone first and then those that lack most, until the
// endpoint has the even share of traffic.
func (p *Planner) shareOne(home int) {
	p.weights = grow(p.weights, len(p.zones))
	left := 1.0
	take := func(z int) {
		p.weights[z] = min(left, p.lacks[z])
		p.lacks[z] -= p.weights[z]
		left -= p.weights[z]
	}
	if p.lacks[home] > tolerance {
		take(home)
	}
	for left > tolerance {
		most := 0
		for z := range p.lacks {
			if p.lacks[z] > p.lacks[most]+tolerance {
				most = z
			}
		}
		if p.lacks[most] <= tolerance {
			break // what is left is rounding
		}
		take(most)
	}
	p.plan.member(home, 1)
	for z, weight := range p.weights {
		if weight > 0 {
			p.plan.consumer(z, weight)
		}
	}
	p.plan.close()
}
