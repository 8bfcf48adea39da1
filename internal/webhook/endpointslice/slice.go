package endpointslice

import (
	"bytes"
	"errors"

	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/webhook/admission"
)

// is compares a string with quotes.
func is(quoted []byte, text string) bool { return string(unquoted(quoted)) == text }

// unquoted is a string without its quotes, empty for none.
func unquoted(quoted []byte) []byte {
	if len(quoted) < 2 {
		return nil
	}
	return quoted[1 : len(quoted)-1]
}

// slice is an EndpointSlice of a review. All of it is part of the text that was read.
// Strings have their quotes, and are nil where there is none.
type slice struct {
	present     bool
	addressType []byte
	// The labels that matter, and those that say whose slice it is.
	routed, ownZone, service, managedBy []byte
	// annotations and managedFields are whole values.
	annotations, managedFields []byte
	hasMetadata                bool
	endpoints                  []endpoint
	// rest are names and values of all other members and labels, to be compared.
	rest [][]byte
}

// yes is the value of a label that is set.
const yes = "true"

func (o *slice) isRouted() bool { return is(o.routed, yes) }

// reset forgets all but the memory.
func (o *slice) reset() { *o = slice{endpoints: o.endpoints[:0], rest: o.rest[:0]} }

func (o *slice) read(r *admission.Reader) error {
	o.present = r.Kind() == '{'
	return r.Members(func(name []byte) error {
		switch string(name) {
		case "metadata":
			o.hasMetadata = r.Kind() == '{'
			return o.readMetadata(r)
		case "endpoints":
			return r.Items(func() error {
				o.endpoints = append(o.endpoints, endpoint{})
				return o.endpoints[len(o.endpoints)-1].read(r)
			})
		case "addressType":
			if err := r.Quoted(&o.addressType); err != nil {
				return err
			}
			o.rest = append(o.rest, name, o.addressType)
			return nil
		}
		return o.keep(r, name)
	})
}

func (o *slice) keep(r *admission.Reader, name []byte) error {
	value, err := r.Value()
	o.rest = append(o.rest, name, value)
	return err
}

func (o *slice) readMetadata(r *admission.Reader) error {
	return r.Members(func(name []byte) error {
		switch string(name) {
		case "annotations":
			return r.Raw(&o.annotations)
		case "managedFields":
			return r.Raw(&o.managedFields)
		case "labels":
			return o.readLabels(r)
		}
		return o.keep(r, name)
	})
}

func (o *slice) readLabels(r *admission.Reader) error {
	return r.Members(func(name []byte) error {
		switch string(name) {
		case v1alpha1.LabelRouted:
			return r.Quoted(&o.routed)
		case v1alpha1.LabelOwnZone:
			return o.keepLabel(r, name, &o.ownZone)
		case discoveryv1.LabelServiceName:
			return o.keepLabel(r, name, &o.service)
		case discoveryv1.LabelManagedBy:
			return o.keepLabel(r, name, &o.managedBy)
		}
		return o.keep(r, name)
	})
}

func (o *slice) keepLabel(r *admission.Reader, name []byte, value *[]byte) error {
	err := r.Quoted(value)
	o.rest = append(o.rest, name, *value)
	return err
}

// endpoint is an endpoint of a slice.
type endpoint struct {
	// before and behind are the endpoint without its hints, in two pieces.
	before, behind []byte
	// address is the first one; consumers of slices use no other.
	address, zone, node []byte
	hints               hints
}

func (e *endpoint) read(r *admission.Reader) error {
	if r.Kind() == 'n' {
		return errors.New("there is null where an endpoint should be")
	}
	// The hints are cut out with the comma before them.
	begin, ended := r.Start(), r.Start()+1
	cutFrom, cutTo := -1, -1
	err := r.Members(func(name []byte) error {
		var err error
		switch string(name) {
		case "addresses":
			err = e.readAddresses(r)
		case "zone":
			err = r.Quoted(&e.zone)
		case "nodeName":
			err = r.Quoted(&e.node)
		case "hints":
			err = e.hints.read(r)
			cutFrom, cutTo = ended, r.Position()
		default:
			err = r.Skip()
		}
		ended = r.Position()
		return err
	})
	if cutFrom < 0 {
		cutFrom, cutTo = r.Position()-1, r.Position()-1
	}
	e.before, e.behind = r.Part(begin, cutFrom), r.Part(cutTo, r.Position())
	return err
}

func (e *endpoint) readAddresses(r *admission.Reader) error {
	return r.Items(func() error {
		if e.address == nil {
			return r.Quoted(&e.address)
		}
		return r.Skip()
	})
}

// sameBeyondHints reports whether two endpoints differ in nothing but their hints. They are
// compared as text: the API server writes the members in one order.
func (e *endpoint) sameBeyondHints(other *endpoint) bool {
	return bytes.Equal(e.before, other.before) && bytes.Equal(e.behind, other.behind)
}
