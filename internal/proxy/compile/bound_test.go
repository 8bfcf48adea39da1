package compile

import (
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"pgregory.net/rapid"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// wide returns a Service with the given numbers of ports and external IPs, and a slice with endpoints.
func wide(ports, external, endpoints int) Input {
	service := testService()
	service.Spec.Ports = nil
	slice := sliceOf("web-x", "")
	slice.Ports = nil
	for i := range ports {
		name := fmt.Sprintf("p%d", i)
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: int32(1000 + i)})
		slice.Ports = append(slice.Ports, slicePortOf(name, int32(1000+i)))
	}
	for i := range external {
		service.Spec.ExternalIPs = append(service.Spec.ExternalIPs, netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}).String())
	}
	for i := range endpoints {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{netip.AddrFrom4([4]byte{10, byte(1 + i>>16), byte(i >> 8), byte(i)}).String()}})
	}
	return Input{Service: service, Slices: []*discoveryv1.EndpointSlice{slice}}
}

// addIPv6 makes the Service one of both families, with some IPv6 endpoints.
func addIPv6(in *Input, endpoints ...discoveryv1.Endpoint) {
	dualStack(in.Service)
	six := sliceOf("web-six", "")
	six.AddressType, six.Ports, six.Endpoints = discoveryv1.AddressTypeIPv6, in.Slices[0].Ports, endpoints
	in.Slices = append(in.Slices, six)
}

func allServices() Options { return Options{Node: testNodeA(), AllServices: true} }

// A Service costs at most its computed elements. With any bound, the compiled part stays within it, and a larger bound
// never gives less. Each port with endpoints has one if one for each port fits, and a port has one if any fits.
func TestBoundIsKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := wide(rapid.IntRange(1, 5).Draw(t, "ports"), rapid.IntRange(0, 6).Draw(t, "external"), rapid.IntRange(0, 20).Draw(t, "endpoints"))
		service := in.Service
		if rapid.Bool().Draw(t, "balancer") {
			balancer("203.0.113.1", "203.0.113.2")(service)
			if rapid.Bool().Draw(t, "guarded") {
				ranges("192.0.2.0/24", "198.51.100.0/24", "10.9.0.0/16")(service)
			}
		}
		if rapid.Bool().Draw(t, "sticky") {
			service.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		}
		if rapid.Bool().Draw(t, "outside is local") {
			outsideLocal(service)
		}
		if rapid.Bool().Draw(t, "inside is local") {
			insideLocal(service)
		}
		own := "a1"
		for i := range in.Slices[0].Endpoints {
			if rapid.IntRange(0, 3).Draw(t, "here") == 0 {
				in.Slices[0].Endpoints[i].NodeName = &own
			}
		}
		free := Service(in, allServices())
		if taken := elements(free); taken > free.Elements {
			t.Fatalf("the ports use %d elements, the Service reports %d", taken, free.Elements)
		}
		in.MaxElements = rapid.IntRange(1, free.Elements+5).Draw(t, "bound")
		bound := Service(in, allServices())
		if bound.Elements != free.Elements {
			t.Fatalf("with a bound it costs %d elements, without one %d", bound.Elements, free.Elements)
		}
		if bound.Least != free.Least || free.Least > free.Elements {
			t.Fatalf("with a bound it needs at least %d elements, without one %d, of %d", bound.Least, free.Least, free.Elements)
		}
		if free.Elements <= in.MaxElements {
			if !reflect.DeepEqual(bound, free) {
				t.Fatalf("a bound of %d changes a Service within it:\n%+v\n%+v", in.MaxElements, bound, free)
			}
			return
		}
		if taken := elements(bound); taken > in.MaxElements {
			t.Fatalf("%d elements are used, allowed are %d", taken, in.MaxElements)
		}
		if in.MaxElements >= free.Least && len(bound.Families[0].Ports) != len(service.Spec.Ports) {
			t.Fatalf("%d ports are programmed within %d elements, they need at least %d", len(bound.Families[0].Ports), in.MaxElements, free.Least)
		}
		served, all, one := serving(bound), serving(free), leastOf(service, &free)
		switch here := free.Families[0].Endpoints; {
		case in.MaxElements >= one*len(service.Spec.Ports)+here.onNode() && served != all:
			t.Fatalf("%d of %d ports are served in %d elements, each needs %d", served, all, in.MaxElements, one)
		case in.MaxElements >= one+here.onNode() && all > 0 && served == 0:
			t.Fatalf("no port is served in %d elements, each needs %d", in.MaxElements, one)
		}
		in.MaxElements += rapid.IntRange(1, 20).Draw(t, "more")
		if more := Service(in, allServices()); slices.Compare(order(more), order(bound)) < 0 {
			t.Fatalf("%d elements hold %v, fewer hold %v", in.MaxElements, order(more), order(bound))
		}
	})
}

// serving returns the number of ports with endpoints.
func serving(r Result) (ports int) {
	for i := range r.Families {
		for j := range r.Families[i].Ports {
			if port := &r.Families[i].Ports[j]; len(port.Cluster)+len(port.Local) > 0 {
				ports++
			}
		}
	}
	return ports
}

// leastOf returns the cost of a port of a Service with one endpoint at the cluster IP.
func leastOf(service *corev1.Service, r *Result) int {
	sticky := service.Spec.SessionAffinity == corev1.ServiceAffinityClientIP
	slots := min(1, len(r.Families[0].Endpoints))
	clients := 0
	if sticky {
		clients = ruleset.MostAffinityClients
	}
	return ruleset.PortCost(clients, false, 0, 0) + ruleset.FrontCost(slots, sticky, false)
}

// order returns the numbers of ports, addresses and endpoints of a Service, in the order of their precedence.
func order(r Result) []int {
	n := []int{0, 0, 0}
	for i := range r.Families {
		for j := range r.Families[i].Ports {
			port := &r.Families[i].Ports[j]
			n[0], n[1], n[2] = n[0]+1, n[1]+len(port.Fronts), n[2]+len(port.Cluster)+len(port.Local)
		}
	}
	return n
}

func (e Endpoints) onNode() (n int) {
	for _, one := range e {
		if one.OnNode {
			n++
		}
	}
	return n
}

// With ports of different sizes, no port is left out for the growth of others.
func TestPortsOfOtherSizes(t *testing.T) {
	in := func(sizes ...int) Input {
		all := wide(len(sizes), 0, 0)
		slices.Reverse(all.Service.Spec.Ports)
		for i, n := range sizes {
			one := wide(len(sizes), 0, n).Slices[0]
			one.Name, one.Ports = fmt.Sprint("web-", i), one.Ports[i:i+1]
			all.Slices = append(all.Slices, one)
		}
		return all
	}
	for name, test := range map[string]struct{ before, after []int }{
		"another port":                   {[]int{1}, []int{1, 1}},
		"another port of ten":            {[]int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
		"beside one of none":             {[]int{10, 0}, []int{20, 0}},
		"beside a small one":             {[]int{10, 1}, []int{11, 1}},
		"far more beside a small one":    {[]int{10, 1}, []int{200, 1}},
		"ports more beside a large one":  {[]int{100}, []int{100, 1, 1}},
		"a port without endpoints comes": {[]int{10}, []int{10, 0}},
	} {
		before, after := Service(in(test.before...), allServices()), in(test.after...)
		after.MaxElements = before.Elements
		if was, is := serving(before), serving(Service(after, allServices())); is < was {
			t.Errorf("%s: of %d ports %d are served", name, was, is)
		}
	}
}

// elements returns the elements that the families of a Service report. The tables never take more.
func elements(r Result) int {
	sum := 0
	for i := range r.Families {
		f := &r.Families[i]
		table := ruleset.NewTable(ruleset.Config{Family: f.Family})
		table.Commit(time.Time{})
		for _, port := range f.Ports {
			table.Set(port)
		}
		var onNode []netip.Addr
		for _, e := range f.Endpoints {
			if e.OnNode {
				onNode = append(onNode, e.Address)
			}
		}
		table.SetHairpin(onNode)
		taken := 0
		for _, change := range table.Commit(time.Time{}).Transaction.Changes {
			taken += max(1, len(change.Elements))
		}
		if taken > f.Elements {
			return math.MaxInt
		}
		sum += f.Elements
	}
	return sum
}

// Half of the endpoints are left out first, then external IPs, node ports and addresses of load balancers, and further
// endpoints only if the cluster IP alone has too many.
func TestOrderOfOmissions(t *testing.T) {
	in := wide(1, 4, 10)
	balancer("203.0.113.1", "203.0.113.2")(in.Service)
	full := Service(in, allServices())
	of := func(addresses, endpoints int) int {
		return full.Elements - 8*ruleset.FrontCost(10, false, false) + addresses*ruleset.FrontCost(endpoints, false, false)
	}
	for _, test := range []struct {
		most      int
		fronts    []string
		endpoints int
	}{
		{of(8, 10), []string{"10.96.0.1", "192.0.2.1", "198.18.0.0", "198.18.0.1", "198.18.0.2", "198.18.0.3", "203.0.113.1", "203.0.113.2"}, 10},
		{of(8, 10) - 1, []string{"10.96.0.1", "192.0.2.1", "198.18.0.0", "198.18.0.1", "198.18.0.2", "198.18.0.3", "203.0.113.1", "203.0.113.2"}, 9},
		{of(8, 5), []string{"10.96.0.1", "192.0.2.1", "198.18.0.0", "198.18.0.1", "198.18.0.2", "198.18.0.3", "203.0.113.1", "203.0.113.2"}, 5},
		{of(8, 5) - 1, []string{"10.96.0.1", "192.0.2.1", "198.18.0.0", "198.18.0.1", "198.18.0.2", "203.0.113.1", "203.0.113.2"}, 6},
		{of(4, 5), []string{"10.96.0.1", "192.0.2.1", "203.0.113.1", "203.0.113.2"}, 5},
		{of(4, 5) - 1, []string{"10.96.0.1", "203.0.113.1", "203.0.113.2"}, 7},
		{of(2, 5), []string{"10.96.0.1", "203.0.113.1"}, 5},
		{of(2, 5) - 1, []string{"10.96.0.1"}, 10},
		{of(1, 9), []string{"10.96.0.1"}, 9},
		{of(1, 1), []string{"10.96.0.1"}, 1},
	} {
		in.MaxElements = test.most
		got := Service(in, allServices())
		if len(got.Families) != 1 || len(got.Families[0].Ports) != 1 {
			t.Fatalf("in %d: %+v", test.most, got)
		}
		var fronts []string
		port := got.Families[0].Ports[0]
		for _, f := range port.Fronts {
			fronts = append(fronts, f.Address.String())
		}
		if !slices.Equal(fronts, test.fronts) || len(port.Cluster) != test.endpoints {
			t.Errorf("in %d: %d endpoints at %v, want %d at %v", test.most, len(port.Cluster), fronts, test.endpoints, test.fronts)
		}
	}
	// A port without room for an endpoint is left out: it must not be refused.
	in.MaxElements = of(1, 1) - 1
	if got := Service(in, allServices()); len(got.Families) > 0 {
		t.Errorf("without room for one endpoint: %+v", got.Families)
	}
}

// A family reports local endpoints if it has one of the addresses of load balancers, whatever the other family has:
// both share one health port.
func TestHealthOfOmittedFamilies(t *testing.T) {
	own := "a1"
	in := wide(1, 0, 5)
	in.Slices[0].Endpoints[0].NodeName = &own
	addIPv6(&in, discoveryv1.Endpoint{Addresses: []string{"2001:db8:1::1"}, NodeName: &own}, discoveryv1.Endpoint{Addresses: []string{"2001:db8:1::2"}})
	outsideLocal(in.Service)
	balancers := []string{"203.0.113.1", "2001:db8:ffff::1"}
	balancer(balancers...)(in.Service)
	in.Service.Spec.HealthCheckNodePort = 31000
	seen := map[[2]int]bool{}
	for in.MaxElements = Service(in, allServices()).Elements; in.MaxElements > 0; in.MaxElements-- {
		got := Service(in, allServices())
		var counts [2]int
		for i, f := range got.Families {
			reached := slices.ContainsFunc(f.Ports[0].Fronts, func(e ruleset.FrontEnd) bool {
				return e.NodePort || slices.Contains(balancers, e.Address.String())
			})
			if reached != (f.Health.LocalEndpoints > 0) || reached != (f.Reached > 0) {
				t.Fatalf("in %d elements %v has %d local endpoints, reaches %d, and has an address of load balancers: %t",
					in.MaxElements, f.Family, f.Health.LocalEndpoints, f.Reached, reached)
			}
			counts[i] = f.Health.LocalEndpoints
		}
		seen[counts] = true
	}
	for _, one := range [][2]int{{1, 1}, {1, 0}, {0, 0}} {
		if !seen[one] {
			t.Errorf("it never happens that the families have %v local endpoints: %v", one, seen)
		}
	}
}

// A node whose total bound is reached, while others may have room, reports no local endpoints if it lacks an address of
// load balancers in either family.
func TestHealthOfAFullNode(t *testing.T) {
	own := "a1"
	in := wide(1, 1, 5)
	in.Slices[0].Endpoints[0].NodeName = &own
	addIPv6(&in, discoveryv1.Endpoint{Addresses: []string{"2001:db8:1::1"}, NodeName: &own})
	outsideLocal(in.Service)
	balancers := []string{"203.0.113.1", "203.0.113.2", "2001:db8:ffff::1"}
	balancer(balancers...)(in.Service)
	in.Service.Spec.HealthCheckNodePort = 31000
	in.NodeBound = true
	free := Service(in, allServices())
	reached := func(r Result) (n int) {
		for _, f := range r.Families {
			for _, end := range f.Ports[0].Fronts {
				if end.NodePort || slices.Contains(balancers, end.Address.String()) {
					n++
				}
			}
		}
		return n
	}
	seen := map[[2]bool]bool{} // whether some and all of these addresses are left
	for in.MaxElements = free.Elements; in.MaxElements > 0; in.MaxElements-- {
		got := Service(in, allServices())
		all := reached(got) == reached(free)
		for _, f := range got.Families {
			if all != (f.Health.LocalEndpoints == 1) || all != (f.Reached == 1) {
				t.Fatalf("in %d elements %v reports %d local endpoints and reaches %d, with %d of %d addresses",
					in.MaxElements, f.Family, f.Health.LocalEndpoints, f.Reached, reached(got), reached(free))
			}
		}
		seen[[2]bool{reached(got) > 0, all}] = true
	}
	if len(seen) != 3 {
		t.Errorf("there are only these cases: %v", seen)
	}
}

// Each node leaves out other endpoints, and few of them change when one is removed.
func TestOmittedEndpoints(t *testing.T) {
	in := wide(1, 0, 100)
	in.MaxElements = Service(in, allServices()).Elements - 40
	of := func(node string) []netip.AddrPort {
		o := allServices()
		o.Node.Name = node
		return Service(in, o).Families[0].Ports[0].Cluster
	}
	used := map[netip.AddrPort]bool{}
	for n := range 20 {
		all := of(fmt.Sprintf("node-%d", n))
		if len(all) != 60 {
			t.Fatalf("%d endpoints are used, want 60", len(all))
		}
		for _, one := range all {
			used[one] = true
		}
	}
	if len(used) != 100 {
		t.Errorf("20 nodes use %d of 100 endpoints", len(used))
	}
	before := of("a1")
	in.Slices[0].Endpoints = slices.Delete(in.Slices[0].Endpoints, 30, 31)
	after := of("a1")
	kept := 0
	for _, one := range after {
		if slices.Contains(before, one) {
			kept++
		}
	}
	if len(after) != 60 || kept < 59 {
		t.Errorf("of 60 endpoints, %d are still used after another was removed, and %d in all", kept, len(after))
	}
}

// A Service that is too large is measured without compiling it.
func TestTooLargeServicesCostLittle(t *testing.T) {
	for name, in := range map[string]Input{
		"many ports and addresses": wide(100, 2000, 6),
		"many ports and endpoints": wide(100, 0, 2000),
	} {
		in.MaxElements = 10_000
		var before, made, kept runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		got := Service(in, allServices())
		runtime.ReadMemStats(&made)
		runtime.GC()
		runtime.ReadMemStats(&kept)
		if got.Elements < 200_000 || len(got.Families) != 1 || len(got.Families[0].Ports) != 100 {
			t.Errorf("%s: it costs %d elements and has %d families", name, got.Elements, len(got.Families))
		}
		// Lists of endpoints are made for one port at a time.
		if grown := int64(kept.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
			t.Errorf("%s: %d KiB are kept", name, grown>>10)
		}
		if spent := made.TotalAlloc - before.TotalAlloc; len(in.Service.Spec.ExternalIPs) > 0 && spent > 4<<20 {
			t.Errorf("%s: %d KiB were allocated", name, spent>>10)
		}
		runtime.KeepAlive(got)
		runtime.KeepAlive(in)
	}
}

// One bound applies to both families together.
func TestBoundOfBothFamilies(t *testing.T) {
	in := wide(1, 50, 10)
	addIPv6(&in, discoveryv1.Endpoint{Addresses: []string{"2001:db8:1::1"}})
	in.Service.Spec.ExternalIPs = append(in.Service.Spec.ExternalIPs, "2001:db8:2::1")
	for _, test := range []struct{ less, four, six int }{
		{1, 51, 2},
		{5*51 + 1, 51, 1},
		{5*51 + 4 + 8, 50, 1},
	} {
		in.MaxElements = 0
		in.MaxElements = Service(in, allServices()).Elements - test.less
		got := Service(in, allServices())
		if len(got.Families) != 2 || got.Families[0].Elements+got.Families[1].Elements > in.MaxElements {
			t.Fatalf("%d families, want 2 within %d elements", len(got.Families), in.MaxElements)
		}
		if four, six := len(got.Families[0].Ports[0].Fronts), len(got.Families[1].Ports[0].Fronts); four != test.four || six != test.six {
			t.Errorf("%d less: %d addresses of IPv4 and %d of IPv6 remain, want %d and %d", test.less, four, six, test.four, test.six)
		}
		if len(got.Families[1].Ports[0].Cluster) != 1 {
			t.Error("IPv6 has no endpoint")
		}
	}
}
