package ruleset

import (
	"net/netip"
	"testing"
	"time"

	"vicinity.dev/vicinity/test/golden"
)

// every are ServicePorts that use all there is.
func every(family Family) []ServicePort {
	address := func(four, six string) netip.Addr {
		if family == IPv6 {
			return netip.MustParseAddr(six)
		}
		return netip.MustParseAddr(four)
	}
	prefix := func(four, six string) netip.Prefix {
		if family == IPv6 {
			return netip.MustParsePrefix(six)
		}
		return netip.MustParsePrefix(four)
	}
	pod := func(n byte, port uint16) netip.AddrPort {
		base := address("10.1.0.0", "fd01::").AsSlice()
		base[len(base)-1] = n
		a, _ := netip.AddrFromSlice(base)
		return netip.AddrPortFrom(a, port)
	}
	front := func(four, six string, protocol Protocol, port uint16) Front {
		return Front{Address: address(four, six), Protocol: protocol, Port: port}
	}
	node, balancer := "172.18.0.2", "192.0.2.10"
	node6, balancer6 := "fd18::2", "2001:db8::10"
	return []ServicePort{
		{
			Name:    "kube-system/dns:udp",
			Fronts:  []FrontEnd{{Front: front("10.96.0.10", "fd96::10", UDP, 53), ClusterIP: true}},
			Cluster: []netip.AddrPort{pod(1, 53), pod(2, 53)},
		},
		{
			Name:    "kube-system/dns:tcp",
			Fronts:  []FrontEnd{{Front: front("10.96.0.10", "fd96::10", TCP, 53), ClusterIP: true}},
			Cluster: []netip.AddrPort{pod(1, 53), pod(2, 53)},
		},
		{
			Name: "shop/web:http",
			Fronts: []FrontEnd{
				{Front: front("10.96.0.20", "fd96::20", TCP, 80), ClusterIP: true},
				{Front: front(node, node6, TCP, 30080), Pool: PoolSplit, Empty: DropOutside},
				{
					Front: front(balancer, balancer6, TCP, 80), Pool: PoolSplit, Empty: Drop,
					Sources: []netip.Prefix{prefix("198.51.100.0/24", "2001:db8:1::/48"), prefix(balancer+"/32", balancer6+"/128")},
				},
			},
			Cluster:  []netip.AddrPort{pod(3, 8080), pod(4, 8080), pod(5, 8080)},
			Local:    []netip.AddrPort{pod(4, 8080)},
			Affinity: 3 * time.Hour,
		},
		{
			Name: "shop/weighted:",
			Fronts: []FrontEnd{
				{Front: front("10.96.0.30", "fd96::30", SCTP, 9), ClusterIP: true, Pool: PoolLocal},
				{Front: front(node, node6, SCTP, 30009), Masquerade: true},
			},
			Cluster: []netip.AddrPort{pod(6, 9), pod(7, 9), pod(6, 9)},
			Local:   []netip.AddrPort{pod(6, 9)},
		},
		{
			Name: "shop/empty:http",
			Fronts: []FrontEnd{
				{Front: front("10.96.0.40", "fd96::40", TCP, 80), ClusterIP: true},
				{Front: front(balancer, balancer6, TCP, 81), Empty: Drop},
			},
		},
	}
}

func TestTextGolden(t *testing.T) {
	serviceRanges := []netip.Prefix{
		netip.MustParsePrefix("10.112.0.0/20"), netip.MustParsePrefix("fd96::/112"), netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("10.112.0.0/20"),
	}
	for _, test := range []struct {
		name   string
		config Config
		ports  []ServicePort
	}{
		{"empty.nft", Config{Family: IPv4}, nil},
		{"ipv4.nft", Config{Family: IPv4, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}, every(IPv4)},
		{"ipv6.nft", Config{Family: IPv6, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("fd01::/16"), netip.MustParsePrefix("fd02::/16")}}, every(IPv6)},
		{"bridge.nft", Config{Family: IPv4, PodInterfaces: Interfaces{Name: "cni0"}}, every(IPv4)[2:3]},
		{"interfaces.nft", Config{Family: IPv6, PodInterfaces: Interfaces{Name: "veth", Prefix: true}}, every(IPv6)[2:3]},
		{"affinity-clients.nft", Config{Family: IPv4, MaxAffinityClients: 1000}, every(IPv4)[2:3]},
		{"service-ranges-ipv4.nft", Config{Family: IPv4, ServiceRanges: serviceRanges}, every(IPv4)[:1]},
		{"service-ranges-ipv6.nft", Config{Family: IPv6, ServiceRanges: serviceRanges}, every(IPv6)[:1]},
		{"masquerade-all.nft", Config{Family: IPv4, MasqueradeAll: true, MasqueradeMark: 0x80000000}, every(IPv4)[:1]},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(test.config)
			var hairpin []netip.Addr
			for _, sp := range test.ports {
				for _, target := range sp.Local {
					hairpin = append(hairpin, target.Addr())
				}
			}
			b.SetHairpin(hairpin)
			b.program(t, start, test.ports...)
			golden.Compare(t, "testdata/"+test.name, b.Text())
		})
	}
}
