package ruleset

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestStale(t *testing.T) {
	own := dns.own()
	port := func(pool Pool, cluster, local string) ServicePort {
		sp := dnsPort(cluster)
		sp.Local, sp.Fronts[0].Pool = targets(local), pool
		return sp
	}
	one := func(digit string) netip.AddrPort { return targets(digit)[0] }
	for _, test := range []struct {
		name          string
		before, after ServicePort
		want          []Stale
	}{
		{"nothing changes", port(PoolCluster, "12", ""), port(PoolCluster, "12", ""), nil},
		{"an endpoint comes", port(PoolCluster, "12", ""), port(PoolCluster, "123", ""), nil},
		{"another weighs more", port(PoolCluster, "1112", ""), port(PoolCluster, "1222", ""), nil},
		{"an endpoint goes", port(PoolCluster, "1212", ""), port(PoolCluster, "2", ""), []Stale{{dns, one("1")}}},
		{"all are others", port(PoolCluster, "12", ""), port(PoolCluster, "34", ""), []Stale{{dns, one("1")}, {dns, one("2")}}},
		{"all go", port(PoolCluster, "12", ""), port(PoolCluster, "", ""), []Stale{{Front: dns}}},
		{"the first comes", port(PoolCluster, "", ""), port(PoolCluster, "12", ""), []Stale{{dns, own}}},
		{"there are none", port(PoolCluster, "", ""), port(PoolLocal, "", ""), nil},
		{"the front is new", ServicePort{Name: "kube-system/dns:udp"}, port(PoolCluster, "1", ""), []Stale{{dns, own}}},
		{"the front goes", port(PoolCluster, "1", ""), ServicePort{Name: "kube-system/dns:udp"}, []Stale{{Front: dns}}},
		{"a front without endpoints goes", port(PoolCluster, "", ""), ServicePort{Name: "kube-system/dns:udp"}, nil},
		{"another pool does not count", port(PoolCluster, "1", "2"), port(PoolCluster, "1", ""), nil},
		{"the pool is another", port(PoolCluster, "12", "1"), port(PoolLocal, "12", "1"), []Stale{{dns, one("2")}}},
		{"one of two pools loses what the other keeps", port(PoolSplit, "12", "1"), port(PoolSplit, "2", "1"), nil},
		{"both pools lose it", port(PoolSplit, "12", "1"), port(PoolSplit, "2", "2"), []Stale{{dns, one("1")}}},
		{"the second pool gets its first", port(PoolSplit, "2", ""), port(PoolSplit, "12", "1"), []Stale{{dns, own}}},
		{"one pool gets its first and the other loses its last", port(PoolSplit, "1", ""), port(PoolSplit, "", "1"), []Stale{{dns, own}}},
		{"one of two pools loses its last", port(PoolSplit, "12", "3"), port(PoolSplit, "12", ""), []Stale{{dns, one("3")}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(Config{Family: IPv4})
			b.program(t, start, test.before)
			if c := b.program(t, start, test.after); !slices.Equal(c.Stale, test.want) {
				t.Errorf("stale are %v, want %v", c.Stale, test.want)
			}
		})
	}
}

func TestStaleAreConnectionsOfEveryFront(t *testing.T) {
	b := newBed(Config{Family: IPv4})
	sp := dnsPort("12")
	tcp := frontOf("10.96.0.10", TCP, 53)
	sp.Fronts = append(sp.Fronts, FrontEnd{Front: tcp})
	b.program(t, start, sp)
	sp.Cluster = targets("2")
	want := []Stale{{dns, targets("1")[0]}, {tcp, targets("1")[0]}}
	if c := b.program(t, start, sp); !slices.Equal(c.Stale, want) {
		t.Errorf("stale are %v, want %v", c.Stale, want)
	}
}

// sticky is a ServicePort with affinity, a front of its own for each pool.
func sticky(cluster, local string) ServicePort {
	return ServicePort{
		Name: "a/b:c", Cluster: targets(cluster), Local: targets(local), Affinity: time.Hour,
		Fronts: []FrontEnd{
			{Front: frontOf("10.96.0.1", TCP, 80)},
			{Front: frontOf("10.96.0.2", TCP, 80), Pool: PoolLocal},
			{Front: frontOf("10.96.0.3", TCP, 80), Pool: PoolSplit},
		},
	}
}

func TestForget(t *testing.T) {
	b := newBed(Config{Family: IPv4})
	b.program(t, start, sticky("123", "12"))
	var whole, local, split string
	for name, p := range b.parts {
		switch {
		case p.kind != affinityPart:
		case name[len(name)-6:] == "-local":
			local = name
		case name[len(name)-6:] == "-split":
			split = name
		default:
			whole = name
		}
	}
	for _, step := range []struct {
		name string
		port ServicePort
		want []Forget
	}{
		{"nothing changes", sticky("123", "12"), nil},
		{"endpoints come", sticky("12345", "123"), nil},
		{"another weighs more", sticky("1112345", "123"), nil},
		{"both pools lose one", sticky("2345", "23"), []Forget{{whole, targets("2345")}, {local, targets("23")}, {split, targets("2345")}}},
		{"the whole pool loses one that is local", sticky("345", "23"), []Forget{{whole, targets("345")}, {split, targets("345")}}},
		{"the local pool loses one", sticky("345", "2"), []Forget{{local, targets("2")}, {split, targets("245")}}},
		{"one comes back", sticky("2345", "2"), nil},
		{"the local pool loses all", sticky("2345", ""), []Forget{{local, nil}, {split, targets("345")}}},
		{"all go", sticky("", ""), []Forget{{whole, nil}, {split, nil}}},
		{"all come again", sticky("12", "1"), nil},
		{"the port goes", ServicePort{Name: "a/b:c"}, []Forget{{whole, nil}, {local, nil}, {split, nil}}},
	} {
		t.Run(step.name, func(t *testing.T) {
			slices.SortFunc(step.want, func(a, b Forget) int {
				if a.Set < b.Set {
					return -1
				}
				return 1
			})
			got := b.program(t, start, step.port).Forget
			for i := range got {
				if len(got[i].Keep) == 0 {
					got[i].Keep = nil
				}
			}
			if !reflect.DeepEqual(got, step.want) {
				t.Errorf("forgotten are %v, want %v", got, step.want)
			}
		})
	}
}

func TestClientsStayWithTheirEndpoints(t *testing.T) {
	b := newBed(Config{Family: IPv4, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}})
	b.program(t, start, sticky("1234", "12"))
	client := netip.MustParseAddr("192.0.2.1")
	send := func(front int, draw uint32) string {
		f := b.kernel.send(packet{source: client, front: sticky("", "").Fronts[front].Front}, draw)
		return digits([]netip.AddrPort{f.target})
	}
	expect := func(front int, draw uint32, want string) {
		t.Helper()
		if got := send(front, draw); got != want {
			t.Errorf("the client of front %d goes to %s, want %s", front, got, want)
		}
	}
	expect(0, 3, "4")
	expect(0, 1, "4")
	// The fronts of other pools know nothing of that: they may not have that endpoint.
	expect(1, 0, "1")
	expect(2, 1, "2")
	// Slots move below the client, which stays.
	b.program(t, start, sticky("2345", "12"))
	expect(0, 1, "4")
	b.program(t, start, sticky("42", "12"))
	expect(0, 0, "4")
	// It goes elsewhere when its endpoint has gone, and stays there.
	b.program(t, start, sticky("23", "12"))
	at := send(0, 0)
	b.program(t, start, sticky("32", "12"))
	expect(0, 1, at)
	// Without affinity it goes anywhere; so it does when affinity comes again.
	free := sticky("23", "12")
	free.Affinity = 0
	b.program(t, start, free)
	if send(0, 0) == send(0, 1) {
		t.Error("the client stays where it is")
	}
	b.program(t, start, sticky("23", "12"))
	first := send(0, 0)
	expect(0, 1, first)
}

func TestAffinityChangesInPlace(t *testing.T) {
	b := newBed(Config{Family: IPv4})
	sp := sticky("12", "1")
	sp.Fronts = sp.Fronts[:1]
	b.program(t, start, sp)
	sp.Affinity = 2 * time.Hour
	c := b.program(t, start, sp)
	lines := describe(c.Transaction)
	if len(lines) != 1 || c.Transaction.Changes[0].Kind != ReplaceRules {
		t.Fatalf("another time makes more than one chain another: %v", lines)
	}
	if got, want := c.Transaction.Changes[0].Chain.Rules[0].String(), "timeout 2h"; !strings.Contains(got, want) {
		t.Errorf("the rule is %s, without %s", got, want)
	}
}
