package proxy

import (
	"slices"
	"time"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// checks say when to look whether somebody else has changed the rules.
type checks struct {
	// period is how often everything is compared even if nothing seems to have changed.
	period time.Duration

	next time.Time // look
	full time.Time // comparison of everything, at the latest
	// suspicious says that somebody has changed rules, of which nothing was found yet, and
	// rested is when there may be a comparison of everything for that.
	suspicious bool
	rested     time.Time
	// certain says that it was rules of ours, for which there is one sooner.
	certain bool
	soon    time.Time
	failing bool

	// aside does something that takes long beside all else, and ends is told of what came
	// of it. underway says that there is something to come, and missed how often in a row
	// it was of no use, because rules were programmed meanwhile.
	aside    func(func())
	ends     chan []reading
	underway bool
	missed   int
}

// reading is what the kernel held for a family, which then had been written so many times.
type reading struct {
	family  *family
	writes  int
	took    time.Duration
	listing ruleset.Listing
	err     error
}

const (
	// lookPeriod is how often to look. Together with what it takes to compare and repair,
	// it is less than a second.
	lookPeriod = 500 * time.Millisecond
	// restFactor bounds what comparing takes, and how often changes wait for it, where
	// others, such as kube-proxy, change so many rules of their own that it is not known
	// whether there are any of ours among them: every 200th moment.
	restFactor = 199
	// longestTrust is how long it takes at most until what others did is seen.
	longestTrust = time.Minute
	// soonFactor does the same where somebody changes rules of ours again and again.
	soonFactor = 4
)

// check looks whether somebody else has changed the rules, and puts them right.
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

// comparable are the families that have something in the kernel, of which it is known what.
func (p *programmer) comparable() []*family {
	return slices.DeleteFunc(slices.Clone(p.families), func(f *family) bool { return !f.active || f.doubtful })
}

// mostMissed is how often rules are read in vain before changes wait for it.
const mostMissed = 3

// compareAll begins to compare everything. To read all rules of a large cluster takes
// almost half a second, for which changes do not wait.
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

// compared takes what was read, and puts right what differs.
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
		// What there was to be found is there still.
		c.missed = (c.missed + 1) % (mostMissed + 1)
		c.certain = true
		return
	}
	c.missed = 0
	c.full = now.Add(c.period)
}

// checkFailed counts each failure, and tells of the first in a row.
func (p *programmer) checkFailed(err error) {
	p.metrics.failed(stepCheck)
	if !p.checks.failing {
		p.log.Error(err, "Whether somebody else has changed the rules is not known")
	}
	p.checks.failing = true
}

func (p *programmer) checkSucceeded() {
	if p.checks.failing {
		p.log.Info("Whether somebody else has changed the rules is known again")
	}
	p.checks.failing = false
}

// compareShape compares a family's chains, rules and maps with what the kernel holds, which
// costs little, and all else only if these are not right.
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

// compare compares a family's rules with what the kernel holds. What differs is put right
// next.
func (p *programmer) compare(f *family, listing ruleset.Listing) {
	if f.table.Holds(listing) {
		return
	}
	differences := f.table.Differences(listing)
	p.metrics.foreign.WithLabelValues(f.String()).Inc()
	p.log.Info("Somebody else has changed the rules, which are put right", "family", f.String(),
		"differences", len(differences), "first", differences[:min(len(differences), mostDifferences)])
	f.take(listing)
	f.retry = p.clock.Now()
	if p.proving != nil {
		p.proving.prober.Ask() // it may have changed more than that
	}
}

const mostDifferences = 5
