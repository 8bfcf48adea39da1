package compile

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// Service decides what the rules of a node do for a Service.
//
// It is served from its groups or, with Options.AllServices, from its slices, unless its
// label service.kubernetes.io/service-proxy-name gives it to another proxy. Without the label
// kube-proxy serves it too. Then fronts without an endpoint stay kube-proxy's: groups come
// and go one by one, and the first may have nothing for the node.
func Service(in Input, o Options) Result {
	if !Ours(in.Service) {
		return Result{}
	}
	c := newCompiler(in, &o)
	c.groups = groupsOf(in)
	if len(c.groups) == 0 && !o.AllServices {
		if c.ours {
			c.note("the label %s gives the Service to this proxy, and it has no groups: nobody serves it", v1alpha1.LabelServiceProxyName)
		}
		return Result{Notes: c.notes}
	}
	if o.AllServices {
		c.slices = slicesOf(in)
	}
	return c.result()
}

// compiler compiles one Service.
type compiler struct {
	service *corev1.Service
	options *Options
	// ours says that kube-proxy does not serve the Service.
	ours   bool
	groups []*v1alpha1.EndpointGroup
	slices []*discoveryv1.EndpointSlice
	// most and nodeBound are Input.MaxElements and Input.NodeBound.
	most      int
	nodeBound bool

	name, rank string
	affinity   time.Duration
	policy     policy
	ports      []servicePort
	notes      []string
	refused    Refusals
	refusals   map[RefusedAddress]bool // all, while refused has the first
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
	strangeAddresses(c.service, &c.notes)
	specialAddresses(c.service, &c.notes)
	c.refuseBeyond()
	var halves []*half
	for _, family := range []ruleset.Family{ruleset.IPv4, ruleset.IPv6} {
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
	// known has the endpoints. If it is partial, because groups come or go, whole may have
	// all of them.
	known, whole directory
	partial      bool
	// kept are the addresses that there is room for; sizes are by port.
	kept  addresses
	sizes []sizes
}

// onNode is how many endpoints are on the node, which may connect to themselves.
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
		given := *config.ClientIP.TimeoutSeconds
		if given > 0 {
			seconds = given
		} else {
			c.note("spec.sessionAffinityConfig.clientIP.timeoutSeconds: %d is ignored, clients stay for %d seconds; it must be positive", given, seconds)
		}
	}
	c.affinity = time.Duration(seconds) * time.Second
}

func (c *compiler) readPorts() {
	spec := &c.service.Spec
	c.ports = make([]servicePort, 0, len(spec.Ports))
	for i := range spec.Ports {
		given := &spec.Ports[i]
		port := servicePort{portKey: portKey{name: given.Name}, fullName: c.name}
		if given.Name != "" {
			port.fullName += ":" + given.Name
		}
		var ok bool
		if port.protocol, ok = protocolOf(given.Protocol); !ok {
			c.note("spec.ports[%d]: protocol %q is not TCP, UDP or SCTP: the port is ignored", i, given.Protocol)
			continue
		}
		if port.number, ok = portOf(given.Port); !ok {
			c.note("spec.ports[%d]: port %d is not 1 to 65535: it is ignored", i, given.Port)
			continue
		}
		if slices.ContainsFunc(c.ports, func(p servicePort) bool { return p.name == port.name }) {
			c.note("spec.ports[%d]: another port is named %q too: this one is ignored", i, port.name)
			continue
		}
		if given.NodePort != 0 {
			if port.nodePort, ok = portOf(given.NodePort); !ok {
				port.nodePort = 0
				c.note("spec.ports[%d]: nodePort %d is not 1 to 65535: it is ignored", i, given.NodePort)
			}
		}
		c.ports = append(c.ports, port)
	}
}

// family compiles the ports that there is room for in one family. Of the others, which may
// be too large to make, it notes the sizes.
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
			got.known = ruleset.Known{Serving: slices.Concat(got.known.Serving, all.cluster, all.local, all.known.Serving)}
			if h.partial && n.lacks(got) {
				got, instead = all, true
			}
		}
		if h.partial && h.whole == nil {
			// A group that is gone or missing says nothing about its endpoints.
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
			compiled.Fronts = served(compiled.Fronts, got)
			ignore(compiled.Fronts)
		}
		if len(compiled.Fronts) == 0 {
			continue // kube-proxy's
		}
		if got.beyond {
			f.Unreachable = append(f.Unreachable, port.fullName)
		}
		f.Elements += needed
		f.Ports = append(f.Ports, compiled)
	}
	if len(f.Ports) > 0 {
		known := h.known
		if instead {
			known = h.whole
		}
		f.Endpoints = known.endpoints()
		f.Health = c.health(known)
		if f.Health != nil && c.cutsOff(h) {
			f.Health.LocalEndpoints = 0
		}
	}
	return f
}

// partialView is the view of a node on a Service whose groups come or go.
const partialView = "some groups"

// directory finds the endpoints of a family, nil if only kube-proxy serves it. It is partial
// while groups come or go; then whole has all endpoints, if slices do.
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
		c.note("the Service has an %s address and no EndpointGroup of that family: connections are refused", familyName(family))
		return newSliced(nil, family, &c.options.Node, &c.notes), nil, false
	}
	return nil, nil, false
}

// refuse sets what happens to connections without an endpoint. If a traffic policy keeps
// them from endpoints elsewhere they are dropped, so that a load balancer tries another
// node. All others are rejected at once.
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

// served are the fronts that have endpoints for some of their traffic.
func served(fronts []ruleset.FrontEnd, got supply) []ruleset.FrontEnd {
	return slices.DeleteFunc(fronts, func(f ruleset.FrontEnd) bool {
		return f.Pool == ruleset.PoolLocal && len(got.local) == 0 || f.Pool != ruleset.PoolLocal && len(got.cluster) == 0
	})
}

// health is the answer to a load balancer that asks which nodes have endpoints. While
// kube-proxy serves the Service, kube-proxy answers.
func (c *compiler) health(known directory) *HealthCheck {
	spec := &c.service.Spec
	if spec.Type != corev1.ServiceTypeLoadBalancer || !externalLocal(c.service) || !c.ours && !c.options.AllServices {
		return nil
	}
	port, ok := portOf(spec.HealthCheckNodePort)
	if !ok {
		if note := fmt.Sprintf("spec.healthCheckNodePort: %d is not 1 to 65535: load balancers learn nothing", spec.HealthCheckNodePort); !slices.Contains(c.notes, note) {
			c.notes = append(c.notes, note)
		}
		return nil
	}
	return &HealthCheck{Port: port, LocalEndpoints: known.localReady()}
}
