package ruleset

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A table never adds more to the kernel than the cost of its ServicePorts.
func TestCostIsAnUpperBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clients := rapid.IntRange(1, MostAffinityClients).Draw(t, "clients")
		table := NewTable(Config{Family: IPv4, MaxAffinityClients: clients, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.30.0.0/16")}})
		fixed := added(table.Commit(time.Unix(0, 0)))
		if fixed == 0 {
			t.Fatal("an empty table adds nothing")
		}
		cost := 0
		for i := range rapid.IntRange(1, 4).Draw(t, "ports") {
			sp := drawPort(t, i)
			cost += costOf(sp, clients)
			table.Set(sp)
		}
		if got := added(table.Commit(time.Unix(1, 0))); got > cost {
			t.Fatalf("%d elements, chains and rules are added, counted are %d", got, cost)
		}
	})
}

// costOf returns the cost of a port of drawPort.
func costOf(sp ServicePort, clients int) int {
	sticky := sp.Affinity > 0
	if !sticky {
		clients = 0
	}
	sources, cost := 0, 0
	for _, end := range sp.Fronts {
		slots := map[Pool]int{PoolCluster: len(sp.Cluster), PoolLocal: len(sp.Local), PoolSplit: len(sp.Cluster) + len(sp.Local)}[end.Pool]
		if end.Sources != nil {
			sources = max(sources, len(end.Sources), 1)
		}
		cost += FrontCost(slots, sticky, end.Sources != nil)
	}
	return cost + PortCost(clients, sp.Weights != nil, sources, 0)
}

// The cost of a map of clients grows with its size. A map with a size also counts its hash table: twice the bytes of
// the buckets, 512 bytes for each element.
func TestMemoryCost(t *testing.T) {
	for _, test := range []struct{ clients, want int }{
		{1, 1 + 1},
		{24, 1 + 1},
		{25, 1 + 2},
		{100, 1 + 256*16/512},
		{1000, 1 + 2048*16/512},
		{1025, 2 + 2048*16/512},
		{10_000, 10 + 16384*16/512},
		{MostAffinityClients - 1, 64 + 131072*16/512},
		{MostAffinityClients, 64},
		{MostAffinityClients + 1, 64},
	} {
		if got := MemoryCost(test.clients); got != test.want {
			t.Errorf("a map of %d clients counts as %d elements, want %d", test.clients, got, test.want)
		}
	}
}

// drawPort is any ServicePort whose fronts no other has.
func drawPort(t *rapid.T, n int) ServicePort {
	sp := ServicePort{Name: fmt.Sprintf("a/b:%d", n)}
	if rapid.Bool().Draw(t, "sticky") {
		sp.Affinity = time.Minute
	}
	// A port has one protocol, one way for inside and one for outside, and one list of sources.
	protocol := rapid.SampledFrom([]Protocol{TCP, UDP, SCTP}).Draw(t, "protocol")
	inside := rapid.SampledFrom([]Pool{PoolCluster, PoolLocal}).Draw(t, "inside")
	outside := rapid.SampledFrom([]Pool{PoolCluster, PoolSplit}).Draw(t, "outside")
	empty := Refusal(rapid.IntRange(int(Reject), int(Ignore)).Draw(t, "empty"))
	var sources []netip.Prefix
	for i := range rapid.IntRange(0, 5).Draw(t, "sources") {
		sources = append(sources, netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, byte(i), 0}), 24))
	}
	for i := range rapid.IntRange(1, 60).Draw(t, "fronts") {
		end := FrontEnd{Front: Front{Address: netip.AddrFrom4([4]byte{10, 96, byte(n), byte(i)}), Protocol: protocol, Port: 80}, Empty: empty, Pool: outside}
		if i == 0 {
			end.Pool, end.ClusterIP = inside, true
		} else {
			end.Masquerade = outside == PoolCluster
			if rapid.Bool().Draw(t, "guarded") {
				end.Sources = sources
			}
		}
		sp.Fronts = append(sp.Fronts, end)
	}
	targets := func(what string) (all []netip.AddrPort) {
		for i := range rapid.IntRange(0, 6).Draw(t, what) {
			all = append(all, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(n), byte(i)}), 8080))
		}
		return all
	}
	sp.Cluster, sp.Local = targets("cluster"), targets("local")
	if n := len(sp.Cluster); n > 0 && rapid.Bool().Draw(t, "weighted") {
		sp.Weights = rapid.SliceOfN(rapid.Uint32Range(1, MostWeight), n, n).Draw(t, "weights")
	}
	return sp
}

// added counts the elements that a transaction adds, with each chain, rule and set.
func added(c Commit) int {
	n := 0
	for _, change := range c.Transaction.Changes {
		switch change.Kind {
		case AddElements:
			n += len(change.Elements)
		case AddSet:
			n++
		case AddChain:
			n += 1 + len(change.Chain.Rules)
		}
	}
	return n
}
