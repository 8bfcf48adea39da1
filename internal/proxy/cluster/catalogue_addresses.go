package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/nodenet"
	"vicinity.dev/vicinity/internal/proxy/view"
	"vicinity.dev/vicinity/internal/topology/netset"
)

// published has the addresses of all nodes and the ranges of their pods, from vicinity-controller.
type published struct {
	known       bool
	nodes, pods netset.Set
}

// SetRange sets a range of cluster IPs. A range counts until its object is deleted: Services have addresses in it.
func (c *Catalogue) SetRange(one *networkingv1.ServiceCIDR) {
	prefixes := nodenet.Prefixes(one.Spec.CIDRs)
	if before, found := c.ranges[one.Name]; !found || !slices.Equal(before, prefixes) {
		c.ranges[one.Name] = prefixes
		c.changes.Reserved = true
	}
}

// RemoveRange removes a range of cluster IPs.
func (c *Catalogue) RemoveRange(one *networkingv1.ServiceCIDR) {
	if _, found := c.ranges[one.Name]; found {
		delete(c.ranges, one.Name)
		c.changes.Reserved = true
	}
}

// ReplaceRanges replaces all ranges by a list.
func (c *Catalogue) ReplaceRanges(list []*networkingv1.ServiceCIDR) {
	for name := range c.ranges {
		if !slices.ContainsFunc(list, func(one *networkingv1.ServiceCIDR) bool { return one.Name == name }) {
			delete(c.ranges, name)
			c.changes.Reserved = true
		}
	}
	for _, one := range list {
		c.SetRange(one)
	}
}

// SetNodeAddresses sets the published addresses. The error has the invalid lines. The others count.
func (c *Catalogue) SetNodeAddresses(object *corev1.ConfigMap) error {
	nodes, wrongNodes := netset.Parse(object.Data[v1alpha1.KeyNodeAddresses])
	pods, wrongPods := netset.Parse(object.Data[v1alpha1.KeyPodRanges])
	if !c.others.known || !c.others.nodes.Equal(nodes) || !c.others.pods.Equal(pods) {
		c.others = published{true, nodes, pods}
		c.changes.Reserved = true
	}
	if wrongNodes != nil {
		wrongNodes = fmt.Errorf("%s: %w", v1alpha1.KeyNodeAddresses, wrongNodes)
	}
	if wrongPods != nil {
		wrongPods = fmt.Errorf("%s: %w", v1alpha1.KeyPodRanges, wrongPods)
	}
	return errors.Join(wrongNodes, wrongPods)
}

// Reserved returns the addresses of the cluster, without those of Services. It ignores the service ranges of the settings.
func (c *Catalogue) Reserved(settings view.Settings) compile.Reserved {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ranges []netip.Prefix
	for _, prefixes := range c.ranges {
		ranges = append(ranges, prefixes...)
	}
	settings.ServiceRanges = netset.New(ranges)
	return settings.Reserved(c.node, c.others.nodes, c.others.pods)
}

// Service returns a Service, nil if unknown.
func (c *Catalogue) Service(name types.NamespacedName) *corev1.Service {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.services[name]
}
