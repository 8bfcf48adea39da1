package ruleset

import (
	"maps"
	"net/netip"
	"slices"
)

// progress tells which ServicePorts the kernel has. Only Confirm counts, since a Commit may be
// refused.
type progress struct {
	// programmed are the ServicePorts that the kernel has, and pending those that it lacks, nil if
	// they go.
	programmed, pending map[string]*ServicePort
	// found are the ServicePorts that an earlier run may have programmed, as they are asked for
	// now.
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

// shareEndpoints has a ServicePort share the lists that it has in common with the one before, which
// saves megabytes with thousands of Services.
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

// Withdraw asks for what the kernel has of a ServicePort: what was confirmed last, or what an
// earlier run made.
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

// Programmed returns the ServicePorts that the kernel has, by name. The caller must not change
// them.
func (t *Table) Programmed() map[string]*ServicePort { return t.programmed }

// Pending returns those that are not confirmed, nil if they go. The caller must not change them.
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

// MustRead reports whether a pending ServicePort may be an earlier run's. Then call Adopt before
// Commit.
func (t *Table) MustRead() bool {
	for name := range t.found {
		if t.IsPending(name) {
			return true
		}
	}
	return false
}
