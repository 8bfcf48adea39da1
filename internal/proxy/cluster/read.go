package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/view"
)

// Read lists, once, all objects that the proxy watches.
func Read(ctx context.Context, a API, s Scope) (*Catalogue, error) {
	known := NewCatalogue(clock.RealClock{}, func() {})
	return known, known.readAll(ctx, a, s)
}

func (c *Catalogue) readAll(ctx context.Context, a API, s Scope) error {
	nodes, _, err := list[*corev1.Node](ctx, a.Node(s.Node))
	if err != nil {
		return fmt.Errorf("reading node %s: %w", s.Node, err)
	}
	if len(nodes) == 0 {
		return nil
	}
	services, version, err := list[*corev1.Service](ctx, a.Services())
	if err != nil {
		return fmt.Errorf("reading Services: %w", err)
	}
	zone := nodes[0].Labels[corev1.LabelTopologyZone]
	groups, groupVersion, err := list[*v1alpha1.EndpointGroup](ctx, a.Groups(view.GroupSelector(zone)))
	if absent := s.Slices && apierrors.IsNotFound(err); err != nil && !absent {
		return fmt.Errorf("reading EndpointGroups: %w", err)
	}
	c.Fill(func() {
		c.SetNode(nodes[0])
		c.replaceServices(services, version)
		c.ReplaceGroups(groups, groupVersion, zone)
	})
	if err := c.readAddresses(ctx, a, s); err != nil {
		return err
	}
	if !s.Slices {
		return nil
	}
	all, version, err := list[*discoveryv1.EndpointSlice](ctx, a.Slices())
	if err != nil {
		return fmt.Errorf("reading EndpointSlices: %w", err)
	}
	c.Fill(func() { c.replaceSlices(all, version) })
	return nil
}

func (c *Catalogue) readAddresses(ctx context.Context, a API, s Scope) error {
	ranges, _, err := list[*networkingv1.ServiceCIDR](ctx, a.ServiceRanges())
	if err != nil && !unreadable(err) {
		return fmt.Errorf("reading ServiceCIDRs: %w", err)
	}
	c.Fill(func() { c.ReplaceRanges(ranges) })
	if s.Namespace == "" {
		return nil
	}
	published, _, err := list[*corev1.ConfigMap](ctx, a.NodeAddresses(s.Namespace))
	if err != nil && !unreadable(err) {
		return fmt.Errorf("reading the addresses of nodes: %w", err)
	}
	for _, one := range published {
		c.Fill(func() { err = c.SetNodeAddresses(one) })
		if err != nil {
			return fmt.Errorf("reading the addresses of nodes: %w", err)
		}
	}
	return nil
}

func list[T any](ctx context.Context, source cache.ListerWatcher) (objects []T, version string, err error) {
	listed, err := cache.ToListerWithContext(source).ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, "", err
	}
	items, err := meta.ExtractList(listed)
	if err != nil {
		return nil, "", err
	}
	for _, item := range items {
		if typed, ok := item.(T); ok {
			objects = append(objects, typed)
		}
	}
	access, err := meta.ListAccessor(listed)
	if err != nil {
		return nil, "", err
	}
	return objects, access.GetResourceVersion(), nil
}
