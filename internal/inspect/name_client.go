package inspect

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/locate"
	"vicinity.dev/vicinity/internal/location"
	"vicinity.dev/vicinity/internal/names"
)

// runbookLocation says what to do about a client that is located wrongly or not at all.
const runbookLocation = "docs/runbooks/location-unknown.md"

// ClientReading is who asks, and what locates clients.
type ClientReading struct {
	// Pod is nil if an address is given.
	Pod *corev1.Pod
	// Addresses are those of the pod, or the one that is given. The first counts.
	Addresses []netip.Addr
	Nodes     []*corev1.Node
	// Locators are those that have one of the addresses.
	Locators []*v1alpha1.PodLocator
}

// NameClient is where a client is, as the DNS server finds it by its address.
type NameClient struct {
	Pod     string `json:"pod,omitempty"`
	Address string `json:"address"`
	// Located says by what: node, locator, range, or unknown.
	Located string `json:"located"`
	// Locator is the PodLocator that counts for the address.
	Locator string `json:"locator,omitempty"`
	Node    string `json:"node,omitempty"`
	Zone    string `json:"zone,omitempty"`
}

// locate finds the client as the server does.
func (v *nameView) locate() {
	in := &v.in.Client
	index := locate.New()
	for _, node := range in.Nodes {
		index.SetNode(node.Name, location.OfNode(node))
	}
	for _, locator := range in.Locators {
		index.SetPod(locator.Namespace, locator.Name, location.OfPod(locator))
	}
	at := placeOf(index, in.Locators, in.Addresses[0])
	v.client, v.disputed = names.ClientAt(at.Location), at.disputed
	v.e.Client = NameClient{Address: in.Addresses[0].String(), Located: at.Source.String(), Node: at.Node, Zone: v.client.Zone}
	if in.Pod != nil {
		v.e.Client.Pod = in.Pod.Namespace + "/" + in.Pod.Name
	}
	if len(at.youngest) == 1 {
		v.e.Client.Locator = at.youngest[0].name
	}
	v.doubt(index, &at)
}

// doubt warns of what may be wrong with the location, and of a client that asks other servers.
func (v *nameView) doubt(index *locate.Index, at *clientPlace) {
	in := &v.in.Client
	warn := func(format string, args ...any) { v.e.Warnings = append(v.e.Warnings, fmt.Sprintf(format, args...)) }
	youngest := strings.Join(namesOf(at.youngest), " and ")
	switch {
	case at.disputed:
		v.e.NotKnown = append(v.e.NotKnown, fmt.Sprintf("where the client is: the pods of the PodLocators %s were created in the same second, and of these the DNS server takes the one that it learned of last", youngest))
	case len(at.youngest) > 1:
		warn("the PodLocators %s have the address, of pods that were created in the same second in the same place", youngest)
	case len(at.holders) > 1:
		warn("the PodLocators %s have the address: that of the youngest pod counts, which is %s", strings.Join(namesOf(at.holders), " and "), youngest)
	}
	for _, kind := range []string{KindNodes, KindLocators} {
		if slices.Contains(v.in.Unread, kind) && at.Source != locate.NodeAddress {
			v.e.NotKnown = append(v.e.NotKnown, fmt.Sprintf("where the client is, since %s may not be read", kind))
		}
	}
	pod := in.Pod
	if pod == nil {
		return
	}
	if at.Node != "" && pod.Spec.NodeName != at.Node {
		warn("the pod is on node %s, and the DNS server finds its address on node %s", pod.Spec.NodeName, at.Node)
	}
	for _, address := range in.Addresses[1:] {
		if other := placeOf(index, in.Locators, address); !at.disputed && !other.disputed && other.Node != at.Node {
			warn("the DNS server finds the pod's address %s elsewhere than %s: %s", address, in.Addresses[0], nodeOr(other.Node, "unknown"))
		}
	}
	switch policy := pod.Spec.DNSPolicy; {
	case names.ResolvesAsNode(&pod.Spec):
		warn("the pod asks the DNS servers of its node, not that of the cluster (dnsPolicy %s)", policy)
	case policy == corev1.DNSNone:
		warn("the pod asks the DNS servers that its dnsConfig names")
	}
}

func nodeOr(node, none string) string {
	if node == "" {
		return none
	}
	return "node " + node
}

// whereText says where the client is and how it was located.
func (v *nameView) whereText() string {
	c := &v.e.Client
	if v.placeUnknown() {
		return "the place of the client cannot be known here"
	}
	place := "on " + nodeOr(c.Node, "no node that is known")
	switch {
	case c.Zone != "" && c.Node == "":
		place = "in zone " + c.Zone + ", " + place
	case c.Zone != "":
		place += " in zone " + c.Zone
	case c.Node != "":
		place += ", which has no zone"
	}
	switch c.Located {
	case locate.NodeAddress.String():
		return "the client is " + place + ": the address is the node's own"
	case locate.PodLocator.String():
		by := "a PodLocator has the address"
		if c.Locator != "" {
			by = "the PodLocator " + c.Locator + " has the address"
		}
		return "the client is " + place + ": " + by
	case locate.PodRange.String():
		return "the client is " + place + ": the address is in a range of the node's pods"
	}
	return "the place of the client is not known: " + v.unlocatedText()
}

// unlocatedText says why nothing locates the client.
func (v *nameView) unlocatedText() string {
	in := &v.in.Client
	address := in.Addresses[0]
	if locatesNone(address) {
		return "loopback and unspecified addresses locate no client"
	}
	by := "no PodLocator has it"
	for _, locator := range in.Locators {
		if !slices.ContainsFunc(locator.IPs, func(text string) bool {
			other, err := netip.ParseAddr(text)
			return err == nil && other.Unmap() == address
		}) {
			continue
		}
		by = fmt.Sprintf("the PodLocator %s/%s has it and locates nothing, since it has neither a node nor labels, as when its pod's node does not exist", locator.Namespace, locator.Name)
		if locator.DeletionTimestamp != nil {
			by = fmt.Sprintf("the PodLocator %s/%s has it and is being deleted", locator.Namespace, locator.Name)
		}
		break
	}
	text := "the address is no node's, " + by + ", and it is in no range of a node's pods"
	switch pod := in.Pod; {
	case pod == nil || pod.Spec.NodeName == "":
	case slices.ContainsFunc(in.Nodes, func(n *corev1.Node) bool { return n.Name == pod.Spec.NodeName }):
		text += "; the pod's node " + pod.Spec.NodeName + " exists, and none of its ranges has the address"
	default:
		text += "; the pod's node " + pod.Spec.NodeName + " does not exist"
	}
	return text
}

// locatesNone reports whether an address locates no client, whatever has it.
func locatesNone(address netip.Addr) bool { return address.IsLoopback() || address.IsUnspecified() }

// unlocated is the word for clients that nothing locates.
var unlocated = locate.Source(0).String()

// placeUnknown reports whether it cannot be known here where the server finds the client: what locates it
// was not read, or is disputed.
func (v *nameView) placeUnknown() bool {
	if v.anyClient || v.e.Client.Located == locate.NodeAddress.String() {
		return false
	}
	return v.disputed || slices.ContainsFunc([]string{KindNodes, KindLocators}, func(kind string) bool { return slices.Contains(v.in.Unread, kind) })
}
