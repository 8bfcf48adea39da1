package compile

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

const clusterFront = "  10.96.0.1:80/TCP cluster-ip -> cluster, else reject"

func TestGroupsOfLocal(t *testing.T) {
	health := func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 32000 }
	for _, test := range []struct {
		name   string
		groups []string
		want   []string
	}{
		{
			name:   "endpoints on the node, of all groups",
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

// A node reaches the endpoints that connections from outside get there: those of the hard tiers, and with a local policy
// those on the node.
func TestReached(t *testing.T) {
	const rack = "1@a1%rack=r1 2@b1%rack=r1 3@c1%rack=r3 -> a b c tiers rack"
	for name, test := range map[string]struct {
		service *corev1.Service
		group   string
		want    int
	}{
		"endpoints of the rack":               {testService(ours, nodePort), rack, 2},
		"none in the rack":                    {testService(ours, nodePort), "3@c1%rack=r3 -> a b c tiers rack", 0},
		"none in the zone, which sees none":   {testService(ours, nodePort), "-> a tiers topology.kubernetes.io/zone", 0},
		"only what terminates":                {testService(ours, nodePort), "1@a1- 3@c1 -> a tiers topology.kubernetes.io/zone", 1},
		"no preference":                       {testService(ours, nodePort), "1@a1 2@b1 3@c1 -> a", 3},
		"no endpoint is ready":                {testService(ours, nodePort), "1@a1! -> a none-ready", 0},
		"a cluster IP alone":                  {testService(ours), rack, 2},
		"a local policy":                      {testService(ours, nodePort, outsideLocal), rack, 1},
		"a local policy inside":               {testService(ours, nodePort, insideLocal), rack, 2},
		"a cluster IP with a local policy":    {testService(ours, insideLocal), rack, 1},
		"beside kube-proxy, which serves it":  {testService(nodePort), rack, 2},
		"of two ports the one with endpoints": {testService(ours, nodePort, twoPorts), rack, 2},
	} {
		got := Service(Input{Service: test.service, Groups: []*v1alpha1.EndpointGroup{groupOf("g", test.group)}}, Options{Node: testNodeA()})
		if len(got.Families) != 1 || got.Families[0].Reached != test.want {
			t.Errorf("%s: %+v, want %d endpoints", name, got.Families, test.want)
		}
	}
}

// twoPorts adds a port that no endpoint has.
func twoPorts(service *corev1.Service) {
	service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: "odd", Port: 81})
}

// kube-proxy serves the Service too. Fronts for which the node knows no endpoint stay with kube-proxy.
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
			want: nil, named: []string{"note: the label service.kubernetes.io/service-proxy-name gives the Service to this proxy, and it has no groups: no proxy serves it"},
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
