package compile

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// TestTableOfKubeProxy covers the choice of endpoints. By default the expected result begins with the first two lines
// of most Services.
func TestServiceOfSlices(t *testing.T) {
	proxyMode, vipMode, otherMode := corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPMode("Other")
	for _, test := range []struct {
		name      string
		service   *corev1.Service
		endpoints string
		want      []string
	}{
		{
			name: "cluster IP", service: testService(), endpoints: "1@a1 2@b1",
			want: []string{"  cluster 1 2"},
		},
		{
			name: "no endpoints", service: testService(),
		},
		{
			name: "node port", service: testService(nodePort), endpoints: "1@a1",
			want: []string{"  192.0.2.1:30080/TCP -> cluster masqueraded, else reject", "  cluster 1"},
		},
		{
			name: "external IPs", service: testService(externalIPs("203.0.113.5", "2001:db8::5", "203.0.113.5", "", "x")), endpoints: "1@a1",
			want: []string{"  203.0.113.5:80/TCP -> cluster masqueraded, else reject", "  cluster 1"},
		},
		{
			name: "load balancer", service: testService(balancer("198.51.100.1", "2001:db8::9", ""), func(s *corev1.Service) {
				s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress,
					corev1.LoadBalancerIngress{IP: "198.51.100.2", IPMode: &proxyMode},
					corev1.LoadBalancerIngress{IP: "198.51.100.3", IPMode: &vipMode},
					corev1.LoadBalancerIngress{IP: "198.51.100.4", IPMode: &otherMode},
					corev1.LoadBalancerIngress{Hostname: "example.com"},
					corev1.LoadBalancerIngress{IP: "example.com"})
			}), endpoints: "1@a1",
			want: []string{
				"  192.0.2.1:30080/TCP -> cluster masqueraded, else reject",
				"  198.51.100.1:80/TCP -> cluster masqueraded, else reject",
				"  198.51.100.3:80/TCP -> cluster masqueraded, else reject",
				"  cluster 1",
			},
		},
		{
			name:      "sources, for load balancers only",
			service:   testService(balancer("198.51.100.1"), externalIPs("203.0.113.5"), ranges(" 10.0.0.9/8 ", "2001:db8::/32", "010.0.0.0/8", "::ffff:172.16.0.9/108", "x", "")),
			endpoints: "1@a1",
			want: []string{
				"  192.0.2.1:30080/TCP -> cluster masqueraded, else reject",
				"  198.51.100.1:80/TCP -> cluster masqueraded, else reject, from 10.0.0.0/8 172.16.0.0/12",
				"  203.0.113.5:80/TCP -> cluster masqueraded, else reject",
				"  cluster 1",
			},
		},
		{
			name:    "sources with the node",
			service: testService(balancer("198.51.100.1", "198.51.100.2"), ranges("192.0.2.0/24")), endpoints: "1@a1",
			want: []string{
				"  192.0.2.1:30080/TCP -> cluster masqueraded, else reject",
				"  198.51.100.1:80/TCP -> cluster masqueraded, else reject, from 192.0.2.0/24 198.51.100.1/32 198.51.100.2/32",
				"  198.51.100.2:80/TCP -> cluster masqueraded, else reject, from 192.0.2.0/24 198.51.100.1/32 198.51.100.2/32",
				"  cluster 1",
			},
		},
		{
			name:    "all sources",
			service: testService(balancer("198.51.100.1"), ranges("10.0.0.0/8", "0.0.0.0/0")), endpoints: "1@a1",
			want: []string{"  192.0.2.1:30080/TCP -> cluster masqueraded, else reject", "  198.51.100.1:80/TCP -> cluster masqueraded, else reject", "  cluster 1"},
		},
		{
			name:    "sources of another family",
			service: testService(balancer("198.51.100.1"), ranges("2001:db8::/32")), endpoints: "1@a1",
			want: []string{
				"  192.0.2.1:30080/TCP -> cluster masqueraded, else reject",
				"  198.51.100.1:80/TCP -> cluster masqueraded, else reject",
				"  cluster 1",
				"note: spec.loadBalancerSourceRanges: no range is of family IPv4, so all IPv4 clients may connect",
			},
		},
		{
			name:    "invalid sources admit no client",
			service: testService(balancer("198.51.100.1"), ranges("x", "192.0.2.0/33")), endpoints: "1@a1",
			want: []string{
				"  192.0.2.1:30080/TCP -> cluster masqueraded, else reject",
				"  198.51.100.1:80/TCP -> cluster masqueraded, else reject, from",
				"  cluster 1",
				"note: spec.loadBalancerSourceRanges: no readable range is of family IPv4, so no IPv4 client may connect",
			},
		},
		{
			name:    "an invalid source, and sources of another family, admit no client",
			service: testService(balancer("198.51.100.1"), ranges("192.0.2.0/33", "fd00::/8")), endpoints: "1@a1",
			want: []string{
				"  192.0.2.1:30080/TCP -> cluster masqueraded, else reject",
				"  198.51.100.1:80/TCP -> cluster masqueraded, else reject, from",
				"  cluster 1",
				"note: spec.loadBalancerSourceRanges: no readable range is of family IPv4, so no IPv4 client may connect",
			},
		},
		{
			name: "the annotation of sources does not count, as in kube-proxy",
			service: testService(balancer("198.51.100.1"), func(s *corev1.Service) {
				s.Annotations = map[string]string{corev1.AnnotationLoadBalancerSourceRangesKey: "10.0.0.0/8"}
			}), endpoints: "1@a1",
			want: []string{"  192.0.2.1:30080/TCP -> cluster masqueraded, else reject", "  198.51.100.1:80/TCP -> cluster masqueraded, else reject", "  cluster 1"},
		},
		{
			name:    "an address twice",
			service: testService(balancer("198.51.100.1"), externalIPs("198.51.100.1"), ranges("10.0.0.0/8")), endpoints: "1@a1",
			want: []string{"  192.0.2.1:30080/TCP -> cluster masqueraded, else reject", "  198.51.100.1:80/TCP -> cluster masqueraded, else reject, from 10.0.0.0/8", "  cluster 1"},
		},
		{
			name: "affinity", service: testService(func(s *corev1.Service) {
				s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
				s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(60))}}
			}), endpoints: "1@a1",
			want: []string{"shop/web:http sticky 1m0s", "  10.96.0.1:80/TCP cluster-ip -> cluster, else reject", "  cluster 1"},
		},
		{
			name: "affinity without a time", service: testService(func(s *corev1.Service) {
				s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			}), endpoints: "1@a1",
			want: []string{"shop/web:http sticky 3h0m0s", "  10.96.0.1:80/TCP cluster-ip -> cluster, else reject", "  cluster 1"},
		},
		{
			name: "internal local", service: testService(insideLocal, nodePort), endpoints: "1@a1 2@b1",
			want: []string{"shop/web:http", "  10.96.0.1:80/TCP cluster-ip -> local, else drop", "  192.0.2.1:30080/TCP -> cluster masqueraded, else reject", "  cluster 1 2", "  local 1"},
		},
		{
			name: "external local", service: testService(balancer("198.51.100.1"), outsideLocal, func(s *corev1.Service) {
				s.Spec.HealthCheckNodePort = 32000
			}), endpoints: "1@a1 2@b1 3@a1- 4@a1!",
			want: []string{"  192.0.2.1:30080/TCP -> split, else drop from outside", "  198.51.100.1:80/TCP -> split, else drop from outside", "  cluster 1 2", "  local 1", "health 32000: 1"},
		},
		{
			name: "external local with what terminates here", service: testService(balancer("198.51.100.1"), outsideLocal, func(s *corev1.Service) {
				s.Spec.HealthCheckNodePort = 32000
			}), endpoints: "1@a1- 2@b1",
			want: []string{"  192.0.2.1:30080/TCP -> split, else drop from outside", "  198.51.100.1:80/TCP -> split, else drop from outside", "  cluster 2", "  local 1", "health 32000: 0"},
		},
		{
			name: "external local without endpoints", service: testService(balancer(), outsideLocal),
			want: []string{"  192.0.2.1:30080/TCP -> split, else reject"},
		},
		{
			name: "external local of node ports asks for no health", service: testService(nodePort, outsideLocal, func(s *corev1.Service) {
				s.Spec.HealthCheckNodePort = 32000
			}), endpoints: "1@b1",
			want: []string{"  192.0.2.1:30080/TCP -> split, else drop from outside", "  cluster 1"},
		},
		{
			name: "external local means nothing within the cluster", service: testService(outsideLocal), endpoints: "1@b1",
			want: []string{"  cluster 1"},
		},
		{
			name: "external local with external IPs", service: testService(outsideLocal, externalIPs("203.0.113.5")), endpoints: "1@b1",
			want: []string{"  203.0.113.5:80/TCP -> split, else drop from outside", "  cluster 1"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := Input{Service: test.service, Slices: []*discoveryv1.EndpointSlice{sliceOf("s", test.endpoints)}}
			want := test.want
			if len(want) == 0 || !strings.HasPrefix(want[0], "shop/web:http") {
				want = slices.Concat([]string{"shop/web:http", clusterFront}, want)
			}
			expect(t, Service(in, Options{Node: testNodeA(), AllServices: true}), want...)
		})
	}
}

func TestUnservedServices(t *testing.T) {
	for _, test := range []struct {
		name    string
		service *corev1.Service
		notes   int
	}{
		{name: "gone"},
		{name: "headless", service: testService(func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
		})},
		{name: "without an address yet", service: testService(func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil
		})},
		{name: "an external name", service: testService(func(s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeExternalName
		})},
		{name: "another proxy's", service: testService(func(s *corev1.Service) {
			s.Labels[v1alpha1.LabelServiceProxyName] = "other"
		})},
		{name: "an empty proxy name", service: testService(func(s *corev1.Service) {
			s.Labels[v1alpha1.LabelServiceProxyName] = ""
		})},
		{name: "without ports", service: testService(func(s *corev1.Service) {
			s.Spec.Ports = nil
		})},
		{name: "without an address of its family", service: testService(func(s *corev1.Service) {
			s.Spec.ClusterIPs = nil
		})},
		{name: "with an address of another family", notes: 1, service: testService(func(s *corev1.Service) {
			s.Spec.ClusterIPs = []string{"fd00::1"}
		})},
		{name: "with an address that is none", notes: 1, service: testService(func(s *corev1.Service) {
			s.Spec.IPFamilies, s.Spec.ClusterIP, s.Spec.ClusterIPs = nil, "x", nil
		})},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := Input{
				Service: test.service,
				Groups:  []*v1alpha1.EndpointGroup{groupOf("g", "1@a1 -> a")},
				Slices:  []*discoveryv1.EndpointSlice{sliceOf("s", "1@a1")},
			}
			for _, all := range []bool{false, true} {
				r := Service(in, Options{Node: testNodeA(), AllServices: all})
				if len(r.Families) > 0 || len(r.Notes) < test.notes || test.notes == 0 && len(r.Notes) > 0 {
					t.Errorf("all Services %t: got\n%s", all, strings.Join(lines(r), "\n"))
				}
			}
		})
	}
}

const notSpecial = " that is not unspecified, loopback, link-local, multicast or broadcast"

func TestDualStack(t *testing.T) {
	service := testService(dualStack, balancer("198.51.100.1", "2001:db8::9"), outsideLocal, externalIPs("2001:db8::5"),
		ranges("10.0.0.0/8", "2001:db8::/64"), func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 32000 })
	six := sliceOf("six", "fd01::1@a1 fd01::2@b1 ::ffff:10.1.0.9@a1 10.1.0.8@a1 fe80::1", func(s *discoveryv1.EndpointSlice) {
		s.AddressType = discoveryv1.AddressTypeIPv6
		s.Endpoints[4].Addresses[0] += "%eth0"
	})
	names := sliceOf("names", "1@a1", func(s *discoveryv1.EndpointSlice) {
		s.AddressType = discoveryv1.AddressTypeFQDN
	})
	in := Input{Service: service, Slices: []*discoveryv1.EndpointSlice{six, sliceOf("four", "1@a1 2@a1 3@b1 fd01::3@a1"), names}}
	r := Service(in, Options{Node: testNodeA(), AllServices: true})
	expect(t, r,
		"shop/web:http",
		"  10.96.0.1:80/TCP cluster-ip -> cluster, else reject",
		"  192.0.2.1:30080/TCP -> split, else drop from outside",
		"  198.51.100.1:80/TCP -> split, else drop from outside, from 10.0.0.0/8",
		"  cluster 1 2 3",
		"  local 1 2",
		"health 32000: 2",
		"shop/web:http",
		"  [2001:db8::1]:30080/TCP -> split, else drop from outside",
		"  [2001:db8::5]:80/TCP -> split, else drop from outside",
		"  [2001:db8::9]:80/TCP -> split, else drop from outside, from 2001:db8::/64 2001:db8::9/128",
		"  [fd00::1]:80/TCP cluster-ip -> cluster, else reject",
		"  cluster [fd01::1]:8080 [fd01::2]:8080",
		"  local [fd01::1]:8080",
		"health 32000: 1",
		`note: EndpointSlice four: endpoints ignored: 1, the first "fd01::3"; each needs an address of family IPv4`+notSpecial,
		`note: EndpointSlice six: endpoints ignored: 3, the first "::ffff:10.1.0.9"; each needs an address of family IPv6`+notSpecial)
}

func TestRank(t *testing.T) {
	service := testService(func(s *corev1.Service) {
		s.CreationTimestamp = metav1.NewTime(time.Date(2026, 3, 4, 5, 6, 7, 0, time.FixedZone("east", 3600)))
	})
	r := Service(Input{Service: service}, Options{Node: testNodeA(), AllServices: true})
	if got, want := r.Families[0].Ports[0].Rank, "2026-03-04T04:06:07Z shop/web"; got != want {
		t.Errorf("got rank %q, want %q", got, want)
	}
}

func TestPorts(t *testing.T) {
	service := testService(nodePort, func(s *corev1.Service) {
		s.Spec.Ports = append(s.Spec.Ports,
			corev1.ServicePort{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 80, NodePort: 30080},
			corev1.ServicePort{Name: "sctp", Protocol: corev1.ProtocolSCTP, Port: 65535},
			corev1.ServicePort{Name: "plain", Port: 81},
			corev1.ServicePort{Name: "node", Port: 82})
	})
	udp, sctp, icmp := corev1.ProtocolUDP, corev1.ProtocolSCTP, corev1.Protocol("ICMP")
	slice := sliceOf("s", "1@a1", func(s *discoveryv1.EndpointSlice) {
		s.Ports = append(s.Ports,
			slicePortOf("dns", 53), // of TCP, as the Service's is not
			discoveryv1.EndpointPort{Name: new("dns"), Protocol: &udp, Port: new(int32(5353))},
			discoveryv1.EndpointPort{Name: new("sctp"), Protocol: &sctp, Port: new(int32(9))},
			discoveryv1.EndpointPort{Name: new("plain"), Port: new(int32(8081))},
			discoveryv1.EndpointPort{Port: new(int32(1))},
			discoveryv1.EndpointPort{Name: new("node")},
			discoveryv1.EndpointPort{Name: new("node"), Port: new(int32(0))},
			discoveryv1.EndpointPort{Name: new("node"), Port: new(int32(70000))},
			discoveryv1.EndpointPort{Name: new("node"), Port: new(int32(1)), Protocol: &icmp})
	})
	expect(t, Service(Input{Service: service, Slices: []*discoveryv1.EndpointSlice{slice}}, Options{Node: testNodeA(), AllServices: true}),
		"shop/web:http",
		"  10.96.0.1:80/TCP cluster-ip -> cluster, else reject",
		"  192.0.2.1:30080/TCP -> cluster masqueraded, else reject",
		"  cluster 1",
		"shop/web:dns",
		"  10.96.0.1:80/UDP cluster-ip -> cluster, else reject",
		"  192.0.2.1:30080/UDP -> cluster masqueraded, else reject",
		"  cluster 1:5353",
		"shop/web:sctp",
		"  10.96.0.1:65535/SCTP cluster-ip -> cluster, else reject",
		"  cluster 1:9",
		"shop/web:plain",
		"  10.96.0.1:81/TCP cluster-ip -> cluster, else reject",
		"  cluster 1:8081",
		"shop/web:node",
		"  10.96.0.1:82/TCP cluster-ip -> cluster, else reject")
}

func TestOverlappingSlices(t *testing.T) {
	odd := sliceOf("odd", "5@a1", func(s *discoveryv1.EndpointSlice) { s.Ports = []discoveryv1.EndpointPort{slicePortOf("http", 9090)} })
	in := Input{Service: testService(insideLocal, nodePort), Slices: []*discoveryv1.EndpointSlice{
		// 1 is being moved, 2 is a new pod's address that an old one still has, 3 is not
		// ready in one of them, 4 terminates twice, 9 terminates ready and is new not ready.
		sliceOf("one", "1@a1 2@a1- 3@a1 4@b1- 9@a1", func(s *discoveryv1.EndpointSlice) { s.Endpoints[4].Conditions.Terminating = new(true) }),
		sliceOf("two", "1@a1 2@b1 3@a1! 4@b1~ 9@b1!"),
		// An address with two numbers is two endpoints.
		sliceOf("three", "5@a1"), odd,
		// These are not the Service's.
		sliceOf("other", "6@a1", func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelServiceName] = "other" }),
		sliceOf("foreign", "7@a1", func(s *discoveryv1.EndpointSlice) { s.Namespace = "foreign" }),
		sliceOf("headless", "8@a1", func(s *discoveryv1.EndpointSlice) { s.Labels[corev1.IsHeadlessService] = "" }),
	}}
	for range 2 {
		r := Service(in, Options{Node: testNodeA(), AllServices: true})
		expect(t, r,
			"shop/web:http",
			"  10.96.0.1:80/TCP cluster-ip -> local, else drop",
			"  192.0.2.1:30080/TCP -> cluster masqueraded, else reject",
			"  cluster 1 2 3 5:9090 5",
			"  local 1 3 5:9090 5")
		if got := endpointText(r.Families[0].Endpoints); got != "10.1.0.1=a* 10.1.0.2=b 10.1.0.3=a* 10.1.0.4=b 10.1.0.5=a* 10.1.0.9=b" {
			t.Errorf("got endpoints %s", got)
		}
		slices.Reverse(in.Slices)
	}
}

// endpointText shows where endpoints are, with a star for those on the node.
func endpointText(list Endpoints) string {
	var words []string
	for _, e := range list {
		word := e.Address.String() + "=" + e.Zone
		if e.OnNode {
			word += "*"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// Special addresses are ignored as addresses of Services and of endpoints.
func TestSpecialAddresses(t *testing.T) {
	for kind, addresses := range map[string]string{
		"unspecified": "0.0.0.0 000.0.0.0 ::ffff:0.0.0.0 ::", "loopback": "127.0.0.1 127.255.255.254 ::ffff:127.0.0.1 ::1",
		"link-local": "169.254.0.1 169.254.169.254 fe80::1 febf::1", "multicast": "224.0.0.1 239.255.255.255 ff02::1 ff0e::1", "broadcast": "255.255.255.255",
		"": "10.0.0.1 100.64.0.1 223.255.255.255 240.0.0.1 169.253.1.1 fd00::1 2001:db8::1 fec0::1",
	} {
		for text := range strings.FieldsSeq(addresses) {
			if address, ok := parseAddress(text); !ok || specialKind(address) != kind {
				t.Errorf("%s is %q, want %q", text, specialKind(address), kind)
			}
		}
	}
	const loopback = "127.0.0.1"
	in := Input{
		Service: testService(dualStack, func(s *corev1.Service) { s.Spec.ClusterIPs[0] = loopback }),
		Slices: []*discoveryv1.EndpointSlice{sliceOf("s", "fd01::1@a1 ::1@a1", func(s *discoveryv1.EndpointSlice) {
			s.AddressType = discoveryv1.AddressTypeIPv6
		})},
	}
	expect(t, Service(in, Options{Node: testNodeA(), AllServices: true}),
		"shop/web:http",
		"  [fd00::1]:80/TCP cluster-ip -> cluster, else reject",
		"  cluster [fd01::1]:8080",
		`note: spec.clusterIPs: "127.0.0.1" is loopback: the Service has no address of the family`,
		`note: EndpointSlice s: endpoints ignored: 1, the first "::1"; each needs an address of family IPv6`+notSpecial)
}
