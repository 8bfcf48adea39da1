package compile

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/topology/netset"
)

// setOf is the set of prefixes and addresses that words name.
func setOf(words string) netset.Set {
	set, err := netset.Parse(strings.ReplaceAll(words, " ", "\n"))
	if err != nil {
		panic(err)
	}
	return set
}

// testReserved are the addresses of a cluster of both families.
func testReserved() Reserved {
	return Reserved{
		ServiceRanges: setOf("10.96.0.0/16 fd00:96::/112"), Pods: setOf("10.1.0.0/16"),
		Nodes: setOf("192.0.2.0/30 2001:db8::1"), APIServer: setOf("192.0.2.2 198.51.100.9"),
	}
}

// testBook has the reserved addresses, shop/web and some other Services.
func testBook(web *corev1.Service) *AddressBook {
	b := NewAddressBook()
	b.SetReserved(testReserved())
	b.SetService(types.NamespacedName{Namespace: "shop", Name: "web"}, web)
	for name, change := range map[string]func(*corev1.Service){
		"dns": func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.96.0.10", []string{"10.96.0.10", "fd00:96::a"}
		},
		// Its cluster IP is not from a range that is known.
		"old": func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = "203.0.113.200", []string{"203.0.113.200"}
		},
		"headless":  func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"} },
		"node-port": func(s *corev1.Service) { s.Spec.ClusterIP = "10.96.0.11"; nodePort(s) },
		"elsewhere": func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ServiceTypeExternalName, "203.0.113.201", nil
		},
	} {
		b.SetService(types.NamespacedName{Namespace: "kube-system", Name: name}, testService(change))
	}
	return b
}

// Addresses of the cluster are refused, by whichever field they are claimed.
func TestRefusedAddresses(t *testing.T) {
	all, none := ExternalIPs{}, ExternalIPs{None: true}
	some := ExternalIPs{Prefixes: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/25")}}
	wide := ExternalIPs{Prefixes: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}}
	type reasons [4]Reason // with all, none, some, wide
	is := func(r Reason) reasons { return reasons{r, r, r, r} }
	for _, test := range []struct {
		address            string
		external, balancer reasons
		owner              string
	}{
		{address: "203.0.113.1", external: reasons{"", RefusedByPolicy, "", ""}},
		{address: "203.0.113.129", external: reasons{"", RefusedByPolicy, RefusedByPolicy, ""}},
		{address: "2001:db8:1::1", external: reasons{"", RefusedByPolicy, RefusedByPolicy, ""}},
		{address: "10.96.0.10", external: is(RefusedClusterIP), balancer: is(RefusedClusterIP), owner: "kube-system/dns"},
		{address: "010.096.000.010", external: is(RefusedClusterIP), balancer: is(RefusedClusterIP), owner: "kube-system/dns"},
		{address: "::ffff:10.96.0.10", external: is(RefusedClusterIP), balancer: is(RefusedClusterIP), owner: "kube-system/dns"},
		{address: "fd00:96::a", external: is(RefusedClusterIP), balancer: is(RefusedClusterIP), owner: "kube-system/dns"},
		{address: "203.0.113.200", external: is(RefusedClusterIP), balancer: is(RefusedClusterIP), owner: "kube-system/old"},
		{address: "203.0.113.201", external: reasons{"", RefusedByPolicy, RefusedByPolicy, ""}}, // of no proxied Service
		{address: "10.96.0.99", external: is(RefusedServiceRange), balancer: is(RefusedServiceRange)},
		{address: "fd00:96::99", external: is(RefusedServiceRange), balancer: is(RefusedServiceRange)},
		{address: "198.51.100.9", external: is(RefusedAPIServer), balancer: is(RefusedAPIServer)},
		{address: "192.0.2.2", external: is(RefusedAPIServer), balancer: is(RefusedAPIServer)}, // a node's, too
		{
			address: "192.0.2.1", external: reasons{RefusedNode, RefusedNode, RefusedNode, ""},
			balancer: reasons{RefusedNode, RefusedNode, RefusedNode, ""},
		},
		{
			address: "2001:db8::1", external: reasons{RefusedNode, RefusedNode, RefusedNode, ""},
			balancer: reasons{RefusedNode, RefusedNode, RefusedNode, ""},
		},
		{address: "10.1.2.3", external: is(RefusedPod), balancer: is(RefusedPod)},
		{address: "127.0.0.1", external: is(RefusedSpecial), balancer: is(RefusedSpecial)},
		{address: "169.254.169.254", external: is(RefusedSpecial), balancer: is(RefusedSpecial)},
		{address: "0.0.0.0", external: is(RefusedSpecial), balancer: is(RefusedSpecial)},
		{address: "224.0.0.1", external: is(RefusedSpecial), balancer: is(RefusedSpecial)},
		{address: "fe80::1", external: is(RefusedSpecial), balancer: is(RefusedSpecial)},
		{address: "10.96.0.1"}, // its own
	} {
		for field, want := range map[string]reasons{fieldExternalIPs: test.external, fieldLoadBalancer: test.balancer} {
			service := testService(dualStack, ours, externalIPs(test.address))
			if field == fieldLoadBalancer {
				service = testService(dualStack, ours, balancer(test.address))
			}
			book := testBook(service)
			for i, policy := range []ExternalIPs{all, none, some, wide} {
				o := Options{Node: testNodeA(), Addresses: book, ExternalIPs: policy, AllServices: true}
				result := Service(Input{Service: service, Slices: nil}, o)
				address, _ := parseAddress(test.address)
				var wanted []RefusedAddress
				if want[i] != "" {
					wanted = []RefusedAddress{{Address: address, Field: field, Reason: want[i], Owner: test.owner}}
				}
				if !slices.Equal(result.Refused.First, wanted) {
					t.Errorf("%s %s, policy %d: refused is %v, want %v", field, test.address, i, result.Refused, wanted)
				}
				if got := hasFront(result, address, 80); got != (want[i] == "") {
					t.Errorf("%s %s, policy %d: it has a front: %t", field, test.address, i, got)
				}
			}
		}
	}
}

func hasFront(r Result, address netip.Addr, port uint16) bool {
	for _, f := range r.Families {
		for _, p := range f.Ports {
			if slices.ContainsFunc(p.Fronts, func(f ruleset.FrontEnd) bool { return f.Address == address && f.Port == port }) {
				return true
			}
		}
	}
	return false
}

// If addresses of nodes are allowed, NodePorts of other Services are still refused.
func TestNodePortsOfOthersAreRefused(t *testing.T) {
	service := testService(ours, externalIPs("192.0.2.1"))
	service.Spec.Ports = append(service.Spec.Ports,
		corev1.ServicePort{Name: "clash", Protocol: corev1.ProtocolTCP, Port: 30080}, corev1.ServicePort{Name: "udp", Protocol: corev1.ProtocolUDP, Port: 30080})
	o := Options{Node: testNodeA(), Addresses: testBook(service), ExternalIPs: ExternalIPs{Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}}
	result := Service(Input{Service: service}, Options{Node: o.Node, Addresses: o.Addresses, ExternalIPs: o.ExternalIPs, AllServices: true})
	node := netip.MustParseAddr("192.0.2.1")
	want := []RefusedAddress{{Address: node, Port: 30080, Field: fieldExternalIPs, Reason: RefusedNodePort, Owner: "kube-system/node-port"}}
	if !slices.Equal(result.Refused.First, want) {
		t.Errorf("refused is %v, want %v", result.Refused, want)
	}
	var fronts []string
	for _, port := range result.Families[0].Ports {
		for _, front := range port.Fronts {
			fronts = append(fronts, front.String())
		}
	}
	if want := []string{
		"10.96.0.1:80/tcp", "192.0.2.1:80/tcp", "10.96.0.1:30080/tcp", "10.96.0.1:30080/udp", "192.0.2.1:30080/udp",
	}; !slices.Equal(fronts, want) {
		t.Errorf("the fronts are %v, want %v", fronts, want)
	}
	if text := want[0].String(); text != "spec.externalIPs: 192.0.2.1 is refused for port 30080, which is a NodePort of Service kube-system/node-port: choose another port" {
		t.Error(text)
	}
	// At that port, the node's address is its own NodePort.
	own := testService(ours, nodePort, externalIPs("192.0.2.1"))
	own.Spec.Ports[0].Port = 30080
	result = Service(Input{Service: own}, Options{Node: o.Node, Addresses: testBook(own), ExternalIPs: ExternalIPs{Prefixes: o.ExternalIPs.Prefixes}, AllServices: true})
	for _, front := range result.Families[0].Ports[0].Fronts {
		if front.Address == node && !front.NodePort {
			t.Errorf("%s is no NodePort", front.String())
		}
	}
}

// randomCluster is a random cluster of Services that claim each other's addresses.
type randomCluster struct {
	services map[types.NamespacedName]*corev1.Service
	reserved Reserved
	policy   ExternalIPs
}

var randomAddresses = strings.Fields("10.96.0.1 10.96.0.2 10.96.0.3 10.1.0.1 192.0.2.1 192.0.2.2 203.0.113.1 203.0.113.2 127.0.0.1")

func drawClaimant(t *rapid.T, name types.NamespacedName) *corev1.Service {
	some := func(what string, most int) []string {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(randomAddresses), 0, most, rapid.ID[string]).Draw(t, what)
	}
	cluster := rapid.SampledFrom([]string{"10.96.0.1", "10.96.0.2", "10.96.0.3", "203.0.113.2", "None"}).Draw(t, "cluster IP")
	s := testService(ours, externalIPs(some("external IPs", 3)...))
	s.ObjectMeta = metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, Labels: s.Labels}
	s.Spec.ClusterIP, s.Spec.ClusterIPs = cluster, []string{cluster}
	s.Spec.Ports[0].Port = rapid.SampledFrom([]int32{80, 30080}).Draw(t, "port")
	if rapid.Bool().Draw(t, "node port") {
		nodePort(s)
	}
	for _, ip := range some("load balancers", 2) {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	return s
}

// may reports whether a Service may have an address. It applies the rules directly to all Services.
func (c *randomCluster) may(name types.NamespacedName, field string, a netip.Addr) bool {
	text := a.String()
	if c.services[name].Spec.ClusterIP == text {
		return true
	}
	for _, other := range c.services {
		if other.Spec.ClusterIP == text {
			return false
		}
	}
	allowed := slices.ContainsFunc(c.policy.Prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
	switch r := &c.reserved; {
	case a.IsLoopback(), r.ServiceRanges.Contains(a), r.APIServer.Contains(a):
		return false
	case r.Nodes.Contains(a):
		return allowed && (field != fieldExternalIPs || !c.policy.None)
	case r.Pods.Contains(a):
		return false
	}
	return field != fieldExternalIPs || !c.policy.None && (allowed || len(c.policy.Prefixes) == 0)
}

// compiled compiles all Services, by name.
func (c *randomCluster) compiled(b *AddressBook) map[types.NamespacedName]Result {
	all := map[types.NamespacedName]Result{}
	for name, service := range c.services {
		all[name] = Service(Input{Service: service, Slices: []*discoveryv1.EndpointSlice{}},
			Options{Node: testNodeA(), AllServices: true, Addresses: b, ExternalIPs: c.policy})
	}
	return all
}

// Whatever Services are added, changed and removed: each has exactly the allowed addresses, and the book returns all
// others that a change affects.
func TestServicesGetAllowedAddresses(t *testing.T) {
	names := []types.NamespacedName{{Namespace: "a", Name: "x"}, {Namespace: "b", Name: "y"}, {Namespace: "c", Name: "z"}}
	reserved := func(t *rapid.T) Reserved {
		set := func(what string, of ...string) netset.Set { return setOf(rapid.SampledFrom(of).Draw(t, what)) }
		return Reserved{
			ServiceRanges: set("ranges", "", "10.96.0.0/16"), Pods: set("pods", "", "10.1.0.0/16"),
			Nodes: set("nodes", "", "192.0.2.1", "192.0.2.1 192.0.2.2"), APIServer: set("API server", "", "192.0.2.2"),
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		c := &randomCluster{services: map[types.NamespacedName]*corev1.Service{}, policy: rapid.SampledFrom([]ExternalIPs{
			{}, {None: true}, {Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}, {Prefixes: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}},
		}).Draw(t, "policy")}
		b := NewAddressBook()
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			before := c.compiled(b)
			name := rapid.SampledFrom(names).Draw(t, "name")
			var affected []types.NamespacedName
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				delete(c.services, name)
				affected = b.SetService(name, nil)
			case 1:
				c.reserved = reserved(t)
				affected = b.SetReserved(c.reserved)
				name = types.NamespacedName{}
			default:
				c.services[name] = drawClaimant(t, name)
				affected = b.SetService(name, c.services[name])
			}
			after := c.compiled(b)
			for other, result := range after {
				if other != name && !slices.Contains(affected, other) && !slices.Equal(lines(before[other]), lines(result)) {
					t.Fatalf("%s differs and is not named", other)
				}
				c.check(t, other, result)
			}
		}
		for name := range maps.Clone(c.services) {
			b.SetService(name, nil)
		}
		if len(b.clusterIPs)+len(b.claimants)+len(b.nodePorts)+len(b.balanced)+len(b.services) > 0 {
			t.Fatalf("the book remembers %v, %v, %v, %v", b.clusterIPs, b.claimants, b.nodePorts, b.services)
		}
	})
}

// check compares the fronts of a Service with its permitted addresses.
func (c *randomCluster) check(t *rapid.T, name types.NamespacedName, result Result) {
	service := c.services[name]
	if service.Spec.ClusterIP == "None" {
		return
	}
	number := uint16(service.Spec.Ports[0].Port)
	for claimed := range claimsOf(service) {
		may := c.may(name, claimed.field, claimed.address)
		refused := slices.ContainsFunc(result.Refused.First, func(r RefusedAddress) bool {
			return r.Address == claimed.address && r.Field == claimed.field
		})
		taken, balanced := false, false
		for other, s := range c.services {
			if other == name || s.Spec.ClusterIP == "None" {
				continue
			}
			balanced = balanced || s.Spec.Ports[0].Port == int32(number) &&
				slices.ContainsFunc(s.Status.LoadBalancer.Ingress, func(i corev1.LoadBalancerIngress) bool { return i.IP == claimed.address.String() })
			taken = taken || uint16(s.Spec.Ports[0].NodePort) == number && c.reserved.Nodes.Contains(claimed.address)
		}
		if own := service.Spec.ClusterIP == claimed.address.String(); own {
			taken, balanced = false, false
		}
		may = may && !taken && (!balanced || claimed.field != fieldExternalIPs)
		if may == refused {
			t.Fatalf("%s: %s %s: refused is %t", name, claimed.field, claimed.address, refused)
		}
		other := false // by which it has the address all the same
		for again := range claimsOf(service) {
			other = other || again.address == claimed.address && again.field != claimed.field && !taken && (!balanced || again.field != fieldExternalIPs) && c.may(name, again.field, again.address)
		}
		if got, own := hasFront(result, claimed.address, number), service.Spec.Ports[0].NodePort == int32(number); !own && got != (may || other) {
			t.Fatalf("%s: %s %s: there is a front: %t", name, claimed.field, claimed.address, got)
		}
	}
}

// claimedAndServed are the addresses of a Service but its cluster IP.
func claimedAndServed(r Result) map[string]bool {
	all := map[string]bool{}
	for i := range r.Families {
		for j := range r.Families[i].Ports {
			for _, f := range r.Families[i].Ports[j].Fronts {
				if !f.ClusterIP && !f.NodePort {
					all[f.Address.String()] = true
				}
			}
		}
	}
	return all
}

// Up to MaxClaims claimed addresses count, those of the load balancer first. The others are one refusal for each field.
func TestTooManyClaims(t *testing.T) {
	for _, test := range []struct {
		external, balancer, served int
		want                       []string
	}{
		{external: 1000, served: 1000},
		{external: 1001, served: 1000, want: []string{"spec.externalIPs: 1 addresses are refused: a Service may claim 1000 in all; remove the last ones"}},
		{external: 5, balancer: 999, served: 1000, want: []string{"spec.externalIPs: 4 addresses are refused: a Service may claim 1000 in all; remove the last ones"}},
		{external: 3, balancer: 1200, served: 1000, want: []string{
			"spec.externalIPs: 3 addresses are refused: a Service may claim 1000 in all; remove the last ones",
			"status.loadBalancer.ingress: 200 addresses are refused: a Service may claim 1000 in all; remove the last ones",
		}},
	} {
		s := largeService("198.18", test.external, 1)
		s.Status = balancedService("198.19", test.balancer, 1).Status
		r := Service(Input{Service: s}, Options{AllServices: true, Addresses: testBook(s), Node: Node{Name: "a"}})
		if got := r.Refused.Sentences(10); !slices.Equal(got, test.want) {
			t.Errorf("%d and %d addresses: refused is %q, want %q", test.external, test.balancer, got, test.want)
		}
		if n, want := r.Refused.Counts[RefusedTooMany], test.external+test.balancer-test.served; n != want {
			t.Errorf("%d and %d addresses: %d are counted, want %d", test.external, test.balancer, n, want)
		}
		got := claimedAndServed(r)
		if len(got) != test.served || test.external > 0 && test.balancer < MaxClaims && !got["198.18.0.0"] || test.balancer > 0 && !got["198.19.0.0"] {
			t.Errorf("%d and %d addresses: %d are served, want %d", test.external, test.balancer, len(got), test.served)
		}
	}
}

// largeService returns a Service with the given numbers of ports and external IPs, which begin with a prefix of two
// octets.
func largeService(prefix string, addresses, ports int) *corev1.Service {
	return testService(ours, func(s *corev1.Service) {
		s.Spec.Ports = nil
		for i := range ports {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(i + 1), NodePort: int32(30000 + i), Protocol: corev1.ProtocolTCP})
		}
		for i := range addresses {
			s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, fmt.Sprintf("%s.%d.%d", prefix, i/256, i%256))
		}
	})
}

// balancedService has its addresses by its load balancer.
func balancedService(prefix string, addresses, ports int) *corev1.Service {
	s := largeService(prefix, addresses, ports)
	for _, ip := range s.Spec.ExternalIPs {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	s.Spec.ExternalIPs = nil
	return s
}
