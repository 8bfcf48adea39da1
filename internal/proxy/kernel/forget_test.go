package kernel_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// Clients that expire during Forget do not prevent the deletion of others.
func TestClientsExpireDuringForget(t *testing.T) {
	n := newNamespace(t)
	c := n.open(t)
	table := ruleset.NewTable(ruleset.Config{Family: ruleset.IPv4})
	endpoint := func(n byte) netip.AddrPort { return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 0, n}), 80) }
	p := ruleset.ServicePort{
		Name: "a/b:c", Affinity: 30 * time.Second, Cluster: []netip.AddrPort{endpoint(1), endpoint(2)},
		Fronts: []ruleset.FrontEnd{{Front: ruleset.Front{Address: netip.MustParseAddr("10.96.0.1"), Protocol: ruleset.TCP, Port: 80}}},
	}
	stage(t, c, table, p)
	var name string
	for _, set := range table.Want().Sets {
		if strings.HasPrefix(set.Name, "affinity-") {
			name = set.Name
		}
	}
	// Some expire in each moment, as they do under a steady load.
	const clients = 20000
	var commands strings.Builder
	fmt.Fprintf(&commands, "add element ip vicinity %s {\n", name)
	for i := range clients {
		fmt.Fprintf(&commands, "10.200.%d.%d timeout 30s expires %dms : 10.1.0.%d . 80,\n", i>>8, i&255, 1+i*10000/clients, 1+i%2)
	}
	commands.WriteString("10.201.0.1 timeout 1h expires 1h : 10.1.0.1 . 80 }\n") // on a slow machine all others may expire before
	file := filepath.Join(t.TempDir(), "clients")
	if err := os.WriteFile(file, []byte(commands.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	n.nft(t, "-f", file)
	interference(t, c)

	p.Cluster = p.Cluster[:1]
	done := stage(t, c, table, p)
	began := time.Now()
	if err := c.Forget(ruleset.IPv4, done.Forget); err != nil {
		t.Error(err)
	}
	t.Logf("it took %s", time.Since(began))
	left := n.nft(t, "list", "map", "ip", "vicinity", name)
	if strings.Contains(left, "10.1.0.2 . 80") {
		t.Errorf("%d clients of the removed endpoint remain", strings.Count(left, "10.1.0.2 . 80"))
	}
	if !strings.Contains(left, "10.1.0.1 . 80") {
		t.Error("clients of the remaining endpoint are forgotten")
	}
	if got := interference(t, c); got != ruleset.NoInterference {
		t.Errorf("forgetting counts as a foreign change: %d", got)
	}
}
