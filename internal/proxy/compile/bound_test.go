package compile

import (
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"pgregory.net/rapid"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// wide is the Service with so many ports and external IPs, and a slice with so many
// endpoints.
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

func allServices() Options { return Options{Node: testNodeA(), AllServices: true} }

// What a Service is said to take is more than its ports do, and whatever the bound, what is
// compiled is within it.
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
			t.Fatalf("the ports take %d elements, the Service is said to take %d", taken, free.Elements)
		}
		in.MaxElements = rapid.IntRange(1, free.Elements+5).Draw(t, "bound")
		bound := Service(in, allServices())
		if bound.Elements != free.Elements {
			t.Fatalf("with a bound it is said to take %d elements, without one %d", bound.Elements, free.Elements)
		}
		if free.Elements <= in.MaxElements {
			if !reflect.DeepEqual(bound, free) {
				t.Fatalf("a bound of %d changes what is within it:\n%+v\n%+v", in.MaxElements, bound, free)
			}
			return
		}
		if taken := elements(bound); taken > in.MaxElements {
			t.Fatalf("%d elements are taken, allowed are %d", taken, in.MaxElements)
		}
	})
}

// elements are what the ports of a Service really take, with endpoints that may connect to
// themselves. What the families say that they take is never less.
func elements(r Result) int {
	sum := 0
	for i := range r.Families {
		f := &r.Families[i]
		taken := 0
		for j := range f.Ports {
			taken += f.Ports[j].Cost()
		}
		for _, e := range f.Endpoints {
			if e.OnNode {
				taken++
			}
		}
		if taken > f.Elements {
			return math.MaxInt
		}
		sum += f.Elements
	}
	return sum
}

// External IPs are left out before node ports, those before load balancers, and endpoints
// only where the cluster IP alone has too many.
func TestWhatIsLeftOut(t *testing.T) {
	in := wide(1, 4, 10)
	balancer("203.0.113.1", "203.0.113.2")(in.Service)
	full := Service(in, allServices())
	each := full.Elements - func() int {
		less := in
		less.Service = in.Service.DeepCopy()
		less.Service.Spec.ExternalIPs = less.Service.Spec.ExternalIPs[:3]
		return Service(less, allServices()).Elements
	}()
	for _, test := range []struct {
		less      int
		fronts    []string
		endpoints int
	}{
		{0, []string{"10.96.0.1", "192.0.2.1", "198.18.0.0", "198.18.0.1", "198.18.0.2", "198.18.0.3", "203.0.113.1", "203.0.113.2"}, 10},
		{1, []string{"10.96.0.1", "192.0.2.1", "198.18.0.0", "198.18.0.1", "198.18.0.2", "203.0.113.1", "203.0.113.2"}, 10},
		{4 * each, []string{"10.96.0.1", "192.0.2.1", "203.0.113.1", "203.0.113.2"}, 10},
		{4*each + 1, []string{"10.96.0.1", "203.0.113.1", "203.0.113.2"}, 10},
		{6*each + 1, []string{"10.96.0.1"}, 10},
		{7*each + 1, []string{"10.96.0.1"}, 9},
		{7*each + 9, []string{"10.96.0.1"}, 1},
	} {
		in.MaxElements = full.Elements - test.less
		got := Service(in, allServices())
		if len(got.Families) != 1 || len(got.Families[0].Ports) != 1 {
			t.Fatalf("%d less: %+v", test.less, got)
		}
		var fronts []string
		port := got.Families[0].Ports[0]
		for _, f := range port.Fronts {
			fronts = append(fronts, f.Address.String())
		}
		if !slices.Equal(fronts, test.fronts) || len(port.Cluster) != test.endpoints {
			t.Errorf("%d less: %d endpoints at %v, want %d at %v", test.less, len(port.Cluster), fronts, test.endpoints, test.fronts)
		}
	}
	// A port without room for an endpoint is left out: it must not be refused.
	in.MaxElements = 1
	if got := Service(in, allServices()); len(got.Families) > 0 {
		t.Errorf("in one element: %+v", got.Families)
	}
}

// Nodes leave out endpoints of their own, and few are others when one goes.
func TestEndpointsThatAreLeftOut(t *testing.T) {
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
		t.Errorf("of 60 endpoints %d are used still when another went, and %d in all", kept, len(after))
	}
}

// A Service that is too large is not made in memory to find that out.
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
			t.Errorf("%s: it is said to take %d elements, and %d families are made of it", name, got.Elements, len(got.Families))
		}
		// Lists of endpoints are made for one port at a time.
		if grown := int64(kept.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
			t.Errorf("%s: %d KiB are kept", name, grown>>10)
		}
		if spent := made.TotalAlloc - before.TotalAlloc; len(in.Service.Spec.ExternalIPs) > 0 && spent > 4<<20 {
			t.Errorf("%s: %d KiB were asked for", name, spent>>10)
		}
		runtime.KeepAlive(got)
		runtime.KeepAlive(in)
	}
}

// Both families are held to one bound together.
func TestBoundOfBothFamilies(t *testing.T) {
	in := wide(1, 50, 10)
	dualStack(in.Service)
	six := sliceOf("web-6", "", func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeIPv6 })
	six.Ports = in.Slices[0].Ports
	six.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"2001:db8:1::1"}}}
	in.Slices = append(in.Slices, six)
	in.Service.Spec.ExternalIPs = append(in.Service.Spec.ExternalIPs, "2001:db8:2::1")
	in.MaxElements = Service(in, allServices()).Elements - 20
	got := Service(in, allServices())
	if len(got.Families) != 2 || got.Families[0].Elements+got.Families[1].Elements > in.MaxElements {
		t.Fatalf("%d families, want 2 within %d elements", len(got.Families), in.MaxElements)
	}
	if four, six := len(got.Families[0].Ports[0].Fronts), len(got.Families[1].Ports[0].Fronts); four != 49 || six != 2 {
		t.Errorf("%d addresses of IPv4 and %d of IPv6 are left, want 49 and 2", four, six)
	}
	for _, f := range got.Families {
		if f.Family == ruleset.IPv6 && len(f.Ports[0].Cluster) != 1 {
			t.Error("IPv6 has no endpoint")
		}
	}
}
