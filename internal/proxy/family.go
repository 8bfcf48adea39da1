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
	// committing is held while the table commits, so that other goroutines can ask for stale connections. It is not
	// held while the kernel works.
	committing sync.Mutex
	// active means that the family has had rules to program. Before that, the kernel may lack the family.
	active bool
	// doubtful means that the state of the kernel is unknown.
	doubtful bool

	refused map[string]*refusedPort

	// unread counts consecutive reads that failed because others changed their rules meanwhile.
	unread int

	// adopted means that the table was read from the kernel. The next write may be a repair.
	adopted bool
	// writes counts transactions. wrote counts the added and deleted elements of the last attempt.
	writes   int
	wrote    int
	failures int
	retry    time.Time
}

// refusedPort is a ServicePort that the kernel refuses. It keeps its current rules.
type refusedPort struct {
	port     *ruleset.ServicePort
	cause    error
	failures int
	retry    time.Time
}

// The first and the longest retry delays, and the limits of a search for refused ports.
const (
	retryFirst   = 100 * time.Millisecond
	retryMost    = 10 * time.Second
	refusedFirst = 5 * time.Second
	refusedMost  = 5 * time.Minute
	// mostUnread failed reads in a row make the proxy rewrite all rules.
	mostUnread = 3
	// refusedRepairs failed writes in a row make the proxy rewrite all rules, and again each time that the number
	// doubles.
	refusedRepairs = 3
	mostTries      = 200 // transactions of a search
	mostRefused    = 20  // refused ServicePorts of a search
	mostRestaged   = 10  // refused ServicePorts that are retried together
	// longestSearch bounds how long changes wait for a search that has made progress.
	longestSearch = 5 * time.Second
)

func newFamily(config ruleset.Config) *family {
	return &family{number: config.Family, table: ruleset.NewTable(config), doubtful: true, refused: map[string]*refusedPort{}}
}

// stage stages a ServicePort, or its removal if port is nil.
func (f *family) stage(name string, port *ruleset.ServicePort) {
	if port == nil {
		f.table.Remove(name)
		return
	}
	f.active = true
	f.table.Set(*port)
}

func (f *family) commit(now time.Time) ruleset.Commit {
	f.committing.Lock()
	defer f.committing.Unlock()
	return f.table.Commit(now)
}

// stillStale removes, in place, connections whose endpoints serve again. Any goroutine may call it.
func (f *family) stillStale(all []ruleset.Stale) []ruleset.Stale {
	f.committing.Lock()
	defer f.committing.Unlock()
	return f.table.StillStale(all)
}

// owner returns the name of the ServicePort that has a front, empty without one. Any goroutine may call it.
func (f *family) owner(front ruleset.Front) string {
	f.committing.Lock()
	defer f.committing.Unlock()
	return f.table.Owner(front)
}

// restrict replaces a ServicePort by the result of a function, nil for nothing.
func (f *family) restrict(name string, left func(*ruleset.ServicePort) *ruleset.ServicePort) {
	if one := f.refused[name]; one != nil {
		if kept := left(one.port); kept != nil {
			one.port = kept
		} else {
			delete(f.refused, name)
		}
	}
	port := f.table.Asked(name)
	if port == nil {
		return
	}
	if kept := left(port); kept != port {
		f.stage(name, kept)
	}
}

// settled notes that the kernel has all staged ports.
func (f *family) settled() {
	for name := range f.table.Pending() {
		delete(f.refused, name)
	}
	f.table.Confirm()
	f.failures, f.retry = 0, time.Time{}
}

// pending reports whether the kernel lacks the current rules of a ServicePort.
func (f *family) pending(name string) bool {
	return f.table.IsPending(name) || f.refused[name] != nil
}

// read reads the kernel's rules. After mostUnread failures, because others keep changing theirs, it returns an unread
// listing, so that all rules are rewritten.
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

// take continues from the kernel's rules.
func (f *family) take(listing ruleset.Listing) {
	f.table.Adopt(listing)
	f.active = f.active || listing.Exists
	f.doubtful, f.adopted = false, true
}

func (f *family) String() string { return f.number.Name() }

// nextDue returns when the family is due again, zero if only a change makes it due.
func (f *family) nextDue() time.Time {
	at := f.retry
	if !f.active || f.failures > 0 {
		return at
	}
	if due, some := f.table.Due(); some {
		at = earlier(at, due)
	}
	for _, one := range f.refused {
		at = earlier(at, one.retry)
	}
	return at
}

// earlier returns the earlier of two times. Zero stands for never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// delaysRefused reports whether a ServicePort waits because the kernel refuses it. Its new version is tried sooner.
func (f *family) delaysRefused(port *ruleset.ServicePort, now time.Time) bool {
	one := f.refused[port.Name]
	if one == nil {
		return false
	}
	one.port = port
	one.retry = earlier(one.retry, now.Add(refusedFirst))
	return true
}

// restage stages due refused ports again, the longest waiting first. It adds none during a search.
func (f *family) restage(now time.Time) {
	if f.failures > 0 {
		return
	}
	var due []string
	for name, one := range f.refused {
		if !f.table.IsPending(name) && !one.retry.After(now) {
			due = append(due, name)
		}
	}
	slices.SortFunc(due, func(a, b string) int {
		return cmp.Or(f.refused[a].retry.Compare(f.refused[b].retry), cmp.Compare(a, b))
	})
	for _, name := range due[:min(len(due), mostRestaged)] {
		f.stage(name, f.refused[name].port)
	}
}
