package kernel

import (
	"fmt"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/netlink"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// Refusal reports that the kernel has refused a transaction and has done nothing.
type Refusal struct {
	// Change is the index of the refused change, -1 if the kernel refused the whole transaction.
	Change int
	// What describes the change.
	What  string
	Errno unix.Errno
	// Words is the kernel's own text, usually empty.
	Words string
}

func (r *Refusal) Error() string {
	if r.Words != "" {
		return fmt.Sprintf("%s: %s (%s)", r.What, r.Errno.Error(), r.Words)
	}
	return fmt.Sprintf("%s: %s", r.What, r.Errno.Error())
}

// NothingDone reports that the kernel's rules have not changed.
func (*Refusal) NothingDone() bool { return true }

// Unwrap makes errors.Is find the kernel's reason.
func (r *Refusal) Unwrap() error { return r.Errno }

func (e *encoder) refusal(t ruleset.Transaction, f *netlink.Failure) *Refusal {
	r := &Refusal{Change: -1, What: "committing a transaction", Errno: f.Errno, Words: f.Text}
	if f.Message == 0 || f.Message >= len(e.origins) {
		return r
	}
	o := e.origins[f.Message]
	r.Change = o.change
	c := t.Changes[o.change]
	switch c.Kind {
	case ruleset.AddTable:
		r.What = "adding the table"
	case ruleset.DeleteTable:
		r.What = "deleting the table"
	case ruleset.AddSet:
		r.What = "adding set " + c.Set.Name
	case ruleset.DeleteSet:
		r.What = "deleting set " + c.Set.Name
	case ruleset.AddChain:
		r.What = "adding chain " + c.Chain.Name
	case ruleset.DeleteChain:
		r.What = "deleting chain " + c.Chain.Name
	case ruleset.ReplaceRules:
		r.What = "replacing the rules of chain " + c.Chain.Name
	case ruleset.AddElements, ruleset.DeleteElements:
		elements := "elements"
		if element := e.elementOf(f); element >= 0 {
			elements = "element " + e.family.KeyText(c.Set.Key, c.Elements[element].Key)
		}
		if c.Kind == ruleset.AddElements {
			r.What = "adding " + elements + " to set " + c.Set.Name
		} else {
			r.What = "deleting " + elements + " from set " + c.Set.Name
		}
	}
	return r
}

// elementOf returns the index of the failed element, -1 if unknown.
func (e *encoder) elementOf(f *netlink.Failure) int {
	body := e.messages.Message(f.Message)[unix.SizeofNlMsghdr+netlink.HeaderLength:]
	list := netlink.Attribute(body, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	at := len(body) - len(list) + unix.SizeofNlMsghdr + netlink.HeaderLength
	element := e.origins[f.Message].element
	for _, one := range netlink.Attributes(list) {
		if at == f.Offset {
			return element
		}
		at += netlink.Align(unix.SizeofNlAttr + len(one))
		element++
	}
	return -1
}
