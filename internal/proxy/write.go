package proxy

import (
	"context"
	"errors"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// writer writes staged changes to the kernel. It finds the ServicePorts that the kernel refuses, so that they do not
// block others.
type writer struct {
	kernel  kernel
	clock   clock.PassiveClock
	metrics *metrics
	log     logr.Logger
	// stale gets the connections that must end, forget the remembered clients of removed endpoints.
	stale  func([]ruleset.Stale)
	forget func(ruleset.Family, []ruleset.Forget)
}

// write writes the staged and due changes of a family. After a failure f.nextDue() returns when to retry.
func (w *writer) write(ctx context.Context, f *family, now time.Time) error {
	if !f.active && !f.doubtful {
		f.settled()
		return nil
	}
	f.restage(now)
	err := w.try(ctx, f, now)
	if err != nil && ctx.Err() == nil && !f.doubtful {
		err = w.isolate(ctx, f, now, err)
	}
	if err == nil {
		f.settled()
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f.failures++
	// The search for refused ports may have taken long.
	ended := w.clock.Now()
	f.retry = ended.Add(max(backoff(retryFirst, retryMost, f.failures), ended.Sub(now)))
	return err
}

// try writes once. If that fails, it reads the kernel's rules and writes once more.
func (w *writer) try(ctx context.Context, f *family, now time.Time) error {
	if f.doubtful || f.table.MustRead() {
		if _, err := w.adopt(f); err != nil {
			return err
		}
		if !f.active {
			return nil
		}
	}
	first := w.commit(ctx, f, now)
	if first == nil || ctx.Err() != nil {
		return first
	}
	if _, err := w.adopt(f); err != nil {
		return errors.Join(first, err)
	}
	second := w.commit(ctx, f, now)
	if second == nil {
		w.log.Info("Wrote the rules at the second attempt, after reading the kernel's", "family", f.String(), "cause", first.Error())
		return nil
	}
	if _, err := w.adopt(f); err != nil {
		return errors.Join(second, err)
	}
	return second
}

// adopt continues from the kernel's rules.
func (w *writer) adopt(f *family) (*ruleset.Listing, error) {
	listing, err := f.read(w.kernel)
	if err != nil {
		f.doubtful = true
		return nil, err
	}
	f.take(listing)
	return &listing, nil
}

// commit writes one transaction. After a failure the caller must adopt the kernel's rules.
func (w *writer) commit(ctx context.Context, f *family, now time.Time) error {
	commit := f.commit(now)
	if !commit.Transaction.Empty() {
		f.writes++
		if err := w.kernel.Apply(ctx, commit.Transaction); err != nil {
			f.doubtful = true
			w.metrics.transaction(f.number, 0, err)
			return err
		}
		f.table.Written(w.clock.Now())
		size := sizeOf(commit.Transaction)
		f.wrote += size
		w.metrics.transaction(f.number, size, nil)
		if f.unread >= mostUnread {
			w.metrics.rewrites.WithLabelValues(f.String()).Inc()
			w.log.Info("Rewrote all rules: they could not be read while other programs kept changing theirs", "family", f.String(), "attempts", f.unread)
			f.unread = 0
		}
	}
	if len(commit.Stale) > 0 {
		w.stale(commit.Stale)
	}
	if len(commit.Forget) > 0 {
		w.forget(f.number, commit.Forget)
	}
	return nil
}

func sizeOf(t ruleset.Transaction) int {
	n := 0
	for i := range t.Changes {
		n += max(1, len(t.Changes[i].Elements))
	}
	return n
}

// isolate finds the staged ServicePorts that the kernel refuses, and writes the others. The kernel's state must be known.
// If there are too many, the next call continues. Ports that are not written keep their current kernel rules, including
// those of a previous process.
func (w *writer) isolate(ctx context.Context, f *family, now time.Time, cause error) error {
	all := maps.Clone(f.table.Pending())
	for name := range all {
		f.table.Withdraw(name)
	}
	began := w.clock.Now()
	s := &search{writer: w, family: f, now: now, tries: mostTries, began: began, until: began.Add(longestSearch)}
	stuck := cause
	if len(all) > 0 {
		stuck = s.try(ctx)
	}
	if stuck != nil && ctx.Err() == nil && !f.doubtful {
		// The write fails without these ports too, so they are not the cause.
		stuck = s.rewrite(ctx, stuck)
	}
	switch {
	case stuck != nil || w.answers(ctx, f) != nil:
	case len(all) > 0:
		if cause = s.find(ctx, all); s.hasProgress() {
			f.failures = 0 // the next search has less to do and can start soon
		}
	default:
		cause = nil
	}
	for _, one := range s.refusals {
		w.recordRefusal(f, one, all[one.name], now)
		delete(all, one.name)
	}
	if cause != nil {
		for name, port := range all {
			f.stage(name, port)
		}
	}
	return cause
}

type search struct {
	*writer
	family   *family
	now      time.Time
	tries    int
	began    time.Time
	until    time.Time
	refusals []refusal
	// written means that ports were written.
	written bool
	// listing has the kernel's rules, nil if they are unknown.
	listing *ruleset.Listing
}

// refusal is a ServicePort that the kernel refuses.
type refusal struct {
	name  string
	cause error
}

var errTooMany = errors.New("the kernel refuses more ports of Services than one search can find")

// find writes ServicePorts in halves, and finds each one that fails alone. It removes the written ones from all.
//
// The bounds end a search only after it has made progress, so that repeated searches converge: each attempt after a
// failure has at most half of the ports.
func (s *search) find(ctx context.Context, all map[string]*ruleset.ServicePort) error {
	stack := [][]string{slices.Sorted(maps.Keys(all))}
	for len(stack) > 0 {
		if s.ended() {
			return errTooMany
		}
		tried := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, name := range tried {
			s.family.stage(name, all[name])
		}
		err := s.try(ctx)
		if err == nil {
			s.family.settled()
			s.extend()
			s.written = true
			for _, name := range tried {
				delete(all, name)
			}
			continue
		}
		if ctx.Err() != nil || s.family.doubtful {
			return err
		}
		for _, name := range tried {
			s.family.table.Withdraw(name)
		}
		if len(tried) == 1 {
			s.extend()
			s.refusals = append(s.refusals, refusal{tried[0], err})
			continue
		}
		half := len(tried) / 2
		stack = append(stack, tried[half:], tried[:half])
	}
	return nil
}

// ended reports whether the search has reached a bound and has made progress.
func (s *search) ended() bool {
	if len(s.refusals) == mostRefused {
		return true
	}
	return s.hasProgress() && (s.tries <= 0 || s.clock.Now().After(s.until))
}

// extend doubles the time of a search at its first progress: halving has led it to few ports, and the way back takes as
// long.
func (s *search) extend() {
	now := s.clock.Now()
	if until := now.Add(now.Sub(s.began)); !s.hasProgress() && until.After(s.until) {
		s.until = until
	}
}

// hasProgress reports whether the next search has less to do.
func (s *search) hasProgress() bool { return s.written || len(s.refusals) > 0 }

// try writes the staged changes. If the kernel has done nothing, the last listing is still right. Otherwise try reads it
// again.
func (s *search) try(ctx context.Context) (err error) {
	s.tries--
	if s.listing == nil && s.family.table.MustRead() {
		if s.listing, err = s.adopt(s.family); err != nil {
			return err
		}
	}
	err = s.commit(ctx, s.family, s.now)
	if err == nil {
		s.listing = nil
		return nil
	}
	var refused interface{ NothingDone() bool }
	if s.listing != nil && errors.As(err, &refused) && refused.NothingDone() {
		s.family.take(*s.listing)
		return err
	}
	var unread error
	if s.listing, unread = s.adopt(s.family); unread != nil {
		return errors.Join(err, unread)
	}
	return err
}

// rewrite replaces the whole table: other programs may have changed it so that the kernel refuses each repair. It does
// so more and more rarely, because that takes long and forgets clients, and only if the kernel answers. Rules of a
// previous process do not stay.
func (s *search) rewrite(ctx context.Context, cause error) error {
	f := s.family
	times, rest := (f.failures+1)/refusedRepairs, (f.failures+1)%refusedRepairs
	if rest != 0 || bits.OnesCount(uint(times)) != 1 || s.answers(ctx, f) != nil {
		return cause
	}
	f.take(ruleset.Listing{Family: f.number, Unread: true})
	err := s.try(ctx)
	if err == nil {
		s.metrics.rewrites.WithLabelValues(f.String()).Inc()
		s.log.Info("Rewrote all rules: the kernel refused every repair", "family", f.String(), "cause", cause.Error())
	}
	return err
}

// answers asks the kernel to add the table, which succeeds if it is there.
func (w *writer) answers(ctx context.Context, f *family) error {
	return w.kernel.Apply(ctx, ruleset.Transaction{Family: f.number, Changes: []ruleset.Change{{Kind: ruleset.AddTable}}})
}

func (w *writer) recordRefusal(f *family, r refusal, port *ruleset.ServicePort, now time.Time) {
	one := f.refused[r.name]
	if one == nil {
		one = &refusedPort{}
		f.refused[r.name] = one
		w.log.Error(r.cause, "The kernel refuses a port of a Service", "family", f.String(), "port", r.name)
	}
	one.port, one.cause = port, r.cause
	one.failures++
	one.retry = now.Add(backoff(refusedFirst, refusedMost, one.failures))
}
