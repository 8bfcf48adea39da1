package doctor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption/coverage"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/routing/consumer"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// now is when the cluster is looked at.
var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

const home = "vicinity-system"

// authorityUntil is a certificate as webhooks are believed by.
func authorityUntil(t testing.TB, until time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "vicinity"}, NotBefore: until.AddDate(-10, 0, 0), NotAfter: until, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func ofChart(component string) map[string]string {
	return map[string]string{
		"app.kubernetes.io/part-of": "vicinity", "app.kubernetes.io/component": component, "app.kubernetes.io/instance": "vicinity",
		labelVersion: "0.1.0", labelChart: "vicinity-0.1.0",
	}
}

func aNode(name, zone, region string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
			Labels: map[string]string{corev1.LabelTopologyZone: zone, corev1.LabelTopologyRegion: region, corev1.LabelOSStable: "linux"},
		},
		Status: corev1.NodeStatus{
			NodeInfo:    corev1.NodeSystemInfo{KubeletVersion: "v1.37.2", OperatingSystem: "linux"},
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

// aLease was renewed some seconds ago, by a clock that is right.
func aLease(namespace, name, holder string) *coordinationv1.Lease {
	seconds, at := int32(15), now.Add(-3*time.Second)
	stored := metav1.NewTime(at)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "program", Time: &stored, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:renewTime":{}}}`)},
			},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &metav1.MicroTime{Time: at}},
	}
}

func aProxyLease(node string) *coordinationv1.Lease {
	lease := aLease(home, "vicinity-proxy-"+node, node)
	lease.Labels = map[string]string{v1alpha1.LabelProxyLease: "true"}
	return lease
}

func aService(namespace, name string, annotations map[string]string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations, Labels: map[string]string{"app": name}},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1", Selector: map[string]string{"app": name}},
	}
}

func withCondition(service *corev1.Service, reason string) *corev1.Service {
	service.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionTopologyRouting, Status: metav1.ConditionFalse, Reason: reason, Message: "that is why.", LastTransitionTime: metav1.NewTime(now.Add(-time.Hour)),
	}}
	return service
}

// aPod is an old pod on the node node-a1.
func aPod(address string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))},
		Spec:       corev1.PodSpec{NodeName: "node-a1"},
		Status:     corev1.PodStatus{PodIP: address, PodIPs: []corev1.PodIP{{IP: address}}},
	}
}

func aDeployment(namespace, name string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(3)), Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}}}},
		Status:     appsv1.DeploymentStatus{ReadyReplicas: 3},
	}
}

func aPDB(name, app string) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Generation: 1},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
		Status:     policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, ExpectedPods: 3, CurrentHealthy: 3, DesiredHealthy: 2, DisruptionsAllowed: 1},
	}
}

func aBudget(namespace, name, app string) *v1alpha1.TopologyDisruptionBudget {
	return &v1alpha1.TopologyDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 1},
		Spec: v1alpha1.TopologyDisruptionBudgetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, MaxUnavailable: new(intstr.FromInt32(1)),
		},
		Status: v1alpha1.TopologyDisruptionBudgetStatus{
			ObservedGeneration: 1, ExpectedPods: 3, CurrentHealthy: 3,
			Conditions: []metav1.Condition{
				{Type: v1alpha1.ConditionEnforced, Status: metav1.ConditionTrue, Reason: "Enforced"},
				{Type: v1alpha1.ConditionValid, Status: metav1.ConditionTrue, Reason: coverage.ReasonValid},
				{Type: v1alpha1.ConditionSatisfiable, Status: metav1.ConditionTrue, Reason: coverage.ReasonSatisfiable},
			},
		},
	}
}

func setCondition(budget *v1alpha1.TopologyDisruptionBudget, kind string, status metav1.ConditionStatus, reason string) {
	for i := range budget.Status.Conditions {
		if c := &budget.Status.Conditions[i]; c.Type == kind {
			c.Status, c.Reason, c.Message = status, reason, "that is why."
			return
		}
	}
	budget.Status.Conditions = append(budget.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: "that is why."})
}

func aPolicy(namespace, name, app string) *v1alpha1.RoutingPolicy {
	return &v1alpha1.RoutingPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.RoutingPolicySpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, Mode: v1alpha1.Prefer, Level: v1alpha1.Zone},
	}
}

func aDefinition(name string) Definition {
	return Definition{Name: name, Established: true, Versions: map[string]map[string]any{"v1alpha1": {
		"spec": map[string]any{"properties": map[string]any{"mode": map[string]any{"type": "string"}, "padding": map[string]any{"type": "integer"}}},
	}}}
}

// healthy is a cluster of six nodes in three zones with all parts of Vicinity.
func healthy(t testing.TB) *Reading {
	t.Helper()
	r := &Reading{
		Unread: map[Source]string{}, Version: "v1.37.2", Local: now.Add(time.Second), Server: now, Charts: []string{"0.1.0-dev", "0.1.0"},
		Backends:  map[types.NamespacedName]Backend{{Namespace: home, Name: "vicinity-webhook"}: {Exists: true, Ready: 2}},
		Grouped:   map[types.NamespacedName]bool{{Namespace: "shop", Name: "grouped"}: true},
		Exclusion: intent.Exclusion{Own: home, Namespaces: intent.DefaultExcluded()},
		Leftovers: map[string][]Object{},
	}
	for _, zone := range []string{"a", "b", "c"} {
		for n := 1; n <= 2; n++ {
			name := fmt.Sprintf("node-%s%d", zone, n)
			r.Nodes = append(r.Nodes, aNode(name, "zone-"+zone, "north"))
			r.NodeLeases = append(r.NodeLeases, aLease(corev1.NamespaceNodeLease, name, name))
			r.Leases = append(r.Leases, aProxyLease(name))
		}
	}
	// Nodes of the control plane may be in no zone.
	master := aNode("master", "", "")
	master.Labels[v1alpha1.LabelControlPlane] = ""
	master.Spec.Taints = []corev1.Taint{{Key: v1alpha1.LabelControlPlane, Effect: corev1.TaintEffectNoSchedule}}
	r.Nodes = append(r.Nodes, master)
	r.Leases = append(r.Leases, aProxyLease("master"), aLease(home, leaderLease, "vicinity-controller-0_1"))

	controller := aDeployment(home, "vicinity-controller")
	controller.Labels, controller.Spec.Replicas, controller.Status.ReadyReplicas = ofChart("controller"), new(int32(2)), 2
	r.Controllers = []Controller{{Deployment: controller, WebhookName: "vicinity", Mutates: true, Validates: true}}
	dns := aDeployment(home, "vicinity-dns")
	dns.Labels = ofChart("dns")
	r.NameServers = []*appsv1.Deployment{dns}
	r.Nodes[0].Spec.PodCIDRs = []string{"10.1.0.0/24"}
	r.Locators = []*v1alpha1.PodLocator{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-2"}, IPs: []string{"172.16.0.2"}, NodeName: "node-a1"}}
	young := aPod("172.16.0.3")
	young.CreationTimestamp = metav1.NewTime(now.Add(-time.Second))
	r.Pods = []*corev1.Pod{aPod("10.1.0.1"), aPod("172.16.0.2"), young}
	r.Pods[0].Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"10.96.0.99"}}
	proxy := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: "vicinity-proxy", Labels: ofChart("proxy"), CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))},
		Status:     appsv1.DaemonSetStatus{DesiredNumberScheduled: 7, NumberReady: 7},
	}
	proxy.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelOSStable: "linux"}
	r.Proxies = []*appsv1.DaemonSet{proxy}
	kubeProxy := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-proxy", Labels: map[string]string{"k8s-app": "kube-proxy"}},
		Status:     appsv1.DaemonSetStatus{DesiredNumberScheduled: 7, NumberReady: 7},
	}
	kubeProxy.Spec.Template.Spec.Containers = []corev1.Container{{
		Name: "kube-proxy", Image: "registry.k8s.io/kube-proxy:v1.37.2", Command: []string{"/usr/local/bin/kube-proxy", "--config=/var/lib/kube-proxy/config.conf"},
	}}
	r.Networks = consumer.Settings{
		DaemonSets: []*appsv1.DaemonSet{kubeProxy}, KubeProxy: &consumer.ProxyConfig{Namespace: metav1.NamespaceSystem, ConfigMap: "kube-proxy", Mode: "nftables", Gates: map[string]bool{"Other": false}},
	}

	for _, name := range []string{"routingpolicies.vicinity.dev", "endpointgroups.vicinity.dev"} {
		definition := aDefinition(name)
		r.Needed, r.Definitions = append(r.Needed, definition), append(r.Definitions, aDefinition(name))
		r.Served = append(r.Served, definition.plural())
	}
	authority := authorityUntil(t, now.AddDate(9, 0, 0))
	for _, kind := range []string{inspect.Mutating, inspect.Validating} {
		r.Webhooks = append(r.Webhooks, inspect.WebhookConfiguration{Kind: kind, Name: "vicinity", Webhooks: []inspect.Webhook{{Client: admissionregistrationv1.WebhookClientConfig{
			Service: &admissionregistrationv1.ServiceReference{Namespace: home, Name: "vicinity-webhook"}, CABundle: authority,
		}}}})
	}

	near := map[string]string{v1alpha1.AnnotationSameZone: v1alpha1.Prefer}
	grouped := aService("shop", "grouped", map[string]string{v1alpha1.AnnotationSameZone: v1alpha1.Require, v1alpha1.AnnotationProxy: "true"})
	grouped.Labels[v1alpha1.LabelServiceProxyName] = v1alpha1.ServiceProxyName
	cache := aService("shop", "cache", near)
	cache.Spec.ClusterIP = corev1.ClusterIPNone
	local := aService("shop", "local", nil)
	local.Spec.InternalTrafficPolicy, local.Spec.TrafficDistribution = new(corev1.ServiceInternalTrafficPolicyLocal), new(corev1.ServiceTrafficDistributionPreferSameZone)
	server := aService(home, "vicinity-dns", nil)
	server.Spec.ClusterIPs = []string{"10.96.0.99"}
	r.Services = []*corev1.Service{
		aService("default", "kubernetes", nil), aService("shop", "plain", nil), withCondition(aService("shop", "web", near), "Allocated"), grouped, cache,
		aService("shop", "governed", nil), aService(metav1.NamespaceSystem, "kube-dns", nil), local, server,
	}
	// Proxies have no plan for plain, local and cache. Doctor cannot see the setting of Envoy Gateway.
	annotated := map[string]string{"nginx.ingress.kubernetes.io/service-upstream": "true"}
	route := inspect.Gateway{Kind: "HTTPRoute", Namespace: "shop", Name: "other", Controller: "k8s.io/ingress-nginx"}
	r.Gateways = inspect.Gateways{
		{Namespace: "shop", Name: "web"}: {
			{Kind: "Ingress", Namespace: "shop", Name: "front", Controller: "k8s.io/ingress-nginx", Annotations: annotated},
			{Kind: "HTTPRoute", Namespace: "shop", Name: "edge", Controller: "gateway.envoyproxy.io/gatewayclass-controller"},
			{Kind: "Ingress", Namespace: "shop", Name: "alb", Controller: "ingress.k8s.aws/alb"},
		},
		{Namespace: "shop", Name: "plain"}: {route}, {Namespace: "shop", Name: "local"}: {route}, {Namespace: "shop", Name: "cache"}: {route},
	}
	r.Policies = []*v1alpha1.RoutingPolicy{aPolicy("shop", "near", "governed")}
	for _, name := range []string{"default", "shop", metav1.NamespaceSystem, home} {
		r.Namespaces = append(r.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/metadata.name": name}}})
	}
	r.Deployments = []*appsv1.Deployment{aDeployment("shop", "web"), aDeployment("shop", "idle"), controller, dns}
	r.Deployments[1].Spec.Replicas, r.Deployments[1].Status.ReadyReplicas = new(int32(0)), 0
	r.StatefulSets = []*appsv1.StatefulSet{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"},
		Spec:       appsv1.StatefulSetSpec{ServiceName: "db", Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "db"}}}},
	}}
	idle := aPDB("idle", "idle")
	idle.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1}
	r.PDBs = []*policyv1.PodDisruptionBudget{aPDB("web", "web"), idle}
	r.Budgets = []*v1alpha1.TopologyDisruptionBudget{aBudget("shop", "db", "db")}
	return r
}
