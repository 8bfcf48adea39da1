// Package neighbour says which other programs handle packets of a node, and what each means
// for vicinity-proxy. It goes by names of interfaces, tables and chains, which tells what is
// there and not what it does: whether packets come through the rules of vicinity-proxy, a
// probe shows.
package neighbour

import (
	"fmt"
	"slices"
	"strings"

	"vicinity.dev/vicinity/internal/proxy/kernel"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// Finding is something else on the node that handles packets.
type Finding struct {
	// Name is what it is called, of a few words, and Found by what it was found.
	Name, Found string
	// Consequence is what it means for vicinity-proxy, a sentence.
	Consequence string
	// Next is where to read on.
	Next string
}

// page is the document about all of this.
const page = "docs/coexistence.md"

// Node is what there is on a node.
type Node struct {
	// Links are the names of its interfaces.
	Links []string
	// Chains are those of all tables of nftables, among which are those of iptables-nft.
	Chains []kernel.Chain
	// Legacy are the tables of iptables and ip6tables that are not in nftables.
	Legacy []string
	// AllServices says that vicinity-proxy is to serve all Services.
	AllServices bool
}

// Find says what there is, in a fixed order.
func Find(n Node) []Finding {
	var all []Finding
	add := func(found string, is bool, name, consequence string) {
		if is {
			all = append(all, Finding{Name: name, Found: found, Consequence: consequence, Next: page})
		}
	}
	found, is := n.link("cilium_host", "cilium_net")
	add(found, is, "Cilium", "where it replaces kube-proxy it translates connections before netfilter, and with eBPF host routing packets of pods do not pass netfilter")
	calico, calicoIs := n.link("bpfin.cali", "bpfout.cali")
	add(calico, calicoIs, "Calico with its eBPF data plane", "it translates connections to Services before netfilter, so that rules of vicinity-proxy have no effect on them")
	found, is = n.linkPrefix("cali")
	add(found, is && !calicoIs, "Calico", "with its iptables or nftables data plane it filters packets after vicinity-proxy has translated them, as after kube-proxy")
	found, is = n.link("antrea-gw0")
	add(found, is, "Antrea", "AntreaProxy translates connections of pods in Open vSwitch, before netfilter, unless it is switched off or the Service has the label service.kubernetes.io/service-proxy-name")
	all = append(all, n.kubeProxy()...)
	found, is = n.link("kube-dummy-if")
	add(found, is, "kube-router's service proxy", "it serves Services by IPVS, after vicinity-proxy has translated them, and does not stop where a Service is handed over")
	found, is = n.link("nodelocaldns")
	add(found, is, "NodeLocal DNSCache", "it answers queries to the addresses that it listens at; a DNS Service whose cluster IP is among them must not be handed over")
	found, is = n.table("inet", "firewalld")
	add(found, is, "firewalld", "it filters what is forwarded after vicinity-proxy has translated it; its zones must let the pods' interfaces through, as with kube-proxy")
	found, is = n.docker()
	add(found, is, "Docker", "it may set the policy of what is forwarded to drop; what comes to its own published ports is not touched by vicinity-proxy")
	add(strings.Join(n.Legacy, ", ")+" of iptables-legacy", len(n.Legacy) > 0, "iptables-legacy",
		"its rules are beside those of nftables and nft does not show them; its nat rules come after those of vicinity-proxy, as they do with kube-proxy's")
	return append(all, n.chains()...)
}

// link finds the first of some interfaces.
func (n Node) link(names ...string) (found string, is bool) {
	for _, name := range names {
		if slices.Contains(n.Links, name) {
			return "interface " + name, true
		}
	}
	return "", false
}

func (n Node) linkPrefix(prefix string) (found string, is bool) {
	i := slices.IndexFunc(n.Links, func(name string) bool { return strings.HasPrefix(name, prefix) })
	if i < 0 {
		return "", false
	}
	return "interface " + n.Links[i], true
}

// table finds a table that has chains.
func (n Node) table(family, name string) (found string, is bool) {
	return "table " + family + " " + name, slices.ContainsFunc(n.Chains, func(c kernel.Chain) bool { return c.Family == family && c.Table == name })
}

// chain finds a chain of nftables by what its name is.
func (n Node) chain(family, table, name string) (found string, is bool) {
	return fmt.Sprintf("chain %s %s %s", family, table, name), slices.ContainsFunc(n.Chains, func(c kernel.Chain) bool {
		return c.Family == family && c.Table == table && c.Name == name
	})
}

// docker is by what Docker is found.
func (n Node) docker() (found string, is bool) {
	for _, find := range []func() (string, bool){
		func() (string, bool) { return n.table("ip", "docker-bridges") },
		func() (string, bool) { return n.chain("ip", "filter", "DOCKER") },
		func() (string, bool) { return n.link("docker0") },
	} {
		if found, is := find(); is {
			return found, true
		}
	}
	return "", false
}

// kubeProxy says in which mode kube-proxy is, or was.
func (n Node) kubeProxy() []Finding {
	consequence := "it serves the Services that are not handed over, after the rules of vicinity-proxy"
	if n.AllServices {
		consequence = "it, or the rules that it has left, come after those of vicinity-proxy, which serves all Services: take it away, and run kube-proxy --cleanup on the node"
	}
	var all []Finding
	for _, mode := range []struct {
		name string
		find func() (string, bool)
	}{
		{"nftables", func() (string, bool) { return n.table("ip", "kube-proxy") }},
		{"nftables", func() (string, bool) { return n.table("ip6", "kube-proxy") }},
		{"IPVS", func() (string, bool) { return n.link("kube-ipvs0") }},
		{"iptables", func() (string, bool) { return n.chain("ip", "nat", "KUBE-SERVICES") }},
		{"iptables", func() (string, bool) { return n.chain("ip6", "nat", "KUBE-SERVICES") }},
	} {
		name := "kube-proxy in its mode " + mode.name
		found, is := mode.find()
		known := slices.ContainsFunc(all, func(f Finding) bool { return f.Name == name })
		// The mode IPVS has some rules of iptables too.
		ipvs := mode.name == "iptables" && slices.ContainsFunc(all, func(f Finding) bool { return strings.HasSuffix(f.Name, "IPVS") })
		if is && !known && !ipvs {
			all = append(all, Finding{Name: name, Found: found, Consequence: consequence, Next: page})
		}
	}
	return all
}

// chains finds those of others that packets pass before ours, or that drop what they do not
// know.
func (n Node) chains() []Finding {
	var all []Finding
	for _, c := range n.Chains {
		if c.Base == nil || c.Table == ruleset.TableName {
			continue
		}
		text := fmt.Sprintf("chain %s %s %s, type %s hook %s priority %d", c.Family, c.Table, c.Name, c.Base.Type, c.Base.Hook, c.Base.Priority)
		switch {
		case c.Base.Type == "nat" && (c.Base.Hook == "prerouting" || c.Base.Hook == "output") && c.Base.Priority <= translatePriority:
			all = append(all, Finding{
				Name: "a chain that translates first", Found: text, Next: page,
				Consequence: fmt.Sprintf("what it translates does not come to vicinity-proxy, whose priority is %d", translatePriority),
			})
		case c.Base.Type == "filter" && c.Base.Hook == "forward" && c.Base.Drops:
			all = append(all, Finding{
				Name: "a chain that drops what is forwarded", Found: text + ", policy drop", Next: page,
				Consequence: "packets to and from pods are dropped unless its rules accept them, also those that vicinity-proxy has translated",
			})
		}
	}
	return all
}

// translatePriority is that of the chains of vicinity-proxy that translate. A test compares
// it with the rules.
const translatePriority = -101
