package names

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// SearchList decides which names a client tries for a short one.
type SearchList struct {
	// Domains are tried in order. Each ends with a dot.
	Domains []string
	// Dots is the option ndots: a name with that many dots is first tried without a domain.
	Dots int
}

// The values of ndots that the kubelet writes for pods with the usual list, and that resolvers use by default.
const (
	usualDots   = 5
	defaultDots = 1
)

// UsualSearch returns the list of pods with dnsPolicy ClusterFirst in a namespace. It leaves out the domains that the kubelet
// adds from the node. The zone is the cluster's and ends with a dot.
func UsualSearch(namespace, zone string) SearchList {
	return SearchList{Domains: []string{namespace + ".svc." + zone, "svc." + zone, zone}, Dots: usualDots}
}

// SearchOf returns the list that the kubelet gives a pod. If the pod uses the list of its node or of its resolver, known is
// false and the list is the usual one.
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

// ResolvesAsNode reports whether the kubelet gives a pod the DNS servers and the search list of its node. On the host network,
// that includes dnsPolicy ClusterFirst.
func ResolvesAsNode(spec *corev1.PodSpec) bool {
	switch spec.DNSPolicy {
	case corev1.DNSNone, corev1.DNSClusterFirstWithHostNet:
		return false
	case corev1.DNSDefault:
		return true
	}
	return spec.HostNetwork
}

// Names returns the names that a client tries for a name, in order, each once. The first existing one counts. They and the
// cluster's zone end with a dot.
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

// Within reports whether a name is a zone or below it. Both end with a dot.
func Within(name, zone string) bool {
	at := len(name) - len(zone)
	return at >= 0 && Same(name[at:], zone) && (at == 0 || name[at-1] == '.')
}

// ServiceName returns the namespace and the name of the Service in the API.
func (n Name) ServiceName() (namespace, name string) {
	name, namespace, _ = strings.Cut(strings.ToLower(n.Service), ".")
	return namespace, name
}
