package groups

import "vicinity.dev/vicinity/api/v1alpha1"

// order puts the writes of a step into the order in which they are safe: zones gain before
// they lose. New groups come first, then updates by which zones gain, then the others, and
// deletions last.
func order(s step) Changes {
	changes := Changes{Again: s.again, After: s.after}
	var late []*v1alpha1.EndpointGroup
	for _, w := range s.writes {
		switch {
		case w.next == nil:
			changes.Delete = append(changes.Delete, w.object)
		case w.object == nil:
			changes.Create = append(changes.Create, w.next)
		case w.grows || w.opens:
			changes.Update = append(changes.Update, w.next)
		default:
			late = append(late, w.next)
		}
	}
	changes.Update = append(changes.Update, late...)
	return changes
}
