package endpointslice

import (
	"bytes"

	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/webhook/jsonscan"
)

// is reports whether a string with quotes says something.
func is(quoted []byte, text string) bool { return string(unquoted(quoted)) == text }

// unquoted is a string without its quotes; one that is not there is empty.
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
	hasEndpoints               bool
	// rest is all else that the slice and its metadata say, a piece for each member, with
	// the labels but that for routed slices.
	rest [][]byte
}

// yes is what a label must say that asks for something.
const yes = "true"

func (o *slice) isRouted() bool { return is(o.routed, yes) }

// reset forgets all but the memory.
func (o *slice) reset() { *o = slice{endpoints: o.endpoints[:0], rest: o.rest[:0]} }

func (o *slice) read(s *jsonscan.Scanner) error {
	if s.Peek() == 'n' {
		_, err := s.Skip()
		return err
	}
	if o.present {
		return jsonscan.ErrTwice
	}
	o.present = true
	return s.Members(func(name []byte) error {
		switch string(name) {
		case "metadata":
			if o.hasMetadata {
				return jsonscan.ErrTwice
			}
			o.hasMetadata = s.Peek() == '{'
			return o.readMetadata(s)
		case "endpoints":
			if o.hasEndpoints {
				return jsonscan.ErrTwice
			}
			o.hasEndpoints = s.Peek() == '['
			return s.Items(func() error {
				o.endpoints = append(o.endpoints, endpoint{})
				return o.endpoints[len(o.endpoints)-1].read(s)
			})
		case "addressType":
			if err := s.Quoted(&o.addressType); err != nil {
				return err
			}
			o.rest = append(o.rest, name, o.addressType)
			return nil
		}
		return o.keep(s, name)
	})
}

// keep notes a member that is only compared.
func (o *slice) keep(s *jsonscan.Scanner, name []byte) error {
	value, err := s.Skip()
	o.rest = append(o.rest, name, value)
	return err
}

func (o *slice) readMetadata(s *jsonscan.Scanner) error {
	return s.Members(func(name []byte) error {
		switch string(name) {
		case "annotations":
			return s.Raw(&o.annotations)
		case "managedFields":
			return s.Raw(&o.managedFields)
		case "labels":
			return o.readLabels(s)
		}
		return o.keep(s, name)
	})
}

func (o *slice) readLabels(s *jsonscan.Scanner) error {
	return s.Members(func(name []byte) error {
		switch string(name) {
		case v1alpha1.LabelRouted:
			return s.Quoted(&o.routed)
		case v1alpha1.LabelOwnZone:
			return o.keepLabel(s, name, &o.ownZone)
		case discoveryv1.LabelServiceName:
			return o.keepLabel(s, name, &o.service)
		case discoveryv1.LabelManagedBy:
			return o.keepLabel(s, name, &o.managedBy)
		}
		return o.keep(s, name)
	})
}

// keepLabel notes a label that matters and is compared, too.
func (o *slice) keepLabel(s *jsonscan.Scanner, name []byte, value *[]byte) error {
	err := s.Quoted(value)
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

func (e *endpoint) read(s *jsonscan.Scanner) error {
	if s.Peek() != '{' {
		return s.Unexpected("an endpoint")
	}
	// The hints are cut out with the comma before them, from where the member before
	// them ended.
	begin, ended := s.Position(), s.Position()+1
	cutFrom, cutTo := -1, -1
	addressed := false
	err := s.Members(func(name []byte) error {
		var err error
		switch string(name) {
		case "addresses":
			if addressed {
				return jsonscan.ErrTwice
			}
			addressed = true
			err = e.readAddresses(s)
		case "zone":
			err = s.Quoted(&e.zone)
		case "nodeName":
			err = s.Quoted(&e.node)
		case "hints":
			if cutFrom >= 0 {
				return jsonscan.ErrTwice
			}
			err = e.hints.read(s)
			cutFrom, cutTo = ended, s.Position()
		default:
			_, err = s.Skip()
		}
		ended = s.Position()
		return err
	})
	if cutFrom < 0 {
		cutFrom, cutTo = s.Position()-1, s.Position()-1
	}
	e.before, e.behind = s.Part(begin, cutFrom), s.Part(cutTo, s.Position())
	return err
}

func (e *endpoint) readAddresses(s *jsonscan.Scanner) error {
	return s.Items(func() error {
		if e.address == nil {
			return s.Quoted(&e.address)
		}
		_, err := s.Skip()
		return err
	})
}

// sameBeyondHints reports whether two endpoints differ in nothing but their hints. An
// API server writes the members of an endpoint in one order, so two that are written
// differently are taken to differ.
func (e *endpoint) sameBeyondHints(other *endpoint) bool {
	return bytes.Equal(e.before, other.before) && bytes.Equal(e.behind, other.behind)
}
