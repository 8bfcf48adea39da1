package inspect

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/endpoint"
	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/proxy/view"
)

// nodeView has the rules of a node for a Service, compiled as in the proxy, and answers questions about them.
type nodeView struct {
	NodeReading
	options compile.Options
	result  compile.Result
	tables  map[ruleset.Family]*ruleset.Table
	// nodes are the nodes of endpoints, by address.
	nodes map[netip.Addr]string
	// states are the states of endpoints, by address.
	states map[netip.Addr]endpoint.State
}

func newNodeView(in NodeReading) *nodeView {
	e := &nodeView{
		NodeReading: in, options: in.Settings.Options(in.Node, in.Zone, in.Local),
		tables: map[ruleset.Family]*ruleset.Table{}, nodes: map[netip.Addr]string{}, states: map[netip.Addr]endpoint.State{},
	}
	e.options.Addresses = in.Book
	if in.Installed {
		e.result = compile.Service(e.input(in.Seen), e.options)
	}
	compiled := slices.Clone(e.result.Families)
	for _, rival := range in.Rivals {
		rival.MaxElements = in.Settings.Elements.Service
		compiled = append(compiled, compile.Service(rival, e.options).Families...)
	}
	for _, family := range in.Settings.Families() {
		e.tables[family] = view.Table(in.Settings.Config(family, in.Node), compiled)
	}
	e.locate()
	return e
}

// keptLocal says which connections of a Service that kube-proxy serves stay on the node, where hints do not count.
func (e *nodeView) keptLocal() []string {
	if e.served() {
		return nil
	}
	const consequence = " Local: they reach endpoints on the node alone, whatever hints say"
	spec := &e.Service.Spec
	var sentences []string
	if policy := spec.InternalTrafficPolicy; policy != nil && *policy == corev1.ServiceInternalTrafficPolicyLocal {
		sentences = append(sentences, "connections to the cluster IP have internalTrafficPolicy"+consequence)
	}
	if spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		sentences = append(sentences, "connections from outside have externalTrafficPolicy"+consequence)
	}
	return sentences
}

// refused says which claimed addresses the Service does not get.
func (e *nodeView) refused() []string {
	return e.result.Refused.Sentences(len(e.result.Refused.First))
}

// leftOut says if the Service needs more elements than one Service may have.
func (e *nodeView) leftOut() []string {
	bounds, wanted := e.Settings.Elements, e.result.Elements
	if bounds.ForOne(wanted) == wanted {
		return nil
	}
	return []string{"vicinity-proxy programs a part of the Service: " + bounds.Beyond(wanted)}
}

func (e *nodeView) input(groups []*v1alpha1.EndpointGroup) compile.Input {
	return compile.Input{Service: e.Service, Groups: groups, Slices: e.Slices, MaxElements: e.Settings.Elements.Service}
}

// locate notes the nodes of endpoints, of each address the endpoint that counts.
func (e *nodeView) locate() {
	note := func(read *v1alpha1.GroupEndpoint) {
		address, err := netip.ParseAddr(read.Address)
		if err != nil {
			return
		}
		address = address.Unmap()
		state := endpoint.StateInGroup(read)
		if before, known := e.states[address]; !known || state.Before(before) {
			e.nodes[address], e.states[address] = read.Node, state
		}
	}
	for _, group := range slices.SortedFunc(slices.Values(e.Seen), func(a, b *v1alpha1.EndpointGroup) int { return cmp.Compare(a.Name, b.Name) }) {
		for i := range group.Spec.Endpoints {
			note(&group.Spec.Endpoints[i])
		}
	}
	if e.fromGroups() {
		return
	}
	for _, family := range [...]corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		for _, slice := range endpoint.Slices(e.Slices, family) {
			for i := range slice.Endpoints {
				read := endpoint.Read(&slice.Endpoints[i])
				note(&read)
			}
		}
	}
}

func (e *nodeView) fromGroups() bool { return len(e.Seen) > 0 }

func (e *nodeView) served() bool { return len(e.result.Families) > 0 }

// Differences compares a listing of a kernel's rules with the expected ones for the Service.
func (n *NodeExplanation) Differences(listing ruleset.Listing) []string {
	e := n.view
	if !e.served() && !listing.Exists {
		return nil
	}
	share := view.Share{Table: e.tables[listing.Family]}
	for _, text := range e.Service.Spec.ClusterIPs {
		if address, err := netip.ParseAddr(text); err == nil {
			share.Addresses = append(share.Addresses, address.Unmap())
		}
	}
	for i := range e.result.Families {
		f := &e.result.Families[i]
		for _, known := range f.Endpoints {
			share.Endpoints = append(share.Endpoints, known.Address)
		}
	}
	var sentences []string
	for _, difference := range share.Table.Differences(share.Of(listing)) {
		sentences = append(sentences, fmt.Sprintf("%s: %s", FamilyName(listing.Family), difference))
	}
	return sentences
}

// FamilyName returns the API's name of a family.
func FamilyName(family ruleset.Family) corev1.IPFamily {
	if family == ruleset.IPv6 {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}
