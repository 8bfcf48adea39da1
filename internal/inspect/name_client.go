package inspect

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/names"
	"vicinity.dev/vicinity/internal/names/locate"
	"vicinity.dev/vicinity/internal/names/location"
)

// runbookLocation is about clients that are located wrongly or not at all.
const runbookLocation = "docs/runbooks/location-unknown.md"

// ClientReading is the client, and the objects that locate it.
type ClientReading struct {
	// Pod is nil if an address is given.
	Pod *corev1.Pod
	// Addresses are those of the pod, or the given one. The first counts.
	Addresses []netip.Addr
	Nodes     []*corev1.Node
	// Locators are the PodLocators with one of the addresses.
	Locators []*v1alpha1.PodLocator
}

// NameClient is the place where the DNS server finds a client by its address.
type NameClient struct {
	Pod     string `json:"pod,omitempty"`
	Address string `json:"address"`
	// Located is how: node, locator, range, or unknown.
	Located string `json:"located"`
	// Locator is the PodLocator that counts for the address.
	Locator string `json:"locator,omitempty"`
	Node    string `json:"node,omitempty"`
	Zone    string `json:"zone,omitempty"`
}

// locate finds the client as the server does.
func (v *nameView) locate() {
	in := &v.in.Client
	index := location.IndexOf(in.Nodes, in.Locators)
	at, _ := index.Lookup(in.Addresses[0])
	v.client = names.ClientAt(at)
	v.e.Client = NameClient{Address: in.Addresses[0].String(), Located: at.Source.String(), Node: at.Node, Zone: v.client.Zone}
	if in.Pod != nil {
		v.e.Client.Pod = in.Pod.Namespace + "/" + in.Pod.Name
	}
	if at.Source == locate.PodLocator {
		v.nameLocator()
	}
	v.doubt(index, at)
}

func (v *nameView) warn(format string, args ...any) {
	v.e.Warnings = append(v.e.Warnings, fmt.Sprintf(format, args...))
}

// nameLocator notes the PodLocator that locates the client: of several, that of the youngest pod.
func (v *nameView) nameLocator() {
	address := v.in.Client.Addresses[0].Unmap().WithZone("")
	var holders []string
	var newest time.Time
	for _, locator := range v.in.Client.Locators {
		pod := location.OfPod(locator)
		if !slices.Contains(pod.IPs, address) || pod.Node == "" && len(pod.Labels) == 0 {
			continue
		}
		name := locator.Namespace + "/" + locator.Name
		holders = append(holders, name)
		if !pod.Created.Before(newest) {
			newest, v.e.Client.Locator = pod.Created, name
		}
	}
	if len(holders) > 1 {
		v.warn("the PodLocators %s have the address: that of the youngest pod counts (%s)", strings.Join(holders, " and "), runbookLocation)
	}
}

// doubt warns of possible errors in the location, and of a client that asks other servers.
func (v *nameView) doubt(index *locate.Index, at locate.Location) {
	in := &v.in.Client
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
		v.warn("the pod is on node %s, and the DNS server finds its address on node %s", pod.Spec.NodeName, at.Node)
	}
	for _, address := range in.Addresses[1:] {
		if other, _ := index.Lookup(address); other.Node != at.Node {
			v.warn("the DNS server finds the pod's address %s elsewhere than %s: %s", address, in.Addresses[0], nodeOr(other.Node, "unknown"))
		}
	}
	switch policy := pod.Spec.DNSPolicy; {
	case names.ResolvesAsNode(&pod.Spec):
		v.warn("the pod asks the DNS servers of its node, not that of the cluster (dnsPolicy %s)", policy)
	case policy == corev1.DNSNone:
		v.warn("the pod asks the DNS servers that its dnsConfig names")
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
	place := "on " + nodeOr(c.Node, "no known node")
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
	if locatesNone(v.in.Client.Addresses[0]) {
		return "the place of the client is not known: loopback and unspecified addresses locate no client"
	}
	return "the place of the client is not known: no node and no PodLocator with a node or labels has the address, and it is in no range of a node's pods"
}

// locatesNone reports whether an address never locates a client.
func locatesNone(address netip.Addr) bool { return address.IsLoopback() || address.IsUnspecified() }

var unlocated = locate.Source(0).String()

// placeUnknown reports whether the objects that locate the client were not read.
func (v *nameView) placeUnknown() bool {
	if v.anyClient || v.e.Client.Located == locate.NodeAddress.String() {
		return false
	}
	return slices.ContainsFunc([]string{KindNodes, KindLocators}, func(kind string) bool { return slices.Contains(v.in.Unread, kind) })
}
