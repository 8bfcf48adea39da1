package intent

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func aSlice(name string, family discoveryv1.AddressType, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"kubernetes.io/service-name": "web"}},
		AddressType: family, Endpoints: endpoints,
	}
}

// anEndpoint returns an endpoint on a node. Its ready condition may be nil.
func anEndpoint(address, node, zone string, ready *bool) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ready}}
	if node != "" {
		e.NodeName = &node
	}
	if zone != "" {
		e.Zone = &zone
	}
	return e
}

func terminating(e discoveryv1.Endpoint) discoveryv1.Endpoint {
	e.Conditions.Terminating = new(true)
	return e
}

func TestSliceEndpoints(t *testing.T) {
	yes, no := true, false
	cluster := NewCluster([]*corev1.Node{
		aNode("a1", "a", "", "1"), aNode("b1", "b", "", "1"), controlPlaneNode("m1", "a", "", "1", "node-role.kubernetes.io/master"),
	})
	pod := anEndpoint("10.0.0.9", "a1", "a", &yes)
	pod.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: "web-9"}
	machine := anEndpoint("10.0.0.8", "a1", "a", &yes)
	machine.TargetRef = &corev1.ObjectReference{Kind: "Machine", Name: "web-8"}
	several := anEndpoint("10.0.0.7", "a1", "a", nil)
	several.Addresses = append(several.Addresses, "10.0.0.77")

	for _, test := range []struct {
		name   string
		slices []*discoveryv1.EndpointSlice
		want   Families
	}{
		{name: "no slices", want: Families{}},
		{
			name:   "a slice without endpoints",
			slices: []*discoveryv1.EndpointSlice{aSlice("x", "IPv4")},
			want:   Families{corev1.IPv4Protocol: nil},
		},
		{
			name: "ready, not ready, and silent about it",
			slices: []*discoveryv1.EndpointSlice{aSlice("x", "IPv4",
				anEndpoint("10.0.0.1", "a1", "a", &yes), anEndpoint("10.0.0.2", "a1", "a", &no), anEndpoint("10.0.0.3", "a1", "a", nil))},
			want: Families{corev1.IPv4Protocol: {{Address: "10.0.0.1", Zone: "a", Node: "a1"}, {Address: "10.0.0.3", Zone: "a", Node: "a1"}}},
		},
		{
			name: "the zone is that of the node, else of the slice, else unknown",
			slices: []*discoveryv1.EndpointSlice{aSlice("x", "IPv4",
				anEndpoint("10.0.0.1", "a1", "b", nil), anEndpoint("10.0.0.2", "b1", "", nil),
				anEndpoint("10.0.0.3", "gone", "", nil), anEndpoint("10.0.0.4", "", "", nil), anEndpoint("10.0.0.5", "m1", "", nil))},
			want: Families{corev1.IPv4Protocol: {
				{Address: "10.0.0.1", Zone: "a", Node: "a1"},
				{Address: "10.0.0.2", Zone: "b", Node: "b1"},
				{Address: "10.0.0.3", Node: "gone"},
				{Address: "10.0.0.4"},
				{Address: "10.0.0.5", Zone: "a", Node: "m1"},
			}},
		},
		{
			name: "names of pods, and the first address",
			slices: []*discoveryv1.EndpointSlice{aSlice("x", "IPv4",
				pod, machine, several, discoveryv1.Endpoint{})},
			want: Families{corev1.IPv4Protocol: {
				{Address: "10.0.0.7", Zone: "a", Node: "a1"},
				{Address: "10.0.0.8", Zone: "a", Node: "a1"},
				{Address: "10.0.0.9", Zone: "a", Node: "a1", Pod: "web-9"},
			}},
		},
		{
			name: "several slices with the same address in two: the first by name counts",
			slices: []*discoveryv1.EndpointSlice{
				aSlice("y", "IPv4", anEndpoint("10.0.0.1", "b1", "b", nil), anEndpoint("10.0.0.2", "b1", "b", nil)),
				aSlice("x", "IPv4", anEndpoint("10.0.0.1", "a1", "a", nil)),
			},
			want: Families{corev1.IPv4Protocol: {{Address: "10.0.0.1", Zone: "a", Node: "a1"}, {Address: "10.0.0.2", Zone: "b", Node: "b1"}}},
		},
		{
			name: "ready in one of two slices",
			slices: []*discoveryv1.EndpointSlice{
				aSlice("x", "IPv4", anEndpoint("10.0.0.1", "a1", "a", &no)),
				aSlice("y", "IPv4", anEndpoint("10.0.0.1", "a1", "a", &yes)),
			},
			want: Families{corev1.IPv4Protocol: {{Address: "10.0.0.1", Zone: "a", Node: "a1"}}},
		},
		{
			name: "an address that passes on, to a pod that is not ready yet and to one that is",
			slices: []*discoveryv1.EndpointSlice{aSlice("x", "IPv4",
				terminating(anEndpoint("10.0.0.1", "a1", "a", &yes)), anEndpoint("10.0.0.1", "b1", "b", &no),
				terminating(anEndpoint("10.0.0.2", "a1", "a", &yes)), anEndpoint("10.0.0.2", "b1", "b", &yes))},
			want: Families{corev1.IPv4Protocol: {{Address: "10.0.0.2", Zone: "b", Node: "b1"}}},
		},
		{
			name: "families apart, names left out",
			slices: []*discoveryv1.EndpointSlice{
				aSlice("x", "IPv4", anEndpoint("10.0.0.1", "a1", "a", nil)),
				aSlice("y", "IPv6", anEndpoint("fd00::1", "a1", "a", nil)),
				aSlice("z", "FQDN", anEndpoint("web.example.com", "", "a", nil)),
			},
			want: Families{
				corev1.IPv4Protocol: {{Address: "10.0.0.1", Zone: "a", Node: "a1"}},
				corev1.IPv6Protocol: {{Address: "fd00::1", Zone: "a", Node: "a1"}},
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := make([]*discoveryv1.EndpointSlice, len(test.slices))
			for i := range test.slices {
				before[i] = test.slices[i].DeepCopy()
			}
			if got := SliceEndpoints(test.slices, cluster); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got\n%+v\nwant\n%+v", got, test.want)
			}
			for i := range test.slices {
				if !reflect.DeepEqual(test.slices[i], before[i]) {
					t.Errorf("slice %s is changed", before[i].Name)
				}
			}
		})
	}
}

// aPod returns a running, ready pod.
func aPod(name, node string, ips ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	return p
}

func with(p *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod {
	change(p)
	return p
}

func TestPodEndpoints(t *testing.T) {
	cluster := NewCluster([]*corev1.Node{aNode("a1", "a", "", "1")})
	now := metav1.Now()
	pods := []*corev1.Pod{
		aPod("web-2", "a1", "10.0.0.2", "fd00::2"),
		with(aPod("web-1", "gone"), func(p *corev1.Pod) {
			p.Status.PodIP = "10.0.0.1"
			p.Labels["topology.kubernetes.io/zone"] = "b"
		}),
		with(aPod("elsewhere", "a1", "10.0.1.1"), func(p *corev1.Pod) { p.Namespace = "other" }),
		with(aPod("stranger", "a1", "10.0.1.2"), func(p *corev1.Pod) { p.Labels["app"] = "db" }),
		with(aPod("pending", "a1"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }),
		with(aPod("unready", "a1", "10.0.1.3"), func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }),
		with(aPod("silent", "a1", "10.0.1.4"), func(p *corev1.Pod) { p.Status.Conditions = nil }),
		with(aPod("starting", "a1", "10.0.1.6"), func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodPending
			p.Status.Conditions[0].Status = corev1.ConditionFalse
		}),
		with(aPod("failed", "a1", "10.0.1.7"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
		with(aPod("leaving", "a1", "10.0.1.5"), func(p *corev1.Pod) { p.DeletionTimestamp = &now }),
		aPod("no address", "a1"),
		aPod("twin", "a1", "10.0.0.2"),
	}
	one := Endpoint{Address: "10.0.0.1", Zone: "b", Node: "gone", Pod: "web-1"}
	two := Endpoint{Address: "10.0.0.2", Zone: "a", Node: "a1", Pod: "web-2"}
	six := Endpoint{Address: "fd00::2", Zone: "a", Node: "a1", Pod: "web-2"}
	for _, test := range []struct {
		name string
		spec corev1.ServiceSpec
		want Families
	}{
		{
			name: "families of the pods",
			spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}},
			want: Families{corev1.IPv4Protocol: {one, two}, corev1.IPv6Protocol: {six}},
		},
		{
			name: "families of the Service",
			spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, IPFamilies: []corev1.IPFamily{corev1.IPv6Protocol}},
			want: Families{corev1.IPv6Protocol: {six}},
		},
		{
			name: "unready too",
			spec: corev1.ServiceSpec{
				Selector: map[string]string{"app": "web"}, PublishNotReadyAddresses: true,
				IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			},
			want: Families{corev1.IPv4Protocol: {
				one, two,
				{Address: "10.0.1.3", Zone: "a", Node: "a1", Pod: "unready"},
				{Address: "10.0.1.4", Zone: "a", Node: "a1", Pod: "silent"},
				{Address: "10.0.1.5", Zone: "a", Node: "a1", Pod: "leaving"},
				{Address: "10.0.1.6", Zone: "a", Node: "a1", Pod: "starting"},
			}},
		},
		{
			name: "no selector",
			spec: corev1.ServiceSpec{IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}},
			want: Families{corev1.IPv4Protocol: nil},
		},
		{
			name: "a selector without pods",
			spec: corev1.ServiceSpec{Selector: map[string]string{"app": "mail"}},
			want: Families{},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := service()
			s.Spec = test.spec
			before, beforePods := s.DeepCopy(), make([]*corev1.Pod, len(pods))
			for i := range pods {
				beforePods[i] = pods[i].DeepCopy()
			}
			if got := PodEndpoints(s, pods, cluster); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got\n%+v\nwant\n%+v", got, test.want)
			}
			if !reflect.DeepEqual(s, before) || !reflect.DeepEqual(pods, beforePods) {
				t.Error("the inputs are changed")
			}
		})
	}
}
