package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"vicinity.dev/vicinity/lab/test/bench/meter"
	"vicinity.dev/vicinity/test/kube"
)

// The compared servers.
const (
	vicinity = "vicinity"
	coredns  = "coredns"
)

type contender struct {
	// dns is the kind of server.
	dns   string
	cache bool
	// pods is the setting of the plugin kubernetes: insecure, which watches no pods, or verified.
	pods string
}

type server struct {
	*meter.Program
	at, ready, metrics netip.AddrPort
}

// startTime limits the wait until a server knows all objects, generously.
const startTime = 5 * time.Minute

func (b *bench) serve(ctx context.Context, c contender) (*server, error) {
	s := &server{}
	for _, address := range []*netip.AddrPort{&s.at, &s.ready, &s.metrics} {
		var err error
		if *address, err = meter.FreeAddress(ctx); err != nil {
			return nil, err
		}
	}
	corefile := filepath.Join(b.Folder, c.dns+".Corefile")
	if err := os.WriteFile(corefile, []byte(c.corefile(s, b.Cluster.Kubeconfig())), 0o600); err != nil {
		return nil, err
	}
	name := "vicinity-dns"
	if c.dns == coredns {
		name = "bench-coredns"
	}
	program, err := b.Program(name)
	if err != nil {
		return nil, err
	}
	if s.Program, err = meter.Start(c.dns, "", b.Folder, b.Lost, program, "-conf", corefile); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	err = kube.Wait(limited, c.dns+" to be ready", func(ctx context.Context) (string, error) {
		// The server is ready before it listens for queries.
		if _, err := meter.Page(ctx, nil, s.ready, "/ready"); err != nil {
			return "", err
		}
		return "", s.answers(ctx)
	})
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *server) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, s.at.String())
	}}
	_, err := resolver.LookupHost(ctx, fmt.Sprintf("%s-0.%s.%s.", vipName, namespace, domain))
	return err
}

// corefile is the usual one without plugins that query other servers. CoreDNS' lacks one line, which
// it does not know.
func (c contender) corefile(s *server, kubeconfig string) string {
	lines := []string{
		"bind 127.0.0.1", "errors", "ready " + s.ready.String(),
		"kubernetes cluster.local in-addr.arpa ip6.arpa {", "  kubeconfig " + kubeconfig, "  startup_timeout 2m",
		"  pods " + c.pods, "  fallthrough in-addr.arpa ip6.arpa", "  ttl 30", "}",
		"prometheus " + s.metrics.String(), "loadbalance",
	}
	if c.cache {
		lines = append(lines, "cache 30")
	}
	if c.dns == vicinity {
		lines = append(lines, "vicinity cluster.local {", "  kubeconfig "+kubeconfig, "  startup_timeout 2m", "}")
	}
	return fmt.Sprintf(".:%d {\n  %s\n}\n", s.at.Port(), strings.Join(lines, "\n  "))
}

// checkLocated returns an error unless the server located all clients and filtered answers for them:
// otherwise the measurement would be pointless.
func (s *server) checkLocated(ctx context.Context) error {
	page, err := meter.Page(ctx, nil, s.metrics, "/metrics")
	if err != nil {
		return fmt.Errorf("reading the metrics of vicinity-dns: %w", err)
	}
	sum := func(metric, label string) (n float64) {
		var failed error
		n, failed = meter.SumMetric(strings.NewReader(page), metric, label)
		err = errors.Join(err, failed)
		return n
	}
	clients, located := sum("coredns_vicinity_clients_total", ""), sum("coredns_vicinity_clients_total", `located="range"`)
	answers, nearest := sum("coredns_vicinity_answers_total", ""), sum("coredns_vicinity_answers_total", `outcome="nearest"`)
	switch {
	case err != nil:
		return err
	case clients == 0 || located < clients:
		return fmt.Errorf("%.0f of %.0f clients were located by the ranges of nodes, want all", located, clients)
	case nearest < answers:
		return fmt.Errorf("%.0f of %.0f answers have the nearest endpoints only, want all", nearest, answers)
	}
	return nil
}
