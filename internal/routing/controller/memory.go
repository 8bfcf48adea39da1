package controller

import (
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/handover"
)

// memory is the state of Services between syncs. Losing it delays writes and changes no decision.
type memory struct {
	mu       sync.Mutex
	services map[types.NamespacedName]*record
	reports  map[types.NamespacedName]report // for metrics
}

// record is the state of one Service between syncs. A Service has one sync at a time, so it needs no lock.
type record struct {
	uid  types.UID
	last *routing.Decision
	// service is the resource version of the last write to the Service. slices has the resource versions of the slices
	// that got hints last.
	service  string
	slices   map[string]string
	trust    shell.Trust // in both
	labelled time.Time   // when the Service got the label
	// seen has the resource versions of all slices at the last sync, nil before the first one. hinted counts slices that
	// the webhook gave hints, and that no metric has yet.
	seen   map[string]string
	hinted int
	// holdUntil is when zones may lose endpoints again, zero before the first step.
	holdUntil time.Time
	backoff   lossBackoff
	mark      lossBackoff // of writes of the mark
	marked    bool        // the last write set the mark
	yielded   time.Time   // when a zone shift last gave way to the bound
	failing   time.Time
	pending   shell.Lasting[string]
	// groups are the written groups, and handover is the memory of the hand-over.
	groups   shell.Overlay[*v1alpha1.EndpointGroup]
	handover handover.Memory
	quiet    quietRecord
}

func (r *record) noteServiceWrite(service *corev1.Service, now time.Time) {
	r.service = service.ResourceVersion
	r.trust.Renew(now)
}

// noteSlices counts the slices that others have written since the last sync and that have hints: the webhook's, because
// other writers remove the hints of a routed Service.
func (r *record) noteSlices(eps []*discoveryv1.EndpointSlice) {
	seen := make(map[string]string, len(eps))
	for _, slice := range eps {
		seen[slice.Name] = slice.ResourceVersion
		isTheirs := r.seen != nil && slice.ResourceVersion != r.seen[slice.Name] && slice.ResourceVersion != r.slices[slice.Name]
		if isTheirs && slice.Labels[v1alpha1.LabelRouted] == "true" && slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return e.Hints != nil }) {
			r.hinted++
		}
	}
	r.seen = seen
}

// distrust forgets the writes, because the cache will never show them.
func (r *record) distrust() {
	r.service = ""
	r.slices = map[string]string{}
}

// noteGroupsWritten notes a decision whose groups are written. Its hints may not be.
func (r *record) noteGroupsWritten(d *routing.Decision) {
	last := d.Essence()
	if last.Meanwhile != nil && r.last != nil {
		last.Meanwhile = r.last.Hinted()
	}
	r.last = last
}

// noteHintsWritten notes a decision whose hints are written, perhaps besides groups.
func (r *record) noteHintsWritten(d *routing.Decision) {
	last := d.Essence()
	if r.last != nil && r.last.Delivery == allocate.DeliveryGroups {
		grouped := *r.last
		grouped.Meanwhile = last
		last = &grouped
	}
	r.last = last
}

func (r *record) prune(eps []*discoveryv1.EndpointSlice) {
	present := make(map[string]bool, len(eps))
	for _, slice := range eps {
		present[slice.Name] = true
	}
	maps.DeleteFunc(r.slices, func(name, _ string) bool { return !present[name] })
}

func newMemory() *memory {
	return &memory{services: map[types.NamespacedName]*record{}, reports: map[types.NamespacedName]report{}}
}

func (m *memory) record(key types.NamespacedName) (r *record, fresh bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r = m.services[key]
	if r == nil {
		r = &record{slices: map[string]string{}, backoff: hintLosses, mark: markLosses}
		m.services[key] = r
		return r, true
	}
	return r, false
}

func (m *memory) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.services, key)
	delete(m.reports, key)
}

func (m *memory) setReport(key types.NamespacedName, made report) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reports[key] = made
}

// wake requeues all Services.
func (m *memory) wake(q queue) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.services {
		q.Add(reconcile.Request{NamespacedName: key})
	}
}

// each calls f for every Service. f must not use the memory.
func (m *memory) each(f func(types.NamespacedName, *report)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, made := range m.reports {
		f(key, &made)
	}
}
