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
	// clusterDomain is below which the cluster has its names.
	clusterDomain = "cluster.local"
	// machineResolver is what programs of the machine find names by.
	machineResolver = "/etc/resolv.conf"
	// mostNameservers is how many the C library asks.
	mostNameservers = 3
)

// resolver is what a resolv.conf says.
type resolver struct {
	nameservers, searches, options []string
}

// resolver makes the pod's resolv.conf. A pod that is to have the machine's has no file
// of its own.
func (v *volumes) resolver(ctx context.Context, pod *corev1.Pod) error {
	var cluster []string
	var err error
	if wantsCluster(pod) {
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

// wantsCluster reports whether the pod asks the cluster's DNS server, if there is one.
func wantsCluster(pod *corev1.Pod) bool {
	return pod.Spec.DNSPolicy == corev1.DNSClusterFirstWithHostNet ||
		pod.Spec.DNSPolicy == corev1.DNSClusterFirst && !pod.Spec.HostNetwork
}

// podResolver is what the pod's policy and configuration come to, given the addresses
// of the cluster's DNS server and what the machine has. own is false where that is just
// the machine's.
func podResolver(pod *corev1.Pod, cluster []string, machine resolver) (r resolver, own bool) {
	switch {
	case pod.Spec.DNSPolicy == corev1.DNSNone:
		own = true
	case wantsCluster(pod) && len(cluster) > 0:
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
	r.nameservers = r.nameservers[:min(len(r.nameservers), mostNameservers)]
	return r, own
}

// mergeOptions puts a pod's own options in the place of others of the same name.
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

// unique leaves out what was said before.
func unique(list []string) []string {
	var kept []string
	for _, entry := range list {
		if !slices.Contains(kept, entry) {
			kept = append(kept, entry)
		}
	}
	return kept
}

// parseResolver reads what a resolv.conf says. Of several lists of searches the last
// counts.
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

// String is the text of the file.
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
