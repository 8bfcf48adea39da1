package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/lab/state"
)

const (
	// clusterDomain is the domain of the cluster's names.
	clusterDomain   = "cluster.local"
	machineResolver = "/etc/resolv.conf"
	// maxNameservers is how many the C library uses.
	maxNameservers = 3
)

type resolver struct {
	nameservers, searches, options []string
}

// writeResolver writes the pod's resolv.conf, unless the pod uses the machine's.
func (v *volumes) writeResolver(ctx context.Context, pod *corev1.Pod) error {
	var cluster []string
	var err error
	if usesClusterDNS(pod) {
		if cluster, err = v.worker.agent.objects.nameservers(ctx); err != nil {
			return err
		}
	}
	machine, err := os.ReadFile(machineResolver)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	r, own := podResolver(pod, cluster, parseResolver(string(machine)))
	if !own {
		return nil
	}
	return state.ReplaceFile(filepath.Join(v.worker.folder, "resolv.conf"), []byte(r.String()), 0o644)
}

// usesClusterDNS reports whether the pod uses the cluster's DNS server, if there is one.
func usesClusterDNS(pod *corev1.Pod) bool {
	return pod.Spec.DNSPolicy == corev1.DNSClusterFirstWithHostNet ||
		pod.Spec.DNSPolicy == corev1.DNSClusterFirst && !pod.Spec.HostNetwork
}

// podResolver merges the pod's DNS policy and configuration with the addresses of the
// cluster's DNS server and the machine's configuration. own is false if the result is just
// the machine's.
func podResolver(pod *corev1.Pod, cluster []string, machine resolver) (r resolver, own bool) {
	switch {
	case pod.Spec.DNSPolicy == corev1.DNSNone:
		own = true
	case usesClusterDNS(pod) && len(cluster) > 0:
		own = true
		r.nameservers = cluster
		r.searches = append([]string{pod.Namespace + ".svc." + clusterDomain, "svc." + clusterDomain, clusterDomain}, machine.searches...)
		r.options = []string{"ndots:5"}
	default:
		r = machine
	}
	if dns := pod.Spec.DNSConfig; dns != nil {
		own = true
		r.nameservers = slices.Concat(r.nameservers, dns.Nameservers)
		r.searches = slices.Concat(r.searches, dns.Searches)
		r.options = mergeOptions(r.options, dns.Options)
	}
	r.nameservers, r.searches = unique(r.nameservers), unique(r.searches)
	r.nameservers = r.nameservers[:min(len(r.nameservers), maxNameservers)]
	return r, own
}

func mergeOptions(options []string, own []corev1.PodDNSConfigOption) []string {
	options = slices.Clone(options)
	for _, o := range own {
		options = slices.DeleteFunc(options, func(option string) bool {
			name, _, _ := strings.Cut(option, ":")
			return name == o.Name
		})
		if o.Value != nil && *o.Value != "" {
			options = append(options, o.Name+":"+*o.Value)
		} else {
			options = append(options, o.Name)
		}
	}
	return options
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
