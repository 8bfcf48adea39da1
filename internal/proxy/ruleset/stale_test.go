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
	knows := func(cluster, view, serving, silent, fleeting string) ServicePort {
		sp := dnsPort(cluster)
		sp.Known = Known{View: view, Serving: targets(serving), Silent: targets(silent), Fleeting: targets(fleeting)}
		return sp
	}
	gone := ServicePort{Name: "kube-system/dns:udp"}
	for _, test := range []struct {
		name          string
		before, after ServicePort
		want          []Stale
	}{
		{"nothing changes", port(PoolCluster, "12", ""), port(PoolCluster, "12", ""), nil},
		{"an endpoint comes", port(PoolCluster, "12", ""), port(PoolCluster, "123", ""), nil},
		{"another weighs more", port(PoolCluster, "1112", ""), port(PoolCluster, "1222", ""), nil},
		{"an endpoint goes", port(PoolCluster, "1212", ""), port(PoolCluster, "2", ""), []Stale{{Front: dns, Target: one("1")}}},
		{"all are others", port(PoolCluster, "12", ""), port(PoolCluster, "34", ""), []Stale{{Front: dns, Target: one("1")}, {Front: dns, Target: one("2")}}},
		{"all go", port(PoolCluster, "12", ""), port(PoolCluster, "", ""), nil},
		{"the first comes", port(PoolCluster, "", ""), port(PoolCluster, "12", ""), []Stale{{Front: dns, Target: own}}},
		{"there are none", port(PoolCluster, "", ""), port(PoolLocal, "", ""), nil},
		{"the front is new", gone, port(PoolCluster, "1", ""), []Stale{{Front: dns, Target: own}}},
		{"the front goes", port(PoolCluster, "1", ""), gone, nil},
		{"a front without endpoints goes", port(PoolCluster, "", ""), gone, nil},
		{"one goes that the front does not use", port(PoolCluster, "1", "2"), port(PoolCluster, "1", ""), []Stale{{Front: dns, Target: one("2")}}},
		{"the pool is another", port(PoolCluster, "12", "1"), port(PoolLocal, "12", "1"), nil},
		{"one of two pools loses what the other keeps", port(PoolSplit, "12", "1"), port(PoolSplit, "2", "1"), nil},
		{"both pools lose it", port(PoolSplit, "12", "1"), port(PoolSplit, "2", "2"), []Stale{{Front: dns, Target: one("1")}}},
		{"the second pool gets its first", port(PoolSplit, "2", ""), port(PoolSplit, "12", "1"), []Stale{{Front: dns, Target: own}}},
		{"one pool gets its first and the other loses its last", port(PoolSplit, "1", ""), port(PoolSplit, "", "1"), []Stale{{Front: dns, Target: own}}},
		{"one of two pools loses its last", port(PoolSplit, "12", "3"), port(PoolSplit, "12", ""), []Stale{{Front: dns, Target: one("3")}}},
		{"it serves and takes nothing new", knows("12", "", "", "", ""), knows("2", "", "1", "", ""), nil},
		{"what took nothing new ends", knows("2", "", "1", "", ""), knows("2", "", "", "", ""), []Stale{{Front: dns, Target: one("1")}}},
		{"it is silent", knows("12", "", "", "", ""), knows("2", "", "", "1", ""), []Stale{{Front: dns, Target: one("1")}}},
		{"it goes out of view", knows("12", "a", "", "", "1"), knows("2", "a", "", "", ""), nil},
		{"it is silent before that", knows("12", "a", "", "", "1"), knows("2", "a", "", "1", ""), []Stale{{Front: dns, Target: one("1")}}},
		{"it could not go out of view", knows("12", "a", "", "", ""), knows("2", "a", "", "", ""), []Stale{{Front: dns, Target: one("1")}}},
		{"the view is another", knows("12", "a", "", "", ""), knows("2", "b", "", "", ""), nil},
		{"the view is whole now", knows("12", "a", "", "", "12"), knows("2", "", "", "", ""), []Stale{{Front: dns, Target: one("1")}}},
		{"all are silent", knows("12", "a", "", "", ""), knows("", "a", "", "12", ""), nil},
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

// Connections stay until there is another endpoint.
func TestStaleWhenOthersServe(t *testing.T) {
	b := newBed(Config{Family: IPv4})
	at := start
	for _, step := range []struct {
		cluster, silent string
		want            []Stale
	}{
		{"12", "", []Stale{{Front: dns, Target: dns.own()}}},
		{"", "1", nil},
		{"", "", nil},
		{"3", "", []Stale{{Front: dns, Target: dns.own()}, {Front: dns, Target: targets("1")[0]}, {Front: dns, Target: targets("2")[0]}}},
	} {
		sp := dnsPort(step.cluster)
		sp.Known.Silent = targets(step.silent)
		if c := b.program(t, at, sp); !slices.Equal(c.Stale, step.want) {
			t.Errorf("with %q stale are %v, want %v", step.cluster, c.Stale, step.want)
		}
		at = at.Add(time.Minute)
	}
}

// Packets on their way when an endpoint ended may arrive until its chains and slots are deleted.
func TestStaleConnectionsAreFoundTwice(t *testing.T) {
	b := newBed(Config{Family: IPv4})
	b.program(t, start, sticky("12", "1"))
	first := b.program(t, start, sticky("2", ""))
	if len(first.Stale) == 0 || len(first.Forget) == 0 {
		t.Fatalf("nothing is stale: %v", first)
	}
	written := start.Add(Linger)
	b.Written(written)
	due, ok := b.Due()
	if want := written.Add(Linger); !ok || due != want {
		t.Fatalf("due at %s (%t), want %s", due, ok, want)
	}
	if c := b.program(t, due.Add(-1)); c.Stale != nil || c.Forget != nil {
		t.Errorf("before its time: %v", c)
	}
	again := b.program(t, due)
	if !reflect.DeepEqual(again.Stale, first.Stale) {
		t.Errorf("stale are %v, before %v", again.Stale, first.Stale)
	}
	for _, f := range first.Forget {
		if !slices.ContainsFunc(again.Forget, func(g Forget) bool { return g.Set == f.Set && slices.Equal(f.Keep, g.Keep) }) {
			t.Errorf("forgotten again are %v, not %v", again.Forget, f)
		}
	}
	if c := b.program(t, due.Add(time.Hour)); c.Stale != nil || c.Forget != nil {
		t.Errorf("a third time: %v", c)
	}
}

// The recheck does not end connections to an endpoint that came back.
func TestServingEndpointsAreNotStale(t *testing.T) {
	b := newBed(Config{Family: IPv4})
	b.program(t, start, sticky("123", ""))
	b.program(t, start, sticky("3", ""))
	b.program(t, start, sticky("31", ""))
	due, _ := b.Due()
	c := b.program(t, due)
	for _, s := range c.Stale {
		if s.Target != targets("2")[0] {
			t.Errorf("stale is %v", s)
		}
	}
	if len(c.Stale) == 0 || len(c.Forget) == 0 {
		t.Fatalf("nothing is stale: %v", c)
	}
	for _, f := range c.Forget {
		if !slices.Contains(f.Keep, targets("1")[0]) || slices.Contains(f.Keep, targets("2")[0]) {
			t.Errorf("kept are %v", f)
		}
	}
}

// StillStale drops connections that may continue by now.
func TestStillStale(t *testing.T) {
	b := newBed(Config{Family: IPv4})
	elsewhere := frontOf("10.96.0.11", UDP, 53)
	six := Front{Address: netip.MustParseAddr("fd00::1"), Protocol: UDP, Port: 53}
	b.program(t, start, dnsPort("1234"), ServicePort{Name: "a/gone:", Cluster: targets("2"), Fronts: []FrontEnd{{Front: elsewhere}}})
	one := func(digit string) netip.AddrPort { return targets(digit)[0] }
	all := []Stale{{Front: dns, Target: dns.own()}, {Front: dns, Target: one("1")}, {Front: dns, Target: one("2")}, {Front: dns, Target: one("3")}, {Front: elsewhere, Target: one("1")}, {Front: six, Target: six.own()}}
	for _, step := range []struct {
		name             string
		cluster, serving string
		want             []Stale
	}{
		{"one serves", "4", "", all},
		{"one is back, and another still serves", "14", "2", []Stale{all[0], all[3], all[4], all[5]}},
		{"none is left", "", "", all},
	} {
		sp := dnsPort(step.cluster)
		sp.Known.Serving = targets(step.serving)
		b.stage(t, sp)
		b.Commit(start)
		if still := b.StillStale(slices.Clone(all)); !slices.Equal(still, step.want) {
			t.Errorf("%s: stale are %v, want %v", step.name, still, step.want)
		}
	}
	b.Remove("a/gone:")
	b.Commit(start)
	if still := b.StillStale(slices.Clone(all)); slices.Contains(still, all[4]) || len(still) != len(all)-1 {
		t.Errorf("without the port of a front stale are %v", still)
	}
}

// If the kernel refuses the transaction, the next Commit has its stale connections.
func TestStaleAfterARefusal(t *testing.T) {
	b := newBed(Config{Family: IPv4})
	sp := dnsPort("12")
	sp.Known.View = "a"
	b.program(t, start, sp)
	sp.Cluster = targets("2")
	b.stage(t, sp)
	b.Commit(start) // which is not done
	b.Adopt(b.kernel.list(IPv4))
	if c, want := b.program(t, start), []Stale{{Front: dns, Target: targets("1")[0]}}; !slices.Equal(c.Stale, want) {
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
	var whole, local string
	for name, p := range b.parts {
		switch {
		case p.kind != affinityPart:
		case p.local:
			local = name
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
		{"both pools lose one", sticky("2345", "23"), []Forget{{whole, targets("2345")}, {local, targets("23")}}},
		{"the whole pool loses one that is local", sticky("345", "23"), []Forget{{whole, targets("345")}}},
		{"the local pool loses one", sticky("345", "2"), []Forget{{local, targets("2")}}},
		{"one comes back while others are still to be forgotten", sticky("2345", "2"), []Forget{{whole, targets("2345")}}},
		{"the local pool loses all", sticky("2345", ""), []Forget{{local, nil}}},
		{"all go", sticky("", ""), []Forget{{whole, nil}}},
		{"all come again", sticky("12", "1"), []Forget{{whole, targets("12")}, {local, targets("1")}}},
		{"the port goes", ServicePort{Name: "a/b:c"}, []Forget{{whole, nil}, {local, nil}}},
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
	// The front of the local pool knows nothing of that: it may not have that endpoint.
	expect(1, 0, "1")
	// One of both pools goes by where the client comes from.
	expect(2, 1, "1")
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
		t.Error("the client stays with its endpoint")
	}
	b.program(t, start, sticky("23", "12"))
	first := send(0, 0)
	expect(0, 1, first)
}

// Clients are not led to removed targets, however long Forget takes, and whatever clients are added meanwhile.
func TestClientsOfRemovedTargets(t *testing.T) {
	b := newBed(Config{Family: IPv4})
	program := func(at time.Time, sp ServicePort) Commit {
		t.Helper()
		b.Set(sp)
		c := b.Commit(at)
		if err := b.kernel.apply(c.Transaction); err != nil {
			t.Fatal(err)
		}
		b.Written(at)
		return c
	}
	client := netip.MustParseAddr("192.0.2.1")
	send := func(draw uint32) string {
		f := b.kernel.send(packet{source: client, front: sticky("", "").Fronts[0].Front}, draw)
		return digits([]netip.AddrPort{f.target})
	}
	program(start, sticky("123", "1"))
	if at := send(1); at != "2" {
		t.Fatalf("the client goes to %s, want 2", at)
	}
	c := program(start, sticky("13", "1"))
	if len(c.Forget) != 1 {
		t.Fatalf("forgotten are %v", c.Forget)
	}
	// A packet on its way makes the kernel remember another client with the removed endpoint.
	late := addressKey(netip.MustParseAddr("192.0.2.2"))
	remember := func() {
		b.kernel.sets[c.Forget[0].Set].elements[late] = Element{Key: late, Data: TargetData(targets("2")[0])}
	}
	remember()
	first := send(0)
	if first == "2" {
		t.Error("the client is led to the removed endpoint")
	}
	if again := send(1); again != first {
		t.Errorf("the client goes to %s, before to %s after its endpoint was removed", again, first)
	}
	// Forgetting it before the last packet passed does not end the watch.
	b.kernel.forget(IPv4, c.Forget)
	b.Forgotten(c.Forget[0].Set, start)
	remember()
	client = netip.MustParseAddr("192.0.2.2")
	program(start.Add(time.Millisecond), sticky("13", "1"))
	if at := send(0); at == "2" {
		t.Error("the late client is led to the removed endpoint")
	}
	// An endpoint that comes again takes its clients again.
	remember()
	program(start.Add(2*time.Millisecond), sticky("132", "1"))
	if at := send(0); at != "2" {
		t.Errorf("the client goes to %s, want 2, which returned", at)
	}
}

// Rules for very many removed endpoints would slow down every client.
func TestManyRemovedTargetsDisableAffinity(t *testing.T) {
	b := newBed(Config{Family: IPv4})
	port := func(n int) ServicePort {
		sp := sticky("", "")
		for i := range n {
			sp.Cluster = append(sp.Cluster, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 2, 0, byte(i)}), 8080))
		}
		return sp
	}
	b.program(t, start, port(mostRemovedTargets+2))
	b.program(t, start, port(1))
	if text := b.Text(); strings.Contains(text, "delete @") || strings.Contains(text, "saddr map @affinity-tcp") {
		t.Errorf("clients are looked up:\n%s", text)
	}
	at := start.Add(time.Hour)
	c := b.program(t, at)
	for _, f := range c.Forget {
		b.Forgotten(f.Set, at)
	}
	b.program(t, at)
	if text := b.Text(); !strings.Contains(text, "saddr map @affinity-tcp") {
		t.Errorf("clients are no longer looked up:\n%s", text)
	}
}
