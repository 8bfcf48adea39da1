package groups

import (
	"cmp"
	"slices"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// drain returns the writes of the groups that name drained endpoints. Existing are all such groups.
func (w *want) drain(existing []*v1alpha1.EndpointGroup) (writes []write) {
	slices.SortFunc(existing, func(a, b *v1alpha1.EndpointGroup) int { return cmp.Compare(a.Name, b.Name) })
	for _, t := range w.parts {
		for drained := range slices.Chunk(w.drainedOf(t), MaxSize) {
			var object *v1alpha1.EndpointGroup
			if len(existing) > 0 {
				object, existing = existing[0], existing[1:]
			}
			c := w.commonContent(object, nil)
			c.Tiers, c.Ports, c.Drained = w.tiers, t.ports, drained
			if object == nil || !w.hasContent(object, c) {
				writes = append(writes, write{object: object, next: w.object(object, c, "")})
			}
		}
	}
	for _, object := range existing {
		writes = append(writes, write{object: object})
	}
	return writes
}

func (w *want) drainedOf(t *part) (addresses []string) {
	for _, e := range t.endpoints {
		if w.IsDrained != nil && w.IsDrained(&e.GroupEndpoint) {
			addresses = append(addresses, e.Address)
		}
	}
	slices.Sort(addresses)
	return addresses
}
