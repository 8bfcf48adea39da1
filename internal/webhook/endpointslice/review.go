package endpointslice

import (
	"bytes"

	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// review is what an AdmissionReview says, as far as it matters here. All of it is part
// of the text that was read. Strings have their quotes, and are nil where there is none.
type review struct {
	uid, operation, namespace, name, subresource, user []byte
	object, stored                                     slice
}

// read reads a review. When it fails, the uid is that of the request all the same, if
// it was read before.
func (r *review) read(text []byte) error {
	s := &scanner{text: text}
	seen := false
	err := s.members(func(name []byte) error {
		if string(name) != "request" {
			_, err := s.skip(0)
			return err
		}
		if seen {
			return errTwice
		}
		seen = true
		return r.readRequest(s)
	})
	if err != nil {
		return err
	}
	return s.end()
}

func (r *review) readRequest(s *scanner) error {
	return s.members(func(name []byte) error {
		switch string(name) {
		case "uid":
			return s.quoted(&r.uid)
		case "operation":
			return s.quoted(&r.operation)
		case "namespace":
			return s.quoted(&r.namespace)
		case "name":
			return s.quoted(&r.name)
		case "subResource":
			return s.quoted(&r.subresource)
		case "userInfo":
			return s.members(func(name []byte) error {
				if string(name) == "username" {
					return s.quoted(&r.user)
				}
				_, err := s.skip(0)
				return err
			})
		case "object":
			return r.object.read(s)
		case "oldObject":
			return r.stored.read(s)
		}
		_, err := s.skip(0)
		return err
	})
}

// reset forgets all but the memory of endpoints.
func (r *review) reset() {
	*r = review{
		object: slice{endpoints: r.object.endpoints[:0]},
		stored: slice{endpoints: r.stored.endpoints[:0]},
	}
}

// is reports whether a string with quotes says something.
func is(quoted []byte, text string) bool { return string(unquoted(quoted)) == text }

// unquoted is a string without its quotes; one that is not there is empty.
func unquoted(quoted []byte) []byte {
	if len(quoted) < 2 {
		return nil
	}
	return quoted[1 : len(quoted)-1]
}

// slice is an EndpointSlice of a review.
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

func (o *slice) read(s *scanner) error {
	if s.peek() == 'n' {
		return s.word("null")
	}
	if o.present {
		return errTwice
	}
	o.present = true
	return s.members(func(name []byte) error {
		switch string(name) {
		case "metadata":
			if o.hasMetadata {
				return errTwice
			}
			o.hasMetadata = s.peek() == '{'
			return o.readMetadata(s)
		case "endpoints":
			if o.hasEndpoints {
				return errTwice
			}
			o.hasEndpoints = s.peek() == '['
			return s.items(func() error {
				o.endpoints = append(o.endpoints, endpoint{})
				return o.endpoints[len(o.endpoints)-1].read(s)
			})
		case "addressType":
			if err := s.quoted(&o.addressType); err != nil {
				return err
			}
			o.rest = append(o.rest, name, o.addressType)
			return nil
		}
		return o.keep(s, name)
	})
}

// keep notes a member that is only compared.
func (o *slice) keep(s *scanner, name []byte) error {
	value, err := s.skip(0)
	o.rest = append(o.rest, name, value)
	return err
}

func (o *slice) readMetadata(s *scanner) error {
	return s.members(func(name []byte) error {
		switch string(name) {
		case "annotations":
			return s.raw(&o.annotations)
		case "managedFields":
			return s.raw(&o.managedFields)
		case "labels":
			return o.readLabels(s)
		}
		return o.keep(s, name)
	})
}

func (o *slice) readLabels(s *scanner) error {
	return s.members(func(name []byte) error {
		switch string(name) {
		case v1alpha1.LabelRouted:
			return s.quoted(&o.routed)
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
func (o *slice) keepLabel(s *scanner, name []byte, value *[]byte) error {
	err := s.quoted(value)
	o.rest = append(o.rest, name, *value)
	return err
}

// loseLabel reports whether the write takes the label for routed slices from one that
// Kubernetes' own controller does not write. To its slices it copies the labels of their
// Service; the others have the label from the routing controller, of which those who write
// them know nothing.
func (r *review) loseLabel() bool {
	o, stored := &r.object, &r.stored
	return stored.present && is(stored.routed, yes) && o.routed == nil && o.service != nil && bytes.Equal(o.service, stored.service) &&
		!is(o.managedBy, v1alpha1.ManagedByKubernetes) && !is(stored.managedBy, v1alpha1.ManagedByKubernetes)
}

// endpoint is an endpoint of a slice.
type endpoint struct {
	// before and behind are the endpoint without its hints, in two pieces.
	before, behind []byte
	// address is the first one; consumers of slices use no other.
	address, zone, node []byte
	hints               hints
}

func (e *endpoint) read(s *scanner) error {
	if s.peek() != '{' {
		return s.unexpected("an endpoint")
	}
	// The hints are cut out with the comma before them, from where the member before
	// them ended.
	begin, ended := s.at, s.at+1
	cutFrom, cutTo := -1, -1
	addressed := false
	err := s.members(func(name []byte) error {
		var err error
		switch string(name) {
		case "addresses":
			if addressed {
				return errTwice
			}
			addressed = true
			err = e.readAddresses(s)
		case "zone":
			err = s.quoted(&e.zone)
		case "nodeName":
			err = s.quoted(&e.node)
		case "hints":
			if cutFrom >= 0 {
				return errTwice
			}
			err = e.hints.read(s)
			cutFrom, cutTo = ended, s.at
		default:
			_, err = s.skip(0)
		}
		ended = s.at
		return err
	})
	if cutFrom < 0 {
		cutFrom, cutTo = s.at-1, s.at-1
	}
	e.before, e.behind = s.text[begin:cutFrom], s.text[cutTo:s.at]
	return err
}

func (e *endpoint) readAddresses(s *scanner) error {
	return s.items(func() error {
		if e.address == nil {
			return s.quoted(&e.address)
		}
		_, err := s.skip(0)
		return err
	})
}

// sameBeyondHints reports whether two endpoints differ in nothing but their hints. An
// API server writes the members of an endpoint in one order, so two that are written
// differently are taken to differ.
func (e *endpoint) sameBeyondHints(other *endpoint) bool {
	return bytes.Equal(e.before, other.before) && bytes.Equal(e.behind, other.behind)
}

// hints are those of an endpoint.
type hints struct {
	raw []byte // nil without hints
	// forZones and forNodes are the arrays, nil where there is nothing in them.
	forZones, forNodes []byte
	// sound hints pass the validation of the API server.
	sound bool
}

func (h *hints) read(s *scanner) error {
	c := s.peek()
	begin := s.at
	zones, nodes := names{valid: isLabelValue}, names{valid: isNodeName}
	err := s.members(func(name []byte) error {
		switch string(name) {
		case "forZones":
			return zones.read(s)
		case "forNodes":
			return nodes.read(s)
		}
		_, err := s.skip(0)
		return err
	})
	if err != nil || c != '{' {
		return err
	}
	h.raw, h.forZones, h.forNodes = s.text[begin:s.at], zones.raw, nodes.raw
	h.sound = !zones.unsound && !nodes.unsound
	return nil
}

// names are the zones or nodes of a hint: objects with a name.
type names struct {
	valid   func([]byte) bool
	raw     []byte
	seen    [v1alpha1.MaxHints][]byte
	count   int
	unsound bool
}

func (n *names) read(s *scanner) error {
	if n.raw != nil {
		return errTwice
	}
	s.peek()
	begin := s.at
	err := s.items(func() error {
		var quoted []byte
		if err := s.members(func(name []byte) error {
			if string(name) == "name" {
				return s.quoted(&quoted)
			}
			_, err := s.skip(0)
			return err
		}); err != nil {
			return err
		}
		n.add(unquoted(quoted))
		return nil
	})
	if n.count > 0 {
		n.raw = s.text[begin:s.at]
	}
	return err
}

func (n *names) add(name []byte) {
	if n.count >= v1alpha1.MaxHints || !n.valid(name) {
		n.unsound = true
		n.count++
		return
	}
	for _, other := range n.seen[:n.count] {
		n.unsound = n.unsound || bytes.Equal(other, name)
	}
	n.seen[n.count] = name
	n.count++
}

// What names of zones and nodes may be. Zones of endpoints are whatever labels of
// nodes are; the API checks them only as hints.
const (
	maxLabelValue = 63
	maxNodeName   = 253
)

func isLabelValue(name []byte) bool {
	if len(name) == 0 {
		return true
	}
	if len(name) > maxLabelValue || !isAlphanumeric(name[0]) || !isAlphanumeric(name[len(name)-1]) {
		return false
	}
	for _, c := range name {
		if !isAlphanumeric(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

func isNodeName(name []byte) bool {
	if len(name) == 0 || len(name) > maxNodeName {
		return false
	}
	before := byte('.')
	for _, c := range name {
		switch {
		case isDigit(c) || 'a' <= c && c <= 'z':
		case c == '-' && before != '.':
		case c == '.' && before != '.' && before != '-':
		default:
			return false
		}
		before = c
	}
	return before != '.' && before != '-'
}

func isAlphanumeric(c byte) bool { return isDigit(c) || isLetter(c) }
