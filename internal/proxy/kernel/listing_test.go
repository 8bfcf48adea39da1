package kernel_test

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// typical returns a table with one of each kind of Service, whose maps remember the given number of clients. If an
// interface name is given, pods are identified by their interfaces.
func typical(t testing.TB, family ruleset.Family, clients int, interfaces ruleset.Interfaces) *ruleset.Table {
	t.Helper()
	address := func(n int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("10.96.0.%d", n)) }
	endpoint := func(n int) netip.AddrPort { return netip.MustParseAddrPort(fmt.Sprintf("10.128.0.%d:8080", n)) }
	pods, services := netip.MustParsePrefix("10.128.0.0/9"), netip.MustParsePrefix("10.96.0.0/16")
	others := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/26"), netip.MustParsePrefix("198.51.100.7/32")}
	if family == ruleset.IPv6 {
		address = func(n int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("fd00:96::%d", n)) }
		endpoint = func(n int) netip.AddrPort { return netip.MustParseAddrPort(fmt.Sprintf("[fd00:128::%d]:8080", n)) }
		pods, services = netip.MustParsePrefix("fd00:128::/33"), netip.MustParsePrefix("fd00:96::/108")
		others = []netip.Prefix{netip.MustParsePrefix("2001:db8::/47"), netip.MustParsePrefix("2001:db8:7::1/128")}
	}
	front := func(n int, p ruleset.Protocol, port uint16) ruleset.Front {
		return ruleset.Front{Address: address(n), Protocol: p, Port: port}
	}
	table := ruleset.NewTable(ruleset.Config{
		Family: family, ClusterCIDRs: []netip.Prefix{pods}, ServiceRanges: []netip.Prefix{services}, MaxAffinityClients: clients, PodInterfaces: interfaces,
	})
	for _, p := range []ruleset.ServicePort{
		{
			Name:    "shop/cart:http",
			Fronts:  []ruleset.FrontEnd{{Front: front(1, ruleset.TCP, 80), ClusterIP: true}, {Front: front(2, ruleset.TCP, 80), Masquerade: true}},
			Cluster: []netip.AddrPort{endpoint(1), endpoint(2), endpoint(3)},
		},
		{
			Name:    "kube-system/dns:dns",
			Fronts:  []ruleset.FrontEnd{{Front: front(10, ruleset.UDP, 53), ClusterIP: true}},
			Cluster: []netip.AddrPort{endpoint(4), endpoint(5), endpoint(8)}, Weights: []uint32{1000, 350, 20},
		},
		{
			Name: "shop/login:http",
			Fronts: []ruleset.FrontEnd{
				{Front: front(3, ruleset.TCP, 443), ClusterIP: true},
				{Front: front(4, ruleset.TCP, 443), Pool: ruleset.PoolSplit, Masquerade: true, Sources: others},
			},
			Cluster:  []netip.AddrPort{endpoint(6), endpoint(7)},
			Local:    []netip.AddrPort{endpoint(7)},
			Affinity: 3 * time.Hour,
		},
		{
			Name: "shop/empty:",
			Fronts: []ruleset.FrontEnd{
				{Front: front(5, ruleset.SCTP, 5000), ClusterIP: true},
				{Front: front(6, ruleset.SCTP, 5000), Pool: ruleset.PoolLocal, Empty: ruleset.Drop},
			},
		},
	} {
		table.Set(p)
	}
	table.SetHairpin([]netip.Addr{endpoint(1).Addr(), endpoint(7).Addr()})
	return table
}

// Parts of nft's text that the golden text lacks or words differently.
var (
	comments   = regexp.MustCompile(`( |\n\t\t)comment "[^"]*"`)
	priorities = regexp.MustCompile(`priority (dstnat|srcnat|filter) ([+-]) (\d+)`)
	slotTypes  = regexp.MustCompile(`type(of)? .*( \. mark : ipv|numgen).*`)
	slots      = regexp.MustCompile(` \. 0x0*([0-9a-f]+) :`)
	lists      = regexp.MustCompile(`elements = \{[^}]*\}`)
	resets     = regexp.MustCompile(`meta l4proto tcp (reject)`)
)

// blocks are the sets and chains of a table in words that both use, sorted, and the
// elements of each set sorted too.
func blocks(table string) []string {
	table = comments.ReplaceAllString(table, "")
	table = slotTypes.ReplaceAllString(table, "of slots")
	table = slots.ReplaceAllString(table, " . $1 :")
	table = resets.ReplaceAllString(table, "$1")
	table = priorities.ReplaceAllStringFunc(table, func(priority string) string {
		parts := priorities.FindStringSubmatch(priority)
		n, sign := map[string]int{"dstnat": -100, "srcnat": 100}[parts[1]], 1
		if parts[2] == "-" {
			sign = -1
		}
		more, _ := strconv.Atoi(parts[3])
		return fmt.Sprint("priority ", n+sign*more)
	})
	table = lists.ReplaceAllStringFunc(table, func(list string) string {
		var elements []string
		for element := range strings.SplitSeq(list[len("elements = {"):len(list)-1], ",") {
			elements = append(elements, strings.TrimSpace(element))
		}
		slices.Sort(elements)
		elements = slices.Compact(elements) // the kernel may list an element twice while it resizes the set
		return "elements = { " + strings.Join(elements, ", ") + " }"
	})
	_, table, _ = strings.Cut(table, "{\n")
	blocks := strings.Split(strings.TrimSuffix(strings.TrimSpace(table), "\n}"), "\n\n")
	for i := range blocks {
		blocks[i] = strings.TrimSpace(blocks[i])
	}
	slices.Sort(blocks)
	return blocks
}

func TestNFTListsTheText(t *testing.T) {
	for i, family := range families {
		for _, pods := range []ruleset.Interfaces{{}, {Name: "client789012345"}, {Name: "client789012345", Prefix: true}} {
			n := newNamespace(t)
			c := n.open(t)
			table := typical(t, family, i*1000, pods)
			commit(t, c, table, time.Now())
			wantTable(t, c, family, table)

			got, want := blocks(n.nft(t, "list", "ruleset")), blocks(table.Text())
			if len(got) < 20 || len(got) != len(want) {
				t.Fatalf("nft lists %d sets and chains, the text has %d", len(got), len(want))
			}
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("nft lists\n%s\nthe text says\n%s", got[i], want[i])
				}
			}
		}
	}
}
