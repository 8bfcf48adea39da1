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

// DownAfter is how long a node is not ready before it counts as down, if its proxy is silent too. By default Kubernetes
// deletes a node's pods after the same time; until then they may make connections.
const DownAfter = 5 * time.Minute

// LeaseNode returns the node whose proxy holds a Lease, empty if the Lease is of another node: a proxy may write only
// its own node's Lease, but could name any node as its holder.
func LeaseNode(lease *coordinationv1.Lease) string {
	if holder := lease.Spec.HolderIdentity; holder != nil && lease.Name == v1alpha1.ProxyLeasePrefix+*holder {
		return *holder
	}
	return ""
}

// Readiness returns since when a node is not ready, and since when it is ready. One of them is zero, and both are if it is
// unknown when the node became ready.
func Readiness(node *corev1.Node) (notReady, ready time.Time) {
	notReady = node.CreationTimestamp.Time
	for _, condition := range node.Status.Conditions {
		switch {
		case condition.Type != corev1.NodeReady:
		case condition.Status == corev1.ConditionTrue:
			return time.Time{}, condition.LastTransitionTime.Time
		default:
			notReady = condition.LastTransitionTime.Time
		}
	}
	if notReady.IsZero() {
		notReady = time.Unix(0, 0) // it is not known since when
	}
	return notReady, time.Time{}
}

// State is all that the next step of a Service's hand-over depends on.
type State struct {
	// Service is the Service, as namespace/name.
	Service string
	// Wanted says that groups deliver the Service's plan, which a Service of another proxy never asks for.
	Wanted bool
	// Headless says that only DNS reads the groups.
	Headless bool
	// ProxyName is the proxy that the Service's label names, empty for kube-proxy.
	ProxyName string
	// Hidden is a slice that still has the label of vicinity-proxy, which Kubernetes copies from the Service.
	// kube-proxy ignores such a slice. It is empty if there is none.
	Hidden string
	// Unsliced is an address family whose slices Kubernetes has still to make for a Service with a selector. It is
	// empty if there is none. Groups made without slices do not show what proxies will program for the Service.
	Unsliced corev1.IPFamily
	// Groups are the existing groups, and Written says that they are up to date.
	Groups  []*v1alpha1.EndpointGroup
	Written bool
	// Proxies are the nodes that run a proxy by the administrator's rule.
	Proxies []NodeProxy
	// Grace is how long groups stay after the hand-back to kube-proxy.
	Grace time.Duration
	// Memory is the Memory of the previous step. Without it, as after a restart, a hand-over only takes longer.
	Memory Memory
}

// NodeProxy is a node with the content of its proxy's Lease. A cordoned node counts like any other, because its pods
// make connections.
type NodeProxy struct {
	Node, Zone string
	// Seen is when the Lease was last renewed, zero if there is none.
	Seen time.Time
	// Programmed is the resource version up to which the proxy has programmed groups, empty if it has none. Except are
	// Services that Programmed does not cover, in the form of the annotation.
	Programmed, Except string
	// NotReady is when the node became not ready, zero if it is ready, and ReadySince when it became ready.
	NotReady, ReadySince time.Time
}

// OfNode returns a NodeProxy without the content of its Lease.
func OfNode(node *corev1.Node) NodeProxy {
	p := NodeProxy{Node: node.Name, Zone: node.Labels[topology.Zone]}
	p.NotReady, p.ReadySince = Readiness(node)
	return p
}

// Memory is the state that the caller keeps between steps.
type Memory struct {
	// Begun are the groups that proxies have to acknowledge.
	Begun []GroupVersion
	// Returned is when kube-proxy got the Service back, zero if that is unknown.
	Returned time.Time
}

// GroupVersion is one state of a group, with the zones that do not see it.
type GroupVersion struct {
	Name, Version string
	NotFor        []string // zones
}

// Phase is the state of a Service's hand-over.
type Phase string

// The phases.
const (
	// PhaseIdle: kube-proxy serves the Service, which has no groups, or no proxy serves it.
	PhaseIdle Phase = "Idle"
	// PhaseTaking: kube-proxy serves the Service, and proxies program the groups as well.
	PhaseTaking Phase = "Taking"
	// PhaseServed: vicinity-proxy alone serves the Service.
	PhaseServed Phase = "Served"
	// PhaseReturning: kube-proxy serves the Service again, and the groups stay for a while.
	PhaseReturning Phase = "Returning"
	// PhaseLeft: kube-proxy or another proxy serves the Service, and the groups are deleted.
	PhaseLeft Phase = "Left"
)

// Step is the next action of a hand-over.
type Step struct {
	Phase Phase
	// Take sets the Service's label of vicinity-proxy, and Release removes it.
	Take, Release bool
	Memory        Memory
	// After is when to look again, zero if time alone changes nothing.
	After time.Duration
	// Missing are the nodes that the hand-over waits for, or that cannot serve a handed-over Service, in order. If
	// nodes or Leases change them, another step is due.
	Missing []string
	// Down are the down nodes, in order. No Service waits for them.
	Down  []string
	Notes []string
}

// Next returns the next step. vicinity-proxy takes the Service from kube-proxy when every proxy has programmed the
// groups that its node sees. kube-proxy gets it back before its groups are deleted.
func (h State) Next(now time.Time) Step {
	ours := h.ProxyName == v1alpha1.ServiceProxyName
	switch {
	case h.Headless:
		return h.stepHeadless(ours)
	case h.Wanted && ours:
		return h.stepServed(now)
	case h.Wanted:
		return h.stepTaking(now)
	case ours:
		return Step{
			Phase: PhaseReturning, Release: true, After: h.Grace, Memory: Memory{Returned: now},
			Notes: []string{"kube-proxy serves the Service again; its groups are deleted once all nodes have had time to notice"},
		}
	}
	return h.stepReturning(now)
}

// stepHeadless is for a Service that only DNS serves. Its groups are deleted at once: without groups DNS gives all
// endpoints.
func (h State) stepHeadless(ours bool) Step {
	switch {
	case ours:
		return Step{Phase: PhaseIdle, Release: true}
	case !h.Wanted && len(h.Groups) > 0:
		return Step{Phase: PhaseLeft}
	}
	return Step{Phase: PhaseIdle}
}

func (h State) stepServed(now time.Time) Step {
	step := Step{Phase: PhaseServed, Missing: Unserved(h.Proxies, now), Down: Down(h.Proxies, now)}
	if len(step.Missing) > 0 {
		step.Notes = []string{fmt.Sprintf("vicinity-proxy does not answer on %s, so the Service does not work there: start it, or annotate the Service with %s: \"false\"",
			nodesText(step.Missing), v1alpha1.AnnotationProxy)}
	}
	step.noteDown()
	return step
}

func (h State) stepTaking(now time.Time) Step {
	step := Step{Phase: PhaseTaking, Memory: Memory{Begun: h.Memory.Begun}}
	switch {
	case !h.Written || len(h.Groups) == 0:
		step.Memory.Begun = nil
		return step
	case h.Unsliced != "":
		step.Memory.Begun = nil
		step.Notes = []string{fmt.Sprintf("kube-proxy serves the Service until Kubernetes has made its EndpointSlices of %s", h.Unsliced)}
		return step
	case !h.hasBegun():
		step.Memory.Begun = VersionsOf(h.Groups)
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

func (h State) hasBegun() bool {
	return slices.ContainsFunc(h.Memory.Begun, func(v GroupVersion) bool {
		return slices.ContainsFunc(h.Groups, func(g *v1alpha1.EndpointGroup) bool { return g.Name == v.Name })
	})
}

// stepReturning is for a Service whose label was removed or names another proxy.
func (h State) stepReturning(now time.Time) Step {
	if len(h.Groups) == 0 {
		return Step{Phase: PhaseIdle}
	}
	if h.Hidden != "" {
		// The grace period begins when kube-proxy sees the last slice again, which causes an event.
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

// Missing returns the nodes whose proxy is silent or has not programmed the groups that it sees, without nodes that are
// down.
func Missing(service string, proxies []NodeProxy, begun []GroupVersion, now time.Time) []string {
	return filterNodes(proxies, func(p NodeProxy) bool { return !p.Down(now) && !p.Ready(service, begun, now) })
}

// Unserved returns the ready nodes whose proxy is silent: a handed-over Service does not work there. Nodes that are not
// ready are left out, since the cause is rarely the proxy and all Services would report them. So are nodes that have
// just become ready, whose proxy is about to start.
func Unserved(proxies []NodeProxy, now time.Time) []string {
	return filterNodes(proxies, func(p NodeProxy) bool {
		return p.NotReady.IsZero() && now.Sub(p.ReadySince) >= v1alpha1.LeaseFresh && !p.isAlive(now)
	})
}

// Down returns the nodes that are down.
func Down(proxies []NodeProxy, now time.Time) []string {
	return filterNodes(proxies, func(p NodeProxy) bool { return p.Down(now) })
}

func filterNodes(proxies []NodeProxy, matches func(NodeProxy) bool) []string {
	var nodes []string
	for _, proxy := range proxies {
		if matches(proxy) {
			nodes = append(nodes, proxy.Node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// Down reports whether the node counts as down: it is not ready for DownAfter, and its proxy is silent.
func (p NodeProxy) Down(now time.Time) bool {
	return !p.NotReady.IsZero() && now.Sub(p.NotReady) >= DownAfter && !p.isAlive(now)
}

func (p NodeProxy) isAlive(now time.Time) bool {
	return !p.Seen.IsZero() && now.Sub(p.Seen) < v1alpha1.LeaseFresh
}

// Ready reports whether the proxy renews its Lease and has programmed the groups of a Service that its node sees.
func (p NodeProxy) Ready(service string, begun []GroupVersion, now time.Time) bool {
	if !p.isAlive(now) {
		return false
	}
	for _, group := range begun {
		if p.Zone != "" && slices.Contains(group.NotFor, p.Zone) {
			continue
		}
		if p.Programmed == "" || p.isExcepted(service) {
			return false
		}
		// The API server does not make versions that cannot be compared.
		if order, err := resourceversion.CompareResourceVersion(p.Programmed, group.Version); err != nil || order < 0 {
			return false
		}
	}
	return true
}

// isExcepted reports whether Programmed does not cover a Service.
func (p NodeProxy) isExcepted(service string) bool {
	for name := range strings.SplitSeq(p.Except, ",") {
		namespace, all := strings.CutSuffix(name, v1alpha1.AllServices)
		if name != "" && name == service || all && strings.HasPrefix(service, namespace) {
			return true
		}
	}
	return false
}

// VersionsOf returns the current versions of groups.
func VersionsOf(groups []*v1alpha1.EndpointGroup) []GroupVersion {
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

// nodesText names the first few nodes. It does not count the rest, because the text of a condition must not change all
// the time.
func nodesText(nodes []string) string {
	switch {
	case len(nodes) == 1:
		return "node " + nodes[0]
	case len(nodes) > mostNamed:
		return fmt.Sprintf("nodes %s and others", strings.Join(nodes[:mostNamed], ", "))
	}
	return "nodes " + strings.Join(nodes, ", ")
}
