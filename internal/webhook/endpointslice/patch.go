package endpointslice

import (
	"bytes"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/webhook/admission"
)

// patch is a JSON patch that is being written. One that does not apply fails the request,
// whatever the failure policy, so each operation must be possible.
type patch struct {
	text []byte
}

// set gives a member of the object that is there a value, or none.
func (p *patch) set(path string, have, want []byte) {
	if bytes.Equal(have, want) {
		return
	}
	p.begin(want == nil)
	p.text = append(p.text, path...)
	p.finish(want)
}

// setHints gives the endpoint with an index the hints wanted.
func (p *patch) setHints(index int, have, want []byte) {
	if bytes.Equal(have, want) {
		return
	}
	p.begin(want == nil)
	p.text = append(p.text, "/endpoints/"...)
	p.text = strconv.AppendInt(p.text, int64(index), 10)
	p.text = append(p.text, "/hints"...)
	p.finish(want)
}

func (p *patch) begin(remove bool) {
	separator, operation := byte('['), "add"
	if len(p.text) > 0 {
		separator = ','
	}
	if remove {
		operation = "remove"
	}
	p.text = append(p.text, separator)
	p.text = append(p.text, `{"op":"`...)
	p.text = append(p.text, operation...)
	p.text = append(p.text, `","path":"`...)
}

func (p *patch) finish(value []byte) {
	p.text = append(p.text, '"')
	if value != nil {
		p.text = append(p.text, `,"value":`...)
		p.text = append(p.text, value...)
	}
	p.text = append(p.text, '}')
}

// finished is the whole patch, nil if there is nothing in it.
func (p *patch) finished() []byte {
	if len(p.text) == 0 {
		return nil
	}
	return append(p.text, ']')
}

// restores reports whether a slice with the hints wanted is the stored one but for the
// annotation of when its endpoints changed last, its managed fields, and the label for routed
// slices. A write that changed anything else is never undone.
func restores(object, stored *slice, want [][]byte) bool {
	if !object.hasMetadata || !stored.hasMetadata || len(object.endpoints) != len(stored.endpoints) || len(object.rest) != len(stored.rest) {
		return false
	}
	for i := range object.rest {
		if !bytes.Equal(object.rest[i], stored.rest[i]) {
			return false
		}
	}
	for i := range object.endpoints {
		if !bytes.Equal(want[i], stored.endpoints[i].hints.raw) || !object.endpoints[i].sameBeyondHints(&stored.endpoints[i]) {
			return false
		}
	}
	return bytes.Equal(object.annotations, stored.annotations) || sameBeyondTriggerTime(object.annotations, stored.annotations)
}

// sameBeyondTriggerTime compares annotations, which the API server writes in order.
func sameBeyondTriggerTime(a, b []byte) bool {
	listA, errA := annotations(a)
	listB, errB := annotations(b)
	if errA != nil || errB != nil || len(listA) != len(listB) {
		return false
	}
	for i := range listA {
		if !bytes.Equal(listA[i], listB[i]) {
			return false
		}
	}
	return true
}

// annotations are names and values in turn, without the trigger time.
func annotations(text []byte) ([][]byte, error) {
	if text == nil {
		return nil, nil
	}
	var list [][]byte
	r := admission.NewReader(text)
	err := r.Members(func(name []byte) error {
		value, err := r.Value()
		if string(name) != corev1.EndpointsLastChangeTriggerTime {
			list = append(list, name, value)
		}
		return err
	})
	return list, err
}
