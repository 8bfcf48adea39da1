package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption/coverage"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/routing/consumer"
	"vicinity.dev/vicinity/test/golden"
)

// uninstall removes Vicinity and its CRDs from the reading.
func uninstall(r *Reading) {
	r.Controllers, r.Proxies, r.NameServers, r.Webhooks, r.Leases, r.Definitions, r.Served = nil, nil, nil, nil, nil, nil, nil
	r.Policies, r.Budgets = nil, nil
	for _, s := range r.Services {
		s.Annotations, s.Status.Conditions = nil, nil
		delete(s.Labels, v1alpha1.LabelServiceProxyName)
	}
}

// lease finds one by its name.
func lease(r *Reading, name string) *coordinationv1.Lease {
	for _, l := range slices.Concat(r.Leases, r.NodeLeases) {
		if l.Name == name {
			return l
		}
	}
	panic("there is no Lease " + name)
}

// oldKubelet gives a node of a cluster of 1.36 a kubelet of 1.33.
func oldKubelet(r *Reading, node *corev1.Node) {
	r.Version = "v1.36.2"
	for _, n := range r.Nodes {
		n.Status.NodeInfo.KubeletVersion = "v1.36.2"
	}
	r.Networks.DaemonSets[0].Spec.Template.Spec.Containers[0].Image = "kube-proxy:v1.36.2"
	node.Status.NodeInfo.KubeletVersion = "v1.33.1"
}

// fault is something wrong, and the finding that tells of it.
type fault struct {
	id     check
	object string
	inject func(testing.TB, *Reading)
	// besides are other findings, which follow from the fault.
	besides []check
}

func set(inject func(*Reading)) func(testing.TB, *Reading) {
	return func(_ testing.TB, r *Reading) { inject(r) }
}

// route has the controller write hints for all Services that it routes.
func route(r *Reading) {
	for _, service := range r.Services[2:6] {
		service.Labels[v1alpha1.LabelRouted] = "true"
	}
}

// lacksMarks has a Cilium that follows the hints of marked Services.
func lacksMarks(r *Reading) {
	r.Networks.Cilium = map[string]string{"kube-proxy-replacement": "true", "enable-service-topology": "true"}
}

func faults() []fault {
	service := func(id check, s *corev1.Service) fault {
		return fault{id: id, object: "Service " + s.Namespace + "/" + s.Name, inject: set(func(r *Reading) { r.Services = append(r.Services, s) })}
	}
	headless := func(name string, annotations map[string]string) *corev1.Service {
		s := aService("shop", name, annotations)
		s.Spec.ClusterIP = corev1.ClusterIPNone
		return s
	}
	prefer := func() map[string]string { return map[string]string{v1alpha1.AnnotationSameZone: v1alpha1.Prefer} }
	ring := headless("ring", prefer())
	ring.Spec.PublishNotReadyAddresses = true
	handedOver := aService("shop", "lost", nil)
	handedOver.Labels[v1alpha1.LabelServiceProxyName] = v1alpha1.ServiceProxyName
	external := aService("shop", "elsewhere", prefer())
	external.Spec.Type, external.Spec.ExternalName, external.Spec.ClusterIP = corev1.ServiceTypeExternalName, "shop.example.com", ""
	budget := func(id check, change func(*v1alpha1.TopologyDisruptionBudget)) fault {
		return fault{id: id, object: "TopologyDisruptionBudget shop/db", inject: set(func(r *Reading) { change(r.Budgets[0]) })}
	}
	bundle := func(id check, kind string, until time.Time) fault {
		return fault{id: id, object: kind + " vicinity", inject: func(t testing.TB, r *Reading) {
			r.Webhooks[slices.IndexFunc(r.Webhooks, func(w inspect.WebhookConfiguration) bool { return w.Kind == kind })].Webhooks[0].Client.CABundle = authorityUntil(t, until)
		}}
	}
	backend := func(id check, object string, b Backend) fault {
		return fault{id: id, object: object, inject: set(func(r *Reading) { r.Backends[types.NamespacedName{Namespace: home, Name: "vicinity-webhook"}] = b })}
	}
	off := func(id check, object, value string, change func(*Reading)) fault {
		return fault{id: id, object: object, inject: set(func(r *Reading) {
			r.Controllers[0].Off = map[string]bool{value: true}
			change(r)
		})}
	}
	gated := func(r *Reading) {
		r.Deployments[0].Spec.Template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.RolloutGate}}
	}
	unrouted := off(serviceWithoutController, "Service shop/governed", ValueRouting, func(*Reading) {}) // a policy selects it
	unrouted.besides = []check{serviceWithoutController, serviceWithoutController, serviceWithoutController}
	return []fault{
		{id: kubernetesTooOld, object: "Cluster cluster", inject: set(func(r *Reading) {
			r.Version = "v1.34.9"
			for _, n := range r.Nodes {
				n.Status.NodeInfo.KubeletVersion = "v1.34.9"
			}
			r.Networks.DaemonSets[0].Spec.Template.Spec.Containers[0].Image = "kube-proxy:v1.34.9"
		})},
		{id: kubeletVersion, object: "Node node-a1", inject: set(func(r *Reading) { r.Nodes[0].Status.NodeInfo.KubeletVersion = "v1.33.1-eks-1234" })},
		{id: kubeletVersion, object: "Node node-a1", inject: set(func(r *Reading) { r.Nodes[0].Status.NodeInfo.KubeletVersion = "v1.38.0" })},

		{id: zonesMissing, object: "Cluster cluster", inject: set(func(r *Reading) {
			for _, n := range r.Nodes {
				delete(n.Labels, corev1.LabelTopologyZone)
			}
		})},
		{id: zonesLookAlike, object: "Zone Zone_A", inject: set(func(r *Reading) {
			r.Nodes = append(r.Nodes, aNode("node-a3", "zone-a", "north"))
			r.Leases = append(r.Leases, aProxyLease("node-a3"))
			r.Nodes[0].Labels[corev1.LabelTopologyZone] = "Zone_A"
		})},
		{id: zoneWithoutReadyNode, object: "Zone zone-b", besides: []check{nodeNotReady, nodeNotReady}, inject: set(func(r *Reading) {
			r.Nodes[2].Status.Conditions[0].Status, r.Nodes[3].Status.Conditions = corev1.ConditionUnknown, nil
		})},
		{id: zoneInTwoRegions, object: "Zone zone-c", inject: set(func(r *Reading) { r.Nodes[4].Labels[corev1.LabelTopologyRegion] = "south" })},
		{id: nodeWithoutZone, object: "Node node-a2", inject: set(func(r *Reading) { delete(r.Nodes[1].Labels, corev1.LabelTopologyZone) })},
		{id: nodeNotReady, object: "Node node-a2", inject: set(func(r *Reading) { r.Nodes[1].Status.Conditions[0].Status = corev1.ConditionFalse })},
		{id: oneZone, object: "Zone zone-a", inject: set(func(r *Reading) {
			for _, n := range r.Nodes {
				if n.Labels[corev1.LabelTopologyZone] != "" {
					n.Labels[corev1.LabelTopologyZone] = "zone-a"
				}
			}
		})},

		{id: kubeProxyGateOff, object: "ConfigMap kube-system/kube-proxy", inject: set(func(r *Reading) { r.Networks.KubeProxy.Gates["TopologyAwareHints"] = false })},
		{id: kubeProxyGateOff, object: "DaemonSet kube-system/kube-proxy", inject: set(func(r *Reading) {
			r.Networks.DaemonSets[0].Spec.Template.Spec.Containers[0].Args = []string{"--feature-gates=A=true,PreferSameTrafficDistribution=false"}
		})},
		{id: kubeProxyIPVS, object: "ConfigMap kube-system/kube-proxy", inject: set(func(r *Reading) { r.Networks.KubeProxy.Mode = "ipvs" })},
		{id: kubeProxyVersion, object: "DaemonSet kube-system/kube-proxy", inject: set(func(r *Reading) {
			r.Networks.DaemonSets[0].Spec.Template.Spec.Containers[0].Image = "registry:5000/kube-proxy:v1.30.4@sha256:00"
		})},
		{id: ciliumIgnoresHints, object: "ConfigMap kube-system/cilium-config", inject: set(func(r *Reading) { r.Networks.Cilium = map[string]string{"kube-proxy-replacement": "true"} })},
		{id: antreaIgnoresHints, object: "ConfigMap kube-system/antrea-config", inject: set(func(r *Reading) {
			r.Networks.Antrea = &consumer.ProxyConfig{Namespace: "kube-system", ConfigMap: "antrea-config", Gates: map[string]bool{"TopologyAwareHints": false}}
		})},
		{id: kubeRouterIgnoresHint, object: "DaemonSet kube-system/kube-router", inject: set(func(r *Reading) {
			r.Networks.DaemonSets = append(r.Networks.DaemonSets, &appsv1.DaemonSet{
				ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-router"}, Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 7},
			})
		})},
		{id: ovnIgnoresHints, object: "DaemonSet ovn-kubernetes/ovnkube-node", inject: set(func(r *Reading) {
			r.Networks.DaemonSets = append(r.Networks.DaemonSets, &appsv1.DaemonSet{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ovn-kubernetes", Name: "ovnkube-node"}, Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 7},
			})
		})},
		{id: nodeIgnoresNodeHints, object: "Node node-a1", inject: set(func(r *Reading) { oldKubelet(r, r.Nodes[0]) })},
		{id: windowsIgnoresHints, object: "Node node-b1", inject: set(func(r *Reading) {
			r.Nodes[2].Labels[corev1.LabelOSStable] = "windows"
			r.Services = slices.Delete(r.Services, 3, 4) // grouped, the one of vicinity-proxy
		})},
		{id: serviceNotOnWindows, object: "Service shop/grouped", besides: []check{windowsIgnoresHints}, inject: set(func(r *Reading) {
			oldKubelet(r, r.Nodes[2])
			r.Nodes[2].Status.NodeInfo.OperatingSystem = "windows"
		})},

		{id: controllerNotReady, object: "Deployment vicinity-system/vicinity-controller", inject: set(func(r *Reading) { r.Controllers[0].Status.ReadyReplicas = 0 })},
		{id: controllerShort, object: "Deployment vicinity-system/vicinity-controller", inject: set(func(r *Reading) { r.Controllers[0].Status.ReadyReplicas = 1 })},
		{id: controllersMany, object: "Deployment attic/vicinity-controller", inject: set(func(r *Reading) {
			second := r.Controllers[0]
			second.Deployment = second.DeepCopy()
			second.Namespace = "attic"
			r.Controllers = append(r.Controllers, second)
		})},
		{id: nameServerNotReady, object: "Deployment vicinity-system/vicinity-dns", inject: set(func(r *Reading) { r.NameServers[0].Status.ReadyReplicas = 0 })},
		{id: clientsNotLocated, object: "Cluster cluster", inject: set(func(r *Reading) { r.Pods = append(r.Pods, aPod("172.16.0.1")) })},
		{id: clientsNotLocated, object: "Cluster cluster", inject: set(func(r *Reading) { r.Pods[1].Spec.NodeName = "node-a2" })},
		{id: versionsDiffer, object: "DaemonSet vicinity-system/vicinity-proxy", inject: set(func(r *Reading) { r.Proxies[0].Labels[labelVersion] = "0.0.9" })},
		{id: programVersionDiffer, object: "Deployment vicinity-system/vicinity-controller", inject: set(func(r *Reading) {
			r.Charts, r.Needed[0].Versions["v1alpha1"]["more"] = []string{"0.2.0"}, map[string]any{} // which is not compared
		})},
		{id: leaderMissing, object: "Lease vicinity-system/vicinity-controller", inject: set(func(r *Reading) {
			*lease(r, leaderLease).Spec.HolderIdentity = ""
			at(lease(r, leaderLease), now.Add(-time.Minute))
		})},
		{id: leaderMissing, object: "Lease vicinity-system/vicinity-controller", inject: set(func(r *Reading) { at(lease(r, leaderLease), now.Add(-time.Minute)) })},
		{id: leaderMissing, object: "Lease vicinity-system/vicinity-controller", inject: set(func(r *Reading) {
			r.Leases = slices.DeleteFunc(r.Leases, func(l *coordinationv1.Lease) bool { return l.Name == leaderLease })
		})},

		{id: crdMissing, object: "CustomResourceDefinition endpointgroups.vicinity.dev", inject: set(func(r *Reading) { r.Definitions = r.Definitions[:1] })},
		{id: crdMissing, object: "CustomResourceDefinition endpointgroups.vicinity.dev", inject: set(func(r *Reading) {
			r.Definitions, r.Served, r.Unread[SourceDefinitions] = nil, r.Served[:1], "you may not get customresourcedefinitions"
		})},
		{id: crdNotReady, object: "CustomResourceDefinition endpointgroups.vicinity.dev", inject: set(func(r *Reading) { r.Definitions[1].Established = false })},
		{id: crdOld, object: "CustomResourceDefinition routingpolicies.vicinity.dev", inject: set(func(r *Reading) {
			delete(propertiesOf(r.Definitions[0].Versions["v1alpha1"]["spec"]), "padding")
		})},

		{id: webhookMissing, object: "MutatingWebhookConfiguration vicinity", inject: set(func(r *Reading) { r.Webhooks = r.Webhooks[1:] })},
		{id: webhookMissing, object: "ValidatingWebhookConfiguration vicinity", inject: set(func(r *Reading) { r.Webhooks = r.Webhooks[:1] })},
		{id: webhookWithoutAuthority, object: "ValidatingWebhookConfiguration vicinity", inject: set(func(r *Reading) { r.Webhooks[1].Webhooks[0].Client.CABundle = []byte("nothing") })},
		bundle(webhookExpired, inspect.Mutating, now.Add(-time.Hour)),
		bundle(webhookExpired, inspect.Validating, now.AddDate(11, 0, 0)), // it begins in a year
		bundle(webhookExpires, inspect.Mutating, now.AddDate(0, 0, 29)),
		backend(webhookWithoutService, "MutatingWebhookConfiguration vicinity", Backend{}),
		backend(webhookWithoutEndpoint, "Service vicinity-system/vicinity-webhook", Backend{Exists: true}),
		backend(webhookUnreachable, "Service vicinity-system/vicinity-webhook", Backend{Exists: true, Ready: 2, Unreached: "connection refused"}),

		{id: proxyNotReady, object: "DaemonSet vicinity-system/vicinity-proxy", inject: set(func(r *Reading) { r.Proxies[0].Status.NumberUnavailable = 1 })},
		{id: proxyLeaseMissing, object: "Lease vicinity-system/vicinity-proxy-node-a1", inject: set(func(r *Reading) { r.Leases = r.Leases[1:] })},
		{id: proxyLeaseStale, object: "Lease vicinity-system/vicinity-proxy-node-a1", inject: set(func(r *Reading) { at(r.Leases[0], now.Add(-v1alpha1.LeaseFresh)) })},
		{id: proxyProbeFails, object: "Lease vicinity-system/vicinity-proxy-node-a1", inject: set(func(r *Reading) {
			r.Leases[0].Annotations = map[string]string{v1alpha1.AnnotationProbeFailure: "something else\nanswers"}
		})},
		{id: proxyTaintStays, object: "Node node-a1", inject: set(func(r *Reading) {
			r.Nodes[0].Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintProxyNotReady, Effect: corev1.TaintEffectNoSchedule}}
		})},
		{id: proxyTaintStays, object: "Node node-a1", inject: set(func(r *Reading) {
			r.Nodes[0].Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintProxyNotReady, Effect: corev1.TaintEffectNoSchedule}}
			r.Proxies[0].Spec.Template.Spec.Containers = []corev1.Container{{Args: []string{"--startup-taint"}}}
		})},
		{id: proxyLeavesOut, object: "Lease vicinity-system/vicinity-proxy-node-a1", inject: set(func(r *Reading) {
			r.Leases[0].Annotations = map[string]string{v1alpha1.AnnotationExcept: "shop/grouped"}
		})},

		{id: notInstalled, object: "Cluster cluster", inject: set(uninstall)},
		{id: leftoverWebhooks, object: "ValidatingWebhookConfiguration vicinity", inject: set(func(r *Reading) {
			left := r.Webhooks[1:]
			uninstall(r)
			r.Webhooks = left
		})},
		{id: leftoverHandedOver, object: "Service shop/plain", inject: set(func(r *Reading) {
			uninstall(r)
			r.Services[1].Labels[v1alpha1.LabelServiceProxyName] = v1alpha1.ServiceProxyName
		})},
		{id: leftoverServices, object: "Service vicinity.dev/routed", inject: set(func(r *Reading) {
			uninstall(r)
			r.Services[1].Labels[v1alpha1.LabelRouted] = "true"
		})},
		{id: leftoverNamespaces, object: "Namespace vicinity.dev/disruption-budgets", inject: set(func(r *Reading) {
			uninstall(r)
			r.Namespaces[1].Labels[v1alpha1.LabelBudgets] = "true"
		})},
		{id: leftoverSlices, object: "EndpointSlice vicinity.dev/routed", inject: set(func(r *Reading) {
			uninstall(r)
			r.Leftovers["EndpointSlice"] = []Object{{Kind: "EndpointSlice", Namespace: "shop", Name: "web-abcde"}}
		})},
		{id: leftoverObjects, object: "PodDisruptionBudget vicinity", inject: set(func(r *Reading) {
			uninstall(r)
			r.Leftovers["PodDisruptionBudget"] = []Object{{Kind: "PodDisruptionBudget", Namespace: "shop", Name: "db-zone-a"}}
		})},

		service(serviceServedByNone, handedOver),
		service(serviceHintsLost, withCondition(aService("shop", "x", prefer()), "Allocated,HintsLost")),
		service(serviceNotWritten, withCondition(aService("shop", "x", prefer()), "Allocated,NotWritten")),
		service(serviceNeedsGroups, withCondition(aService("shop", "x", prefer()), "Allocated,NeedsGroups")),
		service(serviceAwaitsProxy, withCondition(aService("shop", "x", map[string]string{v1alpha1.AnnotationProxy: "true"}), "Allocated,AwaitsProxy")),
		{id: serviceAwaitsProxy, object: "Service shop/x", inject: set(func(r *Reading) {
			r.Proxies, r.Services = nil, append(r.Services[:3:3], aService("shop", "x", map[string]string{v1alpha1.AnnotationProxy: "true"}), r.Services[5])
		})},
		service(serviceLeftAlone, aService("kube-system", "dns", prefer())),
		service(serviceNotRoutable, external),
		service(servicePartIgnored, aService("shop", "x", map[string]string{v1alpha1.AnnotationSameZone: "Nearby"})),
		service(serviceMembersHidden, ring),
		service(serviceMembersHidden, headless("db", prefer())), // the StatefulSet db has it for its names
		{id: serviceWithoutController, object: "Service shop/web", besides: []check{notInstalled}, inject: set(func(r *Reading) {
			uninstall(r)
			r.Services[2].Annotations = prefer()
		})},
		unrouted,
		// The other one is for shop/governed. Groups deliver the plan of shop/grouped.
		{id: serviceHintsIgnored, object: "Service shop/web", besides: []check{serviceHintsIgnored}, inject: set(func(r *Reading) {
			route(r)
			withCondition(r.Services[5], "IPv4:Waiting,IPv6:Allocated")
			lacksMarks(r)
		})},
		{id: serviceHintsIgnored, object: "Service shop/web", inject: set(func(r *Reading) {
			withCondition(r.Services[2], "Allocated,NotInForce")
			r.Unread[SourceConfig] = "you may not"
		})},
		{id: serviceBypassed, object: "Service shop/web", inject: set(func(r *Reading) {
			r.Gateways[types.NamespacedName{Namespace: "shop", Name: "web"}][0].Annotations = nil
		})},
		{id: serviceNamesUnserved, object: "Service shop/cache", inject: set(func(r *Reading) {
			r.NameServers, r.Corefile = nil, ".:53 {\n    # vicinity\n    kubernetes cluster.local\n}\n"
		})},
		{id: serviceNamesUnserved, object: "Service shop/cache", inject: set(func(r *Reading) {
			r.Pods[0].Spec.DNSConfig = nil
			r.Corefile = ".:53 {\n\t# forward . 10.96.0.99\n\tforward . 10.96.0.9 10.96.0.9:53\n}\n"
		})},
		off(gateWithoutRollouts, "Deployment shop/web", ValueRollouts, gated),
		off(partOff, "Deployment shop/web", ValueRollouts, func(r *Reading) {
			gated(r)
			r.Controllers[0].ReleasesPods = true
		}),
		off(partOff, "DomainRollout shop/db", ValueRollouts, func(r *Reading) {
			r.Rollouts = []*v1alpha1.DomainRollout{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}}}
		}),
		off(partOff, "TopologyDisruptionBudget shop/db", ValueDisruption, func(*Reading) {}),
		off(partOff, "Namespace shop", ValueEvictionRequests, func(r *Reading) { r.Namespaces[1].Labels[v1alpha1.LabelEvictionRequests] = "true" }),
		off(partOff, "Namespace shop", ValuePacing, func(r *Reading) { r.Namespaces[1].Labels[v1alpha1.PaceScaleDown] = v1alpha1.PaceClamp }),
		off(partOff, "Namespace shop", ValueScaleDown, func(r *Reading) {
			r.Namespaces[1].Annotations = map[string]string{v1alpha1.AnnotationKeepSpread: corev1.LabelTopologyZone}
		}),
		off(partOff, "Deployment shop/idle", ValueScaleDown, func(r *Reading) {
			r.Deployments[1].Annotations = map[string]string{v1alpha1.AnnotationKeepSpread: corev1.LabelTopologyZone}
		}),
		off(partOff, "StatefulSet shop/db", ValueOrdinals, func(r *Reading) {
			r.StatefulSets[0].Spec.Template.Annotations = map[string]string{v1alpha1.AnnotationSpreadOrdinals: corev1.LabelTopologyZone}
		}),
		{id: policyFaulty, object: "RoutingPolicy shop/near", inject: set(func(r *Reading) { r.Policies[0].Spec.Algorithm = "magic" })},
		{id: policyMatchesNothing, object: "RoutingPolicy shop/far", inject: set(func(r *Reading) { r.Policies = append(r.Policies, aPolicy("shop", "far", "absent")) })},
		{id: policyMatchesNothing, object: "ClusterRoutingPolicy all", inject: set(func(r *Reading) {
			p := &v1alpha1.ClusterRoutingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
			p.Spec.Mode, p.Spec.Level = v1alpha1.Prefer, v1alpha1.Zone
			p.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"near": "true"}}
			r.Defaults = []*v1alpha1.ClusterRoutingPolicy{p}
		})},

		budget(budgetInvalid, func(b *v1alpha1.TopologyDisruptionBudget) {
			setCondition(b, v1alpha1.ConditionValid, metav1.ConditionFalse, coverage.ReasonInvalid)
		}),
		budget(budgetBlocks, func(b *v1alpha1.TopologyDisruptionBudget) {
			setCondition(b, v1alpha1.ConditionSatisfiable, metav1.ConditionFalse, coverage.ReasonBlocked)
		}),
		budget(budgetBlocks, func(b *v1alpha1.TopologyDisruptionBudget) {
			b.Spec.MaxUnavailable, b.Status.Conditions = new(intstr.FromString("0%")), nil
		}),
		budget(budgetBlocks, func(b *v1alpha1.TopologyDisruptionBudget) { b.Spec.MaxUnavailableDomains = new(int32(0)) }),
		budget(budgetBlocks, func(b *v1alpha1.TopologyDisruptionBudget) { freeZone(b, "zone-without-nodes") }),
		budget(budgetNotEnforced, func(b *v1alpha1.TopologyDisruptionBudget) {
			setCondition(b, v1alpha1.ConditionEnforced, metav1.ConditionFalse, "WebhooksMissing")
		}),
		budget(budgetLeavesOut, func(b *v1alpha1.TopologyDisruptionBudget) {
			setCondition(b, v1alpha1.ConditionSatisfiable, metav1.ConditionFalse, coverage.ReasonNodeWithoutKey)
		}),
		budget(budgetGlassBroken, func(b *v1alpha1.TopologyDisruptionBudget) {
			setCondition(b, v1alpha1.ConditionBreakGlass, metav1.ConditionTrue, "Open")
		}),
		budget(budgetCoversNothing, func(b *v1alpha1.TopologyDisruptionBudget) {
			setCondition(b, v1alpha1.ConditionSatisfiable, metav1.ConditionFalse, coverage.ReasonNoNodes)
		}),
		budget(budgetCoversNothing, func(b *v1alpha1.TopologyDisruptionBudget) {
			b.Spec.Selector.MatchLabels["app"], b.Status.ExpectedPods = "typo", 0
		}),
		{id: pdbsOverlap, object: "Deployment shop/web", inject: set(func(r *Reading) { r.PDBs = append(r.PDBs, aPDB("web-too", "web")) })},
		{id: pdbSyncFailed, object: "PodDisruptionBudget shop/web", inject: set(func(r *Reading) { failSync(r.PDBs[0], now.Add(-time.Hour)) })},
		{id: pdbBlocks, object: "PodDisruptionBudget shop/web", inject: set(func(r *Reading) { r.PDBs[0].Status.DesiredHealthy, r.PDBs[0].Status.DisruptionsAllowed = 3, 0 })},
		{id: pdbCoversNothing, object: "PodDisruptionBudget shop/idle", inject: set(func(r *Reading) { r.PDBs[1].Spec.Selector.MatchLabels["app"] = "typo" })},

		{id: clockOfNode, object: "Node node-a1", inject: set(func(r *Reading) { lease(r, "node-a1").Spec.RenewTime.Time = now.Add(time.Minute) })},
		{id: clockOfNode, object: "Node node-a1", inject: set(func(r *Reading) { r.Leases[0].Spec.RenewTime.Time = now.Add(-2 * time.Minute) })},
		{id: clockOfMachine, object: "Machine local", inject: set(func(r *Reading) { r.Local = now.Add(-time.Minute) })},

		{id: shiftRefused, object: "ZoneShift out", inject: set(func(r *Reading) { shifted(r, metav1.ConditionFalse, time.Hour) })},
		{id: shiftOver, object: "ZoneShift out", inject: set(func(r *Reading) { shifted(r, metav1.ConditionTrue, time.Second) })},
		off(partOff, "ZoneShift out", ValueRouting, func(r *Reading) {
			r.Services, r.Policies, r.Defaults = nil, nil, nil
			shifted(r, metav1.ConditionUnknown, time.Hour)
		}),
	}
}

// shifted adds a ZoneShift of a minute ago.
func shifted(r *Reading, accepted metav1.ConditionStatus, lasts time.Duration) {
	zs := &v1alpha1.ZoneShift{ObjectMeta: metav1.ObjectMeta{Name: "out", CreationTimestamp: metav1.NewTime(now.Add(-time.Minute))}}
	zs.Spec.For.Duration = lasts
	zs.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Accepted, Status: accepted, Message: "no node has the label"}}
	r.Shifts = []*v1alpha1.ZoneShift{zs}
}

// freeZone leaves one zone out of a budget that allows no eviction.
func freeZone(b *v1alpha1.TopologyDisruptionBudget, zone string) {
	b.Spec.MaxUnavailable = new(intstr.FromInt32(0))
	b.Spec.NodeSelectorTerm = &v1alpha1.NodeSelectorTerm{MatchExpressions: []v1alpha1.NodeSelectorRequirement{
		{Key: corev1.LabelFailureDomainBetaZone, Operator: corev1.NodeSelectorOpNotIn, Values: []string{zone}},
		{Key: corev1.LabelFailureDomainBetaZone, Operator: corev1.NodeSelectorOpExists},
	}}
}

// A budget that frees one zone after another is no fault, also if the controller has not read it, and if nodes are unread.
func TestFreeZoneIsNoFault(t *testing.T) {
	for name, change := range map[string]func(*Reading){
		"read":         func(*Reading) {},
		"not read yet": func(r *Reading) { r.Budgets[0].Status = v1alpha1.TopologyDisruptionBudgetStatus{} },
		"unread nodes": func(r *Reading) { r.Nodes, r.Unread[SourceNodes] = nil, "forbidden" },
	} {
		r := healthy(t)
		freeZone(r.Budgets[0], "zone-a")
		change(r)
		if ids := idsOf(Examine(r)); slices.Contains(ids, budgetBlocks) {
			t.Errorf("%s: found %q", name, ids)
		}
	}
}

// failSync has Kubernetes give a PodDisruptionBudget up at a time, before it has looked at the newest spec.
func failSync(pdb *policyv1.PodDisruptionBudget, when time.Time) {
	pdb.Generation++
	pdb.Status.DisruptionsAllowed = 0
	pdb.Status.Conditions = []metav1.Condition{{
		Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason,
		Message: "jobs.batch does not implement the scale subresource", LastTransitionTime: metav1.NewTime(when),
	}}
}

// at has a Lease renewed at a time, by a clock that is right.
func at(l *coordinationv1.Lease, when time.Time) {
	stored := metav1.NewTime(when)
	l.Spec.RenewTime.Time, l.ManagedFields[0].Time = when, &stored
}

func idsOf(report *Report) []check {
	var ids []check
	for i := range report.Findings {
		ids = append(ids, report.Findings[i].check)
	}
	return ids
}

func TestNothingIsFoundInAHealthyCluster(t *testing.T) {
	if report := Examine(healthy(t)); len(report.Findings) > 0 || len(report.NotKnown) > 0 {
		t.Errorf("found %+v, not known %q", report.Findings, report.NotKnown)
	}
}

// Each fault alone is found, by its identifier and object, and nothing else is.
func TestFaultsAreFound(t *testing.T) {
	found := map[check]bool{}
	for _, f := range faults() {
		t.Run(f.id.String(), func(t *testing.T) {
			r := healthy(t)
			f.inject(t, r)
			report := Examine(r)
			want := append([]check{f.id}, f.besides...)
			if got := idsOf(report); !slices.Equal(got, want) {
				t.Errorf("found %q, want %q:\n%+v", got, want, report.Findings)
			}
			if !slices.ContainsFunc(report.Findings, func(g Finding) bool { return g.check == f.id && g.Object.String() == f.object }) {
				t.Errorf("no finding is of %s:\n%+v", f.object, report.Findings)
			}
			for _, g := range report.Findings {
				if g.What == "" || !strings.HasSuffix(g.What, ".") || strings.Contains(g.What, "..") || strings.Contains(g.What, "\n") || g.Next == "" {
					t.Errorf("%s: %+v is no sentence, or has no command", g.ID, g)
				}
			}
			found[f.id] = true
		})
	}
	for c := range loseControlPlane { // TestRehearse has the others
		if !found[c] {
			t.Errorf("no fault is %d, after %s", c, max(c-1, 0))
		}
	}
}

// The controller knows why a mark is missing. Its condition is out of date without a ready pod.
func TestCauseOfIgnoredHints(t *testing.T) {
	for ready, want := range map[int32]string{2: "Service shop/web: that is why.", 0: "Service shop/web: Cilium ignores its hints: "} {
		r := healthy(t)
		route(r)
		lacksMarks(r)
		withCondition(r.Services[2], "Allocated,NotInForce")
		r.Controllers[0].Status.ReadyReplicas = ready
		findings := slices.DeleteFunc(Examine(r).Findings, func(f Finding) bool { return f.check != serviceHintsIgnored })
		if len(findings) != 1 || !strings.HasPrefix(findings[0].What, want) {
			t.Errorf("%d pods are ready: found %+v", ready, findings)
		}
	}
}

// Unread sources cause no finding.
func TestWhatIsUnreadIsNoFault(t *testing.T) {
	empty := map[Source]func(*Reading){
		SourceNodes: func(r *Reading) { r.Nodes = nil }, SourceNodeLeases: func(r *Reading) { r.NodeLeases = nil }, SourceLeases: func(r *Reading) { r.Leases = nil },
		SourceKubeSystem: func(r *Reading) { r.Networks.DaemonSets = nil }, SourceConfig: func(r *Reading) { r.Networks.KubeProxy = nil },
		SourceDeployments: func(r *Reading) { r.Controllers, r.NameServers = nil, nil },
		SourceDaemonSets:  func(r *Reading) { r.Proxies = nil }, SourceDefinitions: func(r *Reading) { r.Definitions = nil }, SourceServed: func(r *Reading) { r.Served = nil },
		SourceWebhooks: func(r *Reading) { r.Webhooks, r.Backends = nil, nil }, SourceBackends: func(r *Reading) { r.Backends = nil }, SourceReach: func(*Reading) {},
		SourceServices: func(r *Reading) { r.Services, r.Grouped = nil, nil }, SourcePolicies: func(r *Reading) { r.Policies = nil }, SourceDefaults: func(r *Reading) { r.Defaults = nil },
		SourceGroups: func(r *Reading) { r.Grouped = nil }, SourceNamespaces: func(r *Reading) { r.Namespaces = nil }, SourceBudgets: func(r *Reading) { r.Budgets = nil },
		SourcePDBs: func(r *Reading) { r.PDBs = nil }, SourceStatefulSets: func(r *Reading) { r.StatefulSets = nil }, SourceWorkloads: func(r *Reading) { r.Deployments = nil },
		SourceLeftovers: func(*Reading) {}, SourceRollouts: func(r *Reading) { r.Rollouts = nil }, SourceShifts: func(r *Reading) { r.Shifts = nil },
		SourceClients: func(r *Reading) { r.Pods, r.Locators = nil, nil }, SourceGateways: func(r *Reading) { r.Gateways = nil },
	}
	all := healthy(t)
	for _, source := range Sources() {
		t.Run(string(source), func(t *testing.T) {
			r := healthy(t)
			empty[source](r)
			empty[source](all)
			r.Unread[source], all.Unread[source] = "you may not list it", "you may not list it"
			report := Examine(r)
			if len(report.Findings) > 0 {
				t.Errorf("found %+v", report.Findings)
			}
			if len(report.NotKnown) != 1 || !strings.HasPrefix(report.NotKnown[0], "cannot tell ") || !strings.HasSuffix(report.NotKnown[0], ": you may not list it") {
				t.Errorf("not known: %q", report.NotKnown)
			}
		})
	}
	if report := Examine(all); len(report.Findings) > 0 || len(report.NotKnown) != len(Sources()) {
		t.Errorf("of nothing that may be read: %+v, %q", report.Findings, report.NotKnown)
	}
}

// Objects without anything in them are no reason to end.
func TestBrokenInputIsNoPanic(t *testing.T) {
	r := healthy(t)
	one := Definition{Name: "routingpolicies.vicinity.dev", Established: true, Versions: map[string]map[string]any{"v1alpha1": {"spec": "text"}}}
	broken := &Reading{
		Version: "?", Nodes: []*corev1.Node{{}}, NodeLeases: []*coordinationv1.Lease{{}}, Leases: []*coordinationv1.Lease{{}, {ObjectMeta: metav1.ObjectMeta{Name: leaderLease}}},
		Networks:    consumer.Settings{DaemonSets: []*appsv1.DaemonSet{{}, {ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy"}}}, KubeProxy: &consumer.ProxyConfig{}, Antrea: &consumer.ProxyConfig{}},
		Controllers: []Controller{{Deployment: &appsv1.Deployment{}}}, Proxies: []*appsv1.DaemonSet{{}}, NameServers: []*appsv1.Deployment{{}},
		Definitions: []Definition{one, {}}, Needed: r.Needed, Webhooks: []inspect.WebhookConfiguration{{}, {Webhooks: r.Webhooks[0].Webhooks}},
		Services: []*corev1.Service{{}}, Policies: []*v1alpha1.RoutingPolicy{{}}, Defaults: []*v1alpha1.ClusterRoutingPolicy{{}}, Namespaces: []*corev1.Namespace{{}},
		Budgets: []*v1alpha1.TopologyDisruptionBudget{{}}, PDBs: r.PDBs, Deployments: []*appsv1.Deployment{{}}, StatefulSets: []*appsv1.StatefulSet{{}},
	}
	broken.Webhooks[0].Webhooks = append(broken.Webhooks[0].Webhooks, r.Webhooks[0].Webhooks...)
	broken.Webhooks[0].Webhooks[0].Client.CABundle = []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	Examine(broken)
	broken.Controllers = nil
	Examine(broken)
	Examine(&Reading{})
}

// The release that the chart asks for is the one that is judged by.
func TestOldestKubernetesIsTheCharts(t *testing.T) {
	text, err := os.ReadFile("../../../charts/vicinity/Chart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if want := `kubeVersion: ">=` + OldestKubernetes + `.0-0"`; !strings.Contains(string(text), want) {
		t.Errorf("Chart.yaml does not say %s", want)
	}
}

// Every finding has a runbook that exists, with its heading.
func TestRunbooksExist(t *testing.T) {
	for _, check := range Checks() {
		file, anchor, anchored := strings.Cut(check.Runbook, "#")
		text, err := os.ReadFile(filepath.Join("../../..", file))
		if err != nil || !strings.HasPrefix(file, "docs/runbooks/") || !anchored {
			t.Errorf("%s: runbook %s: %v", check.ID, check.Runbook, err)
			continue
		}
		if heading := "\n## " + strings.ToUpper(anchor[:1]) + strings.ReplaceAll(anchor[1:], "-", " ") + "\n"; !strings.Contains(string(text), heading) {
			t.Errorf("%s: %s has no heading %q", check.ID, file, strings.TrimSpace(heading))
		}
	}
}

// docs/doctor.md lists each kind of finding.
func TestFindingsAreDocumented(t *testing.T) {
	const file, begin, end = "../../../docs/doctor.md", "<!-- findings: written by make generate -->\n", "<!-- end of findings -->"
	lists := map[Severity]string{Problem: "### Problems\n\n", Warning: "### Warnings\n\n", Notice: "### Notices\n\n"}
	for _, check := range Checks() {
		lists[check.Severity] += fmt.Sprintf("- [`%s`](%s): %s\n", check.ID, strings.TrimPrefix(check.Runbook, "docs/"), check.About)
	}
	golden.CompareBetween(t, file, begin, end, lists[Problem]+"\n"+lists[Warning]+"\n"+lists[Notice])
}

// A missing CRD names the version to apply, if the controller has another version than the program.
func TestMissingCRDsAreThoseOfTheController(t *testing.T) {
	for _, test := range []struct {
		name    string
		change  func(*Reading)
		without string
	}{
		{
			"read", func(r *Reading) { r.Definitions = r.Definitions[1:] }, "The cluster has no CRD ",
		},
		{
			"served", func(r *Reading) {
				r.Unread[SourceDefinitions], r.Definitions, r.Served = "you may not", nil, r.Served[1:]
			}, "The API server does not serve ",
		},
	} {
		r := healthy(t)
		r.Controllers[0].Labels[labelChart] = "vicinity-9.8.7_fix"
		test.change(r)
		var found []Finding
		for _, f := range Examine(r).Findings {
			if f.check == crdMissing {
				found = append(found, f)
			}
		}
		const apply = "helm show crds vicinity-9.8.7+fix.tgz | kubectl apply --server-side --force-conflicts -f -"
		const end = "; Deployment vicinity-system/vicinity-controller has version 9.8.7_fix, so apply the CRDs of that."
		if len(found) != 1 || !strings.HasPrefix(found[0].What, test.without) || !strings.HasSuffix(found[0].What, end) || found[0].Next != apply {
			t.Errorf("%s: found %+v", test.name, found)
		}
	}
}

// The command takes the packaged chart of the running controller.
func TestUpgradeNamesTheChartOfTheController(t *testing.T) {
	for chart, want := range map[string]string{
		"vicinity-9.8.7_fix": "helm upgrade vicinity vicinity-9.8.7+fix.tgz -n vicinity-system --reset-then-reuse-values",
		"":                   "helm upgrade vicinity vicinity-VERSION.tgz -n vicinity-system --reset-then-reuse-values",
	} {
		r := healthy(t)
		r.Controllers[0].Labels[labelChart] = chart
		r.Webhooks = r.Webhooks[1:]
		if got := Examine(r).Findings[0]; got.check != webhookMissing || got.Next != want {
			t.Errorf("chart %q: found %+v, want the command %s", chart, got, want)
		}
	}
}

// Near names are served if clients ask a DNS server with the plugin, of the chart or not.
func TestClientsAskThePlugin(t *testing.T) {
	for name, change := range map[string]func(*Reading){
		"the plugin is in the Corefile": func(r *Reading) {
			r.NameServers, r.Corefile = nil, ".:53 {\n\tvicinity cluster.local\n\tkubernetes cluster.local\n}\n"
		},
		"a node-local cache asks it": func(r *Reading) { r.Corefile = "cluster.local:53 {\n\tforward . 10.96.0.99:53\n}\n" },
		"dns enable put it there": func(r *Reading) {
			r.NameServers[0].Annotations = map[string]string{v1alpha1.AnnotationDNSBefore: "{}"}
		},
		"the cluster's Service selects it": func(r *Reading) {
			r.NameServers[0].Namespace = metav1.NamespaceSystem
			r.NameServers[0].Spec.Template.Labels = map[string]string{"app": "kube-dns"}
		},
	} {
		r := healthy(t)
		r.Pods[0].Spec.DNSConfig = nil
		change(r)
		if report := Examine(r); len(report.Findings) > 0 {
			t.Errorf("%s: found %+v", name, report.Findings)
		}
	}
}

// No proxy serves headless Services, so none of them is left to a proxy.
func TestHeadlessServicesAreNotLeftBehind(t *testing.T) {
	r := healthy(t)
	uninstall(r)
	for _, s := range r.Services {
		s.Spec.ClusterIP, s.Labels[v1alpha1.LabelServiceProxyName] = corev1.ClusterIPNone, v1alpha1.ServiceProxyName
	}
	if report := Examine(r); slices.Contains(idsOf(report), leftoverHandedOver) {
		t.Errorf("found %+v", report.Findings)
	}
}
