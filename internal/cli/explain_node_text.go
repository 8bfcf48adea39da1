package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing/explain"
)

func writeNode(p *page, d *inspect.NodeExplanation) {
	p.heading(fmt.Sprintf("Service %s/%s on node %s", d.Namespace, d.Service, d.Node))
	zone := d.Zone
	if zone == "" {
		zone = "none"
	}
	lines := []string{"zone of the node: " + zone, fmt.Sprintf("served by: %s; %s", d.ServedBy, d.Why)}
	if d.HandOver != "" {
		lines = append(lines, "hand-over: "+d.HandOver)
	}
	if d.Proxy != nil {
		line := fmt.Sprintf("vicinity-proxy on the node: its Lease was renewed %s ago", d.Proxy.Age.Round(time.Second))
		if d.Proxy.Programmed != "" {
			line += ", groups in hand-over are programmed up to version " + d.Proxy.Programmed
		}
		lines = append(lines, line)
	}
	if d.Groups > 0 {
		lines = append(lines, fmt.Sprintf("groups: the node sees %d of %d", d.GroupsSeen, d.Groups))
	}
	if d.AffinitySeconds > 0 {
		lines = append(lines, fmt.Sprintf("session affinity: a client stays with its endpoint for %s", time.Duration(d.AffinitySeconds)*time.Second))
	}
	for _, warning := range d.Warnings {
		lines = append(lines, "warning: "+warning)
	}
	p.list("", lines)
	for i := range d.Families {
		writeNodeFamily(p, &d.Families[i])
	}
	for i := range d.KubeProxy {
		writeKubeProxyPort(p, &d.KubeProxy[i])
	}
	writeKernel(p, &d.Kernel)
	p.list("not known", d.NotKnown)
}

func writeNodeFamily(p *page, f *inspect.NodeFamily) {
	for i := range f.Ports {
		writeNodePort(p, f.Family, &f.Ports[i])
	}
	if f.Health != nil {
		answer := "503"
		if f.Health.LocalEndpoints > 0 {
			answer = "200"
		}
		p.list("health check port", []string{fmt.Sprintf("%d answers %s: %s on the node", f.Health.Port, answer,
			count(int64(f.Health.LocalEndpoints), "endpoint is ready", "endpoints are ready"))})
	}
}

func portTitle(family, name, protocol string) string {
	if name == "" {
		return fmt.Sprintf("%s, %s", family, protocol)
	}
	return fmt.Sprintf("%s, port %s, %s", family, name, protocol)
}

func writeNodePort(p *page, family string, n *inspect.NodePort) {
	p.heading(portTitle(family, n.Name, n.Protocol))
	lines := []string{"rule: " + n.Rule.Text}
	if n.Rule.Why != "" {
		lines = append(lines, "because: "+n.Rule.Why)
	}
	if n.Unreachable {
		lines = append(lines, "refused: the Service has endpoints, but none in a place that it allows for the node")
	}
	p.list("", lines)
	fronts := plaintext.NewTable("address", "is", "goes to", "source address", "without an endpoint")
	for i := range n.Fronts {
		front := &n.Fronts[i]
		to := front.To
		if len(front.Sources) > 0 {
			to += ", from " + strings.Join(front.Sources, " and ") + " only"
		}
		if front.Lost != "" {
			to = "nothing of this Service: " + front.Lost + " has the address"
		}
		fronts.Rows = append(fronts.Rows, []string{front.Address, front.Kind, to, front.Source, front.Empty})
	}
	p.table("clients connect to", fronts)
	writeEndpoints(p, "endpoints", n.Endpoints)
	if n.HasLocal {
		writeEndpoints(p, "endpoints on the node", n.Local)
	}
}

func writeEndpoints(p *page, title string, endpoints []inspect.NodeEndpoint) {
	table := plaintext.NewTable("endpoint", "zone", "node", ">share %")
	for i := range endpoints {
		e := &endpoints[i]
		table.Rows = append(table.Rows, []string{e.Address, explain.ZoneName(e.Zone), orDash(e.Node), strconv.FormatFloat(e.Share, 'f', 1, 64)})
	}
	p.longTable(title, table)
}

func writeKubeProxyPort(p *page, n *inspect.NodeStockPort) {
	p.heading("kube-proxy, " + portTitle(string(n.Family), n.Name, n.Protocol))
	lines := []string{"rule: " + n.Rule}
	if n.Why != "" {
		lines = append(lines, "because: "+n.Why)
	}
	p.list("", lines)
	writeEndpoints(p, "endpoints", n.Endpoints)
}

func writeKernel(p *page, k *inspect.Kernel) {
	switch {
	case !k.Compared:
		p.list("kernel of the node", []string{"not compared: " + k.Why})
	case len(k.Differences) == 0:
		p.list("kernel of the node", []string{"matches the rules"})
	default:
		p.list("kernel of the node, which differs", k.Differences)
	}
}
