package doctor

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/routing/consumer"
)

// Unusual but correct clusters have no findings.
func TestUnusualIsNoFault(t *testing.T) {
	daemonSet := func(name string, desired int32, containers ...corev1.Container) *appsv1.DaemonSet {
		s := &appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}, Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: desired, NumberReady: desired},
		}
		s.Spec.Template.Spec.Containers = containers
		return s
	}
	notReady := func(node *corev1.Node) { node.Status.Conditions[0].Status = corev1.ConditionFalse }
	everywhere := aPolicy("shop", "everywhere", "")
	everywhere.Spec.Selector = &metav1.LabelSelector{}
	for _, test := range []struct {
		name   string
		change func(*Reading)
		notice []check
	}{
		{name: "one node without a zone", notice: []check{notInstalled}, change: func(r *Reading) {
			uninstall(r)
			r.Nodes = []*corev1.Node{aNode("minikube", "", "")}
		}},
		{name: "a program that is no release, and a development version of its chart", change: func(r *Reading) {
			r.Charts, r.Controllers[0].Labels[labelChart] = []string{"0.1.0"}, "vicinity-0.1.0-dev.12.g0123456789ab"
		}},
		{name: "names of racks that differ by where the hyphen is", change: func(r *Reading) {
			r.Nodes[0].Labels[corev1.LabelTopologyZone], r.Nodes[1].Labels[corev1.LabelTopologyZone] = "row-1-11", "row-11-1"
		}},
		{name: "a node without a region in a zone that has one", change: func(r *Reading) { delete(r.Nodes[0].Labels, corev1.LabelTopologyRegion) }},
		{name: "a node that is new", change: func(r *Reading) {
			node := aNode("new", "", "")
			node.CreationTimestamp = metav1.NewTime(now.Add(-20 * time.Second))
			notReady(node)
			r.Nodes = append(r.Nodes, node)
		}},
		{name: "the first node of a zone is new", change: func(r *Reading) {
			node := aNode("new", "zone-d", "north")
			node.CreationTimestamp = metav1.NewTime(now.Add(-20 * time.Second))
			notReady(node)
			r.Nodes = append(r.Nodes, node)
		}},
		{name: "the last node of a zone is being deleted", change: func(r *Reading) {
			node := aNode("old", "zone-d", "north")
			node.DeletionTimestamp = new(metav1.NewTime(now.Add(-time.Hour)))
			notReady(node)
			r.Nodes = append(r.Nodes, node)
		}},
		{name: "a virtual node with a version of its own", change: func(r *Reading) {
			node := aNode("virtual", "zone-a", "north")
			node.Labels["type"] = "virtual-kubelet"
			node.Status.NodeInfo.KubeletVersion = "v1.15.2-vk-azure-aci-1.6.2"
			r.Nodes, r.Leases = append(r.Nodes, node), append(r.Leases, aProxyLease("virtual"))
		}},
		{name: "a managed cloud that shows nothing of kube-proxy", change: func(r *Reading) {
			r.Nodes = r.Nodes[:6]
			r.Networks = consumer.Settings{}
		}},
		{name: "a container beside kube-proxy with a version of its own", change: func(r *Reading) {
			containers := &r.Networks.DaemonSets[0].Spec.Template.Spec.Containers
			*containers = append([]corev1.Container{{Name: "kube-rbac-proxy", Image: "kube-rbac-proxy:v0.18.0"}}, *containers...)
		}},
		{name: "a kube-proxy whose tag is no release of Kubernetes", change: func(r *Reading) {
			r.Networks.DaemonSets[0].Spec.Template.Spec.Containers[0].Image = "kube-proxy:2026.11.3"
		}},
		{name: "a condition that is older than the settings", change: func(r *Reading) { withCondition(r.Services[2], "Allocated,NotInForce") }},
		{name: "a Cilium that follows no hints of Services without any", change: lacksMarks},
		{name: "a Cilium that follows no hints of balanced Services", change: func(r *Reading) {
			route(r)
			withCondition(r.Services[2], "Downgraded")
			lacksMarks(r)
		}},
		{name: "settings of kube-proxy that Cilium came after", change: func(r *Reading) {
			r.Networks = consumer.Settings{
				DaemonSets: []*appsv1.DaemonSet{daemonSet("cilium", 7)}, Cilium: map[string]string{"kube-proxy-replacement": "true", "enable-service-topology": "true"},
				KubeProxy: &consumer.ProxyConfig{Namespace: metav1.NamespaceSystem, ConfigMap: "kube-proxy", Mode: "ipvs", Gates: map[string]bool{"TopologyAwareHints": false}},
			}
			r.Services, r.Policies = r.Services[:2], nil // none is marked
		}},
		{name: "a kube-proxy that was switched off for Calico", change: func(r *Reading) {
			off := r.Networks.DaemonSets[0]
			off.Spec.Template.Spec.NodeSelector, off.Status = map[string]string{"non-calico": "true"}, appsv1.DaemonSetStatus{}
			off.Spec.Template.Spec.Containers[0].Image = "kube-proxy:v1.30.1"
			r.Networks.DaemonSets = append(r.Networks.DaemonSets, daemonSet("calico-node", 7))
			r.Networks.KubeProxy.Mode = "ipvs"
		}},
		{name: "a PodDisruptionBudget that cannot be worked out for a moment", change: func(r *Reading) { failSync(r.PDBs[0], now.Add(-time.Second)) }},
		{name: "a change of leaders", change: func(r *Reading) {
			l := lease(r, leaderLease)
			*l.Spec.HolderIdentity, *l.Spec.LeaseDurationSeconds = "", 1
		}},
		{name: "a second controller that is scaled to nothing", change: func(r *Reading) {
			second := Controller{Deployment: r.Controllers[0].DeepCopy()}
			second.Namespace, second.Spec.Replicas, second.Status.ReadyReplicas = "attic", new(int32(0)), 0
			r.Controllers = append(r.Controllers, second)
		}},
		{name: "a Lease of a node that is gone", change: func(r *Reading) {
			l := aProxyLease("gone")
			l.Spec.RenewTime.Time = now.Add(-24 * time.Hour)
			r.Leases = append(r.Leases, l)
		}},
		{name: "Leases that nodes hold and that are not theirs", change: func(r *Reading) {
			for _, name := range []string{"vicinity-proxy-other", "other"} {
				l := aProxyLease("node-a1")
				l.Name, l.Spec.RenewTime.Time = name, now.Add(-24*time.Hour)
				r.Leases = append(r.Leases, l)
			}
		}},
		{name: "a DNS server of one's own that says no version", change: func(r *Reading) { delete(r.NameServers[0].Labels, labelVersion) }},
		{name: "a policy for all Services of a namespace with some that have no endpoints to choose", change: func(r *Reading) {
			external := aService("team", "elsewhere", nil)
			external.Spec.Type, external.Spec.ExternalName, external.Spec.ClusterIP = corev1.ServiceTypeExternalName, "shop.example.com", ""
			local := aService("team", "agent", nil)
			local.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
			all := everywhere.DeepCopy()
			all.Namespace = "team"
			r.Services, r.Policies = append(r.Services, external, local), append(r.Policies, all)
		}},
		{name: "a policy for all Services of the namespace of the API server", change: func(r *Reading) {
			all := everywhere.DeepCopy()
			all.Namespace = metav1.NamespaceDefault
			r.Policies = append(r.Policies, all)
		}},
		{name: "a policy that a Service names and that may not be read", notice: []check{}, change: func(r *Reading) {
			r.Policies, r.Unread[SourcePolicies] = nil, "you may not list it"
			r.Services = append(r.Services, aService("shop", "named", map[string]string{v1alpha1.AnnotationTopologyMode: v1alpha1.PolicyPrefix + "near"}))
		}},
		{name: "a headless Service with the label of vicinity-proxy", change: func(r *Reading) {
			headless := aService("shop", "members", nil)
			headless.Spec.ClusterIP, headless.Labels[v1alpha1.LabelServiceProxyName] = corev1.ClusterIPNone, v1alpha1.ServiceProxyName
			r.Services = append(r.Services, headless)
		}},
		{name: "a Service that is being deleted, after its groups", change: func(r *Reading) {
			r.Services[3].DeletionTimestamp, r.Grouped = new(metav1.NewTime(now)), nil
		}},
		{name: "a cluster whose leftovers are unknown", change: func(r *Reading) {
			uninstall(r)
			r.Namespaces, r.Unread[SourceNamespaces] = nil, "you may not list it"
		}},
		{name: "a PodDisruptionBudget right after an eviction", change: func(r *Reading) { r.PDBs[0].Status.DisruptionsAllowed = 0 }},
		{name: "a PodDisruptionBudget while a StatefulSet makes a pod anew", change: func(r *Reading) {
			r.Deployments[0].Spec.Replicas = new(int32(3))
			r.PDBs[0].Spec.MinAvailable = new(intstr.FromInt32(2))
			s := &r.PDBs[0].Status
			s.ExpectedPods, s.CurrentHealthy, s.DesiredHealthy, s.DisruptionsAllowed = 2, 2, 2, 0
		}},
		{name: "two PodDisruptionBudgets of what is scaled to nothing", change: func(r *Reading) { r.PDBs = append(r.PDBs, aPDB("idle-too", "idle")) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := healthy(t)
			test.change(r)
			if report := Examine(r); !slices.Equal(idsOf(report), test.notice) {
				t.Errorf("found %+v, want %q", report.Findings, test.notice)
			}
		})
	}
}

// Text of others in a Lease does not get into commands that people copy.
func TestCommandsAreSafeToCopy(t *testing.T) {
	const evil = "x; rm -rf ~"
	r := healthy(t)
	for _, l := range r.NodeLeases {
		l.Spec.HolderIdentity, l.Spec.RenewTime.Time = new(evil), now.Add(time.Hour)
	}
	own := lease(r, "vicinity-proxy-node-a1")
	own.Spec.HolderIdentity, own.Spec.RenewTime.Time = new(evil), now.Add(time.Hour)
	*lease(r, leaderLease).Spec.HolderIdentity = evil
	at(lease(r, leaderLease), now.Add(-time.Hour))
	report := Examine(r)
	if len(report.Findings) == 0 {
		t.Fatal("nothing is found")
	}
	for _, f := range report.Findings {
		if strings.Contains(f.Next, "rm") {
			t.Errorf("%s: %s", f.ID, f.Next)
		}
	}
}
