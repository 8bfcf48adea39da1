package view

import (
	"fmt"
	"net/netip"
	"slices"
)

// primary stands for the first address of each family in the Node object.
const primary = "primary"

// NodePorts selects the addresses of a node for NodePorts.
type NodePorts struct {
	// prefixes contain the addresses. Without any, the primary addresses are used.
	prefixes []netip.Prefix
}

// ParseNodePorts reads prefixes, or the word "primary" alone.
func ParseNodePorts(texts []string) (NodePorts, error) {
	word, prefixes, err := parsePrefixes(texts, `a prefix such as 192.0.2.0/24, or "primary" alone`, primary)
	if err != nil || word != "" {
		return NodePorts{}, err
	}
	return NodePorts{prefixes}, nil
}

// parsePrefixes reads prefixes, or one of some words alone.
func parsePrefixes(texts []string, allowed string, words ...string) (word string, prefixes []netip.Prefix, err error) {
	for _, text := range texts {
		if slices.Contains(words, text) {
			if len(texts) > 1 {
				return "", nil, fmt.Errorf("%q is not allowed together with others", text)
			}
			return text, nil, nil
		}
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return "", nil, fmt.Errorf("%q is not allowed; it must be %s", text, allowed)
		}
		prefixes = append(prefixes, prefix.Masked())
	}
	return "", prefixes, nil
}

// ByPrefix reports whether the addresses are selected from the node's interfaces.
func (p NodePorts) ByPrefix() bool { return len(p.prefixes) > 0 }

// Of returns the sorted addresses for NodePorts, from the addresses of the interfaces or those in the Node object.
func (p NodePorts) Of(local, named []netip.Addr) []netip.Addr {
	var chosen []netip.Addr
	if !p.ByPrefix() {
		for _, v6 := range []bool{false, true} {
			if i := slices.IndexFunc(named, func(address netip.Addr) bool { return address.Is6() == v6 }); i >= 0 {
				chosen = append(chosen, named[i])
			}
		}
		return chosen
	}
	for _, address := range local {
		within := slices.ContainsFunc(p.prefixes, func(p netip.Prefix) bool { return p.Contains(address) })
		if within && !address.IsLoopback() && !address.IsLinkLocalUnicast() {
			chosen = append(chosen, address)
		}
	}
	slices.SortFunc(chosen, netip.Addr.Compare)
	return slices.Compact(chosen)
}
