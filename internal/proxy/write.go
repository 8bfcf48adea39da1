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

// writer writes what is staged. It finds ServicePorts that the kernel refuses and sets them aside, so that they
// do not hold up others.
type writer struct {
	kernel  kernel
	clock   clock.PassiveClock
	metrics *metrics
	log     logr.Logger
	// stale is called with connections that the rules do not allow any more, forget with clients of endpoints
	// that were removed.
	stale  func([]ruleset.Stale)
	forget func(ruleset.Family, []ruleset.Forget)
}

// write writes all that is staged and due. After a failure f.next() says when to try again.
func (w *writer) write(ctx context.Context, f *family, now time.Time) error {
	if !f.active && !f.doubtful {
		f.settled() // there was nothing to do and there is nothing
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
	// The search for what is refused may have taken long.
	ended := w.clock.Now()
	f.retry = ended.Add(max(backoff(retryFirst, retryMost, f.failures), ended.Sub(now)))
	return err
}

// try writes once. If that fails, it reads the kernel and writes once more.
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

// adopt reads what the kernel holds.
func (w *writer) adopt(f *family) (*ruleset.Listing, error) {
	listing, err := f.read(w.kernel)
	if err != nil {
		f.doubtful = true
		return nil, err
	}
	f.take(listing)
	return &listing, nil
}

// commit writes one transaction. After a failure the kernel has to be read.
func (w *writer) commit(ctx context.Context, f *family, now time.Time) error {
	commit := f.commit(now)
	if !commit.Transaction.Empty() {
		f.writes++
		if err := w.kernel.Apply(ctx, commit.Transaction); err != nil {
			f.doubtful = true
			w.metrics.transaction(f.number, 0, err)
			return blame(f.table, commit.Transaction, err)
		}
		f.table.Written(w.clock.Now())
		size := sizeOf(commit.Transaction)
		f.wrote += size
		w.metrics.transaction(f.number, size, nil)
		if f.unread >= mostUnread {
			w.metrics.anew.WithLabelValues(f.String()).Inc()
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

// blamed is an error with the ServicePorts whose rules the kernel refused.
type blamed struct {
	error
	names []string
}

func (b *blamed) Unwrap() error { return b.error }

// blame adds the ServicePorts to an error of the kernel that names a change.
func blame(table *ruleset.Table, t ruleset.Transaction, err error) error {
	var refused interface{ Refused() (change, element int) }
	if !errors.As(err, &refused) {
		return err
	}
	change, element := refused.Refused()
	if change < 0 {
		return err
	}
	return &blamed{err, table.Blamed(t.Changes[change], element)}
}

func sizeOf(t ruleset.Transaction) int {
	n := 0
	for i := range t.Changes {
		n += max(1, len(t.Changes[i].Elements))
	}
	return n
}

// isolate finds the staged ServicePorts that the kernel refuses, sets them aside, and writes the others. The
// kernel's state is known when it begins. If there are too many, the next call goes on. What is not written
// keeps its current kernel rules, including those of a previous process.
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
		// Nothing can be written without these ports either, so they are not the cause.
		stuck = s.makeAnew(ctx, stuck)
	}
	switch {
	case stuck != nil || w.answers(ctx, f) != nil:
	case len(all) > 0:
		if cause = s.among(ctx, all); s.learnt() {
			f.failures = 0 // the next look has less to do, and need not wait for long
		}
	default:
		cause = nil
	}
	for _, one := range s.refusals {
		w.setAside(f, one, all[one.name], now)
		delete(all, one.name)
	}
	if cause != nil {
		for name, port := range all {
			_ = f.stage(name, port) // what is wrong with it was said when it came
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
	// written says that something was written that the kernel had not blamed.
	written bool
	// misled says that something was written that the kernel had blamed. Blame is ignored from then on.
	misled bool
	// listing is what the kernel holds, nil if unknown.
	listing *ruleset.Listing
}

// refusal is a ServicePort that the kernel refuses, and why.
type refusal struct {
	name  string
	cause error
}

var errTooMany = errors.New("the kernel refuses more ports of Services than one search can find")

// among writes ServicePorts until each is known that fails by itself. It leaves in all those that are not
// written. If the kernel names what it refuses, the ServicePorts that need it are tried first. The kernel names
// no element for a loop of chains, and nothing if it lacks memory or refuses at the very end. Then the ports are
// tried in halves.
//
// Its bounds end the search only once it has learnt something, so that repeated searches converge: each attempt
// after a failure is at most half of it.
func (s *search) among(ctx context.Context, all map[string]*ruleset.ServicePort) error {
	type attempt struct {
		names  []string
		blamed bool // by the kernel's word
	}
	stack := []attempt{{names: slices.Sorted(maps.Keys(all))}}
	for len(stack) > 0 {
		if s.ended() {
			return errTooMany
		}
		tried := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, name := range tried.names {
			_ = s.family.stage(name, all[name]) // what is wrong with it was said when it came
		}
		err := s.try(ctx)
		if err == nil {
			s.family.settled()
			if tried.blamed {
				s.misled = true // and little is learnt, so the search goes on
			} else {
				s.extend()
				s.written = true
			}
			for _, name := range tried.names {
				delete(all, name)
			}
			continue
		}
		if ctx.Err() != nil || s.family.doubtful {
			return err
		}
		for _, name := range tried.names {
			s.family.table.Withdraw(name)
		}
		if len(tried.names) == 1 {
			s.extend()
			s.refusals = append(s.refusals, refusal{tried.names[0], err})
			continue
		}
		var blames []string
		if known := (*blamed)(nil); errors.As(err, &known) && !s.misled {
			blames = known.names
		}
		first, rest, byBlame := divide(tried.names, blames)
		// The rest first would fail for each bad port in it, and nothing would be learnt.
		stack = append(stack, attempt{names: rest}, attempt{first, byBlame})
	}
	return nil
}

// ended reports whether the search has reached a bound and has learnt something.
func (s *search) ended() bool {
	if len(s.refusals) == mostRefused {
		return true
	}
	return s.learnt() && (s.tries <= 0 || s.clock.Now().After(s.until))
}

// extend doubles the time of a search when it learns something for the first time: halving led it to little, and
// the way back takes as long.
func (s *search) extend() {
	now := s.clock.Now()
	if until := now.Add(now.Sub(s.began)); !s.learnt() && until.After(s.until) {
		s.until = until
	}
}

// learnt reports whether the next search has less to do.
func (s *search) learnt() bool { return s.written || len(s.refusals) > 0 }

// divide divides two or more names: first are those that are blamed, if they are at most half, else the first
// half.
func divide(names, blames []string) (first, rest []string, byBlame bool) {
	for _, name := range names {
		if slices.Contains(blames, name) {
			first = append(first, name)
		} else {
			rest = append(rest, name)
		}
	}
	if len(first) == 0 || len(first) > len(names)/2 {
		return names[:len(names)/2], names[len(names)/2:], false
	}
	return first, rest, true
}

// try writes what is staged. If the kernel refuses all of it, the last listing is still true. Else it is read
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

// makeAnew deletes the table and writes all of it. Others may have changed it such that the kernel refuses each
// repair. It is tried ever more seldom, since it takes long and forgets clients, and only if the kernel answers
// at all. Rules of a previous process do not stay.
func (s *search) makeAnew(ctx context.Context, cause error) error {
	f := s.family
	times, rest := (f.failures+1)/refusedRepairs, (f.failures+1)%refusedRepairs
	if rest != 0 || bits.OnesCount(uint(times)) != 1 || s.answers(ctx, f) != nil {
		return cause
	}
	f.take(ruleset.Listing{Family: f.number, Unread: true})
	err := s.try(ctx)
	if err == nil {
		s.metrics.anew.WithLabelValues(f.String()).Inc()
		s.log.Info("Rewrote all rules: the kernel refused every repair", "family", f.String(), "cause", cause.Error())
	}
	return err
}

// answers asks the kernel to add the table, which succeeds if it is there.
func (w *writer) answers(ctx context.Context, f *family) error {
	return w.kernel.Apply(ctx, ruleset.Transaction{Family: f.number, Changes: []ruleset.Change{{Kind: ruleset.AddTable}}})
}

func (w *writer) setAside(f *family, r refusal, port *ruleset.ServicePort, now time.Time) {
	one := f.aside[r.name]
	if one == nil {
		one = &refused{}
		f.aside[r.name] = one
		w.log.Error(r.cause, "The kernel refuses a port of a Service", "family", f.String(), "port", r.name)
	}
	one.port, one.cause = port, r.cause
	one.failures++
	one.retry = now.Add(backoff(asideFirst, asideMost, one.failures))
}
