package allocate

import "slices"

// local lets each zone start with its own endpoints. Zones that may give then give to zones at or
// above the threshold. After that they give whole spare endpoints to zones that lack whole ones.
func (p *Planner) local(threshold float64) verdict {
	x := &p.exchange
	x.start(p, threshold, 0)
	if receiver := x.relieveOverloaded(); receiver >= 0 {
		return verdict{
			rule: RuleOverload, zone: x.firstConsumer(receiver),
			overload: overload(x.expected[receiver], x.size[receiver]),
		}
	}
	x.evenOut()
	x.write(&p.plan)
	return verdict{rule: RulePlanned}
}

// relieveOverloaded brings the zones at or above the threshold below it. It returns the first zone
// that finds no giver, or -1.
func (x *exchange) relieveOverloaded() (receiver int) {
	x.queueReceivers()
	for _, receiver := range x.receivers {
		for x.isOverloaded(receiver.zone) {
			if !x.giveOne(receiver.zone) {
				return receiver.zone
			}
		}
	}
	return -1
}

// evenOut lets each remaining giver give once, until the first of them has no whole endpoint to
// spare or the first receiver lacks none.
func (x *exchange) evenOut() {
	for len(x.givers) > 0 {
		giver := x.givers[0].zone
		x.givers = slices.Delete(x.givers, 0, 1)
		if whole(x.spare(giver)) < 1 || !x.giveSpare(giver) {
			return
		}
	}
}

// giveSpare gives the giver's whole spare endpoints to the receivers in their order, as many as
// each lacks. It reports whether all were needed.
func (x *exchange) giveSpare(giver int) bool {
	x.queueReceivers()
	for _, receiver := range x.receivers {
		spare, lack := whole(x.spare(giver)), whole(x.lack(receiver.zone))
		if spare < 1 {
			return true
		}
		if lack < 1 {
			return false
		}
		x.move(giver, receiver.zone, min(spare, lack))
	}
	return true
}
