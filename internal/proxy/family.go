package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

type kernel interface {
	Apply(context.Context, ruleset.Transaction) error
	Read(ruleset.Family) (ruleset.Listing, error)
	Shape(ruleset.Family) (ruleset.Listing, error)
	Interference() (ruleset.Interference, error)
	memory
}

// family is what is programmed for one address family.
type family struct {
	number ruleset.Family
	table  *ruleset.Table
	// committing is held while the table commits, so that any goroutine may ask which
	// connections are still stale. It is not held while the kernel works.
	committing sync.Mutex
	// active says that there is, or has been, something to program. Before, the kernel
	// need not know the family.
	active bool
	// doubtful says that what the kernel holds is not known.
	doubtful bool

	aside map[string]*refused

	// unread is how often in a row the kernel's could not be read since others changed
	// theirs meanwhile.
	unread int

	// adopted says that the table was made to say what the kernel holds, so that what is
	// written next may put right what is no matter of what was staged.
	adopted bool
	// writes is how often something was written, and wrote how many elements the last attempt
	// took out and put in.
	writes   int
	wrote    int
	failures int
	retry    time.Time
}

// refused is a ServicePort that the kernel refuses. What it had before stays.
type refused struct {
	port     *ruleset.ServicePort
	cause    error
	failures int
	retry    time.Time
}

// How long to wait before what failed is tried again: at first, and at most.
const (
	retryFirst = 100 * time.Millisecond
	retryMost  = 10 * time.Second
	asideFirst = 5 * time.Second
	asideMost  = 5 * time.Minute
	// mostUnread is after how many attempts to read rules that change all the time they are
	// made anew. Each of them is several in the kernel.
	mostUnread = 3
	// refusedRepairs is after how many failures the same is tried where the kernel refuses
	// whatever is written, and again each time that there are twice as many.
	refusedRepairs = 3
	mostTries      = 200 // transactions to find what the kernel refuses
	mostRefused    = 20  // ServicePorts, of which each has its own cause
	mostRestaged   = 10  // ServicePorts set aside that are tried again at once
	// longestSearch bounds how long changes wait for a search that has learnt something. The
	// next one goes on with what is left.
	longestSearch = 5 * time.Second
)

func newFamily(config ruleset.Config) *family {
	return &family{number: config.Family, table: ruleset.NewTable(config), doubtful: true, aside: map[string]*refused{}}
}

// stage asks for a ServicePort, or has it go if port is nil. The error says what of it no
// rule can be made of.
func (f *family) stage(name string, port *ruleset.ServicePort) error {
	if port == nil {
		f.table.Remove(name)
		return nil
	}
	f.active = true
	return f.table.Set(*port)
}

// commit says what the kernel is to do for all that is staged and due.
func (f *family) commit(now time.Time) ruleset.Commit {
	f.committing.Lock()
	defer f.committing.Unlock()
	return f.table.Commit(now)
}

// stillStale takes connections of the family out of a list that may go on by now, for any
// goroutine. The list is changed in place.
func (f *family) stillStale(all []ruleset.Stale) []ruleset.Stale {
	f.committing.Lock()
	defer f.committing.Unlock()
	return f.table.StillStale(all)
}

// restrict asks for what is left of a ServicePort, by a function that says what that is and returns
// nil for nothing. It returns the fronts that go.
func (f *family) restrict(name string, left func(*ruleset.ServicePort) *ruleset.ServicePort) (lost []ruleset.Front) {
	if one := f.aside[name]; one != nil {
		if kept := left(one.port); kept != nil {
			one.port = kept
		} else {
			delete(f.aside, name)
		}
	}
	port := f.table.Asked(name)
	if port == nil {
		return nil
	}
	kept := left(port)
	if kept == port {
		return nil
	}
	_ = f.stage(name, kept) // what is wrong with it was said when it came
	still := map[ruleset.Front]bool{}
	if kept != nil {
		for i := range kept.Fronts {
			still[kept.Fronts[i].Front] = true
		}
	}
	for i := range port.Fronts {
		if front := port.Fronts[i].Front; !still[front] {
			lost = append(lost, front)
		}
	}
	return lost
}

// settled notes that the kernel has all that was staged.
func (f *family) settled() {
	for name := range f.table.Pending() {
		delete(f.aside, name)
	}
	f.table.Confirm()
	f.failures, f.retry = 0, time.Time{}
}

// pending reports whether the kernel lacks what was asked for a ServicePort.
func (f *family) pending(name string) bool {
	return f.table.IsPending(name) || f.aside[name] != nil
}

// read reads what the kernel holds. Where others change theirs all the time, so that it
// cannot be read, it is taken for nothing after a while: then all of it is made anew.
func (f *family) read(k kernel) (ruleset.Listing, error) {
	listing, err := k.Read(f.number)
	if err == nil {
		f.unread = 0
		return listing, nil
	}
	var changing interface{ KeepsChanging() bool }
	if errors.As(err, &changing) && changing.KeepsChanging() {
		f.unread++
	}
	if f.unread < mostUnread {
		return listing, fmt.Errorf("reading the rules of %s: %w", f, err)
	}
	// What is there may be of an earlier run.
	f.active = true
	return ruleset.Listing{Family: f.number, Unread: true}, nil
}

// take goes on from what the kernel holds.
func (f *family) take(listing ruleset.Listing) {
	f.table.Adopt(listing)
	f.active = f.active || listing.Exists
	f.doubtful, f.adopted = false, true
}

// String is the name of the family in the API.
func (f *family) String() string { return familyName(f.number) }

func familyName(number ruleset.Family) string {
	if number == ruleset.IPv6 {
		return "IPv6"
	}
	return "IPv4"
}

// next is when the family has to be looked at again, zero if a change will tell.
func (f *family) next() time.Time {
	at := f.retry
	if !f.active || f.failures > 0 {
		return at
	}
	if due, some := f.table.Due(); some {
		at = earlier(at, due)
	}
	for _, one := range f.aside {
		at = earlier(at, one.retry)
	}
	return at
}

// earlier is the earlier of two times, of which zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// waits reports whether a ServicePort is one that the kernel refused, and notes what it is
// to be when that is tried again. Another one than before is tried sooner.
func (f *family) waits(port *ruleset.ServicePort, now time.Time) bool {
	one := f.aside[port.Name]
	if one == nil {
		return false
	}
	one.port = port
	one.retry = earlier(one.retry, now.Add(asideFirst))
	return true
}

// restage asks again for what the kernel refused, as far as it is time: first what is due
// longest. While a search for what is refused is not done nothing is added to it, and otherwise
// so little that it has room for what is newly bad.
func (f *family) restage(now time.Time) {
	if f.failures > 0 {
		return
	}
	var due []string
	for name, one := range f.aside {
		if !f.table.IsPending(name) && !one.retry.After(now) {
			due = append(due, name)
		}
	}
	slices.SortFunc(due, func(a, b string) int {
		return cmp.Or(f.aside[a].retry.Compare(f.aside[b].retry), cmp.Compare(a, b))
	})
	for _, name := range due[:min(len(due), mostRestaged)] {
		_ = f.stage(name, f.aside[name].port) // what is wrong with it was said when it came
	}
}
