package compile

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"pgregory.net/rapid"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// stockEndpoint is an endpoint as kube-proxy knows it.
type stockEndpoint struct {
	at                                 string // address and port
	local, ready, serving, terminating bool
	zones, nodes                       []string
}

func (e stockEndpoint) lastResort() bool { return e.serving && e.terminating }

// stockEndpoints reads slices for a port by the rules that kube-proxy documents: by port
// name and protocol, the first address of each endpoint, and of two with the same
// address and port one that does not terminate. Which of several such is left open
// there; here it is the one that is ready, then the one that serves.
func stockEndpoints(in Input, node Node, family string, port corev1.ServicePort) []stockEndpoint {
	known := map[string]stockEndpoint{}
	for _, slice := range in.Slices {
		if string(slice.AddressType) != family {
			continue
		}
		for _, p := range slice.Ports {
			if p.Name == nil || p.Port == nil || *p.Port == 0 || *p.Name != port.Name || *p.Protocol != port.Protocol {
				continue
			}
			for _, e := range slice.Endpoints {
				read := stockEndpoint{
					at:          netip.AddrPortFrom(netip.MustParseAddr(e.Addresses[0]), uint16(*p.Port)).String(),
					local:       e.NodeName != nil && *e.NodeName == node.Name,
					ready:       e.Conditions.Ready == nil || *e.Conditions.Ready,
					serving:     e.Conditions.Serving == nil || *e.Conditions.Serving,
					terminating: e.Conditions.Terminating != nil && *e.Conditions.Terminating,
				}
				if e.Hints != nil {
					for _, z := range e.Hints.ForZones {
						read.zones = append(read.zones, z.Name)
					}
					for _, n := range e.Hints.ForNodes {
						read.nodes = append(read.nodes, n.Name)
					}
				}
				before, twice := known[read.at]
				worse := func(e stockEndpoint) string { return fmt.Sprint(e.terminating, !e.ready, !e.serving) }
				if !twice || worse(read) < worse(before) {
					known[read.at] = read
				}
			}
		}
	}
	var list []stockEndpoint
	for _, e := range known {
		list = append(list, e)
	}
	return list
}

func where(list []stockEndpoint, is func(stockEndpoint) bool) []string {
	var at []string
	for _, e := range list {
		if is(e) {
			at = append(at, e.at)
		}
	}
	slices.Sort(at)
	return at
}

// stockPools are the endpoints for traffic that may go anywhere and for traffic that
// stays, and whether there are any at all.
func stockPools(list []stockEndpoint, node Node) (cluster, local []string, some bool) {
	ready := slices.DeleteFunc(slices.Clone(list), func(e stockEndpoint) bool { return !e.ready })
	all := func(is func(stockEndpoint) bool) bool {
		return !slices.ContainsFunc(ready, func(e stockEndpoint) bool { return !is(e) })
	}
	forNode := func(e stockEndpoint) bool { return slices.Contains(e.nodes, node.Name) }
	forZone := func(e stockEndpoint) bool { return slices.Contains(e.zones, node.Zone) }
	near := func(stockEndpoint) bool { return true }
	switch {
	case all(func(e stockEndpoint) bool { return len(e.nodes) > 0 }) && slices.ContainsFunc(ready, forNode):
		near = forNode
	case all(func(e stockEndpoint) bool { return len(e.zones) > 0 }) && slices.ContainsFunc(ready, forZone):
		near = forZone
	}
	cluster = where(ready, near)
	if len(cluster) == 0 {
		cluster = where(list, stockEndpoint.lastResort)
	}
	here := slices.DeleteFunc(slices.Clone(list), func(e stockEndpoint) bool { return !e.local })
	local = where(here, func(e stockEndpoint) bool { return e.ready })
	if len(local) == 0 {
		local = where(here, stockEndpoint.lastResort)
	}
	return cluster, local, len(cluster) > 0
}

// stockFronts say for each address of a Service what becomes of connections to it: from
// pods of the cluster and the node, from elsewhere, and with which source.
func stockFronts(in Input, node Node) map[string]string {
	fronts := map[string]string{}
	s := in.Service
	for i, family := range s.Spec.IPFamilies {
		ofFamily := func(text string) bool { return strings.Contains(text, ":") == (family == corev1.IPv6Protocol) }
		internalLocal := s.Spec.InternalTrafficPolicy != nil && *s.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal
		externalLocal := s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal &&
			(s.Spec.Type != corev1.ServiceTypeClusterIP || len(s.Spec.ExternalIPs) > 0)
		for _, port := range s.Spec.Ports {
			cluster, local, some := stockPools(stockEndpoints(in, node, string(family), port), node)
			goes := func(pool []string, localPolicy bool) string {
				switch {
				case len(pool) > 0:
					return strings.Join(pool, " ")
				case some && localPolicy:
					return "drop"
				}
				return "reject"
			}
			front := func(address string, number int32, text string) {
				fronts[fmt.Sprintf("%s/%s", netip.AddrPortFrom(netip.MustParseAddr(address), uint16(number)), port.Protocol)] = text
			}
			if internalLocal {
				front(s.Spec.ClusterIPs[i], port.Port, "cluster IP: "+goes(local, true))
			} else {
				front(s.Spec.ClusterIPs[i], port.Port, "cluster IP: "+goes(cluster, false))
			}
			external := "masqueraded: " + goes(cluster, false)
			if externalLocal {
				external = "near: " + goes(cluster, false) + ", far: " + goes(local, true)
			}
			for _, ip := range s.Spec.ExternalIPs {
				if ofFamily(ip) {
					front(ip, port.Port, external)
				}
			}
			for _, ingress := range s.Status.LoadBalancer.Ingress {
				if ingress.IP == "" || ingress.IPMode != nil && *ingress.IPMode == corev1.LoadBalancerIPModeProxy || !ofFamily(ingress.IP) {
					continue
				}
				text := external
				var allowed []string
				for _, source := range s.Spec.LoadBalancerSourceRanges {
					if ofFamily(source) {
						allowed = append(allowed, netip.MustParsePrefix(source).String())
					}
				}
				if slices.ContainsFunc(allowed, func(p string) bool {
					return slices.ContainsFunc(node.Addresses, netip.MustParsePrefix(p).Contains)
				}) {
					for _, other := range s.Status.LoadBalancer.Ingress {
						if other.IP != "" && (other.IPMode == nil || *other.IPMode == corev1.LoadBalancerIPModeVIP) && ofFamily(other.IP) {
							a := netip.MustParseAddr(other.IP)
							allowed = append(allowed, netip.PrefixFrom(a, a.BitLen()).String())
						}
					}
				}
				slices.Sort(allowed)
				if allowed = slices.Compact(allowed); len(allowed) > 0 && !slices.Contains(allowed, "0.0.0.0/0") && !slices.Contains(allowed, "::/0") {
					text += " from " + strings.Join(allowed, " ")
				}
				front(ingress.IP, port.Port, text)
			}
			if port.NodePort != 0 {
				for _, a := range node.NodePortAddresses {
					if a.Is6() == (family == corev1.IPv6Protocol) {
						front(a.String(), port.NodePort, external)
					}
				}
			}
		}
	}
	return fronts
}

// frontsOf says the same of a result.
func frontsOf(t *rapid.T, r Result) map[string]string {
	fronts := map[string]string{}
	for _, f := range r.Families {
		for _, p := range f.Ports {
			for _, front := range p.Fronts {
				targets := func(pool []netip.AddrPort, refusal ruleset.Refusal) string {
					var at []string
					for _, target := range pool {
						at = append(at, target.String())
					}
					slices.Sort(at)
					if len(at) == 0 {
						return refusalNames[refusal]
					}
					return strings.Join(at, " ")
				}
				var text string
				switch poolNames[front.Pool] {
				case "cluster":
					text = targets(p.Cluster, front.Empty)
				case "local":
					text = targets(p.Local, front.Empty)
				case "split":
					if len(p.Cluster) == 0 && len(p.Local) > 0 {
						t.Fatalf("%s: endpoints on the node and none in the cluster", p.Name)
					}
					near, far := front.Empty, front.Empty
					if front.Empty == ruleset.DropOutside {
						near, far = ruleset.Reject, ruleset.Drop
					}
					text = "near: " + targets(p.Cluster, near) + ", far: " + targets(p.Local, far)
				}
				switch {
				case front.ClusterIP:
					text = "cluster IP: " + text
				case front.Masquerade:
					text = "masqueraded: " + text
				}
				if front.Sources != nil {
					var allowed []string
					for _, source := range front.Sources {
						allowed = append(allowed, source.String())
					}
					slices.Sort(allowed)
					text += " from " + strings.Join(allowed, " ")
				}
				key := fmt.Sprintf("%s/%s", netip.AddrPortFrom(front.Address, front.Port), protocolNames[front.Protocol])
				if fronts[key] != "" {
					t.Fatalf("%s is there twice", key)
				}
				fronts[key] = text
			}
		}
	}
	return fronts
}

// anyOf draws some of the texts.
func anyOf(t *rapid.T, label string, texts ...string) []string {
	var list []string
	for _, text := range texts {
		if rapid.Bool().Draw(t, label+" "+text) {
			list = append(list, text)
		}
	}
	return list
}

// drawService draws a Service of any kind.
func drawService(t *rapid.T) *corev1.Service {
	service := testService()
	spec := &service.Spec
	if rapid.Bool().Draw(t, "dual stack") {
		dualStack(service)
	}
	if rapid.Bool().Draw(t, "IPv6 alone") {
		spec.IPFamilies, spec.ClusterIPs, spec.ClusterIP = []corev1.IPFamily{corev1.IPv6Protocol}, []string{"fd00::1"}, "fd00::1"
	}
	spec.Type = rapid.SampledFrom([]corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer}).Draw(t, "type")
	spec.Ports = append(spec.Ports, corev1.ServicePort{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 80})
	if spec.Type != corev1.ServiceTypeClusterIP {
		spec.Ports[0].NodePort, spec.Ports[1].NodePort = 30080, 30080
	}
	spec.ExternalIPs = anyOf(t, "external", "203.0.113.1", "2001:db8::11")
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		for _, ip := range anyOf(t, "balancer", "198.51.100.1", "198.51.100.2", "2001:db8::21") {
			ingress := corev1.LoadBalancerIngress{IP: ip}
			if mode := rapid.SampledFrom([]corev1.LoadBalancerIPMode{"", corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy}).Draw(t, "mode"); mode != "" {
				ingress.IPMode = &mode
			}
			service.Status.LoadBalancer.Ingress = append(service.Status.LoadBalancer.Ingress, ingress)
		}
		spec.LoadBalancerSourceRanges = anyOf(t, "source", "10.0.0.0/8", "192.0.2.0/24", "2001:db8::/64", "0.0.0.0/0")
	}
	if rapid.Bool().Draw(t, "external local") {
		outsideLocal(service)
	}
	if rapid.Bool().Draw(t, "internal local") {
		insideLocal(service)
	}
	return service
}

// drawSlices draws slices that may have the same endpoints.
func drawSlices(t *rapid.T) []*discoveryv1.EndpointSlice {
	var list []*discoveryv1.EndpointSlice
	hinted := rapid.SampledFrom([]int{0, 50, 90, 100}).Draw(t, "percent hinted")
	for i := range rapid.IntRange(0, 4).Draw(t, "slices") {
		slice := sliceOf(fmt.Sprintf("s%d", i), "")
		six := rapid.Bool().Draw(t, "IPv6")
		if six {
			slice.AddressType = discoveryv1.AddressTypeIPv6
		}
		slice.Ports[0].Port = new(rapid.SampledFrom([]int32{8080, 8080, 9090, 0}).Draw(t, "port"))
		if rapid.Bool().Draw(t, "dns") {
			slice.Ports = append(slice.Ports, slicePortOf("dns", 53))
			slice.Ports[1].Protocol = new(rapid.SampledFrom([]corev1.Protocol{corev1.ProtocolUDP, corev1.ProtocolTCP}).Draw(t, "protocol"))
		}
		for range rapid.IntRange(0, 6).Draw(t, "endpoints") {
			node := rapid.SampledFrom([]string{"a1", "a1", "a2", "b1"}).Draw(t, "node")
			word := fmt.Sprintf("%d@%s", rapid.IntRange(1, 9).Draw(t, "address"), node)
			if rapid.IntRange(1, 100).Draw(t, "with zones") <= hinted {
				word += "=" + rapid.SampledFrom([]string{"a", "b", "a+b"}).Draw(t, "zones")
			}
			if rapid.IntRange(1, 100).Draw(t, "with nodes") <= hinted {
				word += "/" + rapid.SampledFrom([]string{"a1", "b1", "a1+a2"}).Draw(t, "nodes")
			}
			e := sliceEndpoint(word)
			if six {
				e.Addresses[0] = "fd01::" + strings.TrimPrefix(e.Addresses[0], "10.1.0.")
			}
			e.Conditions = discoveryv1.EndpointConditions{Ready: truth(t, "ready"), Serving: truth(t, "serving"), Terminating: truth(t, "terminating")}
			slice.Endpoints = append(slice.Endpoints, e)
		}
		list = append(list, slice)
	}
	return list
}

func truth(t *rapid.T, label string) *bool {
	return rapid.SampledFrom([]*bool{nil, new(true), new(false), new(false)}).Draw(t, label)
}

// TestAsKubeProxy compares what becomes of connections with a second implementation of
// what kube-proxy documents.
func TestAsKubeProxy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := Input{Service: drawService(t), Slices: drawSlices(t)}
		node := testNodeA()
		node.Zone = rapid.SampledFrom([]string{"a", "b", "c", ""}).Draw(t, "zone")
		want := stockFronts(in, node)
		got := frontsOf(t, compiledSafely(t, in, Options{Node: node, AllServices: true}))
		for front := range want {
			if got[front] != want[front] {
				t.Fatalf("%s\n got %s\nwant %s", front, got[front], want[front])
			}
		}
		if len(got) != len(want) {
			t.Fatalf("got %v\nwant %v", got, want)
		}
	})
}

// compiledSafely compiles and checks that the input stays as it is and that its order
// does not matter.
func compiledSafely(t *rapid.T, in Input, o Options) Result {
	before := Input{Service: in.Service.DeepCopy()}
	for _, s := range in.Slices {
		before.Slices = append(before.Slices, s.DeepCopy())
	}
	for _, g := range in.Groups {
		before.Groups = append(before.Groups, g.DeepCopy())
	}
	r := Service(in, o)
	if !reflect.DeepEqual(before, in) {
		t.Fatalf("the input is changed")
	}
	other := Input{Service: in.Service, Slices: slices.Clone(in.Slices), Groups: slices.Clone(in.Groups)}
	shuffle := rand.New(rand.NewPCG(1, 2))
	shuffle.Shuffle(len(other.Slices), func(i, j int) { other.Slices[i], other.Slices[j] = other.Slices[j], other.Slices[i] })
	shuffle.Shuffle(len(other.Groups), func(i, j int) { other.Groups[i], other.Groups[j] = other.Groups[j], other.Groups[i] })
	if again := Service(other, o); !reflect.DeepEqual(r, again) {
		t.Fatalf("in another order\n%s\nbefore\n%s", strings.Join(lines(again), "\n"), strings.Join(lines(r), "\n"))
	}
	for _, f := range r.Families {
		if !slices.IsSortedFunc(f.Endpoints, func(a, b Endpoint) int {
			if a.Address == b.Address {
				return 1
			}
			return a.Address.Compare(b.Address)
		}) {
			t.Fatalf("endpoints are not in order: %v", f.Endpoints)
		}
		for _, p := range f.Ports {
			for _, target := range slices.Concat(p.Cluster, p.Local) {
				if _, found := f.Endpoints.Find(target.Addr()); !found {
					t.Fatalf("%s is used and not known", target)
				}
			}
		}
	}
	return r
}
