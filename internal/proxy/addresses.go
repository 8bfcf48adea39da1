package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
)

// primary is what stands for the addresses that the node's object names first.
const primary = "primary"

// NodePortAddresses says which addresses of the node take NodePorts.
type NodePortAddresses struct {
	// prefixes are those that the addresses are in. Without any they are the node's
	// primary ones.
	prefixes []netip.Prefix
}

// ParseNodePortAddresses reads prefixes, or the word "primary" alone.
func ParseNodePortAddresses(texts []string) (NodePortAddresses, error) {
	var parsed NodePortAddresses
	for _, text := range texts {
		if text == primary {
			if len(texts) > 1 {
				return NodePortAddresses{}, fmt.Errorf("%q is not allowed together with others", primary)
			}
			return NodePortAddresses{}, nil
		}
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return NodePortAddresses{}, fmt.Errorf("%q is not allowed; it must be a prefix such as 192.0.2.0/24, or %q alone", text, primary)
		}
		parsed.prefixes = append(parsed.prefixes, prefix.Masked())
	}
	return parsed, nil
}

// byPrefix reports whether addresses are looked for on the node's interfaces.
func (a NodePortAddresses) byPrefix() bool { return len(a.prefixes) > 0 }

// of are the addresses in order: of those that the interfaces have, or that the node's
// object names.
func (a NodePortAddresses) of(local, named []netip.Addr) []netip.Addr {
	var chosen []netip.Addr
	if !a.byPrefix() {
		for _, v6 := range []bool{false, true} {
			if i := slices.IndexFunc(named, func(address netip.Addr) bool { return address.Is6() == v6 }); i >= 0 {
				chosen = append(chosen, named[i])
			}
		}
		return chosen
	}
	for _, address := range local {
		within := slices.ContainsFunc(a.prefixes, func(p netip.Prefix) bool { return p.Contains(address) })
		if within && !address.IsLoopback() && !address.IsLinkLocalUnicast() {
			chosen = append(chosen, address)
		}
	}
	slices.SortFunc(chosen, netip.Addr.Compare)
	return slices.Compact(chosen)
}

// addressesOf are the addresses that a node's object names, internal ones first.
func addressesOf(node *corev1.Node) []netip.Addr {
	var all []netip.Addr
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, named := range node.Status.Addresses {
			if named.Type != kind {
				continue
			}
			if address, err := netip.ParseAddr(named.Address); err == nil && !slices.Contains(all, address.Unmap()) {
				all = append(all, address.Unmap())
			}
		}
	}
	return all
}

// interfaceAddresses are those that the machine's interfaces have.
func interfaceAddresses() ([]netip.Addr, error) {
	found, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("reading the addresses of interfaces: %w", err)
	}
	all := make([]netip.Addr, 0, len(found))
	for i := range found {
		if address, ok := netip.AddrFromSlice(found[i].IP); ok {
			all = append(all, address.Unmap())
		}
	}
	return all, nil
}

// followInterfaces reads the addresses at once and whenever one comes or goes, until the
// context ends.
func followInterfaces(ctx context.Context, log logr.Logger, told func([]netip.Addr)) {
	for ctx.Err() == nil {
		if err := followOnce(ctx, told); err != nil {
			log.Error(err, "Addresses of the node's interfaces are not known")
		}
		select {
		case <-ctx.Done():
		case <-time.After(followAgain):
		}
	}
}

// followAgain is how long to wait when the kernel has ended a watch, because more happened
// than could be read.
const followAgain = time.Second

func followOnce(ctx context.Context, told func([]netip.Addr)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	updates := make(chan netlink.AddrUpdate, 64)
	if err := netlink.AddrSubscribe(updates, ctx.Done()); err != nil {
		return fmt.Errorf("watching the addresses of interfaces: %w", err)
	}
	for {
		all, err := interfaceAddresses()
		if err != nil {
			return err
		}
		told(all)
		select {
		case <-ctx.Done():
			return nil
		case _, open := <-updates:
			if !open {
				return nil
			}
		}
		for len(updates) > 0 {
			<-updates // those that came together are read together
		}
	}
}
