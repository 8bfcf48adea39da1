package neighbour

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"vicinity.dev/vicinity/internal/proxy/kernel"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// base is a chain as a few words say: family, table, name, type, hook and priority.
func base(t *testing.T, text string) kernel.Chain {
	t.Helper()
	c := kernel.Chain{Base: &kernel.ChainBase{}}
	if _, err := fmt.Sscan(text, &c.Family, &c.Table, &c.Name, &c.Base.Type, &c.Base.Hook, &c.Base.Priority); err != nil {
		t.Fatal(err)
	}
	return c
}

// dropping is a chain with the policy drop.
func dropping(c kernel.Chain) kernel.Chain {
	c.Base.Drops = true
	return c
}

func TestFind(t *testing.T) {
	for _, test := range []struct {
		name string
		node Node
		want []string
	}{
		{"an empty node", Node{Links: []string{"eth0", "lo"}}, nil},
		{"our own table", Node{Chains: []kernel.Chain{
			base(t, "ip vicinity nat-output nat output -101"), base(t, "ip6 vicinity nat-output nat output -101"),
		}}, nil},
		{"Cilium", Node{Links: []string{"cilium_host", "cilium_net"}}, []string{"Cilium: interface cilium_host: where it replaces kube-proxy it translates connections before netfilter"}},
		{"Calico", Node{Links: []string{"cali12ab", "lo"}}, []string{"Calico: interface cali12ab: with its iptables or nftables data plane"}},
		{"Calico with eBPF", Node{Links: []string{"bpfin.cali", "bpfout.cali", "cali12ab"}}, []string{"Calico with its eBPF data plane: interface bpfin.cali: it translates connections to Services before netfilter"}},
		{"Antrea", Node{Links: []string{"antrea-gw0"}}, []string{"Antrea: interface antrea-gw0: AntreaProxy translates connections of pods in Open vSwitch"}},
		{"kube-router", Node{Links: []string{"kube-dummy-if"}}, []string{"kube-router's service proxy: interface kube-dummy-if: it serves Services by IPVS"}},
		{"NodeLocal DNSCache", Node{Links: []string{"nodelocaldns"}}, []string{"NodeLocal DNSCache: interface nodelocaldns: it answers queries"}},
		{"firewalld", Node{Chains: []kernel.Chain{base(t, "inet firewalld filter_FORWARD filter forward 10")}}, []string{"firewalld: table inet firewalld: it filters what is forwarded"}},
		{"Docker by nftables", Node{Chains: []kernel.Chain{{Family: "ip", Table: "docker-bridges", Name: "raw-PREROUTING"}}}, []string{"Docker: table ip docker-bridges: "}},
		{"Docker by iptables", Node{Links: []string{"docker0"}, Chains: []kernel.Chain{{Family: "ip", Table: "filter", Name: "DOCKER"}, dropping(base(t, "ip filter FORWARD filter forward 0"))}}, []string{
			"Docker: chain ip filter DOCKER: ",
			"a chain that drops what is forwarded: chain ip filter FORWARD, type filter hook forward priority 0, policy drop: packets to and from pods are dropped",
		}},
		{"Docker by iptables-legacy", Node{Links: []string{"docker0"}, Legacy: []string{"iptables nat", "iptables filter"}}, []string{
			"Docker: interface docker0: ", "iptables-legacy: iptables nat, iptables filter of iptables-legacy: its rules are beside those of nftables",
		}},
		{"kube-proxy by nftables", Node{Chains: []kernel.Chain{
			{Family: "ip", Table: "kube-proxy", Name: "services"},
			{Family: "ip6", Table: "kube-proxy", Name: "services"},
			base(t, "ip kube-proxy nat-output nat output -100"),
		}}, []string{"kube-proxy in its mode nftables: table ip kube-proxy: it serves the Services that are not handed over"}},
		{"kube-proxy by nftables for IPv6 alone", Node{Chains: []kernel.Chain{{Family: "ip6", Table: "kube-proxy", Name: "services"}}}, []string{"kube-proxy in its mode nftables: table ip6 kube-proxy: "}},
		{"kube-proxy by iptables", Node{Chains: []kernel.Chain{{Family: "ip", Table: "nat", Name: "KUBE-SERVICES"}}}, []string{"kube-proxy in its mode iptables: chain ip nat KUBE-SERVICES: "}},
		{"kube-proxy by IPVS", Node{Links: []string{"kube-ipvs0"}, Chains: []kernel.Chain{{Family: "ip", Table: "nat", Name: "KUBE-SERVICES"}}}, []string{"kube-proxy in its mode IPVS: interface kube-ipvs0: "}},
		{"kube-proxy that was replaced", Node{AllServices: true, Chains: []kernel.Chain{{Family: "ip", Table: "kube-proxy", Name: "services"}}}, []string{"run kube-proxy --cleanup on the node"}},
		{"who translates first", Node{Chains: []kernel.Chain{
			base(t, "inet foreign a nat prerouting -101"), base(t, "ip foreign b nat output -102"),
			base(t, "ip foreign c nat output -100"), base(t, "ip foreign d nat input -200"), base(t, "ip foreign e filter output -200"),
		}}, []string{
			"a chain that translates first: chain inet foreign a, type nat hook prerouting priority -101: what it translates does not come to vicinity-proxy, whose priority is -101",
			"a chain that translates first: chain ip foreign b, type nat hook output priority -102: ",
		}},
		{"a table of the same name in another family", Node{Chains: []kernel.Chain{dropping(base(t, "inet filter input filter input 0"))}}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, f := range Find(test.node) {
				got = append(got, fmt.Sprintf("%s: %s: %s", f.Name, f.Found, f.Consequence))
				if f.Next != page || strings.HasSuffix(f.Consequence, ".") {
					t.Errorf("%+v", f)
				}
			}
			if len(got) != len(test.want) {
				t.Fatalf("found %q, want %q", got, test.want)
			}
			for i := range got {
				if !strings.Contains(got[i], test.want[i]) {
					t.Errorf("found %q, want %q", got[i], test.want[i])
				}
			}
		})
	}
}

// The priority that others are compared with is that of the rules.
func TestTranslatePriority(t *testing.T) {
	text := ruleset.NewTable(ruleset.Config{}).Text()
	for _, hook := range []string{"prerouting", "output"} {
		if want := fmt.Sprintf("type nat hook %s priority %d;", hook, translatePriority); !strings.Contains(text, want) {
			t.Errorf("the rules do not have %q:\n%s", want, text)
		}
	}
}

func TestRead(t *testing.T) {
	s := Sources{
		Proc:   fstest.MapFS{"net/ip_tables_names": {Data: []byte("nat\nfilter\n")}, "net/ip6_tables_names": {}},
		Links:  func() ([]string, error) { return []string{"lo", "eth0"}, nil },
		Chains: func() ([]kernel.Chain, error) { return []kernel.Chain{{Name: "a"}}, nil },
	}
	n, err := Read(s, true)
	if err != nil || fmt.Sprintf("%+v", n) != "{Links:[eth0 lo] Chains:[{Family: Table: Name:a Base:<nil>}] Legacy:[iptables nat iptables filter] AllServices:true}" {
		t.Errorf("%+v, %v", n, err)
	}
	// What fails does not hide the rest.
	failed := errors.New("not permitted")
	s.Links = func() ([]string, error) { return nil, failed }
	s.Proc = fstest.MapFS{}
	if n, err = Read(s, false); !errors.Is(err, failed) || len(n.Chains) != 1 || n.Legacy != nil {
		t.Errorf("%+v, %v", n, err)
	}
	s.Proc = closed{}
	if _, err = Read(s, false); !strings.Contains(fmt.Sprint(err), "reading the tables of ip6tables: ") {
		t.Error(err)
	}
}

// closed is a file system that nobody may read.
type closed struct{}

func (closed) Open(string) (fs.File, error) { return nil, fs.ErrPermission }
