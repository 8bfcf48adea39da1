package ruleset

import (
	"maps"
	"net/netip"
	"slices"
)

// progress is how far the kernel is with the ServicePorts of a table. What a Commit says may
// be refused, so it counts for nothing here until Confirm.
type progress struct {
	// programmed are the ServicePorts that the kernel has, and pending those that it is yet
	// to get, nil if they are to go.
	programmed, pending map[string]*ServicePort
	// found are those that were asked for when the kernel was read first, as they are asked
	// for now, and that are not programmed since: the kernel may have what an earlier run
	// made of them.
	found map[string]*ServicePort
	// known says that what the kernel holds was known once.
	known bool
}

func newProgress() progress {
	return progress{programmed: make(map[string]*ServicePort), pending: make(map[string]*ServicePort)}
}

// ask notes that a ServicePort is asked for, or is to go if it is nil.
func (p *progress) ask(name string, sp *ServicePort) {
	p.pending[name] = sp
	if sp == nil {
		return
	}
	if p.found[name] != nil {
		p.found[name] = sp
	}
	if before := p.programmed[name]; before != nil && before != sp {
		shareEndpoints(sp, before)
	}
}

// shareEndpoints has a ServicePort go on with the lists of the one before it that are the
// same. Most changes of a Service change few of them, and with thousands of Services a copy
// of each is megabytes.
func shareEndpoints(sp, before *ServicePort) {
	for _, one := range []struct{ list, known *[]netip.AddrPort }{
		{&sp.Cluster, &before.Cluster},
		{&sp.Local, &before.Local},
		{&sp.Known.Serving, &before.Known.Serving},
		{&sp.Known.Silent, &before.Known.Silent},
		{&sp.Known.Fleeting, &before.Known.Fleeting},
	} {
		if len(*one.list) > 0 && slices.Equal(*one.list, *one.known) {
			*one.list = *one.known
		}
	}
}

func (p *progress) read(listing Listing) {
	if !p.known && (listing.Exists || listing.Unread) {
		p.found = maps.Clone(p.pending)
		maps.DeleteFunc(p.found, func(_ string, sp *ServicePort) bool { return sp == nil })
	}
	p.known = true
}

// Confirm notes that the kernel has all that is asked for.
func (t *Table) Confirm() {
	for name, sp := range t.pending {
		if sp == nil {
			delete(t.programmed, name)
		} else {
			t.programmed[name] = sp
		}
		delete(t.found, name)
	}
	if len(t.found) == 0 {
		t.found = nil
	}
	// A map that was cleared would stay as large as it was, and be as slow to look through.
	t.pending = make(map[string]*ServicePort)
}

// Withdraw asks for what the kernel has of a ServicePort in place of what is asked for: what
// was confirmed last, or what an earlier run may have made of it.
func (t *Table) Withdraw(name string) {
	before, found := t.programmed[name], t.found[name]
	switch {
	case before != nil:
		// It was taken before as it is.
		_ = t.Set(*before)
	case found != nil:
		t.Keep(*found)
	default:
		t.Remove(name)
	}
	delete(t.pending, name)
}

// Programmed are the ServicePorts that the kernel has as they were asked for, by name. The
// caller changes neither the map nor what is in it.
func (t *Table) Programmed() map[string]*ServicePort { return t.programmed }

// Pending are those that are asked for and not confirmed, nil if they are to go, as Programmed
// has them.
func (t *Table) Pending() map[string]*ServicePort { return t.pending }

// IsPending reports whether the kernel may lack what is asked for a ServicePort.
func (t *Table) IsPending(name string) bool {
	_, pending := t.pending[name]
	return pending
}

// Asked is what is asked for a ServicePort, nil for nothing.
func (t *Table) Asked(name string) *ServicePort {
	if sp, pending := t.pending[name]; pending {
		return sp
	}
	return t.programmed[name]
}

// MustRead reports whether a ServicePort is pending of which the kernel may have what an
// earlier run made of it. Then Adopt has to say what that is before the next Commit.
func (t *Table) MustRead() bool {
	for name := range t.found {
		if t.IsPending(name) {
			return true
		}
	}
	return false
}
