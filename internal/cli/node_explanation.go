package cli

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/proxy/view"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/topology"
)

// nodeExplanation is what the rules of a node do for a Service. What they do is compiled
// as the proxy does; what is asked here are questions about that.
type nodeExplanation struct {
	*nodeInput
	options compile.Options
	result  compile.Result
	tables  map[ruleset.Family]*ruleset.Table
	// odd are parts that no rule can be made of.
	odd []string
	// nodes are where endpoints are, by address.
	nodes map[netip.Addr]string
	// going are the addresses of endpoints that are not ready.
	going map[netip.Addr]bool
}

func newNodeExplanation(in *nodeInput, local []netip.Addr) *nodeExplanation {
	e := &nodeExplanation{
		nodeInput: in, options: in.settings.Options(in.node, in.zone, local),
		tables: map[ruleset.Family]*ruleset.Table{}, nodes: map[netip.Addr]string{}, going: map[netip.Addr]bool{},
	}
	e.options.Addresses = in.book
	if in.installed {
		e.result = compile.Service(e.input(in.seen), e.options)
	}
	compiled := slices.Clone(e.result.Families)
	for _, rival := range in.rivals {
		compiled = append(compiled, compile.Service(rival, e.options).Families...)
	}
	for _, family := range []ruleset.Family{ruleset.IPv4, ruleset.IPv6} {
		table, errs := view.Table(in.settings.Config(family, in.node), compiled)
		e.tables[family] = table
		for _, err := range errs {
			e.odd = append(e.odd, err.Error())
		}
	}
	e.locate()
	if !e.served() {
		e.odd = append(e.odd, e.keptLocal()...)
	}
	return e
}

// keptLocal says which connections kube-proxy sends to endpoints on the node alone, where
// the rules of hints do not count.
func (e *nodeExplanation) keptLocal() []string {
	const consequence = " Local: kube-proxy sends them to endpoints on the node alone, whatever hints say"
	spec := &e.service.Spec
	var sentences []string
	if policy := spec.InternalTrafficPolicy; policy != nil && *policy == corev1.ServiceInternalTrafficPolicyLocal {
		sentences = append(sentences, "connections to the cluster IP have internalTrafficPolicy"+consequence)
	}
	if spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		sentences = append(sentences, "connections from outside have externalTrafficPolicy"+consequence)
	}
	return sentences
}

// refused says which addresses the Service claims and does not get.
func (e *nodeExplanation) refused() []string {
	return e.result.Refused.Sentences(len(e.result.Refused.First))
}

func (e *nodeExplanation) input(groups []*v1alpha1.EndpointGroup) compile.Input {
	return compile.Input{Service: e.service, Groups: groups, Slices: e.slices}
}

// locate notes where endpoints are.
func (e *nodeExplanation) locate() {
	note := func(text, node string, ready bool) {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return
		}
		address = address.Unmap()
		e.nodes[address] = cmp.Or(node, e.nodes[address])
		if before, known := e.going[address]; !known || before {
			e.going[address] = !ready
		}
	}
	for _, slice := range e.slices {
		if e.fromGroups() {
			break
		}
		for i := range slice.Endpoints {
			endpoint := &slice.Endpoints[i]
			node := ""
			if endpoint.NodeName != nil {
				node = *endpoint.NodeName
			}
			for _, address := range endpoint.Addresses {
				note(address, node, endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready)
			}
		}
	}
	for _, group := range e.seen {
		for i := range group.Spec.Endpoints {
			endpoint := &group.Spec.Endpoints[i]
			note(endpoint.Address, endpoint.Node, !endpoint.NotReady)
		}
	}
}

func (e *nodeExplanation) fromGroups() bool { return len(e.seen) > 0 }

// served reports whether the rules do anything for the Service.
func (e *nodeExplanation) served() bool { return len(e.result.Families) > 0 }

// differences are how a listing differs from what the rules should be for the Service.
func (e *nodeExplanation) differences(listing ruleset.Listing) []string {
	if !e.served() && !listing.Exists {
		return nil
	}
	share := view.Share{Table: e.tables[listing.Family]}
	for _, text := range e.service.Spec.ClusterIPs {
		if address, err := netip.ParseAddr(text); err == nil {
			share.Addresses = append(share.Addresses, address.Unmap())
		}
	}
	for i := range e.result.Families {
		f := &e.result.Families[i]
		for _, endpoint := range f.Endpoints {
			share.Endpoints = append(share.Endpoints, endpoint.Address)
		}
	}
	var sentences []string
	for _, difference := range share.Table.Differences(share.Of(listing)) {
		sentences = append(sentences, fmt.Sprintf("%s: %s", familyName(listing.Family), difference))
	}
	return sentences
}

// who says who serves the Service on the node, and why.
func (e *nodeExplanation) who() (servedBy, why string) {
	spec := &e.service.Spec
	name, named := e.service.Labels[v1alpha1.LabelServiceProxyName]
	switch {
	case spec.Type == corev1.ServiceTypeExternalName:
		return "nobody", "it is another name of " + spec.ExternalName
	case spec.ClusterIP == corev1.ClusterIPNone || spec.ClusterIP == "":
		return "nobody", "it is headless: clients connect to endpoints that they look up by its name"
	case named && name != v1alpha1.ServiceProxyName:
		return cmp.Or(name, "another proxy"), "the label " + v1alpha1.LabelServiceProxyName + " gives it to that proxy"
	case named && !e.installed:
		return "nobody", fmt.Sprintf("the label %s gives it to vicinity-proxy, which is not installed", v1alpha1.LabelServiceProxyName)
	case named && !e.served():
		return "nobody", fmt.Sprintf("the label %s gives it to vicinity-proxy, and it has no group", v1alpha1.LabelServiceProxyName)
	case named && e.dead() != "":
		return "vicinity-proxy", "the label " + v1alpha1.LabelServiceProxyName + " gives it to that; but " + e.dead() + ", so the rules are those of before, or none"
	case named:
		return "vicinity-proxy", "the label " + v1alpha1.LabelServiceProxyName + " gives it to that"
	case e.served() && e.dead() != "":
		return "kube-proxy", "vicinity-proxy would, but " + e.dead()
	case e.served() && e.settings.AllServices:
		return "vicinity-proxy", "it serves all Services, and its rules come before those of kube-proxy, where there is one"
	case e.served():
		return "vicinity-proxy", "its rules come first; kube-proxy has the Service too, until it is handed over"
	case e.fromGroups():
		return "kube-proxy", "vicinity-proxy knows no endpoint for the node, and the Service is not handed over"
	case !e.installed:
		return "kube-proxy", "vicinity-proxy is not installed"
	case e.service.Annotations[v1alpha1.AnnotationProxy] == "true":
		return "kube-proxy", "the annotation " + v1alpha1.AnnotationProxy + " asks for vicinity-proxy, and there is no group for the node yet"
	}
	return "kube-proxy", "the Service has no group; the annotation " + v1alpha1.AnnotationProxy + ": \"true\" asks for vicinity-proxy"
}

// dead says why the proxy of the node does not work, and is empty if it does or if that is
// not known.
func (e *nodeExplanation) dead() string {
	switch {
	case e.kept != "":
		return e.kept
	case slices.Contains(e.r.unread, kindLeases):
		return ""
	case e.lease == nil || e.lease.Spec.RenewTime == nil:
		return "no Lease says that vicinity-proxy lives on the node"
	}
	if age := e.r.now.Sub(e.lease.Spec.RenewTime.Time); age >= v1alpha1.LeaseFresh {
		return fmt.Sprintf("the Lease of the node's proxy was last renewed %s ago", age.Round(time.Second))
	}
	return ""
}

// handOver says how far the hand-over of the Service is on the node, as the controller
// sees it. There is none to speak of for most.
func (e *nodeExplanation) handOver() string {
	name := e.service.Labels[v1alpha1.LabelServiceProxyName]
	wanted := e.service.Annotations[v1alpha1.AnnotationProxy] == "true"
	switch {
	case slices.Contains(e.r.unread, kindLeases) || slices.Contains(e.r.unread, kindGroups):
		return ""
	case name == v1alpha1.ServiceProxyName && !wanted:
		return "the Service is to go back to kube-proxy, by the label first"
	case name == v1alpha1.ServiceProxyName:
		return "done"
	case name != "" || !wanted && len(e.groups) == 0:
		return ""
	case !wanted:
		return "the Service is kube-proxy's again; its groups go in a moment"
	case len(e.groups) == 0:
		return "the controller has not written the groups yet"
	}
	proxy := routing.NodeProxy{Node: e.node.Name, Zone: e.zone}
	if e.lease != nil && e.lease.Spec.RenewTime != nil {
		proxy.Seen = e.lease.Spec.RenewTime.Time
		proxy.Programmed, proxy.Except = e.lease.Annotations[v1alpha1.AnnotationProgrammed], e.lease.Annotations[v1alpha1.AnnotationExcept]
	}
	step := routing.HandOver{
		Service: e.service.Namespace + "/" + e.service.Name, Wanted: true, Groups: e.groups, Written: true, Proxies: []routing.NodeProxy{proxy},
	}.Next(e.r.now)
	if failure := e.probeFailure(); failure != "" && len(step.Missing) > 0 {
		return "it waits for this node, whose packets do not come through the rules of vicinity-proxy: " + failure
	}
	if len(step.Missing) > 0 {
		return "it waits for this node, whose proxy has not said that it has programmed all groups"
	}
	return "this node is ready; it waits for others, or for the controller"
}

// probeFailure is why a probe of the node's proxy failed, empty if none did, or if the proxy
// does not live any more.
func (e *nodeExplanation) probeFailure() string {
	if e.lease == nil || e.dead() != "" {
		return ""
	}
	return e.lease.Annotations[v1alpha1.AnnotationProbeFailure]
}

// rule says by which rule the endpoints of a port were chosen.
func (e *nodeExplanation) rule(family ruleset.Family, port *ruleset.ServicePort) nodeRule {
	if !e.groupsOf(family) {
		return e.hintRule(family, port.Name)
	}
	var rule nodeRule
	for _, group := range e.seen {
		if group.Spec.AddressType != familyName(family) {
			continue
		}
		if len(rule.Tiers) > 0 && !slices.Equal(rule.Tiers, group.Spec.Tiers) {
			rule.Why = "groups differ in their tiers, which change just now; those of one are shown"
			break
		}
		rule.Tiers = group.Spec.Tiers
	}
	switch {
	case len(rule.Tiers) == 0 && e.zone == "":
		rule.Text = "the node has no zone, so it uses the endpoints of all groups alike"
	case len(rule.Tiers) == 0:
		rule.Text = "the endpoints that the plan gives to " + e.zone
	default:
		rule.Tier = e.tier(family, port.Name, len(rule.Tiers))
		rule.Text = e.tierText(&rule)
	}
	if len(port.Cluster) > 0 && e.going[port.Cluster[0].Addr()] {
		rule.Why = "no endpoint that the node may use is ready; those that serve while they terminate are used"
	}
	return rule
}

// groupsOf reports whether a family is served from groups.
func (e *nodeExplanation) groupsOf(family ruleset.Family) bool {
	return slices.ContainsFunc(e.seen, func(g *v1alpha1.EndpointGroup) bool { return g.Spec.AddressType == familyName(family) })
}

// tier is the first tier that has an endpoint for the node, empty if none has: the first
// with which, if there were no further ones, the proxy would have an endpoint.
func (e *nodeExplanation) tier(family ruleset.Family, port string, most int) string {
	for n := 1; n <= most; n++ {
		cut, last := make([]*v1alpha1.EndpointGroup, len(e.seen)), ""
		for i, group := range e.seen {
			cut[i] = group.DeepCopy()
			if len(group.Spec.Tiers) >= n {
				last = group.Spec.Tiers[n-1]
				cut[i].Spec.Tiers = group.Spec.Tiers[:n]
			}
		}
		for _, f := range compile.Service(e.input(cut), e.options).Families {
			for i := range f.Ports {
				if f.Family == family && f.Ports[i].Name == port && len(f.Ports[i].Cluster) > 0 && last != "" {
					return last
				}
			}
		}
	}
	return ""
}

// tierText says what tiers make of the node.
func (e *nodeExplanation) tierText(rule *nodeRule) string {
	texts := make([]string, len(rule.Tiers))
	for i, key := range rule.Tiers {
		texts[i] = key
		if key == topology.Anywhere {
			texts[i] = "anywhere"
		}
	}
	order := strings.Join(texts, ", then ")
	switch rule.Tier {
	case "":
		if topology.Tiers(rule.Tiers).Hard() {
			order += ", and nothing else"
		}
		return order + "; none has an endpoint for the node"
	case topology.Anywhere:
		return order + "; nothing is nearer than anywhere"
	}
	value := e.node.Labels[rule.Tier]
	if rule.Tier == topology.Hostname {
		value = cmp.Or(value, e.node.Name)
	}
	return fmt.Sprintf("%s; the nearest with an endpoint is %s=%s", order, rule.Tier, value)
}

// hintRule says which hints of slices chose the endpoints of a port.
func (e *nodeExplanation) hintRule(family ruleset.Family, fullName string) nodeRule {
	_, name, _ := strings.Cut(fullName, ":")
	for _, port := range e.stockPorts() {
		if port.Family == familyName(family) && port.Name == name {
			choice := port.Index().Choose(e.node.Name, e.zone)
			return nodeRule{Text: stockRule(choice, e.node.Name, e.zone), Why: choice.Why}
		}
	}
	return nodeRule{Text: "all endpoints", Why: "there is none"}
}

// stockPorts are the ports as stock proxies know them, whoever the slices are for.
func (e *nodeExplanation) stockPorts() []routing.StockPort {
	var all []*discoveryv1.EndpointSlice
	for _, slice := range e.slices {
		bare := *slice
		bare.Labels = maps.Clone(slice.Labels)
		delete(bare.Labels, v1alpha1.LabelServiceProxyName)
		all = append(all, &bare)
	}
	return routing.StockPorts(all)
}

// stockRule says by which hints kube-proxy chooses.
func stockRule(choice routing.StockChoice, node, zone string) string {
	switch choice.Mode {
	case routing.StockNode:
		return "those that hints give to the node " + node
	case routing.StockZone:
		return "those that hints give to the zone " + zone
	}
	return "all endpoints"
}
