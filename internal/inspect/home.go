package inspect

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
)

// ProxySelector finds the DaemonSet of vicinity-proxy, wherever it was installed and
// whatever it is called: no value of the chart changes these labels.
const ProxySelector = "app.kubernetes.io/part-of=vicinity,app.kubernetes.io/component=proxy"

// Home is the namespace of Vicinity: that of its controller, nil if none is known, or else of vicinity-proxy. It is empty
// where neither is. The controller reads the Leases of proxies there and nowhere else: in other
// namespaces users may write Leases, with any name and label.
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
