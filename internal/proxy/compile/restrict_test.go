package compile

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// frontOf finds a front among those of a port.
func frontOf(ports []ruleset.ServicePort, name string, front ruleset.Front) (ruleset.FrontEnd, bool) {
	for i := range ports {
		for _, f := range ports[i].Fronts {
			if ports[i].Name == name && f.Front == front {
				return f, true
			}
		}
	}
	return ruleset.FrontEnd{}, false
}

// After any change, a restricted port has only fronts that the Service would get if it were compiled again, keeps all
// of these that it had, and keeps its rank.
func TestRestrictedPortsKeepAllowedFronts(t *testing.T) {
	names := []types.NamespacedName{{Namespace: "a", Name: "x"}, {Namespace: "b", Name: "y"}}
	ports := func(r Result) []ruleset.ServicePort {
		if len(r.Families) == 0 {
			return nil
		}
		return r.Families[0].Ports
	}
	rapid.Check(t, func(t *rapid.T) {
		c := &randomCluster{services: map[types.NamespacedName]*corev1.Service{}}
		b := NewAddressBook()
		change := func(name types.NamespacedName) {
			service := drawClaimant(t, name)
			service.Spec.Ports[0].Name = rapid.SampledFrom([]string{"http", "http", "other"}).Draw(t, "port name")
			service.Spec.Ports[0].Protocol = rapid.SampledFrom([]corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP}).Draw(t, "protocol")
			service.CreationTimestamp = metav1.NewTime(time.Unix(rapid.Int64Range(1, 2).Draw(t, "created"), 0))
			c.services[name] = service
			b.SetService(name, service)
		}
		options := Options{Node: testNodeA(), AllServices: true, Addresses: b}
		for _, name := range names {
			change(name)
		}
		before := c.compiled(b)
		for range rapid.IntRange(1, 3).Draw(t, "changes") {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				b.SetReserved(Reserved{Nodes: setOf(rapid.SampledFrom([]string{"", "192.0.2.1", "203.0.113.1"}).Draw(t, "nodes"))})
			case 1:
				options.Node.NodePortAddresses = addressList(rapid.SampledFrom([]string{"", "192.0.2.1", "192.0.2.2"}).Draw(t, "NodePort addresses"))
			default:
				change(rapid.SampledFrom(names).Draw(t, "name"))
			}
		}
		for name, was := range before {
			service := c.services[name]
			after := ports(Service(Input{Service: service}, options))
			for _, port := range ports(was) {
				fronts := len(port.Fronts)
				got := Restrict(service, options)(&port)
				if len(port.Fronts) != fronts {
					t.Fatal("the port itself was changed")
				}
				var left ruleset.ServicePort
				if got != nil {
					left = *got
				}
				for _, f := range left.Fronts {
					if _, has := frontOf(after, port.Name, f.Front); !has {
						t.Fatalf("%s keeps %s, though a new compilation does not grant it", port.Name, f)
					}
				}
				for _, f := range port.Fronts {
					as, has := frontOf(after, port.Name, f.Front)
					if has && as.Precedence() == f.Precedence() && !slices.ContainsFunc(left.Fronts, func(l ruleset.FrontEnd) bool { return l.Front == f.Front }) {
						t.Fatalf("%s loses %s, though a new compilation grants it", port.Name, f)
					}
				}
				if len(left.Fronts) > 0 && left.Rank != after[0].Rank {
					t.Fatalf("%s has the rank %s, want %s", port.Name, left.Rank, after[0].Rank)
				}
				if same := len(left.Fronts) == fronts && port.Rank == left.Rank; same != (got == &port) {
					t.Fatalf("%s is another port, and it is equal: %t", port.Name, same)
				}
			}
		}
	})
}
