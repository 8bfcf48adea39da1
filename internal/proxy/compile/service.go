package compile

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// Service decides what the rules of a node do for a Service.
//
// The rules serve it from its groups or, with Options.AllServices, from its slices, unless its label
// service.kubernetes.io/service-proxy-name names another proxy. Without the label, kube-proxy serves it too. Then
// kube-proxy keeps the fronts without an endpoint: groups come and go one by one, and the first may have no endpoint
// for the node.
func Service(in Input, o Options) Result {
	if !Ours(in.Service) {
		return Result{}
	}
	c := newCompiler(in, &o)
	// A group for DNS may be left from a headless Service of the same name.
	c.groups = objectsOf(in.Service, in.Groups, func(g *v1alpha1.EndpointGroup) string { return g.Spec.Service })
	if len(c.groups) == 0 && !o.AllServices {
		if c.ours {
			c.note("the label %s gives the Service to this proxy, and it has no groups: no proxy serves it", v1alpha1.LabelServiceProxyName)
		}
		return Result{Notes: c.notes}
	}
	if o.AllServices {
		c.slices = objectsOf(in.Service, in.Slices, func(s *discoveryv1.EndpointSlice) string { return s.Labels[discoveryv1.LabelServiceName] })
	}
	return c.result()
}

// objectsOf returns the groups or slices of a Service with a cluster IP, sorted by name.
func objectsOf[T metav1.Object](service *corev1.Service, all []T, owner func(T) string) []T {
	list := make([]T, 0, len(all))
	for _, object := range all {
		_, headless := object.GetLabels()[corev1.IsHeadlessService]
		if !headless && object.GetNamespace() == service.Namespace && owner(object) == service.Name {
			list = append(list, object)
		}
	}
	slices.SortFunc(list, func(a, b T) int { return strings.Compare(a.GetName(), b.GetName()) })
	return list
}

type compiler struct {
	service *corev1.Service
	options *Options
	// ours means that kube-proxy does not serve the Service.
	ours      bool
	groups    []*v1alpha1.EndpointGroup
	slices    []*discoveryv1.EndpointSlice
	most      int  // Input.MaxElements
	nodeBound bool // Input.NodeBound

	name, rank string
	affinity   time.Duration
	policy     policy
	ports      []servicePort
	notes      []string
	refused    Refusals
	refusals   map[RefusedAddress]bool // all. refused has the first
}

func newCompiler(in Input, o *Options) *compiler {
	meta := &in.Service.ObjectMeta
	_, named := meta.Labels[v1alpha1.LabelServiceProxyName]
	name := meta.Namespace + "/" + meta.Name
	return &compiler{
		service: in.Service, options: o, ours: named, most: in.MaxElements, nodeBound: in.NodeBound,
		name: name, rank: meta.CreationTimestamp.UTC().Format(time.RFC3339) + " " + name,
	}
}

func (c *compiler) note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

func (c *compiler) result() Result {
	c.policy = policyOf(c.service)
	c.readAffinity()
	c.readPorts()
	c.refuseBeyond()
	var halves []*half
	for _, family := range ruleset.Families {
		if !c.options.Has(family) {
			continue
		}
		h := half{family: family, addresses: c.addressesOf(family)}
		h.kept = h.addresses
		if !h.cluster.IsValid() {
			continue
		}
		if h.known, h.whole, h.partial = c.directory(family); h.known != nil {
			halves = append(halves, &h)
		}
	}
	result := c.families(halves)
	result.Notes, result.Refused = c.notes, c.refused
	return result
}

func (c *compiler) key() types.NamespacedName {
	return types.NamespacedName{Namespace: c.service.Namespace, Name: c.service.Name}
}

// refuse notes a refused address, once.
func (c *compiler) refuse(refused RefusedAddress) {
	if c.refusals[refused] {
		return
	}
	if c.refusals == nil {
		c.refusals = map[RefusedAddress]bool{}
	}
	c.refusals[refused] = true
	c.refused.add(refused)
}

// half is a Service in one family.
type half struct {
	family ruleset.Family
	addresses
	// known has the endpoints. It is partial while groups come or go. Then whole has all endpoints, or is nil.
	known, whole directory
	partial      bool
	// kept has the addresses that fit. sizes are by port.
	kept  addresses
	sizes []sizes
}

// onNode counts the endpoints on the node, which may connect to themselves.
func (h *half) onNode() int {
	if h.whole != nil {
		return max(h.known.onNode(), h.whole.onNode())
	}
	return h.known.onNode()
}

// readAffinity reads how long a client stays with its endpoint.
func (c *compiler) readAffinity() {
	spec := &c.service.Spec
	if spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return
	}
	seconds := corev1.DefaultClientIPServiceAffinitySeconds
	if config := spec.SessionAffinityConfig; config != nil && config.ClientIP != nil && config.ClientIP.TimeoutSeconds != nil {
		seconds = *config.ClientIP.TimeoutSeconds
	}
	c.affinity = time.Duration(seconds) * time.Second
}

// readPorts reads the ports of the Service, which the API server has validated.
func (c *compiler) readPorts() {
	c.ports = make([]servicePort, len(c.service.Spec.Ports))
	for i := range c.ports {
		given := &c.service.Spec.Ports[i]
		protocol, _ := protocolOf(given.Protocol)
		c.ports[i] = servicePort{
			portKey: portKey{given.Name, protocol}, fullName: c.name, number: uint16(given.Port), nodePort: uint16(given.NodePort),
		}
		if given.Name != "" {
			c.ports[i].fullName += ":" + given.Name
		}
	}
}

// family compiles the ports of one family that fit. It also records the sizes of the others, which may be too large to
// compile.
func (c *compiler) family(h *half, left *room) Family {
	f := Family{Family: h.family, Elements: h.onNode()}
	some := left.take(f.Elements)
	h.sizes = make([]sizes, 0, len(c.ports))
	instead := false
	for i := range c.ports {
		port := &c.ports[i]
		n := h.need(port, c.policy)
		got := h.known.supply(port.portKey, n)
		if h.whole != nil {
			all := h.whole.supply(port.portKey, n)
			got.known = ruleset.Known{Serving: slices.Concat(got.known.Serving, all.cluster, all.local, all.known.Serving), Drained: got.known.Drained}
			if h.partial && n.lacks(got) {
				got, instead = all, true
			}
		}
		if h.partial && h.whole == nil {
			// A missing group says nothing about its endpoints.
			got.known.View = partialView
			got.known.Fleeting = slices.Concat(got.cluster, got.local, got.known.Serving)
		}
		if left.share != nil {
			got = left.share.cut(got, c.options.Node.Name)
		}
		size := got.sizes()
		h.sizes = append(h.sizes, size)
		needed := c.cost(&h.kept, port, size)
		if !some || left.scarce && size.cluster+size.local == 0 || !left.take(needed) {
			continue
		}
		compiled := ruleset.ServicePort{Name: port.fullName, Rank: c.rank, Affinity: c.affinity, Fronts: c.fronts(&h.kept, port)}
		compiled.Cluster, compiled.Weights, compiled.Local, compiled.Known = got.cluster, got.weights, got.local, got.known
		refuse(compiled.Fronts, got.exists)
		if h.partial && h.whole == nil {
			compiled.Fronts = frontsWithEndpoints(compiled.Fronts, got)
			ignore(compiled.Fronts)
		}
		if len(compiled.Fronts) == 0 {
			continue // kube-proxy serves it
		}
		if got.beyond {
			f.Unreachable = append(f.Unreachable, port.fullName)
		}
		f.Elements += needed
		f.Ports = append(f.Ports, compiled)
		f.Reached = max(f.Reached, c.reached(n, got))
	}
	if len(f.Ports) > 0 {
		known := h.known
		if instead {
			known = h.whole
		}
		f.Endpoints = known.endpoints()
		f.Health = c.health(known)
		if c.cutsOff(h) {
			f.avoid()
		}
	}
	return f
}

// reached counts the endpoints for connections from outside or, without addresses for them, for those to the cluster IP.
func (c *compiler) reached(n need, got supply) int {
	if n.cluster && c.policy.external == ruleset.PoolCluster {
		return len(got.cluster)
	}
	return len(got.local)
}

// partialView is the view of a node on a Service whose groups come or go.
const partialView = "some groups"

// directory returns the endpoints of a family, nil if only kube-proxy serves it. It is partial while groups come or go.
// Then whole has the endpoints of the slices, or is nil.
func (c *compiler) directory(family ruleset.Family) (known, whole directory, partial bool) {
	if groups := newGrouped(c.groups, family, &c.options.Node, &c.notes); groups != nil {
		if c.options.AllServices {
			whole = newSliced(c.slices, family, &c.options.Node, &c.notes)
		}
		return groups, whole, !c.ours
	}
	switch {
	case c.options.AllServices:
		return newSliced(c.slices, family, &c.options.Node, &c.notes), nil, false
	case c.ours:
		c.note("the Service has an %s address and no EndpointGroup of that family: connections are refused", family.Name())
		return newSliced(nil, family, &c.options.Node, &c.notes), nil, false
	}
	return nil, nil, false
}

// refuse sets the treatment of connections without an endpoint. They are dropped if a traffic policy excludes endpoints
// elsewhere, so that a load balancer tries another node. Otherwise they are rejected.
func refuse(fronts []ruleset.FrontEnd, exists bool) {
	for i := range fronts {
		switch f := &fronts[i]; {
		case !exists || f.Pool == ruleset.PoolCluster:
			f.Empty = ruleset.Reject
		case f.Pool == ruleset.PoolSplit:
			f.Empty = ruleset.DropOutside
		default:
			f.Empty = ruleset.Drop
		}
	}
}

// ignore leaves connections without an endpoint to kube-proxy.
func ignore(fronts []ruleset.FrontEnd) {
	for i := range fronts {
		fronts[i].Empty = ruleset.Ignore
	}
}

// frontsWithEndpoints returns the fronts with endpoints for some of their traffic.
func frontsWithEndpoints(fronts []ruleset.FrontEnd, got supply) []ruleset.FrontEnd {
	return slices.DeleteFunc(fronts, func(f ruleset.FrontEnd) bool {
		return f.Pool == ruleset.PoolLocal && len(got.local) == 0 || f.Pool != ruleset.PoolLocal && len(got.cluster) == 0
	})
}

// health returns the answer to health checks of load balancers. While kube-proxy serves the Service, kube-proxy answers.
func (c *compiler) health(known directory) *HealthCheck {
	spec := &c.service.Spec
	if spec.HealthCheckNodePort == 0 || spec.Type != corev1.ServiceTypeLoadBalancer || !externalLocal(c.service) || !c.ours && !c.options.AllServices {
		return nil
	}
	return &HealthCheck{Port: uint16(spec.HealthCheckNodePort), LocalEndpoints: known.localReady()}
}
