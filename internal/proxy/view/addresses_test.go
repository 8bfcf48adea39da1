package view_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/proxy/nodenet"
	"vicinity.dev/vicinity/internal/proxy/view"
)

func TestNodePortAddresses(t *testing.T) {
	node := &corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "node-a"},
		{Type: corev1.NodeExternalIP, Address: "198.51.100.1"},
		{Type: corev1.NodeInternalIP, Address: "2001:db8::2"},
		{Type: corev1.NodeInternalIP, Address: "192.0.2.2"},
		{Type: corev1.NodeInternalIP, Address: "192.0.2.1"},
		{Type: corev1.NodeInternalIP, Address: "nonsense"},
		{Type: corev1.NodeExternalIP, Address: "192.0.2.2"},
	}}}
	var local []netip.Addr
	for _, text := range []string{"127.0.0.1", "192.0.2.9", "10.1.0.1", "fe80::1", "2001:db8::9", "192.0.2.2", "192.0.2.9"} {
		local = append(local, netip.MustParseAddr(text))
	}
	for flag, want := range map[string]string{
		"":                             "[192.0.2.2 2001:db8::2]",
		"primary":                      "[192.0.2.2 2001:db8::2]",
		"0.0.0.0/0":                    "[10.1.0.1 192.0.2.2 192.0.2.9]",
		"192.0.2.7/24":                 "[192.0.2.2 192.0.2.9]",
		"::/0,10.0.0.0/8":              "[10.1.0.1 2001:db8::9]",
		"203.0.113.0/24":               "[]",
		"primary,10.0.0.0/8":           `"primary" is not allowed together with others`,
		"10.0.0.1":                     `"10.0.0.1" is not allowed; it must be a prefix such as 192.0.2.0/24, or "primary" alone`,
		"10.0.0.0/8,everything/really": `"everything/really" is not allowed`,
	} {
		parsed, err := view.ParseNodePorts(strings.FieldsFunc(flag, func(r rune) bool { return r == ',' }))
		got := fmt.Sprint(parsed.Of(local, nodenet.Addresses(node)))
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s, want %s", flag, got, want)
		}
	}
	if got := fmt.Sprint(nodenet.Addresses(node)); got != "[2001:db8::2 192.0.2.2 192.0.2.1 198.51.100.1]" {
		t.Errorf("the node has %s", got)
	}
}
