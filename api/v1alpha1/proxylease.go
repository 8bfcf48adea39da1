package v1alpha1

import "time"

// LabelServiceProxyName is the label of a Service that a proxy other than
// kube-proxy serves. Its value is ServiceProxyName for vicinity-proxy.
const (
	LabelServiceProxyName = "service.kubernetes.io/service-proxy-name"
	ServiceProxyName      = "vicinity"
)

// Names in the Leases by which proxies report to the controller.
const (
	// ProxyLeasePrefix and the name of a node form the name of the Lease of the
	// node's proxy. Leases with other names say nothing about the node, even if
	// its proxy holds them.
	ProxyLeasePrefix = "vicinity-proxy-"
	// LabelProxyLease marks the Lease of a node's proxy, with the value "true".
	LabelProxyLease = "vicinity.dev/proxy"
	// AnnotationProgrammed is the annotation of such a Lease with the highest resource
	// version of groups in hand-over that the proxy has programmed.
	AnnotationProgrammed = "vicinity.dev/programmed"
	// AnnotationExcept is the annotation with the Services that AnnotationProgrammed does not
	// cover, as namespace/name, by commas: the proxy cannot program all their groups. The
	// name AllServices stands for all of the namespace.
	AnnotationExcept = "vicinity.dev/programmed-except"
	// AllServices is the name, in AnnotationExcept, of all Services of a namespace.
	AllServices = "*"
	// AnnotationProbeFailure is the annotation with the reason why packets of
	// the node do not get through the proxy's rules. While it is set, the proxy
	// acknowledges nothing.
	AnnotationProbeFailure = "vicinity.dev/probe-failure"
	// LeaseFresh is how long a Lease counts after its renewal.
	LeaseFresh = 45 * time.Second
)
