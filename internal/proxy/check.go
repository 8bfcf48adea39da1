package proxy

import (
	"slices"
	"time"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// checks decide when to look for changes of the rules by other programs.
type checks struct {
	// period is how often all rules are compared without a suspicion.
	period time.Duration

	next    time.Time // when to check
	compare time.Time // when to compare all rules at the latest
	// suspicious means that others have changed some rules. Then all rules may be compared after suspiciousAfter.
	suspicious      bool
	suspiciousAfter time.Time
	// certain means that others have changed the proxy's rules. Then all rules may be compared after certainAfter.
	certain      bool
	certainAfter time.Time
	failing      bool

	// background runs a long read beside the programmer, and ends gets its result. underway means that a read runs.
	// missed counts consecutive useless reads: rules were programmed meanwhile.
	background func(func())
	ends       chan []reading
	underway   bool
	missed     int
}

// reading is a listing of the kernel's rules after a number of writes.
type reading struct {
	family  *family
	writes  int
	took    time.Duration
	listing ruleset.Listing
	err     error
}

const (
	// checkPeriod is the time between two checks. A repair follows within a second.
	checkPeriod = 500 * time.Millisecond
	// suspiciousFactor bounds comparisons to a 200th of the time, if others such as kube-proxy change so many rules
	// that ours may be among them.
	suspiciousFactor = 199
	// maxUnchecked is the longest time until a foreign change is noticed.
	maxUnchecked = time.Minute
	// certainFactor bounds comparisons to a fifth of the time, if others change our rules again and again.
	certainFactor = 4
)

func (p *programmer) check(now time.Time) {
	c := &p.checks
	c.next = now.Add(checkPeriod)
	found, err := p.writer.kernel.Interference()
	if err != nil {
		p.checkFailed(err)
		return
	}
	c.suspicious = c.suspicious || found != ruleset.NoInterference
	c.certain = c.certain || found == ruleset.Interfered
	everything := c.suspicious && !c.suspiciousAfter.After(now) || (c.certain || !c.compare.After(now)) && !c.certainAfter.After(now)
	if !everything && found == ruleset.NoInterference {
		if !c.suspicious && !c.certain && !c.underway {
			p.checkSucceeded()
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

// comparable returns the families whose state in the kernel is known.
func (p *programmer) comparable() []*family {
	return slices.DeleteFunc(slices.Clone(p.families), func(f *family) bool { return !f.active || f.doubtful })
}

// mostMissed is how many useless reads are allowed before changes wait for the next one.
const mostMissed = 3

// compareAll begins a comparison of all rules. Changes do not wait: the rules of a large cluster take half a second to
// read.
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
		c.background(read)
	} else {
		read()
	}
	select {
	case all := <-c.ends:
		p.compared(all)
	default:
	}
}

// compared repairs the differences that a read has found.
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
	c.suspiciousAfter = now.Add(min(suspiciousFactor*took, maxUnchecked))
	c.certainAfter = now.Add(min(certainFactor*took, maxUnchecked))
	if missed {
		// The difference is still there.
		c.missed = (c.missed + 1) % (mostMissed + 1)
		c.certain = true
		return
	}
	c.missed = 0
	c.compare = now.Add(c.period)
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

// compareShape compares chains, rules and maps, which is cheap. It reads the elements only if these differ.
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

// compare compares a family's rules with the kernel's, and stages a repair if they differ.
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
		p.proving.prober.Ask() // the other program may have changed more
	}
}

const mostDifferences = 5
