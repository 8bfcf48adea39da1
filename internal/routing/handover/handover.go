// Package handover decides how a Service passes between kube-proxy and vicinity-proxy: make
// before break. Time is an argument, and a step is returned as data.
package handover

import (
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/topology"
)

// DownAfter is how long a node is not ready until it counts as down, if its proxy is
// silent too. By default Kubernetes deletes a node's pods after the same time; until then
// they may make connections.
const DownAfter = 5 * time.Minute

// LeaseNode is the node whose proxy holds a Lease. It is empty if the Lease is not that of the node: a
// proxy may write the Lease of its own node, in which it could name another one as the holder.
func LeaseNode(lease *coordinationv1.Lease) string {
	if holder := lease.Spec.HolderIdentity; holder != nil && lease.Name == v1alpha1.ProxyLeasePrefix+*holder {
		return *holder
	}
	return ""
}

// NotReadySince is since when a node is not ready, zero if it is.
func NotReadySince(node *corev1.Node) time.Time {
	since := node.CreationTimestamp.Time
	for _, condition := range node.Status.Conditions {
		switch {
		case condition.Type != corev1.NodeReady:
		case condition.Status == corev1.ConditionTrue:
			return time.Time{}
		default:
			since = condition.LastTransitionTime.Time
		}
	}
	if since.IsZero() {
		return time.Unix(0, 0) // it is not known since when
	}
	return since
}

// readySince is since when a node is ready, zero if it is not or that is not known.
func readySince(node *corev1.Node) time.Time {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return condition.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// State is what the next step of a Service's hand-over depends on.
type State struct {
	// Service is the Service, as namespace/name.
	Service string
	// Wanted says that groups are to deliver the Service's plan, which another proxy's
	// never asks for.
	Wanted bool
	// Headless says that only DNS reads the groups.
	Headless bool
	// ProxyName is the name of the proxy that the Service's label gives it to, empty
	// for kube-proxy.
	ProxyName string
	// Hidden is the name of a slice that still has the label of vicinity-proxy, which
	// Kubernetes copies from the Service. kube-proxy does not look at such a slice. It is
	// empty if there is none.
	Hidden string
	// Unsliced is an address family of which Kubernetes has not made a slice yet, although
	// it will: the Service has a selector. It is empty if there is none. Groups made without
	// slices say nothing about what will be programmed of the Service.
	Unsliced corev1.IPFamily
	// Groups are those that exist, and Written says that they are what they should be
	// for now.
	Groups  []*v1alpha1.EndpointGroup
	Written bool
	// Proxies are the nodes that run a proxy by the administrator's rule.
	Proxies []NodeProxy
	// Grace is how long groups stay after kube-proxy was given the Service back.
	Grace time.Duration
	// Memory is what the step before said. Without it, as after a restart, a hand-over
	// only takes longer.
	Memory Memory
}

// NodeProxy is a node with what the Lease of its proxy says. A cordoned node counts as any
// other, because its pods make connections.
type NodeProxy struct {
	Node, Zone string
	// Seen is when the Lease was last renewed, zero if there is none.
	Seen time.Time
	// Programmed is the resource version up to which the proxy has programmed groups,
	// empty if it has none, and Except the Services that it says nothing about, as the
	// annotation has them.
	Programmed, Except string
	// NotReady is since when the node is not ready, zero if it is, and ReadySince since when it is.
	NotReady, ReadySince time.Time
}

// OfNode is what is known of a node's proxy without its Lease.
func OfNode(node *corev1.Node) NodeProxy {
	return NodeProxy{Node: node.Name, Zone: node.Labels[topology.Zone], NotReady: NotReadySince(node), ReadySince: readySince(node)}
}

// Memory is what the caller keeps between steps.
type Memory struct {
	// Begun are the groups that proxies have to acknowledge.
	Begun []GroupVersion
	// Returned is when kube-proxy was given the Service back, as far as that is known.
	Returned time.Time
}

// GroupVersion is one state of a group, and who has to know it.
type GroupVersion struct {
	Name, Version string
	NotFor        []string // zones
}

// Phase is how far the hand-over of a Service is.
type Phase string

// The phases.
const (
	// PhaseIdle is kube-proxy's alone, without groups, or no proxy's, with any.
	PhaseIdle Phase = "Idle"
	// PhaseTaking is kube-proxy's, while proxies program the groups as well.
	PhaseTaking Phase = "Taking"
	// PhaseServed is vicinity-proxy's alone.
	PhaseServed Phase = "Served"
	// PhaseReturning is kube-proxy's again, while the groups stay.
	PhaseReturning Phase = "Returning"
	// PhaseLeft is kube-proxy's, or another's, and the groups are to go.
	PhaseLeft Phase = "Left"
)

// Step is what to do now.
type Step struct {
	Phase Phase
	// Take says to give the Service the label of vicinity-proxy, Release to take it
	// off.
	Take, Release bool
	Memory        Memory
	// After is when to look again, zero if that is not a matter of time.
	After time.Duration
	// Missing are the nodes that the hand-over waits for, or that cannot serve a Service
	// that was handed over, in order. Another step is due when the nodes or their Leases
	// make it others.
	Missing []string
	// Down are the nodes that count as down, in order. No Service waits for them.
	Down  []string
	Notes []string
}

// Next is the next step. The Service is taken from kube-proxy when every proxy has
// programmed the groups that its node sees. It is given back before its groups go.
func (h State) Next(now time.Time) Step {
	ours := h.ProxyName == v1alpha1.ServiceProxyName
	switch {
	case h.Headless:
		return h.unproxied(ours)
	case h.Wanted && ours:
		return h.served(now)
	case h.Wanted:
		return h.taking(now)
	case ours:
		return Step{
			Phase: PhaseReturning, Release: true, After: h.Grace, Memory: Memory{Returned: now},
			Notes: []string{"kube-proxy serves the Service again; its groups are deleted once all nodes have had time to notice"},
		}
	}
	return h.returning(now)
}

// unproxied is the step of a Service that no proxy serves. DNS gives all endpoints as soon as
// there are no groups, so that these have to stay for nobody.
func (h State) unproxied(ours bool) Step {
	switch {
	case ours:
		return Step{Phase: PhaseIdle, Release: true}
	case !h.Wanted && len(h.Groups) > 0:
		return Step{Phase: PhaseLeft}
	}
	return Step{Phase: PhaseIdle}
}

func (h State) served(now time.Time) Step {
	step := Step{Phase: PhaseServed, Missing: Unserved(h.Proxies, now), Down: Down(h.Proxies, now)}
	if len(step.Missing) > 0 {
		step.Notes = []string{fmt.Sprintf("vicinity-proxy does not answer on %s, so the Service does not work there: start it, or remove the annotation %s",
			nodesText(step.Missing), v1alpha1.AnnotationProxy)}
	}
	step.noteDown()
	return step
}

func (h State) taking(now time.Time) Step {
	step := Step{Phase: PhaseTaking, Memory: Memory{Begun: h.Memory.Begun}}
	switch {
	case !h.Written || len(h.Groups) == 0:
		step.Memory.Begun = nil
		return step
	case h.Unsliced != "":
		step.Memory.Begun = nil
		step.Notes = []string{fmt.Sprintf("kube-proxy serves the Service until Kubernetes has made its EndpointSlices of %s", h.Unsliced)}
		return step
	case !h.begun():
		step.Memory.Begun = versions(h.Groups)
	}
	if len(h.Proxies) == 0 {
		step.Notes = []string{"kube-proxy still serves the Service: no node is selected for vicinity-proxy"}
		return step
	}
	step.Missing, step.Down = Missing(h.Service, h.Proxies, step.Memory.Begun, now), Down(h.Proxies, now)
	switch {
	case len(step.Down) == len(h.Proxies):
		step.Notes = []string{"kube-proxy still serves the Service: all nodes that are selected for vicinity-proxy are down"}
		return step
	case len(step.Missing) == 0:
		step.Take = true
	default:
		step.Notes = []string{fmt.Sprintf("kube-proxy serves the Service until vicinity-proxy is ready on %s", nodesText(step.Missing))}
	}
	step.noteDown()
	return step
}

func (s *Step) noteDown() {
	if len(s.Down) > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("nothing waits for vicinity-proxy on %s, down for more than %d minutes", nodesText(s.Down), int(DownAfter.Minutes())))
	}
}

func (h State) begun() bool {
	return slices.ContainsFunc(h.Memory.Begun, func(v GroupVersion) bool {
		return slices.ContainsFunc(h.Groups, func(g *v1alpha1.EndpointGroup) bool { return g.Name == v.Name })
	})
}

// returning goes on after the label was taken off, or given to another proxy.
func (h State) returning(now time.Time) Step {
	if len(h.Groups) == 0 {
		return Step{Phase: PhaseIdle}
	}
	if h.Hidden != "" {
		// The grace period begins when the last slice is kube-proxy's again, which an
		// event will tell.
		return Step{Phase: PhaseReturning, Notes: []string{fmt.Sprintf(
			"the Service keeps its groups while EndpointSlice %s has the label %s, which hides it from kube-proxy", h.Hidden, v1alpha1.LabelServiceProxyName)}}
	}
	since := h.Memory.Returned
	if since.IsZero() {
		since = now
	}
	if left := since.Add(h.Grace).Sub(now); left > 0 {
		return Step{Phase: PhaseReturning, After: left, Memory: Memory{Returned: since}}
	}
	return Step{Phase: PhaseLeft}
}

// Missing are the nodes whose proxy is silent or has not programmed what it sees of a Service, without
// those that are down.
func Missing(service string, proxies []NodeProxy, begun []GroupVersion, now time.Time) []string {
	return nodesThat(proxies, func(p NodeProxy) bool { return !p.Down(now) && !p.Ready(service, begun, now) })
}

// Unserved are the ready nodes whose proxy is silent: what was handed over does not work
// there. Nodes that are not ready are left out, since their trouble is rarely the proxy and
// would be reported for all Services. So are those that have just become ready: their proxy is about
// to come.
func Unserved(proxies []NodeProxy, now time.Time) []string {
	return nodesThat(proxies, func(p NodeProxy) bool {
		return p.NotReady.IsZero() && now.Sub(p.ReadySince) >= v1alpha1.LeaseFresh && !p.alive(now)
	})
}

// Down are the nodes that are down.
func Down(proxies []NodeProxy, now time.Time) []string {
	return nodesThat(proxies, func(p NodeProxy) bool { return p.Down(now) })
}

func nodesThat(proxies []NodeProxy, is func(NodeProxy) bool) []string {
	var nodes []string
	for _, proxy := range proxies {
		if is(proxy) {
			nodes = append(nodes, proxy.Node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// Down reports whether the node counts as down: it is not ready for DownAfter, and its
// proxy is silent.
func (p NodeProxy) Down(now time.Time) bool {
	return !p.NotReady.IsZero() && now.Sub(p.NotReady) >= DownAfter && !p.alive(now)
}

func (p NodeProxy) alive(now time.Time) bool {
	return !p.Seen.IsZero() && now.Sub(p.Seen) < v1alpha1.LeaseFresh
}

// Ready reports whether the proxy renews its Lease and has programmed those of a Service's
// groups that its node sees.
func (p NodeProxy) Ready(service string, begun []GroupVersion, now time.Time) bool {
	if !p.alive(now) {
		return false
	}
	for _, group := range begun {
		if p.Zone != "" && slices.Contains(group.NotFor, p.Zone) {
			continue
		}
		if p.Programmed == "" || p.excepts(service) {
			return false
		}
		// A version that cannot be compared is not the API's.
		if order, err := resourceversion.CompareResourceVersion(p.Programmed, group.Version); err != nil || order < 0 {
			return false
		}
	}
	return true
}

// excepts reports whether what the proxy has programmed says nothing about a Service.
func (p NodeProxy) excepts(service string) bool {
	for name := range strings.SplitSeq(p.Except, ",") {
		namespace, all := strings.CutSuffix(name, v1alpha1.AllServices)
		if name != "" && name == service || all && strings.HasPrefix(service, namespace) {
			return true
		}
	}
	return false
}

func versions(groups []*v1alpha1.EndpointGroup) []GroupVersion {
	list := make([]GroupVersion, 0, len(groups))
	for _, group := range groups {
		v := GroupVersion{Name: group.Name, Version: group.ResourceVersion}
		for label := range group.Labels {
			if zone, found := strings.CutPrefix(label, v1alpha1.LabelNotForPrefix); found {
				v.NotFor = append(v.NotFor, zone)
			}
		}
		slices.Sort(v.NotFor)
		list = append(list, v)
	}
	return list
}

const mostNamed = 5

// nodesText names the first few nodes. It does not count the rest, because the text of a
// condition must not change all the time.
func nodesText(nodes []string) string {
	switch {
	case len(nodes) == 1:
		return "node " + nodes[0]
	case len(nodes) > mostNamed:
		return fmt.Sprintf("nodes %s and others", strings.Join(nodes[:mostNamed], ", "))
	}
	return "nodes " + strings.Join(nodes, ", ")
}
