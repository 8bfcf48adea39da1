package ruleset

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"
)

func TestLive(t *testing.T) {
	target := func(n byte) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 0, n}), 53)
	}
	front := func(n byte, change func(*FrontEnd)) FrontEnd {
		end := FrontEnd{Front: Front{Address: netip.AddrFrom4([4]byte{10, 96, 0, n}), Protocol: UDP, Port: 53}}
		change(&end)
		return end
	}
	same := func(*FrontEnd) {}
	table := NewTable(Config{Family: IPv4})
	for _, sp := range []ServicePort{
		{
			Name: "a/used:", Rank: "1", Fronts: []FrontEnd{front(1, same), front(2, func(f *FrontEnd) { f.Pool = PoolLocal })},
			Cluster: []netip.AddrPort{target(2), target(1), target(1)}, Local: []netip.AddrPort{target(3)},
			Known: Known{Serving: []netip.AddrPort{target(4)}, Silent: []netip.AddrPort{target(5)}},
		},
		{Name: "a/rival:", Rank: "2", Fronts: []FrontEnd{front(1, same)}, Cluster: []netip.AddrPort{target(9)}},
		{Name: "a/empty:", Fronts: []FrontEnd{front(3, same)}, Known: Known{Silent: []netip.AddrPort{target(6)}}},
		{Name: "a/tcp:", Fronts: []FrontEnd{front(4, func(f *FrontEnd) { f.Protocol = TCP })}, Cluster: []netip.AddrPort{target(7)}},
		{Name: "a/in-hand-over:", Fronts: []FrontEnd{front(5, func(f *FrontEnd) { f.Empty = Ignore })}, Cluster: []netip.AddrPort{target(8)}},
	} {
		table.Set(sp)
	}
	if live := table.Live(UDP); len(live) > 0 {
		t.Errorf("before anything is committed: %v", live)
	}
	table.Commit(time.Unix(0, 0))
	all := []netip.AddrPort{target(1), target(2), target(3), target(4)}
	want := map[Front][]netip.AddrPort{front(1, same).Front: all, front(2, same).Front: all}
	if live := table.Live(UDP); !maps.EqualFunc(live, want, slices.Equal) {
		t.Errorf("live are %v, want %v", live, want)
	}
}
