package proxy

import (
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
	everything := !c.full.After(now) || c.suspicious && !c.rested.After(now) || c.certain && !c.soon.After(now)
	if !everything && found == ruleset.NoInterference {
		return // what is cheap to see was seen
	}
	for _, f := range p.families {
		if !f.active || f.doubtful {
			continue
		}
		if err := p.compare(f, everything); err != nil {
			p.checkFailed(err)
			return
		}
	}
	if everything {
		ended := p.clock.Now()
		c.suspicious, c.certain = false, false
		c.rested = ended.Add(min(restFactor*ended.Sub(now), longestTrust))
		c.soon = ended.Add(min(soonFactor*ended.Sub(now), longestTrust))
		c.full = ended.Add(c.period)
	}
}

func (p *programmer) checkFailed(err error) {
	p.metrics.failed(stepCheck)
	p.log.Error(err, "Whether somebody else has changed the rules is not known")
}

// compare compares a family's rules with what the kernel holds: with its chains, rules and
// maps, which costs little, or with everything. What differs is put right next.
func (p *programmer) compare(f *family, everything bool) error {
	k := p.writer.kernel
	if !everything {
		listing, err := k.Shape(f.number)
		if err != nil || f.table.HoldsShape(listing) {
			return err
		}
	}
	listing, err := k.Read(f.number)
	if err != nil || f.table.Holds(listing) {
		return err
	}
	differences := f.table.Differences(listing)
	p.metrics.foreign.WithLabelValues(f.String()).Inc()
	p.log.Info("Somebody else has changed the rules, which are put right", "family", f.String(),
		"differences", len(differences), "first", differences[:min(len(differences), mostDifferences)])
	f.table.Adopt(listing)
	f.retry = p.clock.Now()
	return nil
}

// mostDifferences is how many are told.
const mostDifferences = 5
