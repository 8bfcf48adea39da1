package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/test/bench/meter"
)

const (
	kubeProxy = "kube-proxy"
	vicinity  = "vicinity"
	// weighted is vicinity-proxy with weighted endpoints, in figures.
	weighted = "vicinity-weighted"
)

const (
	// Ports of vicinity-proxy on its node.
	healthPort  = 10266
	metricsPort = 10267
)

// peers are kube-proxy with its default minimum sync period of 1 s, and with shorter ones in their names.
var peers = []string{kubeProxy, kubeProxy + "-100ms", kubeProxy + "-0s"}

func (b *bench) contend(who string, node shape.Node, flags ...string) (*meter.Program, error) {
	c := b.cluster
	namespace := shape.NodeNamespace(c.Cluster.Shape().Name, node.Index)
	kubeconfig := c.dir.ComponentKubeconfig("kube-proxy")
	var cidrs []string
	for _, cidr := range c.Cluster.Shape().PodCIDRs() {
		cidrs = append(cidrs, cidr.String())
	}
	if slices.Contains(peers, who) {
		program, err := b.Program("vicinity-kubernetes")
		if err != nil {
			return nil, err
		}
		// Defaults, except for settings of the whole kernel.
		args := []string{
			program, kubeProxy,
			"--kubeconfig=" + kubeconfig, "--hostname-override=" + node.Name, "--proxy-mode=nftables",
			"--cluster-cidr=" + strings.Join(cidrs, ","), "--detect-local-mode=ClusterCIDR",
			"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0", "--oom-score-adj=0",
		}
		if _, period, isSet := strings.Cut(who, kubeProxy+"-"); isSet {
			// It applies to nftables too.
			args = append(args, "--iptables-min-sync-period="+period)
		}
		return meter.Start(who, namespace, b.Folder, b.Lost, args...)
	}
	program, err := b.Program("vicinity-proxy")
	if err != nil {
		return nil, err
	}
	args := []string{
		program, "--kubeconfig=" + kubeconfig, "--node-name=" + node.Name,
		"--cluster-cidr=" + strings.Join(cidrs, ","), "--healthz-bind-address=:" + strconv.Itoa(healthPort),
		"--metrics-bind-address=:" + strconv.Itoa(metricsPort), "--lease-namespace=vicinity-system", "--conntrack-accounting",
	}
	return meter.Start(who, namespace, b.Folder, b.Lost, append(args, flags...)...)
}

func (b *bench) clear(ctx context.Context, node shape.Node) error {
	namespace := shape.NodeNamespace(b.Cluster.Shape().Name, node.Index)
	return fabric.InNamespace(namespace, func() error {
		for _, family := range []string{"ip", "ip6"} {
			for _, table := range []string{kubeProxy, vicinity} {
				// Adding a table first makes deleting it no error if it does not exist.
				rule := fmt.Sprintf("add table %[1]s %[2]s; delete table %[1]s %[2]s", family, table)
				if output, err := exec.CommandContext(ctx, "nft", rule).CombinedOutput(); err != nil {
					return fmt.Errorf("nft %s: %w: %s", rule, err, output)
				}
			}
		}
		return nil
	})
}

// metric is the sum of a metric of vicinity-proxy over labels that contain a text.
func (b *bench) metric(ctx context.Context, name, label string) (float64, error) {
	namespace := shape.NodeNamespace(b.Cluster.Shape().Name, b.cluster.node.Index)
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return fabric.Dial(ctx, namespace, network, address)
	}}
	page, err := meter.Page(ctx, transport, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), metricsPort), "/metrics")
	if err != nil {
		return 0, fmt.Errorf("reading the metrics of vicinity-proxy: %w", err)
	}
	return meter.SumMetric(strings.NewReader(page), name, label)
}
