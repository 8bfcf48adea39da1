package endpointslice

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// siblings finds the other slices of a Service.
type siblings interface {
	find(context.Context, family) ([]discoveryv1.EndpointSlice, error)
}

type family struct {
	namespace, service string
	addressType        discoveryv1.AddressType
	// except is the name of the slice whose siblings are looked for.
	except string
}

// siblingTimeout is how long a review waits for a cache that is not filled yet.
const siblingTimeout = 200 * time.Millisecond

// serviceIndex is the name under which the cache finds slices by their Service.
const serviceIndex = "webhook.endpointslice.service"

func serviceOf(object client.Object) []string {
	if service := object.GetLabels()[discoveryv1.LabelServiceName]; service != "" {
		return []string{service}
	}
	return nil
}

// cached finds siblings in a cache that has the index serviceIndex. The cache shares them, so
// they must not be changed.
type cached struct {
	reader client.Reader
}

func (c cached) find(ctx context.Context, f family) ([]discoveryv1.EndpointSlice, error) {
	ctx, cancel := context.WithTimeout(ctx, siblingTimeout)
	defer cancel()
	var list discoveryv1.EndpointSliceList
	if err := c.reader.List(ctx, &list, client.InNamespace(f.namespace),
		client.MatchingFields{serviceIndex: f.service}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("looking for the slices of Service %s/%s: %w", f.namespace, f.service, err)
	}
	found := slices.DeleteFunc(list.Items, func(s discoveryv1.EndpointSlice) bool {
		return s.AddressType != f.addressType || s.Name == f.except
	})
	// An endpoint that two slices have is taken from the first.
	slices.SortFunc(found, func(a, b discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}
