package routing

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// findTrigger finds when the change happened that the step is for: what the slices say
// of the last one, unless it is what a group says already. Then the step is for
// something else, whose beginning nobody knows.
func (p *groupPlanner) findTrigger() {
	var last time.Time
	for _, s := range p.in.Slices {
		if s.AddressType != discoveryv1.AddressType(p.family) {
			continue
		}
		if at := triggerOf(s.Annotations); at.After(last) {
			last, p.trigger = at, s.Annotations[corev1.EndpointsLastChangeTriggerTime]
		}
	}
	for _, s := range p.standing {
		if !triggerOf(s.group.Annotations).Before(last) {
			p.trigger = ""
		}
	}
}

// triggerOf is when a change of endpoints happened, zero if annotations do not say.
func triggerOf(annotations map[string]string) time.Time {
	at, err := time.Parse(time.RFC3339Nano, annotations[corev1.EndpointsLastChangeTriggerTime])
	if err != nil {
		return time.Time{}
	}
	return at
}
