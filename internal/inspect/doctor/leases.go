package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/routing/handover"
	"vicinity.dev/vicinity/internal/routing/intent"
)

const (
	// leaderLease is the name of the leader's Lease.
	leaderLease = "vicinity-controller"
	// leaderLate is how long the renewal of the leader's Lease may be overdue, so that a change of leaders is no
	// finding.
	leaderLate = 15 * time.Second
	// settling is how long a new node or DaemonSet has to get a Lease.
	settling = time.Minute
	// joining is how long a new node may keep the start-up taint, while its images are pulled.
	joining = 5 * time.Minute
	// MostSkew is how far two clocks may be apart. The compared times are rounded to seconds, and a request may take a
	// few.
	MostSkew = 10 * time.Second
)

// written returns when the API server stored the last renewal of a Lease, by its own clock, zero if that is unknown.
func written(lease *coordinationv1.Lease) time.Time {
	var last time.Time
	for i := range lease.ManagedFields {
		entry := &lease.ManagedFields[i]
		if entry.Time == nil || entry.FieldsV1 == nil || !strings.Contains(entry.FieldsV1.GetRawString(), `"f:renewTime"`) {
			continue
		}
		if entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}

// age returns how long ago a Lease was renewed, by the clock of the API server if that is known, or else by that of its
// holder. renewed is false if it never was.
func (e *examination) age(lease *coordinationv1.Lease) (age time.Duration, renewed bool) {
	if lease.Spec.RenewTime == nil {
		return 0, false
	}
	at := written(lease)
	if at.IsZero() {
		at = lease.Spec.RenewTime.Time
	}
	return e.now().Sub(at), true
}

func (e *examination) checkLeader() {
	if !e.isInstalled() || !e.knows(SourceLeases) {
		return
	}
	controller := e.Controllers[0]
	object := Object{Kind: "Lease", Namespace: controller.Namespace, Name: leaderLease}
	next := "kubectl -n " + controller.Namespace + " get lease " + leaderLease + " -o yaml"
	for _, lease := range e.Leases {
		if lease.Namespace != controller.Namespace || lease.Name != leaderLease {
			continue
		}
		holder := *cmp.Or(lease.Spec.HolderIdentity, new(string))
		age, renewed := e.age(lease)
		most := leaderLate + time.Duration(*cmp.Or(lease.Spec.LeaseDurationSeconds, new(int32)))*time.Second
		switch {
		case !renewed, holder == "" && age > most:
			e.add(leaderMissing, object, fmt.Sprintf("No pod holds %s.", object), next)
		case age > most:
			e.add(leaderMissing, object, fmt.Sprintf("%s, held by %s, was last renewed %s ago.", object, holder, age.Round(time.Second)), next)
		}
		return
	}
	e.add(leaderMissing, object, fmt.Sprintf("There is no %s.", object), pods(objectOf("Deployment", controller), "controller"))
}

func (e *examination) checkProxies() {
	if len(e.Proxies) == 0 || !e.knows(SourceLeases, SourceNodes) {
		return
	}
	leases := map[string]*coordinationv1.Lease{}
	for _, lease := range e.Leases {
		if node := handover.LeaseNode(lease); lease.Labels[v1alpha1.LabelProxyLease] == "true" && node != "" {
			leases[node] = lease
		}
	}
	for _, set := range e.Proxies {
		for _, node := range e.Nodes {
			if runsOn(set, node) {
				e.checkProxy(set, node, leases[node.Name])
			}
		}
	}
}

// runsOn reports whether a DaemonSet, which tolerates all taints, has a pod on a node. With an invalid node affinity
// that is unknown.
func runsOn(set *appsv1.DaemonSet, node *corev1.Node) bool {
	matches, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: set.Spec.Template.Spec}).Match(node)
	return err == nil && matches && node.DeletionTimestamp == nil
}

// checkProxy checks the Lease of a node's proxy. A node that is not ready has a finding of its own.
func (e *examination) checkProxy(set *appsv1.DaemonSet, node *corev1.Node, lease *coordinationv1.Lease) {
	object := Object{Kind: "Lease", Namespace: set.Namespace, Name: v1alpha1.ProxyLeasePrefix + node.Name}
	next := proxyOn(set, node)
	if lease == nil {
		if now := e.now(); intent.IsReady(node) && now.Sub(node.CreationTimestamp.Time) > settling && now.Sub(set.CreationTimestamp.Time) > settling {
			e.add(proxyLeaseMissing, object, fmt.Sprintf("There is no Lease of vicinity-proxy on node %s.", node.Name), next)
		}
		return
	}
	object.Name = lease.Name
	show := "kubectl -n " + lease.Namespace + " get lease " + lease.Name + " -o yaml"
	age, renewed := e.age(lease)
	switch {
	case !intent.IsReady(node):
	case !renewed || age >= v1alpha1.LeaseFresh:
		e.add(proxyLeaseStale, object, fmt.Sprintf("The Lease of vicinity-proxy on node %s was last renewed %s ago.", node.Name, age.Round(time.Second)), next)
	case lease.Annotations[v1alpha1.AnnotationProbeFailure] != "":
		e.add(proxyProbeFails, object, fmt.Sprintf("The probe of vicinity-proxy on node %s fails: %s.", node.Name, sentence(lease.Annotations[v1alpha1.AnnotationProbeFailure])), show)
	}
	if except := lease.Annotations[v1alpha1.AnnotationExcept]; except != "" {
		names := strings.Split(except, ",")
		e.add(proxyLeavesOut, object, fmt.Sprintf("vicinity-proxy on node %s cannot program all groups of %s.", node.Name, firstOf(names)), show)
	}
}

// checkStartupTaints finds nodes that keep the taint which their proxy should remove.
func (e *examination) checkStartupTaints() {
	if !e.knows(SourceNodes, SourceDaemonSets) {
		return
	}
	for _, node := range e.Nodes {
		if !hasStartupTaint(node) || !intent.IsReady(node) || node.DeletionTimestamp != nil || e.now().Sub(node.CreationTimestamp.Time) < joining {
			continue
		}
		object, what := objectOf("Node", node), fmt.Sprintf("Node %s has the taint %s", node.Name, v1alpha1.TaintProxyNotReady)
		i := slices.IndexFunc(e.Proxies, func(set *appsv1.DaemonSet) bool { return runsOn(set, node) && removesTaint(set) })
		if i < 0 {
			e.add(proxyTaintStays, object, what+", which no vicinity-proxy removes there.", e.upgrade()+" --set proxy.enabled=true --set proxy.startupTaint=true")
			continue
		}
		e.add(proxyTaintStays, object, what+", because its vicinity-proxy is not ready or cannot remove the taint.", proxyOn(e.Proxies[i], node))
	}
}

func hasStartupTaint(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == v1alpha1.TaintProxyNotReady })
}

// removesTaint reports whether a vicinity-proxy runs with the flag for the start-up taint.
func removesTaint(set *appsv1.DaemonSet) bool {
	return slices.ContainsFunc(set.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return slices.Contains(c.Args, "--startup-taint") })
}

// proxyOn returns the command that shows the proxy of a node.
func proxyOn(set *appsv1.DaemonSet, node *corev1.Node) string {
	return "kubectl -n " + set.Namespace + " get pods -o wide -l app.kubernetes.io/component=proxy --field-selector spec.nodeName=" + node.Name
}

// sentence returns a message on one line, without the full stop at its end.
func sentence(message string) string {
	return strings.TrimSuffix(strings.Join(strings.Fields(message), " "), ".")
}

// checkClocks compares the clocks of nodes and of this machine with that of the API server. A node writes its own time into
// Leases, and the API server notes when that was.
func (e *examination) checkClocks() {
	if !e.Server.IsZero() {
		if skew := e.Local.Sub(e.Server); skew.Abs() > MostSkew {
			e.add(clockOfMachine, Object{Kind: "Machine", Name: "local"}, fmt.Sprintf("The clock of this machine is %s that of the API server.", offBy(skew)), "date -u")
		}
	}
	type reading struct {
		skew  time.Duration
		lease *coordinationv1.Lease
	}
	nodes := map[string]bool{}
	for _, node := range e.Nodes {
		nodes[node.Name] = true
	}
	worst := map[string]reading{}
	note := func(node string, lease *coordinationv1.Lease) {
		at := written(lease)
		if node == "" || e.knows(SourceNodes) && !nodes[node] || at.IsZero() || lease.Spec.RenewTime == nil {
			return
		}
		if skew := lease.Spec.RenewTime.Sub(at); skew.Abs() > worst[node].skew.Abs() {
			worst[node] = reading{skew, lease}
		}
	}
	for _, lease := range e.NodeLeases {
		note(lease.Name, lease)
	}
	for _, lease := range e.Leases {
		if lease.Labels[v1alpha1.LabelProxyLease] == "true" {
			note(handover.LeaseNode(lease), lease)
		}
	}
	for node, found := range worst {
		if found.skew.Abs() > MostSkew {
			e.add(clockOfNode, Object{Kind: "Node", Name: node}, fmt.Sprintf("The clock of node %s is %s that of the API server.", node, offBy(found.skew)),
				"kubectl -n "+found.lease.Namespace+" get lease "+found.lease.Name+" -o yaml --show-managed-fields")
		}
	}
}

func offBy(skew time.Duration) string {
	if skew < 0 {
		return (-skew).Round(time.Second).String() + " behind"
	}
	return skew.Round(time.Second).String() + " ahead of"
}
