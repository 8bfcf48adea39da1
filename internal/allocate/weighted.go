package allocate

// weightedScratch is the scratch memory of localWeighted.
type weightedScratch struct {
	given   []int     // members of the zones' own groups, by group and home zone
	spare   []int     // whole endpoints to spare, by zone
	shared  []int     // endpoints that the home zone uses in part, by zone
	lacks   []float64 // needs: fractions by zone, then whole ones by zone
	weights []float64 // of a group's consumers
}

// localWeighted gives each zone exactly its expected endpoints. Whole spare endpoints go to whole
// needs. Zones share the rest, one group for each endpoint, with weights that add up to one.
func (p *Planner) localWeighted() verdict {
	w, n := &p.weightedScratch, len(p.zones)
	w.given, w.spare, w.shared = grow(w.given, n*n), grow(w.spare, n), grow(w.shared, n)
	w.lacks = grow(w.lacks, 2*n)
	for z := range p.zones {
		p.splitExact(z)
	}
	p.fillWholeNeeds()
	for z := range p.zones {
		for home, count := range w.given[z*n : (z+1)*n] {
			p.plan.member(home, count)
		}
		p.plan.consumer(z, 1)
		p.plan.close()
	}
	p.shareLeftovers()
	return verdict{rule: RulePlanned}
}

// splitExact divides a zone's surplus or lack into whole endpoints and a fraction.
func (p *Planner) splitExact(z int) {
	w, n, endpoints := &p.weightedScratch, len(p.zones), p.zones[z].Endpoints
	floor := p.floor(z)
	lack := p.expected[z] - float64(endpoints)
	if lack > -tolerance {
		needs := float64(whole(lack))
		w.given[z*n+z] = endpoints
		w.lacks[z], w.lacks[n+z] = lack-needs, needs
		return
	}
	w.given[z*n+z] = floor
	w.spare[z] = whole(-lack)
	w.shared[z] = endpoints - floor - w.spare[z]
}

// fillWholeNeeds moves whole spare endpoints to zones with whole needs, both in the order of names.
func (p *Planner) fillWholeNeeds() {
	w, n := &p.weightedScratch, len(p.zones)
	for z := range p.zones {
		for giver := range p.zones {
			amount := min(int(w.lacks[n+z]), w.spare[giver])
			w.lacks[n+z] -= float64(amount)
			w.spare[giver] -= amount
			w.given[z*n+giver] += amount
		}
	}
}

// shareLeftovers adds a group for each remaining endpoint: first the ones that the home zone uses in part, then whole
// ones that no zone needed whole.
func (p *Planner) shareLeftovers() {
	w, need := &p.weightedScratch, 0
	for home := range p.zones {
		for range w.shared[home] {
			need = p.shareOne(home, p.expected[home]-float64(p.floor(home)), need)
		}
	}
	for home := range p.zones {
		for range w.spare[home] {
			need = p.shareOne(home, 0, need)
		}
	}
}

// shareOne adds a group of one endpoint of the home zone, which uses its own fraction of it. Needs from the given one
// on fill the rest; it returns the first need that is left.
func (p *Planner) shareOne(home int, own float64, need int) int {
	w, n := &p.weightedScratch, len(p.zones)
	w.weights = grow(w.weights, n)
	w.weights[home] = own
	left := 1 - own
	for left > tolerance && need < len(w.lacks) {
		if w.lacks[need] <= tolerance { // none, or a rest from rounding
			need++
			continue
		}
		amount := min(left, w.lacks[need])
		w.weights[need%n] += amount
		w.lacks[need] -= amount
		left -= amount
	}
	p.plan.member(home, 1)
	for z, weight := range w.weights {
		if weight > 0 {
			p.plan.consumer(z, weight)
		}
	}
	p.plan.close()
	return need
}
