package location

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// checkAddresses fails for an address that occurs twice or locates all clients.
func checkAddresses(t *testing.T, addresses []netip.Addr, most int) {
	t.Helper()
	seen := map[netip.Addr]bool{}
	for _, a := range addresses {
		if seen[a] || a != a.Unmap() || a.Zone() != "" || a.IsLoopback() || a.IsUnspecified() {
			t.Fatalf("the address %s occurs twice, or is not one of a host", a)
		}
		seen[a] = true
	}
	if len(addresses) > most {
		t.Fatalf("%d addresses, want at most %d", len(addresses), most)
	}
}

// A PodLocator locates clients only by its addresses, and not while it is being deleted.
func FuzzOfPod(f *testing.F) {
	for _, text := range []string{"10.1.0.1", "10.1.0.1 fd00::1 10.1.0.1", "127.0.0.1 ::", "::ffff:10.1.0.1 10.1.0.1/24", "x fe80::1%eth0", ""} {
		f.Add(text, "node", false)
	}
	f.Fuzz(func(t *testing.T, text, node string, deleted bool) {
		locator := &v1alpha1.PodLocator{IPs: strings.Split(text, " "), NodeName: node}
		if deleted {
			locator.DeletionTimestamp = new(metav1.Now())
		}
		pod := OfPod(locator)
		checkAddresses(t, pod.IPs, len(locator.IPs))
		if deleted && (len(pod.IPs) > 0 || pod.Node != "") {
			t.Fatalf("it is deleted and locates %v", pod.IPs)
		}
		if !deleted && pod.Node != node {
			t.Fatalf("the node is %q", pod.Node)
		}
		for _, a := range pod.IPs {
			if again := OfPod(&v1alpha1.PodLocator{IPs: []string{a.String()}}); len(again.IPs) != 1 || again.IPs[0] != a {
				t.Fatalf("%s is read again as %v", a, again.IPs)
			}
		}
	})
}

// For any text of a kubelet or a pod network, each range is masked and does not contain all addresses.
func FuzzOfNode(f *testing.F) {
	for _, text := range []string{
		"10.0.0.1/24", `{"default":["10.1.0.0/24","fd00::/64"]}`, `{"a":{"b":"10.1.0.1/24"}}`, "0.0.0.0/0,::/0", "10.1.0.0/24, 10.1.0.0/24", "{", "[", "::ffff:10.0.0.0/104",
	} {
		for i := range ownRanges {
			f.Add(text, uint8(i))
		}
	}
	f.Fuzz(func(t *testing.T, text string, which uint8) {
		names := append(append([]string{}, ownAddresses...), ownRanges...)
		node := &corev1.Node{}
		node.Annotations = map[string]string{names[int(which)%len(names)]: text, "other": text}
		node.Spec.PodCIDRs = []string{text}
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: text}, {Type: corev1.NodeHostName, Address: "10.9.9.9"}}
		read := OfNode(node)
		checkAddresses(t, read.Addresses, len(text)+1)
		seen := map[netip.Prefix]bool{}
		for _, r := range read.PodRanges {
			if seen[r] || !r.IsValid() || r != r.Masked() || r.Bits() == 0 {
				t.Fatalf("the range %s occurs twice, has all addresses, or is not canonical", r)
			}
			seen[r] = true
		}
		if kept := Annotations(node); len(kept) > 1 || kept["other"] != "" {
			t.Fatalf("kept are %v", kept)
		}
	})
}
