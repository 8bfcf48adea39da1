// Package nodenet reads the addresses and pod ranges of Node objects, for vicinity-proxy and for vicinity-controller, which
// publishes them.
package nodenet

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Addresses returns the addresses in a Node object, internal ones first.
func Addresses(node *corev1.Node) []netip.Addr {
	var all []netip.Addr
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, named := range node.Status.Addresses {
			if named.Type != kind {
				continue
			}
			address, err := netip.ParseAddr(named.Address)
			if address = address.Unmap(); err == nil && address.Zone() == "" && !slices.Contains(all, address) {
				all = append(all, address)
			}
		}
	}
	return all
}

// PodPrefixes returns the ranges of a node's pods.
func PodPrefixes(node *corev1.Node) []netip.Prefix {
	if len(node.Spec.PodCIDRs) == 0 && node.Spec.PodCIDR != "" {
		return Prefixes([]string{node.Spec.PodCIDR})
	}
	return Prefixes(node.Spec.PodCIDRs)
}

// Prefixes returns the prefixes among some texts.
func Prefixes(texts []string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			all = append(all, prefix.Masked())
		}
	}
	return all
}
