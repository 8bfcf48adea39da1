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

type family struct {
	number ruleset.Family
	table  *ruleset.Table
	// committing is held while the table commits, so that other goroutines may ask for stale connections. It is
	// not held while the kernel works.
	committing sync.Mutex
	// active says that the family has had something to program. Before, the kernel may lack it.
	active bool
	// doubtful says that the state of the kernel is unknown.
	doubtful bool

	aside map[string]*refused

	// unread counts failures in a row to read rules that others change meanwhile.
	unread int

	// adopted says that the table was set to what the kernel holds. The next write may be a repair.
	adopted bool
	// writes counts transactions. wrote counts the elements that the last attempt added and deleted.
	writes   int
	wrote    int
	failures int
	retry    time.Time
}

// refused is a ServicePort that the kernel refuses, and that keeps its current rules.
type refused struct {
	port     *ruleset.ServicePort
	cause    error
	failures int
	retry    time.Time
}

// First and longest times until a failure is tried again.
const (
	retryFirst = 100 * time.Millisecond
	retryMost  = 10 * time.Second
	asideFirst = 5 * time.Second
	asideMost  = 5 * time.Minute
	// mostUnread is after how many failed reads all rules are made anew.
	mostUnread = 3
	// refusedRepairs is after how many failed writes all rules are made anew, again each time that the number
	// doubles.
	refusedRepairs = 3
	mostTries      = 200 // transactions to find what the kernel refuses
	mostRefused    = 20  // ServicePorts, of which each has its own cause
	mostRestaged   = 10  // ServicePorts set aside that are tried again at once
	// longestSearch bounds how long changes wait for a search that has learnt something.
	longestSearch = 5 * time.Second
)

func newFamily(config ruleset.Config) *family {
	return &family{number: config.Family, table: ruleset.NewTable(config), doubtful: true, aside: map[string]*refused{}}
}

// stage stages a ServicePort, or its removal if port is nil. The error says what no rule can be made of.
func (f *family) stage(name string, port *ruleset.ServicePort) error {
	if port == nil {
		f.table.Remove(name)
		return nil
	}
	f.active = true
	return f.table.Set(*port)
}

func (f *family) commit(now time.Time) ruleset.Commit {
	f.committing.Lock()
	defer f.committing.Unlock()
	return f.table.Commit(now)
}

// stillStale removes connections whose endpoints serve again, in place. Any goroutine may call it.
func (f *family) stillStale(all []ruleset.Stale) []ruleset.Stale {
	f.committing.Lock()
	defer f.committing.Unlock()
	return f.table.StillStale(all)
}

// restrict replaces a ServicePort by what a function leaves of it, nil for nothing. It returns the fronts that
// are lost.
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

// settled notes that the kernel has all that is staged.
func (f *family) settled() {
	for name := range f.table.Pending() {
		delete(f.aside, name)
	}
	f.table.Confirm()
	f.failures, f.retry = 0, time.Time{}
}

// pending reports whether the kernel lacks what is asked for a ServicePort.
func (f *family) pending(name string) bool {
	return f.table.IsPending(name) || f.aside[name] != nil
}

// read reads what the kernel holds. After some failures because others change their rules all the time, the
// listing says that it is unread, so that all rules are made anew.
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
	// There may be rules of a previous process.
	f.active = true
	return ruleset.Listing{Family: f.number, Unread: true}, nil
}

// take continues from what the kernel holds.
func (f *family) take(listing ruleset.Listing) {
	f.table.Adopt(listing)
	f.active = f.active || listing.Exists
	f.doubtful, f.adopted = false, true
}

func (f *family) String() string { return familyName(f.number) }

func familyName(number ruleset.Family) string {
	if number == ruleset.IPv6 {
		return "IPv6"
	}
	return "IPv4"
}

// next is when the family is due again, zero if only a change makes it due.
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

// earlier is the earlier of two times. Zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// waits reports whether a ServicePort is set aside. The new version is tried sooner.
func (f *family) waits(port *ruleset.ServicePort, now time.Time) bool {
	one := f.aside[port.Name]
	if one == nil {
		return false
	}
	one.port = port
	one.retry = earlier(one.retry, now.Add(asideFirst))
	return true
}

// restage tries some ports again that are set aside, those that wait longest first. It adds none while a search
// is not done.
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
