package ruleset

import (
	"net/netip"
	"slices"
	"testing"
)

// A front that the cluster assigned wins over any older claim.
func TestAssignedFrontsBeatOlderClaims(t *testing.T) {
	is := func(change func(*FrontEnd)) func(*FrontEnd) { return change }
	external := is(func(*FrontEnd) {})
	nodePort := is(func(e *FrontEnd) { e.NodePort = true })
	clusterIP := is(func(e *FrontEnd) { e.ClusterIP = true })
	both := is(func(e *FrontEnd) { e.ClusterIP, e.NodePort = true, true })
	for _, test := range []struct {
		name           string
		older, younger func(*FrontEnd)
		olderWins      bool
	}{
		{"cluster IP and external IP", external, clusterIP, false},
		{"cluster IP and NodePort", nodePort, clusterIP, false},
		{"NodePort and external IP", external, nodePort, false},
		{"two cluster IPs", clusterIP, clusterIP, true},
		{"two NodePorts", nodePort, nodePort, true},
		{"two external IPs", external, external, true},
		{"an older cluster IP and an external IP", clusterIP, external, true},
		{"two cluster IPs, one also a NodePort", clusterIP, both, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			older, younger := dnsPort("1"), dnsPort("2")
			older.Name, older.Rank, younger.Name, younger.Rank = "a/older:", "1", "b/younger:", "2"
			for sp, change := range map[*ServicePort]func(*FrontEnd){&older: test.older, &younger: test.younger} {
				sp.Fronts = []FrontEnd{{Front: dns}}
				change(&sp.Fronts[0])
			}
			want := map[bool]string{true: "1", false: "2"}[test.olderWins]
			for _, ports := range [][]ServicePort{{older, younger}, {younger, older}} {
				b := newBed(Config{Family: IPv4})
				for _, sp := range ports {
					b.program(t, start, sp)
				}
				p := packet{source: netip.MustParseAddr("192.0.2.1"), front: dns}
				if got := b.kernel.send(p, 0).target; !slices.Contains(targets(want), got) {
					t.Errorf("%s was first: the front goes to %s, want %s", ports[0].Name, got, targets(want)[0])
				}
			}
		})
	}
}
