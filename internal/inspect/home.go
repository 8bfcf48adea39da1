package inspect

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
)

// ProxySelector finds the DaemonSet of vicinity-proxy, whatever its name and namespace. No value of the chart changes
// these labels.
const ProxySelector = "app.kubernetes.io/part-of=vicinity,app.kubernetes.io/component=proxy"

// Home returns the namespace of Vicinity: that of its controller, or else of vicinity-proxy. It is empty if neither is
// known. The controller reads the Leases of proxies only there: in other namespaces users can write Leases with any
// name and label.
func Home(controller *appsv1.Deployment, proxies []*appsv1.DaemonSet) string {
	if controller != nil {
		return controller.Namespace
	}
	var namespaces []string
	for _, set := range proxies {
		namespaces = append(namespaces, set.Namespace)
	}
	if len(namespaces) == 0 {
		return ""
	}
	return slices.Min(namespaces)
}
