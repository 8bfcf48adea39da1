package allocate

// localWeighted gives each zone exactly what it expects. Whole endpoints to spare go
// to whole needs; what then remains is shared, one group for each endpoint, by zones
// whose weights add up to one.
func (p *Planner) localWeighted() verdict {
	n := len(p.zones)
	p.given = grow(p.given, n*n) // members of the zones' own groups, by home zone
	p.size = grow(p.size, n)     // whole endpoints to spare
	p.shared = grow(p.shared, n) // endpoints of which the home zone uses a fraction itself
	p.lacks = grow(p.lacks, 2*n) // needs: fractions by zone, then whole ones by zone
	for z := range p.zones {
		p.splitExact(z)
	}
	p.fillWholeNeeds()
	for z := range p.zones {
		for home, count := range p.given[z*n : (z+1)*n] {
			p.plan.member(home, count)
		}
		p.plan.consumer(z, 1)
		p.plan.close()
	}
	p.shareLeftovers()
	return verdict{rule: RulePlanned}
}

// splitExact divides what a zone has to spare, or lacks, into whole endpoints and a
// fraction.
func (p *Planner) splitExact(z int) {
	n, endpoints := len(p.zones), p.zones[z].Endpoints
	floor := p.floor(z)
	lack := p.expected[z] - float64(endpoints)
	if lack > -tolerance {
		needs := float64(whole(lack))
		p.given[z*n+z] = endpoints
		p.lacks[z], p.lacks[n+z] = lack-needs, needs
		return
	}
	p.given[z*n+z] = floor
	p.size[z] = whole(-lack)
	p.shared[z] = endpoints - floor - p.size[z]
}

// fillWholeNeeds moves whole endpoints to spare to zones with whole needs, both in
// the order of names.
func (p *Planner) fillWholeNeeds() {
	n := len(p.zones)
	for z := range p.zones {
		for giver := range p.zones {
			amount := min(int(p.lacks[n+z]), p.size[giver])
			p.lacks[n+z] -= float64(amount)
			p.size[giver] -= amount
			p.given[z*n+giver] += amount
		}
	}
}

// shareLeftovers adds a group for each endpoint that remains: those of which the home
// zone uses a fraction, then whole ones that no zone needed whole.
func (p *Planner) shareLeftovers() {
	need := 0
	for home := range p.zones {
		for range p.shared[home] {
			need = p.shareOne(home, p.expected[home]-float64(p.floor(home)), need)
		}
	}
	for home := range p.zones {
		for range p.size[home] {
			need = p.shareOne(home, 0, need)
		}
	}
}

// shareOne adds a group of one of the home zone's endpoints, of which that zone uses
// its own fraction. The needs from the given one on fill the rest; it returns the
// first that is left.
func (p *Planner) shareOne(home int, own float64, need int) int {
	n := len(p.zones)
	p.weights = grow(p.weights, n)
	p.weights[home] = own
	left := 1 - own
	for left > tolerance && need < len(p.lacks) {
		if p.lacks[need] <= tolerance { // none, or what rounding left of it
			need++
			continue
		}
		amount := min(left, p.lacks[need])
		p.weights[need%n] += amount
		p.lacks[need] -= amount
		left -= amount
	}
	p.plan.member(home, 1)
	for z, weight := range p.weights {
		if weight > 0 {
			p.plan.consumer(z, weight)
		}
	}
	p.plan.close()
	return need
}
