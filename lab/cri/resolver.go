package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab/state"
)

const (
	// clusterDomain is the domain of the cluster's names.
	clusterDomain   = "cluster.local"
	machineResolver = "/etc/resolv.conf"
	// clusterOption is the option that comes with the cluster's DNS server.
	clusterOption = "ndots:5"
	// maxNameservers is how many the C library uses.
	maxNameservers = 3
)

type resolver struct {
	nameservers, searches, options []string
}

// writeResolver writes the pod's resolv.conf, unless it is the machine's.
func (n *node) writeResolver(ctx context.Context, s *sandbox) error {
	text, err := os.ReadFile(machineResolver)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	said, machine := s.Config.GetDnsConfig(), parseResolver(string(text))
	r := resolver{nameservers: said.GetServers(), searches: said.GetSearches(), options: said.GetOptions()}
	if usesClusterDNS(r, n.shape.DNSAddrs()) {
		server, err := n.runtime.nameservers(ctx)
		if err != nil {
			return err
		}
		r = r.withClusterDNS(n.shape.DNSAddrs(), server, machine)
	}
	if r.String() == machine.String() {
		return nil
	}
	return state.ReplaceFile(filepath.Join(s.folder, resolverFile), []byte(r.String()), 0o644)
}

// nameservers returns the addresses of the cluster's DNS server, the Service kube-dns; none
// if there is no server.
func (r *host) nameservers(ctx context.Context) ([]string, error) {
	service, err := r.client.CoreV1().Services(metav1.NamespaceSystem).Get(ctx, "kube-dns", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("looking for the cluster's DNS server: %w", err)
	}
	return slices.DeleteFunc(service.Spec.ClusterIPs, func(ip string) bool { return ip == corev1.ClusterIPNone }), nil
}

func usesClusterDNS(r resolver, agreed []netip.Addr) bool {
	return slices.Contains(r.nameservers, agreed[0].String())
}

// withClusterDNS puts the addresses of the cluster's DNS server in the place of those that
// the kubelet was told, unless they are the server's. Without a server the pod uses the
// machine's.
func (r resolver) withClusterDNS(agreed []netip.Addr, server []string, machine resolver) resolver {
	var own []string
	right := true
	for _, name := range r.nameservers {
		if addr, err := netip.ParseAddr(name); err != nil || !slices.Contains(agreed, addr) {
			own = append(own, name)
		} else {
			right = right && slices.Contains(server, name)
		}
	}
	if right {
		return r
	}
	if len(server) == 0 {
		server = machine.nameservers
		r.searches = slices.DeleteFunc(slices.Clone(r.searches), func(name string) bool {
			return name == clusterDomain || strings.HasSuffix(name, ".svc."+clusterDomain) || name == "svc."+clusterDomain
		})
		r.options = slices.DeleteFunc(slices.Clone(r.options), func(option string) bool { return option == clusterOption })
	}
	r.nameservers = unique(slices.Concat(server, own))
	r.nameservers = r.nameservers[:min(len(r.nameservers), maxNameservers)]
	return r
}

// unique removes duplicates and keeps the order.
func unique(list []string) []string {
	var kept []string
	for _, entry := range list {
		if !slices.Contains(kept, entry) {
			kept = append(kept, entry)
		}
	}
	return kept
}

// parseResolver reads a resolv.conf. The last of several search lists counts.
func parseResolver(text string) resolver {
	var r resolver
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			r.nameservers = append(r.nameservers, fields[1])
		case "search", "domain":
			r.searches = fields[1:]
		case "options":
			r.options = append(r.options, fields[1:]...)
		}
	}
	return r
}

// String formats a resolv.conf.
func (r resolver) String() string {
	var b strings.Builder
	for _, server := range r.nameservers {
		fmt.Fprintf(&b, "nameserver %s\n", server)
	}
	if len(r.searches) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(r.searches, " "))
	}
	if len(r.options) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(r.options, " "))
	}
	return b.String()
}
