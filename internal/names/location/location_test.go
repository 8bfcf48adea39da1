package location

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/names/locate"
	"vicinity.dev/vicinity/internal/topology"
)

func TestOfNode(t *testing.T) {
	for _, test := range []struct {
		name              string
		annotations       string // name=value, one on a line
		addresses         string // of the status, in addition to 192.0.2.1
		podCIDR           string
		podCIDRs          []string
		wantAddrs, wanted string
	}{
		{name: "plain", podCIDRs: []string{"10.0.1.0/24", "fd00:1::/64"}, podCIDR: "10.0.1.0/24", wantAddrs: "192.0.2.1", wanted: "10.0.1.0/24 fd00:1::/64"},
		{name: "only the older field", podCIDR: "10.0.1.0/24", wantAddrs: "192.0.2.1", wanted: "10.0.1.0/24"},
		{name: "mistakes", podCIDRs: []string{"10.0.1.0", "0.0.0.0/0", "10.0.1.7/24"}, addresses: "x 127.0.0.1 :: ::ffff:192.0.2.1 192.0.2.9", wantAddrs: "192.0.2.1 192.0.2.9", wanted: "10.0.1.0/24"},
		{
			name:        "Calico",
			annotations: "projectcalico.org/IPv4Address=192.0.2.1/24\nprojectcalico.org/IPv4IPIPTunnelAddr=10.244.93.192\nprojectcalico.org/IPv4VXLANTunnelAddr=10.244.86.128\nprojectcalico.org/IPv6VXLANTunnelAddr=fd00::86\nprojectcalico.org/IPv4WireguardInterfaceAddr=10.244.1.1",
			wantAddrs:   "192.0.2.1 10.244.93.192 10.244.86.128 fd00::86 10.244.1.1",
		},
		{
			name: "Calico, whose pods are not in the node's CIDRs", podCIDR: "10.244.0.0/24", podCIDRs: []string{"10.244.0.0/24"},
			annotations: "projectcalico.org/IPv4Address=192.0.2.1/24",
			wantAddrs:   "192.0.2.1",
		},
		{
			name: "Cilium without ranges of its own", podCIDR: "10.244.0.0/24",
			annotations: "network.cilium.io/ipv4-cilium-host=10.244.0.5",
			wantAddrs:   "192.0.2.1 10.244.0.5", wanted: "10.244.0.0/24",
		},
		{
			name: "Cilium with ranges of its own", podCIDR: "10.244.0.0/24",
			annotations: "network.cilium.io/ipv4-cilium-host=10.0.0.28\nnetwork.cilium.io/ipv4-health-ip=10.0.0.9\nnetwork.cilium.io/ipv4-pod-cidr=10.0.0.1/25\nio.cilium.network.ipv6-pod-cidr=fd00::/96",
			wantAddrs:   "192.0.2.1 10.0.0.28 10.0.0.9", wanted: "10.0.0.0/25 fd00::/96",
		},
		{name: "Flannel", annotations: "flannel.alpha.coreos.com/public-ip=203.0.113.1\nflannel.alpha.coreos.com/backend-data={\"VNI\":1}", podCIDR: "10.42.0.0/24", wantAddrs: "192.0.2.1 203.0.113.1", wanted: "10.42.0.0/24"},
		{name: "kube-router", annotations: "kube-router.io/pod-cidrs=10.1.0.0/24, fd00:2::/64\nkube-router.io/pod-cidr=10.1.0.0/24", wantAddrs: "192.0.2.1", wanted: "10.1.0.0/24 fd00:2::/64"},
		{
			name: "OVN-Kubernetes", podCIDRs: []string{"10.244.0.0/24", "fd00:1::/64"},
			annotations: "k8s.ovn.org/node-gateway-router-lrp-ifaddr={\"ipv4\":\"100.64.0.5/16\",\"ipv6\":\"fd98::5/64\"}\nk8s.ovn.org/node-subnets={\"default\":[\"10.128.0.0/23\",\"fd01::/64\"]}",
			wantAddrs:   "192.0.2.1 100.64.0.5 fd98::5", wanted: "10.128.0.0/23 fd01::/64",
		},
		{name: "mistakes in JSON", annotations: "k8s.ovn.org/node-gateway-router-lrp-ifaddr={\"ipv4\nk8s.ovn.org/node-subnets={\"default\":{\"a\":[7,null,\"10.128.0.0/23\"]}}", wantAddrs: "192.0.2.1", wanted: "10.128.0.0/23"},
	} {
		t.Run(test.name, func(t *testing.T) {
			created := time.Unix(1000, 0)
			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{topology.Zone: "a"}, CreationTimestamp: metav1.NewTime(created), Annotations: map[string]string{"other": "192.0.2.77"}},
				Spec:       corev1.NodeSpec{PodCIDR: test.podCIDR, PodCIDRs: test.podCIDRs},
				Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
					{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeHostName, Address: "192.0.2.66"},
				}},
			}
			for address := range strings.FieldsSeq(test.addresses) {
				node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: address})
			}
			for line := range strings.Lines(test.annotations) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
				node.Annotations[name] = value
			}
			want := locate.Node{Labels: node.Labels, Created: created}
			for text := range strings.FieldsSeq(test.wantAddrs) {
				want.Addresses = append(want.Addresses, netip.MustParseAddr(text))
			}
			for text := range strings.FieldsSeq(test.wanted) {
				want.PodRanges = append(want.PodRanges, netip.MustParsePrefix(text))
			}
			if got := OfNode(node); !reflect.DeepEqual(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			node.Annotations = Annotations(node)
			if got := OfNode(node); !reflect.DeepEqual(got, want) {
				t.Errorf("with the annotations that are kept: got %v, want %v", got, want)
			}
			if node.Annotations["other"] != "" || test.annotations == "" && node.Annotations != nil {
				t.Errorf("kept are %v", node.Annotations)
			}
		})
	}
}

func TestOfPod(t *testing.T) {
	locator := &v1alpha1.PodLocator{
		ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(time.Unix(1000, 0))},
		IPs:        []string{"10.0.0.1", "::ffff:10.0.0.1", "10.0.0", "fd00::1", "::", ""}, NodeName: "n1", NodeLabels: map[string]string{topology.Zone: "a"},
	}
	want := locate.Pod{
		IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, Node: "n1", Labels: locator.NodeLabels, Created: time.Unix(1000, 0),
	}
	if got := OfPod(locator); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	created := metav1.NewTime(time.Unix(500, 0))
	locator.PodCreationTimestamp, want.Created = &created, created.Time
	if got := OfPod(locator); !reflect.DeepEqual(got, want) {
		t.Errorf("of a pod that is older than its PodLocator: got %v, want %v", got, want)
	}
}

// A pod is located if the index finds all its addresses on its own node.
func TestUnlocated(t *testing.T) {
	node := func(name, pods string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: strings.Fields(pods)}}
	}
	index := IndexOf([]*corev1.Node{node("n1", "10.0.1.0/24 fd00:1::/64"), node("n2", "10.0.2.0/24")}, []*v1alpha1.PodLocator{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"}, IPs: []string{"172.16.0.1"}, NodeName: "n1"},
	})
	for _, test := range []struct {
		name, node, addresses string
		change                func(*corev1.Pod)
		unlocated             bool
	}{
		{name: "in a range", node: "n1", addresses: "10.0.1.5"},
		{name: "both families", node: "n1", addresses: "10.0.1.5 fd00:1::5"},
		{name: "by a PodLocator", node: "n1", addresses: "172.16.0.1"},
		{name: "nowhere", node: "n1", addresses: "172.16.0.2", unlocated: true},
		{name: "one family nowhere", node: "n2", addresses: "10.0.2.5 fd00:2::5", unlocated: true},
		{name: "in the range of another node", node: "n2", addresses: "10.0.1.5", unlocated: true},
		{name: "host network", node: "n1", addresses: "172.16.0.2", change: func(p *corev1.Pod) { p.Spec.HostNetwork = true }},
		{name: "finished", node: "n1", addresses: "172.16.0.2", change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }},
		{name: "without an address", node: "n1"},
		{name: "young", node: "n1", addresses: "172.16.0.2", change: func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(time.Unix(1001, 0)) }},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: test.node}}
		for address := range strings.FieldsSeq(test.addresses) {
			pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: address})
		}
		if test.change != nil {
			test.change(pod)
		}
		if got := len(Unlocated(index, []*corev1.Pod{pod}, time.Unix(1000, 0))) > 0; got != test.unlocated {
			t.Errorf("%s: unlocated is %t", test.name, got)
		}
	}
}
