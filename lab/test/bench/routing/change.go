package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/lab/test/bench/meter"
)

// answerTime limits the wait for hints after the last change, generously.
const answerTime = 30 * time.Second

type change struct {
	service        types.NamespacedName
	slice, address string
	adds           bool
	patch          []byte
	// sent is the time of the request. seen is when a watch showed the change, answered when it showed
	// the hints that followed. The latter two are zero if that did not happen.
	sent, seen, answered time.Time
}

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// newChange makes a change of a Service: it removes the first endpoint of the last slice, or appends
// one.
func newChange(p plan, adds bool, endpoint discoveryv1.Endpoint) (*change, error) {
	last := p.slices[len(p.slices)-1]
	c := &change{service: p.key(), slice: last.Name, adds: adds, address: endpoint.Addresses[0]}
	operations := []operation{{"add", "/endpoints/-", endpoint}}
	if !adds {
		c.address = last.Endpoints[0].Addresses[0]
		operations = []operation{{"test", "/endpoints/0/addresses/0", c.address}, {"remove", "/endpoints/0", nil}}
	}
	var err error
	c.patch, err = json.Marshal(operations)
	return c, err
}

func (c *change) see(before, after *discoveryv1.EndpointSlice, now time.Time) {
	has := find(after, c.address)
	switch {
	case !c.answered.IsZero():
	case c.seen.IsZero():
		if (find(before, c.address) != nil) != (has != nil) {
			c.seen = now
		}
	case !c.adds:
		c.answered = now
	case has != nil && (hasHints(has) || !slices.ContainsFunc(after.Endpoints, isHinted)):
		// When a plan no longer fits, the controller withdraws it and no endpoint has hints.
		c.answered = now
	}
}

func isHinted(e discoveryv1.Endpoint) bool { return hasHints(&e) }

func find(slice *discoveryv1.EndpointSlice, address string) *discoveryv1.Endpoint {
	for i := range slice.Endpoints {
		if slice.Endpoints[i].Addresses[0] == address {
			return &slice.Endpoints[i]
		}
	}
	return nil
}

// changes alternately add and remove an endpoint. Each is of another Service with hints.
func (b *bench) changes(n int) ([]*change, error) {
	b.observer.mu.Lock()
	defer b.observer.mu.Unlock()
	var all []*change
	for _, i := range b.random.Perm(len(b.plans)) {
		if len(all) == n {
			return all, nil
		}
		if p := b.plans[i]; b.observer.services[p.key()].hinted() {
			made, err := newChange(p, len(all)%2 == 0, b.endpoint(b.random.IntN(len(b.locations))))
			if err != nil {
				return nil, err
			}
			all = append(all, made)
		}
	}
	if len(all) < n {
		return nil, fmt.Errorf("%d of %d Services have hints, too few for %d changes", len(all), len(b.plans), n)
	}
	return all, nil
}

// makeChanges makes the changes at a steady rate, whether the controller keeps up or not, and waits
// until each added endpoint has hints.
func (b *bench) makeChanges(ctx context.Context, all []*change) error {
	ticker := time.NewTicker(time.Second / rate)
	defer ticker.Stop()
	err := meter.InParallel(ctx, len(all), len(all), func(ctx context.Context, i int) error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
		return b.write(ctx, all[i])
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, errors.New("hints take too long"))
	defer cancel()
	return b.observer.wait(ctx, func() string { return unanswered(all) })
}

func (b *bench) write(ctx context.Context, change *change) error {
	b.observer.begin(change.service, change)
	_, err := b.API.DiscoveryV1().EndpointSlices(change.service.Namespace).
		Patch(ctx, change.slice, types.JSONPatchType, change.patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("changing EndpointSlice %s: %w", change.slice, err)
	}
	return nil
}

// unanswered returns the number of changes that were not seen, or that added an endpoint and have no
// hints. Removals often need no new hints.
func unanswered(all []*change) string {
	n := 0
	for _, c := range all {
		if c.seen.IsZero() || c.adds && c.answered.IsZero() {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d changes are not seen or have no hints", n, len(all))
}
