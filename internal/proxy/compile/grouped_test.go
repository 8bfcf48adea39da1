package compile

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

const clusterFront = "  10.96.0.1:80/TCP cluster-ip -> cluster, else reject"

// TestGroupsOfCluster looks at traffic that may go anywhere of the node a1 in the zone a
// and the rack r1.
func TestGroupsOfCluster(t *testing.T) {
	for _, test := range []struct {
		name   string
		groups []string
		node   func(*Node)
		want   []string
	}{
		{name: "all", groups: []string{"1@a1 2@b1 -> a b", "3@b1 -> a b"}, want: []string{"  cluster 1 2 3"}},
		{name: "another zone's", groups: []string{"1@a1 -> a not b", "2@b1 -> b not a"}, want: []string{"  cluster 1"}},
		{name: "given away", groups: []string{"1@a1 -> a", "2@a1 -> b local", "3@a2 -> b local"}, want: []string{"  cluster 1"}},
		{name: "local only, and the zone is named", groups: []string{"1@a1 2@b1 -> a local"}, want: []string{"  cluster 1 2"}},
		{name: "local only, for the sake of another zone", groups: []string{"1@a1 -> a", "2@b1 -> c local"}, want: []string{"  cluster 1 2"}},
		{name: "a zone that no group names", groups: []string{"1@b1 -> b", "2@c1 -> c*300"}, want: []string{"  cluster 1 2"}},
		{
			name: "a node without a zone", node: func(n *Node) { n.Zone = "" },
			groups: []string{"1@a1 -> a*500 not b", "2@b1 -> b*250 not a", "3@a1 -> b local"},
			want:   []string{"  cluster 1 2 3"},
		},
		{
			name: "nobody's zone", node: func(n *Node) { n.Zone = "" },
			groups: []string{"1 -> b local"}, want: []string{"  cluster 1"},
		},
		{name: "twice", groups: []string{"1@a1 2@a1 -> a", "1@a1 -> b"}, want: []string{"  cluster 1 2"}},
		{
			name:   "twice, and used by one group only",
			groups: []string{"1@a2 -> a", "1@a2 2@a2 -> b local"}, want: []string{"  cluster 1"},
		},
		{name: "another pod's address before", groups: []string{"1@a2- 2@a1 -> a", "1@b1 -> a"}, want: []string{"  cluster 1 2"}},
		{name: "another pod's address, which is not the zone's", groups: []string{"1@a2- 2@a1 -> a", "1@b1 -> b not a"}, want: []string{"  cluster 2"}},
		{
			name:   "another pod's address, which was nearer",
			groups: []string{"1@a1- 2@a2 -> a tiers kubernetes.io/hostname,*", "1@b1 -> a tiers kubernetes.io/hostname,*"},
			want:   []string{"  cluster 1 2"},
		},
		{name: "not ready", groups: []string{"1@a1 2@a1! 3@a1- 4@a1~ -> a"}, want: []string{"  cluster 1"}},
		{name: "none ready", groups: []string{"1@b1- 2@a1! 3@a1- 4@a1~ -> a none-ready"}, want: []string{"  cluster 1 3"}},
		{name: "none ready that is seen", groups: []string{"1@a1- 2@a1! -> a"}, want: []string{"  cluster 1"}},
		{name: "none ready, says one group already", groups: []string{"1@a1- -> a", "2@b1- -> a none-ready"}, want: []string{"  cluster 1 2"}},
		{name: "none ready, says one group still", groups: []string{"1@a1- -> a none-ready", "2@b1 -> b local"}, want: []string{"  cluster 2"}},
		{name: "none ready that the zone uses", groups: []string{"1@a1- 2@a2! -> a", "3@a1 -> b local"}, want: []string{"  cluster 1"}},
		{name: "none ready in hard tiers", groups: []string{"1@a1- 2@a2 3@b1- -> a tiers kubernetes.io/hostname"}, want: []string{"  cluster 1"}},
		{name: "none ready in the nearest of soft tiers", groups: []string{"1@a1- 2@a2 -> a tiers kubernetes.io/hostname,*"}, want: []string{"  cluster 2"}},
		{name: "an empty group", groups: []string{"-> a"}, want: nil},
		{name: "tiers: the node", groups: []string{"1@a1 2@a2 3@b1 -> a tiers kubernetes.io/hostname,*"}, want: []string{"  cluster 1"}},
		{
			name:   "tiers: the node would overload its own",
			groups: []string{"1@a1%kubernetes.io/hostname= 2@a2 3@b1 -> a tiers kubernetes.io/hostname,topology.kubernetes.io/zone,*"},
			want:   []string{"  cluster 1 2"},
		},
		{
			name:   "tiers: the rack would overload its own, and the node would not",
			groups: []string{"1@a1%rack= 2@a2%rack= 3@a3 -> a tiers kubernetes.io/hostname,rack,*", "4@a2%rack= -> a tiers rack,*"},
			want:   []string{"  cluster 1 4"},
		},
		{name: "tiers: not the node", groups: []string{"1@a1! 2@a2 3@b1 -> a tiers kubernetes.io/hostname,*"}, want: []string{"  cluster 2 3"}},
		{
			name: "tiers: the node by its label", node: func(n *Node) { n.Labels["kubernetes.io/hostname"] = "host" },
			groups: []string{"1@a3%kubernetes.io/hostname=host 2@a2 3@a4%kubernetes.io/hostname=a1 -> a tiers kubernetes.io/hostname"},
			want:   []string{"  cluster 1"},
		},
		{
			name: "tiers: a node by the name of another", node: func(n *Node) { n.Labels["kubernetes.io/hostname"] = "host" },
			groups: []string{"1@host%kubernetes.io/hostname=other 2@host -> a tiers kubernetes.io/hostname"},
			want:   []string{"  cluster 2"},
		},
		{
			name: "tiers: a node without the label", node: func(n *Node) { delete(n.Labels, "kubernetes.io/hostname") },
			groups: []string{"1@a1 2@a2 3@a3%kubernetes.io/hostname=a1 -> a tiers kubernetes.io/hostname"},
			want:   []string{"  cluster 1 3"},
		},
		{
			name:   "tiers: the zone",
			groups: []string{"1@a2 2@b1 3@a3 -> a tiers kubernetes.io/hostname,topology.kubernetes.io/zone,*"},
			want:   []string{"  cluster 1 3"},
		},
		{
			name:   "tiers: a rack",
			groups: []string{"1@b1%rack=r1 2@a2%rack=r2 3@b2%rack=r1 4@a3 -> a tiers rack,topology.kubernetes.io/zone,*"},
			want:   []string{"  cluster 1 3"},
		},
		{
			name:   "tiers: the node is in its rack, whatever the group knows",
			groups: []string{"1@a1%rack=r2 2@a2%rack=r2 -> a tiers rack"},
			want:   []string{"  cluster 1"},
		},
		{
			name:   "tiers: no value in common is none",
			node:   func(n *Node) { delete(n.Labels, "rack") },
			groups: []string{"1@a2%rack= 2@a2 -> a tiers rack"},
			want:   []string{"  unreachable"},
		},
		{name: "hard tiers with nothing near", groups: []string{"1@b1 -> a tiers topology.kubernetes.io/zone"}, want: []string{"  unreachable"}},
		{name: "hard tiers without a zone", node: func(n *Node) { n.Zone = "" }, groups: []string{"1@a1 -> a tiers topology.kubernetes.io/zone"}, want: []string{"  unreachable"}},
		{name: "hard tiers with nothing anywhere", groups: []string{"1@b1! -> a tiers topology.kubernetes.io/zone none-ready"}, want: nil},
		{name: "hard tiers, an empty group for those that have nothing", groups: []string{"-> a not b tiers topology.kubernetes.io/zone"}, want: []string{"  unreachable"}},
		{name: "hard tiers hold for what terminates", groups: []string{"1@b1- -> a tiers topology.kubernetes.io/zone none-ready"}, want: []string{"  unreachable"}},
		{
			name:   "tiers that change add up",
			groups: []string{"1@a1 2@a2 -> a tiers kubernetes.io/hostname,*", "3@a2 4@b1 -> a tiers topology.kubernetes.io/zone,*", "5@c1 -> a"},
			want:   []string{"  cluster 1 3 5"},
		},
		{
			name:   "an endpoint while its tiers change",
			groups: []string{"1@a2 2@a1 -> a tiers kubernetes.io/hostname,*", "1@a2 -> a"},
			want:   []string{"  cluster 1 2"},
		},
		{name: "weights", groups: []string{"1@a1 2@a1 -> a", "3@a1 -> a*500 b*500"}, want: []string{"  cluster 1*1000 2*1000 3*500"}},
		{name: "the same weight", groups: []string{"1@a1 2@a1 -> a*250 b*750", "3@a1 -> a*250 b"}, want: []string{"  cluster 1 2 3"}},
		{name: "a third", groups: []string{"1@a1 -> a", "3@a1 -> a*333 b*333"}, want: []string{"  cluster 1*1000 3*333"}},
		{name: "hardly less", groups: []string{"1@a1 -> a", "3@a1 -> a*991 b*9"}, want: []string{"  cluster 1*1000 3*991"}},
		{name: "another zone's weights", groups: []string{"1@a1 -> a b*7", "3@a1 -> a b*333"}, want: []string{"  cluster 1 3"}},
		{name: "the weight of an endpoint that moves", groups: []string{"1@a1 2@a1 -> a*250", "1@a1 -> a*500"}, want: []string{"  cluster 1*500 2*250"}},
		{
			name: "weights of what is not near do not matter", groups: []string{"1@a1 -> a tiers kubernetes.io/hostname,*", "2@a2 -> a*10 tiers kubernetes.io/hostname,*"},
			want: []string{"  cluster 1"},
		},
		{
			name: "weights that are none", groups: []string{"1@a1 -> a", "2@a1 -> a*1001", "3@a1 -> a*-1", "4@a1 -> a*0"},
			want: []string{
				"  cluster 1 2 3 4",
				"note: EndpointGroup g1: weight 1001 of zone a counts as 1000; it must be 1 to 1000",
				"note: EndpointGroup g2: weight -1 of zone a counts as 1000; it must be 1 to 1000",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := Input{Service: testService(ours)}
			for i, text := range test.groups {
				in.Groups = append(in.Groups, groupOf("g"+string(rune('0'+i)), text))
			}
			node := testNodeA()
			if test.node != nil {
				test.node(&node)
			}
			want := append([]string{"shop/web:http", clusterFront}, test.want...)
			expect(t, Service(in, Options{Node: node}), want...)
			slices.Reverse(in.Groups)
			expect(t, Service(in, Options{Node: node}), want...)
		})
	}
}

func TestGroupsOfLocal(t *testing.T) {
	health := func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 32000 }
	for _, test := range []struct {
		name   string
		groups []string
		want   []string
	}{
		{
			name:   "what is on the node, of all groups",
			groups: []string{"1@a1 2@a2 -> a not b", "3@a1 -> b local", "4@a1 -> b not a", "5@b1 -> b not a", "6@a1! 7@a1- -> a"},
			want:   []string{"  cluster 1 2", "  local 1 3 4", "health 32000: 3"},
		},
		{
			name:   "what terminates on the node",
			groups: []string{"1@a1- 2@a2 3@a1! -> a"},
			want:   []string{"  cluster 2", "  local 1", "health 32000: 0"},
		},
		{
			name:   "nothing on the node",
			groups: []string{"1@a2 -> a"},
			want:   []string{"  cluster 1", "health 32000: 0"},
		},
		{
			name:   "every endpoint of the node once, whatever its weight",
			groups: []string{"1@a1 -> a", "2@a1 -> a*500", "2@a1 -> b not a"},
			want:   []string{"  cluster 1*1000 2*500", "  local 1 2", "health 32000: 2"},
		},
		{
			name:   "the node is required, and has some",
			groups: []string{"1@a1 2@a2 -> a tiers kubernetes.io/hostname"},
			want:   []string{"  cluster 1", "  local 1", "health 32000: 1"},
		},
		{
			name:   "the node is required, and has none",
			groups: []string{"2@a2 -> a tiers kubernetes.io/hostname"},
			want:   []string{"  unreachable", "health 32000: 0"},
		},
		{
			name:   "a rack is required, and only what terminates is on the node",
			groups: []string{"1@a1- 2@a2%rack=r2 -> a tiers rack"},
			want:   []string{"  cluster 1", "  local 1", "health 32000: 0"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := Input{Service: testService(ours, balancer(), outsideLocal, health)}
			for i, text := range test.groups {
				in.Groups = append(in.Groups, groupOf("g"+string(rune('0'+i)), text))
			}
			expect(t, Service(in, Options{Node: testNodeA()}),
				append([]string{"shop/web:http", clusterFront, "  192.0.2.1:30080/TCP -> split, else drop from outside"}, test.want...)...)
		})
	}
	t.Run("health of endpoints without ports", func(t *testing.T) {
		portless := func(g *v1alpha1.EndpointGroup) { g.Spec.Ports = nil }
		in := Input{Service: testService(ours, balancer(), outsideLocal, health), Groups: []*v1alpha1.EndpointGroup{
			groupOf("g0", "1@a1 2@a1 3@a1 -> a", portless), groupOf("g1", "1@a1! 2@a1 -> a"),
		}}
		expect(t, Service(in, Options{Node: testNodeA()}), "shop/web:http", clusterFront,
			"  192.0.2.1:30080/TCP -> split, else drop from outside", "  cluster 2", "  local 2", "health 32000: 1")
	})
	t.Run("no endpoint anywhere", func(t *testing.T) {
		in := Input{Service: testService(ours, nodePort, outsideLocal), Groups: []*v1alpha1.EndpointGroup{groupOf("g", "1@a1! -> a none-ready")}}
		expect(t, Service(in, Options{Node: testNodeA()}),
			"shop/web:http", clusterFront, "  192.0.2.1:30080/TCP -> split, else reject")
	})
	t.Run("internal", func(t *testing.T) {
		in := Input{Service: testService(ours, insideLocal), Groups: []*v1alpha1.EndpointGroup{groupOf("g", "1@a2 -> a tiers kubernetes.io/hostname")}}
		expect(t, Service(in, Options{Node: testNodeA()}),
			"shop/web:http", "  10.96.0.1:80/TCP cluster-ip -> local, else drop")
	})
}

// TestHandOver looks at a Service that kube-proxy serves too: what the node knows
// nothing for stays kube-proxy's.
func TestHandOver(t *testing.T) {
	balanced := func(s *corev1.Service) {
		balancer("198.51.100.1")(s)
		outsideLocal(s)
		s.Spec.HealthCheckNodePort = 32000
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "odd", Port: 81})
	}
	slice := sliceOf("s", "1@a1 2@b1 3@c1", func(s *discoveryv1.EndpointSlice) { s.Ports = append(s.Ports, slicePortOf("odd", 81)) })
	in := Input{Service: testService(balanced), Slices: []*discoveryv1.EndpointSlice{slice}}
	front := func(pool string) []string {
		return []string{
			"  192.0.2.1:30080/TCP -> " + pool, "  198.51.100.1:80/TCP -> " + pool,
		}
	}
	const ignored = "  10.96.0.1:80/TCP cluster-ip -> cluster, else ignore"
	for _, test := range []struct {
		name             string
		groups           []string
		named, all, want []string
	}{
		{
			name: "nothing",
			want: nil, named: []string{"note: the label service.kubernetes.io/service-proxy-name gives the Service to this proxy, and it has no groups: nobody serves it"},
		},
		{
			name: "all of one port", groups: []string{"1@a1 -> a"},
			want: slices.Concat([]string{"shop/web:http", ignored}, front("split, else ignore"), []string{"  cluster 1", "  local 1"}),
		},
		{
			name: "nothing on the node", groups: []string{"1@a2 -> a"},
			want: slices.Concat([]string{"shop/web:http", ignored}, front("split, else ignore"), []string{"  cluster 1"}),
		},
		{name: "nothing that the zone may use", groups: []string{"1@a1 -> b local"}},
		{name: "nothing near", groups: []string{"1@b1 -> a tiers kubernetes.io/hostname"}},
		{name: "no endpoints", groups: []string{"-> a none-ready"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := in
			for i, text := range test.groups {
				in.Groups = append(in.Groups, groupOf("g"+string(rune('0'+i)), text))
			}
			expect(t, Service(in, Options{Node: testNodeA()}), test.want...)
			if test.named != nil {
				in.Service = testService(balanced, ours)
				expect(t, Service(in, Options{Node: testNodeA()}), test.named...)
			}
		})
	}
	t.Run("nothing on the node for one of two policies", func(t *testing.T) {
		in := Input{Service: testService(insideLocal, nodePort), Groups: []*v1alpha1.EndpointGroup{groupOf("g", "1@a2 -> a")}}
		expect(t, Service(in, Options{Node: testNodeA()}),
			"shop/web:http", "  192.0.2.1:30080/TCP -> cluster masqueraded, else ignore", "  cluster 1")
	})
	t.Run("with slices", func(t *testing.T) {
		in := in
		in.Groups = []*v1alpha1.EndpointGroup{groupOf("g", "1@a1 4@a1 -> a")}
		r := Service(in, Options{Node: testNodeA(), AllServices: true})
		expect(t, r, slices.Concat([]string{"shop/web:http", clusterFront}, front("split, else drop from outside"), []string{
			"  cluster 1 4", "  local 1 4",
			"shop/web:odd",
			"  10.96.0.1:81/TCP cluster-ip -> cluster, else reject",
			"  198.51.100.1:81/TCP -> split, else drop from outside",
			"  cluster 1:81 2:81 3:81", "  local 1:81", "health 32000: 1",
		})...)
		if got := endpointText(r.Families[0].Endpoints); got != "10.1.0.1=a* 10.1.0.2=b 10.1.0.3=c" {
			t.Errorf("got endpoints %s", got)
		}
	})
}

func TestGroupsOfOneFamily(t *testing.T) {
	in := Input{
		Service: testService(dualStack),
		Groups:  []*v1alpha1.EndpointGroup{groupOf("g", "1@a1 -> a")},
		Slices: []*discoveryv1.EndpointSlice{sliceOf("six", "fd01::1@a1", func(s *discoveryv1.EndpointSlice) {
			s.AddressType = discoveryv1.AddressTypeIPv6
		})},
	}
	four := []string{"shop/web:http", clusterFront, "  cluster 1"}
	six := []string{"shop/web:http", "  [fd00::1]:80/TCP cluster-ip -> cluster, else reject"}
	options := Options{Node: testNodeA()}
	expect(t, Service(in, options), "shop/web:http", "  10.96.0.1:80/TCP cluster-ip -> cluster, else ignore", "  cluster 1")
	options.AllServices = true
	expect(t, Service(in, options), slices.Concat(four, six, []string{"  cluster [fd01::1]:8080"})...)
	in.Service = testService(dualStack, ours)
	expect(t, Service(in, options), slices.Concat(four, six, []string{"  cluster [fd01::1]:8080"})...)
	options.AllServices = false
	expect(t, Service(in, options), slices.Concat(four, six, []string{
		"note: the Service has an IPv6 address and no EndpointGroup of that family: connections are refused",
	})...)
}

func TestStrangeGroups(t *testing.T) {
	group := groupOf("g", "1@a1 fd00::1@a1 x 2@a1 -> a", func(g *v1alpha1.EndpointGroup) {
		g.Spec.Endpoints[3].Address = "fe80::1%eth0"
		g.Spec.Ports = append(g.Spec.Ports,
			v1alpha1.GroupPort{Name: "http", Port: 9090}, // the first counts
			v1alpha1.GroupPort{Name: "low"}, v1alpha1.GroupPort{Name: "high", Port: 65536}, v1alpha1.GroupPort{Name: "odd", Protocol: "ICMP", Port: 1})
	})
	in := Input{Service: testService(ours), Groups: []*v1alpha1.EndpointGroup{
		group, nil,
		{},
		groupOf("other", "3@a1 -> a", func(g *v1alpha1.EndpointGroup) { g.Spec.Service = "other" }),
		groupOf("foreign", "4@a1 -> a", func(g *v1alpha1.EndpointGroup) { g.Namespace = "foreign" }),
		groupOf("headless", "7@a1 -> a", func(g *v1alpha1.EndpointGroup) { g.Labels[corev1.IsHeadlessService] = "" }),
		groupOf("names", "5@a1 -> a", func(g *v1alpha1.EndpointGroup) { g.Spec.AddressType = "FQDN" }),
		groupOf("ports", "6@a1 -> a", func(g *v1alpha1.EndpointGroup) { g.Spec.Ports = nil }),
	}}
	expect(t, Service(in, Options{Node: testNodeA()}),
		"shop/web:http", clusterFront, "  cluster 1",
		`note: EndpointGroup g: ports ignored: 3, the first "low"; each needs a protocol and number that a Service can have`,
		`note: EndpointGroup g: endpoints ignored: 3, the first "fd00::1"; each needs an address of family IPv4`)
}

// TestNothingAtAll must not panic.
func TestNothingAtAll(t *testing.T) {
	empty := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: make([]corev1.ServicePort, 2), SessionAffinity: corev1.ServiceAffinityClientIP}}
	for _, in := range []Input{
		{},
		{Service: &corev1.Service{}},
		{Service: empty},
		{
			Service: empty, Slices: []*discoveryv1.EndpointSlice{{AddressType: "IPv4", Ports: make([]discoveryv1.EndpointPort, 2), Endpoints: make([]discoveryv1.Endpoint, 2)}},
			Groups: []*v1alpha1.EndpointGroup{{Spec: v1alpha1.EndpointGroupSpec{
				AddressType: "IPv4", Ports: make([]v1alpha1.GroupPort, 2), Endpoints: make([]v1alpha1.GroupEndpoint, 2), Tiers: make([]string, 2), Consumers: make([]v1alpha1.GroupConsumer, 2),
			}}},
		},
	} {
		for _, all := range []bool{false, true} {
			if r := Service(in, Options{AllServices: all}); len(r.Families) > 0 {
				t.Errorf("got\n%v", lines(r))
			}
		}
	}
}
