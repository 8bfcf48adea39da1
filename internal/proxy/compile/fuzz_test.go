package compile

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// The rules of any Service and group lead only to endpoints of the group, never to special addresses, and to no more
// endpoints than the group has. Equal input makes equal rules.
func FuzzGroup(f *testing.F) {
	for _, spec := range []string{
		`{"addressType":"IPv4","anyReady":true,"ports":[{"name":"http","protocol":"TCP","port":8080}],"endpoints":[{"address":"10.1.0.1","zone":"a","node":"a1"},{"address":"10.1.0.2","zone":"b"}],"consumers":[{"zone":"a","weight":500}]}`,
		`{"addressType":"IPv4","ports":[{"name":"http","port":8080},{"name":"http","port":8081}],"endpoints":[{"address":"127.0.0.1"},{"address":"169.254.169.254"},{"address":"010.1.0.3"}]}`,
		`{"addressType":"IPv4","localOnly":true,"tiers":["kubernetes.io/hostname","*"],"ports":[{"port":-1},{"port":70000}],"endpoints":[{"address":"fd00::1"},{"address":"x"}]}`,
		`{"addressType":"IPv6","ports":[{"name":"http","protocol":"ICMP","port":80}],"endpoints":[{"address":"fd00::1","domains":{"rack":"r"}}],"tiers":["rack"]}`,
	} {
		f.Add(spec, "10.96.0.1")
	}
	f.Fuzz(func(t *testing.T, spec, clusterIP string) {
		group := groupOf("g", "")
		group.Spec = v1alpha1.EndpointGroupSpec{}
		if json.Unmarshal([]byte(spec), &group.Spec) != nil {
			return
		}
		group.Spec.Service = "web"
		service := testService(func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = clusterIP, []string{clusterIP}
		})
		in := Input{Service: service, Groups: []*v1alpha1.EndpointGroup{group}}
		before := group.DeepCopy()
		result := Service(in, Options{Node: testNodeA()})
		named := map[netip.Addr]bool{}
		for i := range group.Spec.Endpoints {
			if a, ok := parseAddress(group.Spec.Endpoints[i].Address); ok {
				named[a] = true
			}
		}
		for _, family := range result.Families {
			checkFamily(t, family)
			for i := range family.Ports {
				p := &family.Ports[i]
				for _, w := range p.Weights {
					if w < 1 || w > ruleset.MostWeight {
						t.Fatalf("a weight is %d", w)
					}
				}
				for _, pool := range [][]netip.AddrPort{p.Cluster, p.Local, p.Known.Serving, p.Known.Silent} {
					if len(pool) > len(named)*max(1, len(group.Spec.Ports)) {
						t.Fatalf("%d addresses of %d", len(pool), len(named))
					}
					for _, at := range pool {
						if !named[at.Addr()] || specialKind(at.Addr()) != "" || at.Port() == 0 {
							t.Fatalf("the rules lead to %s", at)
						}
					}
				}
			}
		}
		if !reflect.DeepEqual(group, before) {
			t.Fatal("the group is changed")
		}
		if again := Service(in, Options{Node: testNodeA()}); !slices.Equal(lines(again), lines(result)) {
			t.Fatalf("%q, then %q", lines(result), lines(again))
		}
	})
}

// checkFamily looks for what rules cannot be made of.
func checkFamily(t rapid.TB, f Family) {
	ofFamily := func(a netip.Addr) bool {
		return a.IsValid() && specialKind(a) == "" && a.Is4() == (f.Family == ruleset.IPv4) && !a.Is4In6() && a.Zone() == ""
	}
	if len(f.Ports) == 0 || f.Health != nil && f.Health.Port == 0 {
		t.Fatalf("nothing to do, or no health check port: %+v", f)
	}
	var names []string
	for _, p := range f.Ports {
		if slices.Contains(names, p.Name) || p.Affinity < 0 {
			t.Fatalf("%s exists twice, or remembers clients for %s", p.Name, p.Affinity)
		}
		names = append(names, p.Name)
		clusterIPs := 0
		for i, front := range p.Fronts {
			if !ofFamily(front.Address) || front.Port == 0 || front.Protocol == 0 || i > 0 && p.Fronts[i-1].Compare(front.Front) >= 0 {
				t.Fatalf("%s: front %v", p.Name, front)
			}
			if front.ClusterIP {
				clusterIPs++
			}
			for _, source := range front.Sources {
				if !ofFamily(source.Addr()) || source != source.Masked() || source.Bits() <= 0 {
					t.Fatalf("%s: source %s", p.Name, source)
				}
			}
		}
		if clusterIPs != 1 {
			t.Fatalf("%s: %d cluster IPs", p.Name, clusterIPs)
		}
		for _, target := range slices.Concat(p.Cluster, p.Local) {
			if !ofFamily(target.Addr()) || target.Port() == 0 {
				t.Fatalf("%s: target %s", p.Name, target)
			}
		}
		if p.Weights != nil && len(p.Weights) != len(p.Cluster) {
			t.Fatalf("%s: %d weights of %d endpoints", p.Name, len(p.Weights), len(p.Cluster))
		}
	}
}
