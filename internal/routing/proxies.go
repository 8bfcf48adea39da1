package routing

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// Ignored are hints that no proxy goes by.
type Ignored string

// The hints that may be ignored.
const (
	IgnoredNone  Ignored = ""
	IgnoredNodes Ignored = "hints for nodes"
	IgnoredAll   Ignored = "all hints"
)

// noteProxies says which nodes' proxies do not go by the hints that are planned, for good
// or until vicinity-proxy serves the Service, as far as the nodes tell. The notes name no
// nodes and no numbers, which change at every step of an upgrade, while each change of the
// condition costs a write.
func (d *Decision) noteProxies(in Input) {
	hinted := d.Hinted()
	zones, nodes := hinted.plannedHints()
	if !zones && !nodes {
		return
	}
	proxies := in.Cluster.Proxies()
	ignore := func(names []string, what string) {
		switch {
		case len(names) == 0:
			return
		case len(names) == proxies.Nodes:
			d.note("all nodes run %s", what)
		default:
			d.note("some nodes run %s", what)
		}
		hinted.IgnoredBy = append(hinted.IgnoredBy, names...)
	}
	ignore(proxies.Windows, "Windows, where kube-proxy does not go by hints: clients there use all endpoints")
	if zones && !enablesHints(in.Service) {
		ignore(proxies.WithoutHints, "a Kubernetes older than 1.31, where kube-proxy goes by hints only if the Service has the annotation "+
			v1alpha1.AnnotationTopologyMode+": clients there use all endpoints")
	}
	if nodes {
		ignore(proxies.WithoutNodeHints, "a Kubernetes older than 1.34, where kube-proxy does not go by hints for nodes")
	}
	slices.Sort(hinted.IgnoredBy)
	hinted.IgnoredBy = slices.Compact(hinted.IgnoredBy)
	switch old := proxies.WithoutHints; {
	case len(hinted.IgnoredBy) == 0 || len(hinted.IgnoredBy) < proxies.Nodes:
	case !zones || len(proxies.Windows) == proxies.Nodes || !enablesHints(in.Service) && len(proxies.Windows)+len(old) == proxies.Nodes:
		hinted.Ignored = IgnoredAll
	default:
		hinted.Ignored = IgnoredNodes
		hinted.discountNodes()
	}
}

// plannedHints reports whether there are to be hints for zones and for nodes.
func (d *Decision) plannedHints() (zones, nodes bool) {
	for i := range d.Families {
		h := &d.Families[i].hints
		zones = zones || h.ForZones()
		nodes = nodes || h.ForNodes()
	}
	return zones, nodes
}

// enablesHints reports whether the annotations of a Service have a kube-proxy older than
// Kubernetes 1.31 go by hints. To it each value but these is one that somebody else hints by.
func enablesHints(service *corev1.Service) bool {
	mode, given := service.Annotations[v1alpha1.AnnotationTopologyAwareHints]
	if !given {
		mode = service.Annotations[v1alpha1.AnnotationTopologyMode]
	}
	return mode != "" && mode != "disabled" && mode != "Disabled"
}
