package rollout

import "slices"

// describe has the numbers of all domains in the step.
func (r *run) describe() {
	m := r.memory
	for _, d := range r.domains {
		switch {
		case m.Failure != nil && m.Failure.Pod != "" && m.Failure.Domain == d.Name:
			d.State = DomainFailed
		case slices.Contains(m.Current, d.Name) && !m.BakingSince.IsZero():
			d.State = DomainBaking
		case slices.Contains(m.Current, d.Name):
			d.State = DomainUpdating
		case len(d.old) > 0:
			d.State = DomainWaiting
		default:
			d.State = DomainDone
		}
		r.step.Domains = append(r.step.Domains, d.Domain)
	}
}
