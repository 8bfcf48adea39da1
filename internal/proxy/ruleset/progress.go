package ruleset

import (
	"maps"
	"net/netip"
	"slices"
)

// progress tracks which ServicePorts the kernel has. Only Confirm counts: the kernel may refuse a Commit.
type progress struct {
	// programmed has the ServicePorts that the kernel has, and pending the ones that it lacks, nil for removals.
	programmed, pending map[string]*ServicePort
	// found has the current versions of the ServicePorts that an earlier process may have programmed.
	found map[string]*ServicePort
	// known means that the kernel's rules were read once.
	known bool
}

func newProgress() progress {
	return progress{programmed: make(map[string]*ServicePort), pending: make(map[string]*ServicePort)}
}

// ask sets the wanted ServicePort, nil for a removal.
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

// shareEndpoints lets a ServicePort share equal lists with its previous version. That saves megabytes with thousands of
// Services.
func shareEndpoints(sp, before *ServicePort) {
	for _, one := range []struct{ list, known *[]netip.AddrPort }{
		{&sp.Cluster, &before.Cluster},
		{&sp.Local, &before.Local},
		{&sp.Known.Serving, &before.Known.Serving},
		{&sp.Known.Silent, &before.Known.Silent},
		{&sp.Known.Fleeting, &before.Known.Fleeting},
		{&sp.Known.Drained, &before.Known.Drained},
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

// Confirm records that the kernel has all wanted ServicePorts.
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
	// A cleared map would keep its size and be slow to iterate.
	t.pending = make(map[string]*ServicePort)
}

// Withdraw returns a ServicePort to the kernel's version: the last confirmed one, or that of an earlier process.
func (t *Table) Withdraw(name string) {
	before, found := t.programmed[name], t.found[name]
	switch {
	case before != nil:
		t.Set(*before)
	case found != nil:
		t.Keep(*found)
	default:
		t.Remove(name)
	}
	delete(t.pending, name)
}

// Programmed returns the ServicePorts that the kernel has, by name. The caller must not change them.
func (t *Table) Programmed() map[string]*ServicePort { return t.programmed }

// Pending returns the unconfirmed ServicePorts, nil for removals. The caller must not change them.
func (t *Table) Pending() map[string]*ServicePort { return t.pending }

// IsPending reports whether the kernel may lack the wanted version of a ServicePort.
func (t *Table) IsPending(name string) bool {
	_, pending := t.pending[name]
	return pending
}

// Asked returns the wanted version of a ServicePort, nil for none.
func (t *Table) Asked(name string) *ServicePort {
	if sp, pending := t.pending[name]; pending {
		return sp
	}
	return t.programmed[name]
}

// MustRead reports whether an earlier process may have programmed a pending ServicePort. Then call Adopt before Commit.
func (t *Table) MustRead() bool {
	for name := range t.found {
		if t.IsPending(name) {
			return true
		}
	}
	return false
}
