package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// What the fields of strange objects are drawn from.
var (
	strangeIPs = rapid.SampledFrom([]string{
		"", "x", "10.96.0.1", "10.1.0.1", "010.1.0.2", "fd00::1", "::ffff:10.1.0.3", "fe80::1%eth0", "127.0.0.1", "::", "192.0.2.1", "999.1.1.1",
		"::1", "fe80::1", "ff02::1", "0.0.0.0", "127.9.9.9", "169.254.0.1", "224.0.0.1", "239.0.0.1", "255.255.255.255", "::ffff:127.0.0.1",
	})
	strangeRanges = rapid.SampledFrom([]string{
		"", "/", "10.0.0.1/8", " 192.0.2.1/32", "10.1.0.1/33", "0.0.0.0/0", "::/0", "fd00::1/64", "::ffff:10.0.0.0/104", "::ffff:10.0.0.0/8", "010.0.0.0/8",
	})
	strangeNames     = rapid.SampledFrom([]string{"", "http", "dns", "a", "a1", "*"})
	strangeNumbers   = rapid.SampledFrom([]int32{-1 << 31, -1, 0, 1, 80, 65535, 65536, 1<<31 - 1})
	strangeProtocols = rapid.SampledFrom([]corev1.Protocol{"", "TCP", "UDP", "SCTP", "ICMP", "tcp"})
	strangeFamilies  = rapid.SampledFrom([]corev1.IPFamily{"", "IPv4", "IPv6", "FQDN"})
	strangeKeys      = rapid.SampledFrom([]string{"", "*", "rack", "kubernetes.io/hostname", "topology.kubernetes.io/zone"})
)

// maybe is nothing, or what is drawn.
func maybe[V any](t *rapid.T, label string, from *rapid.Generator[V]) *V {
	if rapid.Bool().Draw(t, "no "+label) {
		return nil
	}
	return new(from.Draw(t, label))
}

func drawStrangeService(t *rapid.T) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	if name := maybe(t, "proxy name", rapid.SampledFrom([]string{"", "other", v1alpha1.ServiceProxyName})); name != nil {
		s.Labels = map[string]string{v1alpha1.LabelServiceProxyName: *name}
	}
	spec := &s.Spec
	spec.Type = rapid.SampledFrom([]corev1.ServiceType{"", "ClusterIP", "NodePort", "LoadBalancer"}).Draw(t, "type")
	spec.ClusterIP = rapid.SampledFrom([]string{"10.96.0.1", "10.96.0.1", "fd00::1", "x", "", "127.0.0.1"}).Draw(t, "cluster IP")
	spec.ClusterIPs = rapid.SliceOfN(strangeIPs, 0, 3).Draw(t, "cluster IPs")
	spec.IPFamilies = rapid.SliceOfN(strangeFamilies, 0, 3).Draw(t, "families")
	spec.ExternalIPs = rapid.SliceOfN(strangeIPs, 0, 3).Draw(t, "external IPs")
	spec.LoadBalancerSourceRanges = rapid.SliceOfN(strangeRanges, 0, 3).Draw(t, "ranges")
	spec.SessionAffinity = rapid.SampledFrom([]corev1.ServiceAffinity{"", "None", "ClientIP"}).Draw(t, "affinity")
	spec.SessionAffinityConfig = maybe(t, "affinity config", rapid.Custom(func(t *rapid.T) corev1.SessionAffinityConfig {
		return corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: maybe(t, "timeout", strangeNumbers)}}
	}))
	spec.ExternalTrafficPolicy = rapid.SampledFrom([]corev1.ServiceExternalTrafficPolicy{"", "Cluster", "Local", "x"}).Draw(t, "external policy")
	spec.InternalTrafficPolicy = maybe(t, "internal policy", rapid.SampledFrom([]corev1.ServiceInternalTrafficPolicy{"", "Cluster", "Local", "x"}))
	spec.HealthCheckNodePort = strangeNumbers.Draw(t, "health")
	for range rapid.IntRange(0, 3).Draw(t, "ports") {
		spec.Ports = append(spec.Ports, corev1.ServicePort{
			Name: strangeNames.Draw(t, "name"), Protocol: strangeProtocols.Draw(t, "protocol"),
			Port: strangeNumbers.Draw(t, "port"), NodePort: strangeNumbers.Draw(t, "node port"),
		})
	}
	for range rapid.IntRange(0, 2).Draw(t, "ingress") {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{
			IP: strangeIPs.Draw(t, "ingress"), IPMode: maybe(t, "mode", rapid.SampledFrom([]corev1.LoadBalancerIPMode{"", "VIP", "Proxy"})),
		})
	}
	return s
}

func drawStrangeSlice(t *rapid.T) *discoveryv1.EndpointSlice {
	s := sliceOf(strangeNames.Draw(t, "slice"), "")
	s.AddressType = discoveryv1.AddressType(strangeFamilies.Draw(t, "address type"))
	s.Ports = nil
	for range rapid.IntRange(0, 3).Draw(t, "ports") {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{
			Name: maybe(t, "name", strangeNames), Port: maybe(t, "number", strangeNumbers), Protocol: maybe(t, "protocol", strangeProtocols),
		})
	}
	for range rapid.IntRange(0, 4).Draw(t, "endpoints") {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  rapid.SliceOfN(strangeIPs, 0, 2).Draw(t, "addresses"),
			Conditions: discoveryv1.EndpointConditions{Ready: maybe(t, "ready", rapid.Bool()), Serving: maybe(t, "serving", rapid.Bool()), Terminating: maybe(t, "terminating", rapid.Bool())},
			NodeName:   maybe(t, "node", strangeNames), Zone: maybe(t, "zone", strangeNames),
			Hints: maybe(t, "hints", rapid.Custom(func(t *rapid.T) discoveryv1.EndpointHints {
				return discoveryv1.EndpointHints{ForZones: make([]discoveryv1.ForZone, rapid.IntRange(0, 1).Draw(t, "zones"))}
			})),
		})
	}
	return s
}

func drawStrangeGroup(t *rapid.T) *v1alpha1.EndpointGroup {
	g := groupOf(strangeNames.Draw(t, "group"), "")
	g.Labels = map[string]string{v1alpha1.LabelNotForPrefix + strangeNames.Draw(t, "not for"): ""}
	g.Spec.AddressType = strangeFamilies.Draw(t, "address type")
	g.Spec.Tiers = rapid.SliceOfN(strangeKeys, 0, 3).Draw(t, "tiers")
	g.Spec.AnyReady, g.Spec.LocalOnly = rapid.Bool().Draw(t, "any ready"), rapid.Bool().Draw(t, "local only")
	g.Spec.Ports = nil
	for range rapid.IntRange(0, 3).Draw(t, "ports") {
		g.Spec.Ports = append(g.Spec.Ports, v1alpha1.GroupPort{
			Name: strangeNames.Draw(t, "name"), Port: strangeNumbers.Draw(t, "number"), Protocol: strangeProtocols.Draw(t, "protocol"),
		})
	}
	for range rapid.IntRange(0, 2).Draw(t, "consumers") {
		g.Spec.Consumers = append(g.Spec.Consumers, v1alpha1.GroupConsumer{Zone: strangeNames.Draw(t, "consumer"), Weight: strangeNumbers.Draw(t, "weight")})
	}
	for range rapid.IntRange(0, 4).Draw(t, "endpoints") {
		g.Spec.Endpoints = append(g.Spec.Endpoints, v1alpha1.GroupEndpoint{
			Address: strangeIPs.Draw(t, "address"), Node: strangeNames.Draw(t, "node"), Zone: strangeNames.Draw(t, "zone"),
			NotReady: rapid.Bool().Draw(t, "not ready"), NotServing: rapid.Bool().Draw(t, "not serving"), Terminating: rapid.Bool().Draw(t, "terminating"),
			Domains: map[string]string{strangeKeys.Draw(t, "key"): strangeNames.Draw(t, "value")},
		})
	}
	return g
}

// TestStrangeObjects compiles what the API should never let in: rules can be made of what comes
// out all the same, and notes tell what of the Service is left out.
func TestStrangeObjects(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := Input{Service: drawStrangeService(t)}
		for range rapid.IntRange(0, 3).Draw(t, "slices") {
			in.Slices = append(in.Slices, drawStrangeSlice(t))
		}
		for range rapid.IntRange(0, 3).Draw(t, "groups") {
			in.Groups = append(in.Groups, drawStrangeGroup(t))
		}
		o := Options{AllServices: rapid.Bool().Draw(t, "all"), Node: Node{
			Name: strangeNames.Draw(t, "node"), Zone: strangeNames.Draw(t, "zone"), Addresses: []netip.Addr{{}},
			NodePortAddresses: slices.Concat([]netip.Addr{{}}, addressList("127.0.0.1 ::1 ::ffff:192.0.2.1 192.0.2.1 2001:db8::1 10.96.0.1")),
		}}
		r := Service(in, o)
		for _, f := range r.Families {
			checkFamily(t, f)
		}
		if len(r.Families) > 0 {
			checkNotes(t, &in.Service.Spec, r.Notes)
		}
	})
}

// checkNotes looks for fields that cannot be read and have no note.
func checkNotes(t *rapid.T, spec *corev1.ServiceSpec, notes []string) {
	var want []string
	for i := range spec.Ports {
		_, known := protocolOf(spec.Ports[i].Protocol)
		if _, ok := portOf(spec.Ports[i].Port); !ok || !known {
			want = append(want, fmt.Sprintf("spec.ports[%d]: ", i))
		}
	}
	for _, ip := range spec.ExternalIPs {
		if _, ok := parseAddress(ip); !ok && ip != "" {
			want = append(want, fmt.Sprintf("spec.externalIPs: %q is ", ip))
		}
	}
	for _, text := range spec.LoadBalancerSourceRanges {
		if _, ok := parsePrefix(text); !ok && text != "" {
			want = append(want, fmt.Sprintf("spec.loadBalancerSourceRanges: %q is ", text))
		}
	}
	for _, note := range want {
		if !slices.ContainsFunc(notes, func(have string) bool { return strings.HasPrefix(have, note) }) {
			t.Fatalf("no note begins with %q: %q", note, notes)
		}
	}
}
