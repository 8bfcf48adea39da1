package names

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// SearchList says which names a client tries for a short one.
type SearchList struct {
	// Domains end with a dot each, and are tried in order.
	Domains []string
	// Dots is how many a name must have to be tried as it is before the domains: the option ndots.
	Dots int
}

// The values of the option ndots that kubelet writes for pods with the usual list, and that resolvers take
// where there is none.
const (
	usualDots   = 5
	defaultDots = 1
)

// UsualSearch is the list of most pods of a namespace, those with dnsPolicy ClusterFirst. The domains that
// kubelet adds from the node are not the cluster's, and left out. The zone is that of the cluster and ends with
// a dot.
func UsualSearch(namespace, zone string) SearchList {
	return SearchList{Domains: []string{namespace + ".svc." + zone, "svc." + zone, zone}, Dots: usualDots}
}

// SearchOf is the list that kubelet gives a pod. It is the usual one, and not known, where the list is that of
// the node, or the resolver's own.
func SearchOf(pod *corev1.Pod, zone string) (list SearchList, known bool) {
	list = UsualSearch(pod.Namespace, zone)
	if ResolvesAsNode(&pod.Spec) {
		return list, false
	}
	var config corev1.PodDNSConfig
	if pod.Spec.DNSConfig != nil {
		config = *pod.Spec.DNSConfig
	}
	if pod.Spec.DNSPolicy == corev1.DNSNone {
		if len(config.Searches) == 0 {
			return list, false
		}
		list = SearchList{Dots: defaultDots}
	}
	for _, domain := range config.Searches {
		domain = strings.TrimSuffix(domain, ".")
		if domain != "" {
			domain += "."
		}
		list.Domains = append(list.Domains, domain)
	}
	for _, option := range config.Options {
		if option.Name != "ndots" || option.Value == nil {
			continue
		}
		if dots, err := strconv.Atoi(*option.Value); err == nil {
			list.Dots = dots
		}
	}
	return list, true
}

// ResolvesAsNode reports whether kubelet gives a pod the DNS servers and the search list of its node. It does
// so with dnsPolicy ClusterFirst, too, on the node's network.
func ResolvesAsNode(spec *corev1.PodSpec) bool {
	switch spec.DNSPolicy {
	case corev1.DNSNone, corev1.DNSClusterFirstWithHostNet:
		return false
	case corev1.DNSDefault:
		return true
	}
	return spec.HostNetwork
}

// Names are those that a client tries for a name that it was given, each once, in order: the first that exists
// counts. They end with a dot, as does the zone of the cluster.
func (l SearchList) Names(name, zone string) []string {
	if strings.HasSuffix(name, ".") {
		return []string{name}
	}
	whole := name + "."
	if Within(whole, zone) {
		return []string{whole}
	}
	var all []string
	add := func(name string) {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	if strings.Count(name, ".") >= l.Dots {
		add(whole)
	}
	for _, domain := range l.Domains {
		add(whole + domain)
	}
	add(whole)
	return all
}

// Within reports whether a name is of a zone or below it. Both end with a dot.
func Within(name, zone string) bool {
	at := len(name) - len(zone)
	return at >= 0 && Same(name[at:], zone) && (at == 0 || name[at-1] == '.')
}

// ServiceName are the namespace and the name of the Service, as the API has them.
func (n Name) ServiceName() (namespace, name string) {
	name, namespace, _ = strings.Cut(strings.ToLower(n.Service), ".")
	return namespace, name
}
