package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing/consumer"
	"vicinity.dev/vicinity/internal/routing/handover"
)

// servedBy returns the proxy that serves the Service on the node, and why.
func (e *nodeView) servedBy() (who, why string) {
	spec := &e.Service.Spec
	name, named := e.Service.Labels[v1alpha1.LabelServiceProxyName]
	switch {
	case spec.Type == corev1.ServiceTypeExternalName:
		return "no proxy", "it is another name of " + spec.ExternalName
	case spec.ClusterIP == corev1.ClusterIPNone || spec.ClusterIP == "":
		return "no proxy", "it is headless: clients connect to endpoints that they look up by its name"
	case named && name != v1alpha1.ServiceProxyName:
		return cmp.Or(name, "another proxy"), "the label " + v1alpha1.LabelServiceProxyName + " names that proxy"
	case named && !e.Installed:
		return "no proxy", fmt.Sprintf("the label %s names vicinity-proxy, which is not installed", v1alpha1.LabelServiceProxyName)
	case named && !e.served():
		return "no proxy", fmt.Sprintf("the label %s names vicinity-proxy, and the Service has no group", v1alpha1.LabelServiceProxyName)
	case named && e.proxyFault() != "":
		return "vicinity-proxy", "the label " + v1alpha1.LabelServiceProxyName + " names vicinity-proxy, but " + e.proxyFault() + ": its rules are old or missing"
	case named:
		return "vicinity-proxy", "the label " + v1alpha1.LabelServiceProxyName + " names vicinity-proxy"
	case e.served() && e.proxyFault() != "":
		return "kube-proxy", "vicinity-proxy should serve it, but " + e.proxyFault()
	case e.served() && e.Settings.AllServices:
		return "vicinity-proxy", "it serves all Services, and its rules come before those of kube-proxy, where there is one"
	case e.served():
		return "vicinity-proxy", "its rules come first; kube-proxy has the Service too, until it is handed over"
	case e.fromGroups():
		return "kube-proxy", "vicinity-proxy knows no endpoint for the node, and the Service is not handed over"
	case !e.Installed:
		return "kube-proxy", "vicinity-proxy is not installed"
	case e.Wanted:
		return "kube-proxy", "the Service is for vicinity-proxy, and there is no group for the node yet"
	}
	return "kube-proxy", "the Service has no group; the annotation " + v1alpha1.AnnotationProxy + ": \"true\" asks for vicinity-proxy"
}

// ServedInstead names the programs that serve Services in place of kube-proxy, if it is certain that they do.
func (e *NodeExplanation) ServedInstead(consumers []consumer.Consumer) string {
	var names []string
	for i := range consumers {
		if c := &consumers[i]; c.Name == "kube-proxy" || c.Name == "Antrea" || c.Unknown { // Antrea may leave node ports to a kube-proxy
			return ""
		}
		names = append(names, programName(&consumers[i]))
	}
	others := strings.Join(names, " or ")
	if others != "" {
		e.ServedBy, e.KubeProxy = others, nil
	}
	return others
}

// proxyFault says why the proxy of the node does not work, empty if it does or if that is unknown.
func (e *nodeView) proxyFault() string {
	switch {
	case e.Kept != "":
		return e.Kept
	case slices.Contains(e.Unread, KindLeases):
		return ""
	case e.Lease == nil || e.Lease.Spec.RenewTime == nil:
		return "no Lease shows that vicinity-proxy runs on the node"
	}
	if age := e.Now.Sub(e.Lease.Spec.RenewTime.Time); age >= v1alpha1.LeaseFresh {
		return fmt.Sprintf("the Lease of the node's proxy was last renewed %s ago", age.Round(time.Second))
	}
	return ""
}

// handOver describes the hand-over of the Service on the node, as the controller sees it. It is empty for most
// Services.
func (e *nodeView) handOver() string {
	name := e.Service.Labels[v1alpha1.LabelServiceProxyName]
	switch {
	case slices.Contains(e.Unread, KindLeases) || slices.Contains(e.Unread, KindGroups):
		return ""
	case name == v1alpha1.ServiceProxyName && !e.Wanted:
		return "the Service returns to kube-proxy: its label is removed first"
	case name == v1alpha1.ServiceProxyName:
		return "done"
	case name != "" || !e.Wanted && len(e.Groups) == 0:
		return ""
	case !e.Wanted:
		return "kube-proxy serves the Service again; its groups are deleted soon"
	case len(e.Groups) == 0:
		return "the controller has not written the groups yet"
	}
	proxy := handover.NodeProxy{Node: e.Node.Name, Zone: e.Zone}
	if e.Lease != nil && e.Lease.Spec.RenewTime != nil {
		proxy.Seen = e.Lease.Spec.RenewTime.Time
		proxy.Programmed, proxy.Except = e.Lease.Annotations[v1alpha1.AnnotationProgrammed], e.Lease.Annotations[v1alpha1.AnnotationExcept]
	}
	step := handover.State{
		Service: e.Service.Namespace + "/" + e.Service.Name, Wanted: true, Groups: e.Groups, Written: true, Proxies: []handover.NodeProxy{proxy},
	}.Next(e.Now)
	if failure := e.probeFailure(); failure != "" && len(step.Missing) > 0 {
		return "it waits for this node, whose packets do not come through the rules of vicinity-proxy: " + failure
	}
	if len(step.Missing) > 0 {
		return "it waits for this node, whose proxy has not acknowledged all groups"
	}
	return "this node is ready; it waits for others, or for the controller"
}

// probeFailure is why a probe of the node's proxy failed, empty if none did, or if the proxy no longer renews its
// Lease.
func (e *nodeView) probeFailure() string {
	if e.Lease == nil || e.proxyFault() != "" {
		return ""
	}
	return plaintext.Of(e.Lease.Annotations[v1alpha1.AnnotationProbeFailure])
}
