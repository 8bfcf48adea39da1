package proxy

import (
	"slices"
	"time"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// checks decide when to look for changes that others made to the rules.
type checks struct {
	// period is how often all rules are compared without a suspicion.
	period time.Duration

	next time.Time // look
	full time.Time // comparison of everything, at the latest
	// suspicious says that others have changed some rules, and rested when a comparison of everything may
	// follow.
	suspicious bool
	rested     time.Time
	// certain says that others have changed our rules, and soon when a comparison may follow.
	certain bool
	soon    time.Time
	failing bool

	// aside runs a long read beside the programmer, and ends gets its result. underway says that a read runs.
	// missed counts reads in a row that were useless since rules were programmed meanwhile.
	aside    func(func())
	ends     chan []reading
	underway bool
	missed   int
}

// reading is what the kernel held after so many writes.
type reading struct {
	family  *family
	writes  int
	took    time.Duration
	listing ruleset.Listing
	err     error
}

const (
	// lookPeriod is how often to look. A repair follows within a second.
	lookPeriod = 500 * time.Millisecond
	// restFactor bounds the time of comparisons to a 200th, if others such as kube-proxy change so many rules
	// that ours may be among them.
	restFactor = 199
	// longestTrust is the longest time until a change is noticed.
	longestTrust = time.Minute
	// soonFactor bounds it if others change our rules again and again.
	soonFactor = 4
)

func (p *programmer) check(now time.Time) {
	c := &p.checks
	c.next = now.Add(lookPeriod)
	found, err := p.writer.kernel.Interference()
	if err != nil {
		p.checkFailed(err)
		return
	}
	c.suspicious = c.suspicious || found != ruleset.NoInterference
	c.certain = c.certain || found == ruleset.Interfered
	everything := c.suspicious && !c.rested.After(now) || (c.certain || !c.full.After(now)) && !c.soon.After(now)
	if !everything && found == ruleset.NoInterference {
		if !c.suspicious && !c.certain && !c.underway {
			p.checkSucceeded() // what is cheap to see was seen
		}
		return
	}
	if c.underway {
		return
	}
	if everything {
		p.compareAll()
		return
	}
	for _, f := range p.comparable() {
		if err := p.compareShape(f); err != nil {
			p.checkFailed(err)
			return
		}
	}
}

// comparable are the families with a known state in the kernel.
func (p *programmer) comparable() []*family {
	return slices.DeleteFunc(slices.Clone(p.families), func(f *family) bool { return !f.active || f.doubtful })
}

// mostMissed is how often a read may be useless before changes wait for it.
const mostMissed = 3

// compareAll begins a comparison of everything. Changes do not wait: the rules of a large cluster take half a
// second to read.
func (p *programmer) compareAll() {
	c := &p.checks
	var all []reading
	for _, f := range p.comparable() {
		all = append(all, reading{family: f, writes: f.writes})
	}
	c.suspicious, c.certain, c.underway = false, false, true
	read := func() {
		for i := range all {
			began := p.clock.Now()
			all[i].listing, all[i].err = p.writer.kernel.Read(all[i].family.number)
			all[i].took = p.clock.Now().Sub(began)
		}
		c.ends <- all
	}
	if c.missed < mostMissed {
		c.aside(read)
	} else {
		read()
	}
	select {
	case all := <-c.ends:
		p.compared(all)
	default:
	}
}

// compared repairs what differs from a read.
func (p *programmer) compared(all []reading) {
	c := &p.checks
	c.underway = false
	var took time.Duration
	missed := false
	for i := range all {
		one := &all[i]
		took += one.took
		switch {
		case one.family.doubtful:
		case one.writes != one.family.writes:
			missed = true
		case one.err != nil:
			p.checkFailed(one.err)
			missed = true
		default:
			p.compare(one.family, one.listing)
		}
	}
	now := p.clock.Now()
	c.rested = now.Add(min(restFactor*took, longestTrust))
	c.soon = now.Add(min(soonFactor*took, longestTrust))
	if missed {
		// The difference is still there.
		c.missed = (c.missed + 1) % (mostMissed + 1)
		c.certain = true
		return
	}
	c.missed = 0
	c.full = now.Add(c.period)
}

// checkFailed logs the first failure in a row.
func (p *programmer) checkFailed(err error) {
	p.metrics.failed(stepCheck)
	if !p.checks.failing {
		p.log.Error(err, "Cannot check whether another program changed the rules")
	}
	p.checks.failing = true
}

func (p *programmer) checkSucceeded() {
	if p.checks.failing {
		p.log.Info("Checks for changes of the rules by other programs work again")
	}
	p.checks.failing = false
}

// compareShape compares chains, rules and maps, which costs little. It reads the elements only if these differ.
func (p *programmer) compareShape(f *family) error {
	listing, err := p.writer.kernel.Shape(f.number)
	if err != nil || f.table.HoldsShape(listing) {
		return err
	}
	if listing, err = f.read(p.writer.kernel); err != nil {
		return err
	}
	p.compare(f, listing)
	return nil
}

// compare compares a family's rules with the kernel's, and stages a repair.
func (p *programmer) compare(f *family, listing ruleset.Listing) {
	if f.table.Holds(listing) {
		return
	}
	differences := f.table.Differences(listing)
	p.metrics.foreign.WithLabelValues(f.String()).Inc()
	p.log.Info("Another program changed the rules: repairing them", "family", f.String(),
		"differences", len(differences), "first", differences[:min(len(differences), mostDifferences)])
	f.take(listing)
	f.retry = p.clock.Now()
	if p.proving != nil {
		p.proving.prober.Ask() // it may have changed more than that
	}
}

const mostDifferences = 5
