package endpointslice

import (
	"bytes"

	"vicinity.dev/vicinity/api/v1alpha1"

	"vicinity.dev/vicinity/internal/webhook/admission"
)

// hints are those of an endpoint.
type hints struct {
	raw []byte // nil without hints
	// forZones and forNodes are the arrays, nil where there is nothing in them.
	forZones, forNodes []byte
	// sound hints pass the validation of the API server.
	sound bool
}

func (h *hints) read(r *admission.Reader) error {
	kind, begin := r.Kind(), r.Start()
	zones, nodes := names{valid: isLabelValue}, names{valid: isNodeName}
	err := r.Members(func(name []byte) error {
		switch string(name) {
		case "forZones":
			return zones.read(r)
		case "forNodes":
			return nodes.read(r)
		}
		return r.Skip()
	})
	if err != nil || kind != '{' {
		return err
	}
	h.raw, h.forZones, h.forNodes = r.Part(begin, r.Position()), zones.raw, nodes.raw
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

func (n *names) read(r *admission.Reader) error {
	begin := r.Start()
	err := r.Items(func() error {
		var quoted []byte
		if err := r.Members(func(name []byte) error {
			if string(name) == "name" {
				return r.Quoted(&quoted)
			}
			return r.Skip()
		}); err != nil {
			return err
		}
		n.add(unquoted(quoted))
		return nil
	})
	if n.count > 0 {
		n.raw = r.Part(begin, r.Position())
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

// The API checks zones only as hints; the zone of an endpoint can be longer.
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

func isAlphanumeric(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'z' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
