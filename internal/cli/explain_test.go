package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/test/golden"
)

// fakeCluster is a cluster in memory, with its clients.
type fakeCluster struct {
	typed   *fake.Clientset
	dynamic *dynamicfake.FakeDynamicClient
	here    machine // that runs the commands
}

func (c *fakeCluster) actions() []kubetesting.Action {
	return slices.Concat(c.typed.Actions(), c.dynamic.Actions())
}

// newFakeCluster has three zones of two nodes with different CPU, a control plane node, Services with
// all kinds of requests, and the controller.
func newFakeCluster(t *testing.T) *fakeCluster {
	t.Helper()
	objects := []runtime.Object{aNode("master", "zone-a", "8", v1alpha1.LabelControlPlane)}
	for _, zone := range []string{"a", "b", "c"} {
		for n := 1; n <= 2; n++ {
			objects = append(objects, aNode(fmt.Sprintf("node-%s%d", zone, n), "zone-"+zone, "4", ""))
		}
	}
	prefer := map[string]string{v1alpha1.AnnotationSameZone: v1alpha1.Prefer}
	web := aService("shop", "web", prefer)
	web.Labels = map[string]string{v1alpha1.LabelRouted: "true"}
	web.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionTopologyRouting, Status: metav1.ConditionTrue, Reason: "Allocated", Message: "optimal: a plan below the threshold",
		LastTransitionTime: metav1.NewTime(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)),
	}}
	near := aService("shop", "near", nil)
	sameNode := corev1.ServiceTrafficDistributionPreferSameNode
	near.Spec.TrafficDistribution = &sameNode
	grouped := aService("shop", "grouped", map[string]string{v1alpha1.AnnotationSameZone: v1alpha1.Require, v1alpha1.AnnotationProxy: "true"})
	grouped.Labels = map[string]string{v1alpha1.LabelServiceProxyName: v1alpha1.ServiceProxyName}
	named := aService("shop", "elsewhere", nil)
	named.Spec.Type, named.Spec.ExternalName = corev1.ServiceTypeExternalName, "shop.example.com"
	objects = append(objects,
		headless(aService("data", "db", prefer)),
		headless(aService("data", "feed", map[string]string{v1alpha1.AnnotationTopologyKeys: "kubernetes.io/hostname,topology.kubernetes.io/zone"})),
		headless(aService("data", "log", nil)),
		aSlice("data", "db", "a=1", "b=1", "c=1"),
		aSlice("data", "feed", "a=3", "b=3"),
		aSlice("data", "log", "a=1", "b=1"),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "attic"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{"near": "true"}}},
		aService("team", "api", nil),
		aService("team", "out", map[string]string{v1alpha1.AnnotationSameZone: v1alpha1.Balanced}),
		aSlice("team", "api", "a=4", "b=4", "c=4"),
		aSlice("team", "out", "a=4", "b=4", "c=4"),
		web, near, grouped, named,
		aService("shop", "hard", map[string]string{v1alpha1.AnnotationTopologyKeys: "topology.kubernetes.io/zone"}),
		aService("shop", "lonely", prefer),
		aService("shop", "crowded", prefer),
		aService("shop", "empty", prefer),
		aService("shop", "plain", nil),
		aService("ops", "both", prefer),
		aService("ops", "governed", nil),
		aSlice("shop", "web", "a=6", "b=4", "c=2"),
		aSlice("shop", "near", "a=2", "b=1"),
		aSlice("shop", "grouped", "a=3", "b=3"),
		aSlice("shop", "hard", "a=2", "b=2"),
		aSlice("shop", "lonely", "b=1"),
		aSlice("shop", "crowded", "c=5"),
		aSlice("shop", "plain", "a=1", "b=1", "c=1"),
		aSlice("ops", "both", "a=4", "b=4", "c=4"),
		inIPv6(aSlice("ops", "both", "a=4", "b=4", "c=4")),
		aSlice("ops", "governed", "a=8", "b=4"),
		aDeployment("web"), anAutoscaler("web"), aDeployment("other"), anAutoscaler("other"),
		anAutoscaler("gone"),
		aController(),
	)
	for _, object := range objects {
		slice, ok := object.(*discoveryv1.EndpointSlice)
		if !ok {
			continue
		}
		switch slice.Labels[discoveryv1.LabelServiceName] {
		case "db":
			for i := range slice.Endpoints {
				slice.Endpoints[i].Hostname = new(fmt.Sprintf("db-%d", i))
			}
		case "near":
			for i := range slice.Endpoints {
				e := &slice.Endpoints[i]
				e.Hints = &discoveryv1.EndpointHints{
					ForZones: []discoveryv1.ForZone{{Name: *e.Zone}}, ForNodes: []discoveryv1.ForNode{{Name: *e.NodeName}},
				}
			}
		case "web":
			// Half of the plan is written, and one endpoint is new.
			for i := range slice.Endpoints[:11] {
				slice.Endpoints[i].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: *slice.Endpoints[i].Zone}}}
			}
		}
	}
	policy := &v1alpha1.RoutingPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "RoutingPolicy"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ops", Name: "near-by"},
		Spec: v1alpha1.RoutingPolicySpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "governed"}},
			Mode:     v1alpha1.Prefer, Level: v1alpha1.Zone, Algorithm: "local", OverloadThreshold: "80%",
			Capacity: v1alpha1.Capacity{Type: v1alpha1.CapacityCPU},
		},
	}
	nearby := &v1alpha1.ClusterRoutingPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ClusterRoutingPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: "nearby"},
	}
	nearby.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"near": "true"}}
	objects = append(objects,
		&networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "nginx"}, Spec: networkingv1.IngressClassSpec{Controller: "k8s.io/ingress-nginx"}},
		anIngress("front", "web", map[string]string{"nginx.ingress.kubernetes.io/service-upstream": "true"}),
	)
	typed := fake.NewClientset(objects...)
	typed.Resources = []*metav1.APIResourceList{{
		GroupVersion: gatewayVersion.String(), APIResources: []metav1.APIResource{{Name: "gateways"}, {Name: "grpcroutes"}, {Name: "httproutes"}},
	}}
	return &fakeCluster{
		typed:   typed,
		dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), listKinds(), inAPI(t, policy), inAPI(t, nearby)),
	}
}

// anIngress sends the traffic of a path to a Service.
func anIngress(name, service string, annotations map[string]string) *networkingv1.Ingress {
	return &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: annotations},
		Spec: networkingv1.IngressSpec{IngressClassName: new("nginx"), Rules: []networkingv1.IngressRule{{}, {IngressRuleValue: networkingv1.IngressRuleValue{
			HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
				Path: "/", Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: service}},
			}}},
		}}}},
	}
}

// aRoute sends traffic to Services, and has a parent of each kind.
func aRoute(t *testing.T, kind string, backends []any, parents ...string) *unstructured.Unstructured {
	t.Helper()
	route := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"rules": []any{map[string]any{}, map[string]any{"backendRefs": backends}}}}}
	route.SetGroupVersionKind(gatewayVersion.WithKind(kind))
	route.SetNamespace("shop")
	route.SetName("front")
	var status []any
	for _, parent := range parents {
		status = append(status, map[string]any{"parentRef": map[string]any{"kind": parent, "name": "edge"}, "controllerName": "example.com/" + strings.ToLower(parent)})
	}
	if err := unstructured.SetNestedSlice(route.Object, status, "status", "parents"); err != nil {
		t.Fatal(err)
	}
	return route
}

// Gateways that choose endpoints themselves are a warning, if they send traffic to the Service.
func TestExplainGateways(t *testing.T) {
	c := newFakeCluster(t)
	old := anIngress("old", "web", map[string]string{"kubernetes.io/ingress.class": "nginx"})
	old.Spec.IngressClassName, old.Spec.Rules = nil, nil
	old.Spec.DefaultBackend = &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web"}}
	for _, ingress := range []*networkingv1.Ingress{old, anIngress("bare", "web", nil), anIngress("other", "near", nil)} {
		if err := c.typed.Tracker().Add(ingress); err != nil {
			t.Fatal(err)
		}
	}
	for resource, route := range map[string]*unstructured.Unstructured{
		"httproutes": aRoute(t, "HTTPRoute", []any{map[string]any{"name": "web"}}, "Gateway", "Service"),
		"grpcroutes": aRoute(t, "GRPCRoute", []any{map[string]any{"kind": "Bucket", "name": "web"}, map[string]any{"group": "example.com", "kind": "Service", "name": "web"}, map[string]any{"name": "web", "namespace": "attic"}}, "Gateway"),
	} {
		if err := c.dynamic.Tracker().Create(gatewayVersion.WithResource(resource), route, "shop"); err != nil {
			t.Fatal(err)
		}
	}
	c.printsGolden(t, "explain/gateways-answer.txt", "explain", "web")
	// Without the classes, the controllers of Ingresses are unknown, and all else stays.
	c.refuse("ingressclasses", forbidden("networking.k8s.io", "ingressclasses"))
	_, stdout, _ := c.run(t.Context(), "explain", "web")
	for _, want := range []string{"Ingress shop/bare: its controller may choose endpoints", "HTTPRoute shop/front: ", "so whether all gateways follow the plan is unknown"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("without IngressClasses, %q is missing:\n%s", want, stdout)
		}
	}
	// A route of another namespace counts, if the user may list those of all.
	c = newFakeCluster(t)
	route := aRoute(t, "HTTPRoute", []any{map[string]any{"name": "web", "namespace": "shop"}}, "Gateway")
	route.SetNamespace("edge")
	for _, namespace := range []string{"edge", "shop"} {
		if err := c.dynamic.Tracker().Create(gatewayVersion.WithResource("httproutes"), route, namespace); err != nil {
			t.Fatal(err)
		}
		route = aRoute(t, "HTTPRoute", []any{map[string]any{"name": "web"}}, "Gateway")
	}
	for _, mayList := range []bool{true, false} {
		if !mayList {
			c.dynamic.PrependReactor("list", "httproutes", func(action kubetesting.Action) (bool, runtime.Object, error) {
				return action.GetNamespace() == "", nil, forbidden("gateway.networking.k8s.io", "httproutes")
			})
		}
		_, stdout, _ := c.run(t.Context(), "explain", "web")
		if !strings.Contains(stdout, "HTTPRoute shop/front") || strings.Contains(stdout, "HTTPRoute edge/front") != mayList ||
			strings.Contains(stdout, "so whether all gateways follow the plan is unknown") == mayList {
			t.Errorf("may list routes of all namespaces: %t:\n%s", mayList, stdout)
		}
	}
	// Explain and doctor go on without routes.
	c = newFakeCluster(t)
	examined := newExaminedCluster(t)
	for _, cluster := range []*fakeCluster{c, examined.fakeCluster} {
		cluster.refuse("httproutes", apierrors.NewInternalError(errors.New("etcd is away")))
	}
	if code, stdout, stderr := c.run(t.Context(), "explain", "web"); code != 0 || !strings.Contains(stdout, "etcd is away, so whether all gateways follow the plan is unknown") {
		t.Errorf("without routes: exit code %d: %s%s", code, stdout, stderr)
	}
	if report := examined.report(t); !strings.Contains(fmt.Sprint(report), "etcd is away") {
		t.Errorf("without routes, doctor reports %+v", report)
	}
}

// Explain names the programs that serve the Service, and what they need to follow its hints.
func TestExplainServedBy(t *testing.T) {
	c := newFakeCluster(t)
	for _, object := range hintedCilium() {
		if err := c.typed.Tracker().Add(object); err != nil {
			t.Fatal(err)
		}
	}
	c.printsGolden(t, "explain/served-answer.txt", "explain", "web")
	for _, node := range []string{"node-a1", "node-a2", "node-c1", "node-c2"} {
		if err := c.typed.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("nodes"), "", node); err != nil {
			t.Fatal(err)
		}
	}
	for service, has := range map[string]string{"grouped": "vicinity-proxy", "lonely": "one zone has all", "empty": "no plan:"} {
		if _, stdout, _ := c.run(t.Context(), "explain", service); strings.Contains(stdout, "Cilium") || !strings.Contains(stdout, has) {
			t.Errorf("Cilium matters to a Service without hints:\n%s", stdout)
		}
	}
	c = newFakeCluster(t)
	c.refuse("configmaps", forbidden("", "configmaps"))
	if _, stdout, _ := c.run(t.Context(), "explain", "web"); strings.Contains(stdout, "served by:") || !strings.Contains(stdout, "which programs serve the Service is unknown: you may not get the configmap kube-proxy in namespace kube-system") {
		t.Errorf("without the settings of Cilium:\n%s", stdout)
	}
}

// hintedCilium is a Cilium that follows hints in place of kube-proxy.
func hintedCilium() []runtime.Object {
	cilium := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cilium"}, Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 7}}
	cilium.Spec.Template.Spec.Containers = []corev1.Container{{Image: "quay.io/cilium/cilium:v1.20.1"}}
	return []runtime.Object{cilium, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cilium-config"},
		Data:       map[string]string{"kube-proxy-replacement": "true", "enable-service-topology": "true"},
	}}
}

// listKinds are the lists of Vicinity's own API, and of others.
func listKinds() map[schema.GroupVersionResource]string {
	return map[schema.GroupVersionResource]string{
		v1alpha1.GroupVersion.WithResource("routingpolicies"):           "RoutingPolicyList",
		v1alpha1.GroupVersion.WithResource("clusterroutingpolicies"):    "ClusterRoutingPolicyList",
		v1alpha1.GroupVersion.WithResource("endpointgroups"):            "EndpointGroupList",
		v1alpha1.GroupVersion.WithResource("podlocators"):               "PodLocatorList",
		v1alpha1.GroupVersion.WithResource("topologydisruptionbudgets"): "TopologyDisruptionBudgetList",
		v1alpha1.GroupVersion.WithResource("zoneshifts"):                "ZoneShiftList",
		v1alpha1.GroupVersion.WithResource("domainrollouts"):            "DomainRolloutList",
		gatewayVersion.WithResource("grpcroutes"):                       "GRPCRouteList",
		gatewayVersion.WithResource("httproutes"):                       "HTTPRouteList",
	}
}

func aNode(name, zone, cpu, label string) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone, corev1.LabelTopologyRegion: "north"}},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	if label != "" {
		node.Labels[label] = ""
		node.Spec.Taints = []corev1.Taint{{Key: label, Effect: corev1.TaintEffectNoSchedule}}
	}
	return node
}

func aService(namespace, name string, annotations map[string]string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations, Labels: map[string]string{"app": name}},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.1", Selector: map[string]string{"app": name},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		},
	}
}

func headless(service *corev1.Service) *corev1.Service {
	service.Spec.ClusterIP = corev1.ClusterIPNone
	return service
}

// aSlice has ready endpoints, by the letter of their zone, on the zone's nodes in turn.
func aSlice(namespace, service string, zones ...string) *discoveryv1.EndpointSlice {
	port, number, protocol := "http", int32(8080), corev1.ProtocolTCP
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: service + "-ipv4", Labels: map[string]string{
			discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &port, Port: &number, Protocol: &protocol}},
	}
	for _, text := range zones {
		letter, n := text[:1], 0
		if _, err := fmt.Sscanf(text[2:], "%d", &n); err != nil {
			panic(err)
		}
		for i := range n {
			zone, node := "zone-"+letter, fmt.Sprintf("node-%s%d", letter, i%2+1)
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{fmt.Sprintf("10.%d.0.%d", letter[0]-'a', i+1)}, Zone: &zone, NodeName: &node,
			})
		}
	}
	return slice
}

// inIPv6 returns the slice in the other family.
func inIPv6(slice *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	slice.Name, slice.AddressType = strings.Replace(slice.Name, "ipv4", "ipv6", 1), discoveryv1.AddressTypeIPv6
	for i := range slice.Endpoints {
		slice.Endpoints[i].Addresses[0] = "fd00::" + strings.ReplaceAll(slice.Endpoints[i].Addresses[0], ".", ":")
	}
	return slice
}

func aDeployment(name string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec:       appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}}}},
	}
}

func anAutoscaler(name string) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec:       autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name}},
	}
}

func aController(args ...string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "vicinity-system", Name: "vicinity-controller",
			Labels: map[string]string{"app.kubernetes.io/part-of": "vicinity", "app.kubernetes.io/component": "controller"},
		},
		Spec:   appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "controller", Args: args}}}}},
		Status: appsv1.DeploymentStatus{ReadyReplicas: 2},
	}
}

// connect connects to the cluster, in the namespace shop by default.
func (c *fakeCluster) connect(f *clusterFlags) (*connection, error) {
	namespace := f.namespace
	if namespace == "" {
		namespace = "shop"
	}
	return &connection{typed: c.typed, dynamic: c.dynamic, namespace: namespace, server: "https://fake"}, nil
}

// runCommands runs a program with these commands only.
func runCommands(ctx context.Context, args []string, commands func(command.Streams) []*cobra.Command) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	root := &cobra.Command{Use: "vicinity", SilenceUsage: true, SilenceErrors: true}
	root.SetOut(&out)
	root.SetErr(&errs)
	root.AddCommand(commands(command.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})...)
	code = command.Execute(ctx, root, args)
	return code, out.String(), errs.String()
}

// run runs a command against the cluster.
func (c *fakeCluster) run(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	return runCommands(ctx, args, func(s command.Streams) []*cobra.Command {
		return []*cobra.Command{newBudgetCommand(s, c.connect), newExplainCommand(s, c.connect, c.here), newGameDayCommand(s, c.connect), newRolloutCommand(s, c.connect), newShiftCommand(s, c.connect), newStatusCommand(s, c.connect)}
	})
}

// refuse makes reads of a resource fail.
func (c *fakeCluster) refuse(resourceName string, err error) {
	react := func(kubetesting.Action) (bool, runtime.Object, error) { return true, nil, err }
	c.typed.PrependReactor("*", resourceName, react)
	c.dynamic.PrependReactor("*", resourceName, react)
}

func forbidden(group, resourceName string) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: group, Resource: resourceName}, "",
		fmt.Errorf("User %q cannot list resource %q in API group %q at the cluster scope", "jane", resourceName, group))
}

// printsGolden runs a command that must succeed and print a golden file.
func (c *fakeCluster) printsGolden(t *testing.T, file string, args ...string) {
	t.Helper()
	code, stdout, stderr := c.run(t.Context(), args...)
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	golden.Compare(t, "testdata/"+file, stdout)
}

func TestExplainGolden(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
	}{
		{"web-answer.txt", []string{"svc/web"}},
		{"near-answer.txt", []string{"near"}},
		{"grouped-answer.txt", []string{"grouped"}},
		{"hard-answer.txt", []string{"hard"}},
		{"lonely-answer.txt", []string{"lonely"}},
		{"empty-answer.txt", []string{"empty"}},
		{"plain-answer.txt", []string{"plain"}},
		{"elsewhere-answer.txt", []string{"elsewhere"}},
		{"opted-out-answer.txt", []string{"out", "-n", "team"}},
		{"members-answer.txt", []string{"db", "-n", "data"}},
		{"headless-answer.txt", []string{"feed", "-n", "data"}},
		{"headless.txt", []string{"feed", "-n", "data", "--all"}},
		{"headless-plain.yaml", []string{"log", "-n", "data", "-o", "yaml"}},
		{"web.txt", []string{"svc/web", "--all"}},
		{"web.json", []string{"service/web", "-o", "json"}},
		{"grouped.txt", []string{"svc/grouped", "--all"}},
		{"hard.txt", []string{"svc/hard", "--all"}},
		{"crowded.txt", []string{"svc/crowded", "--all"}},
		{"both.txt", []string{"svc/both", "-n", "ops", "--all"}},
		{"defaulted-answer.txt", []string{"svc/api", "-n", "team"}},
		{"governed-answer.txt", []string{"svc/governed", "-n", "ops"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			newFakeCluster(t).printsGolden(t, "explain/"+test.name, append([]string{"explain"}, test.args...)...)
		})
	}
}

// Explain leaves out what it may not read, and says so.
func TestExplainWithoutPermissions(t *testing.T) {
	noCRD := func(name string) error {
		return apierrors.NewNotFound(schema.GroupResource{Group: "vicinity.dev", Resource: name}, "")
	}
	for _, test := range []struct {
		name    string
		prepare func(*fakeCluster)
		golden  string
	}{
		{
			name: "without Vicinity", golden: "web-not-installed.txt",
			prepare: func(c *fakeCluster) {
				c.refuse("routingpolicies", noCRD("routingpolicies"))
				c.refuse("zoneshifts", noCRD("zoneshifts"))
				c.refuse("endpointgroups", noCRD("endpointgroups"))
				if err := c.typed.Tracker().Delete(appsv1.SchemeGroupVersion.WithResource("deployments"), "vicinity-system", "vicinity-controller"); err != nil {
					panic(err)
				}
			},
		},
		{
			name: "without the right to read anything but the Service", golden: "web-forbidden.txt",
			prepare: func(c *fakeCluster) {
				c.refuse("nodes", forbidden("", "nodes"))
				c.refuse("endpointslices", forbidden("discovery.k8s.io", "endpointslices"))
				c.refuse("routingpolicies", forbidden("vicinity.dev", "routingpolicies"))
				c.refuse("zoneshifts", forbidden("vicinity.dev", "zoneshifts"))
				c.refuse("endpointgroups", forbidden("vicinity.dev", "endpointgroups"))
				c.refuse("deployments", forbidden("apps", "deployments"))
			},
		},
		{
			name: "without the right to read autoscalers and routes", golden: "web-no-autoscalers.txt",
			prepare: func(c *fakeCluster) {
				c.refuse("horizontalpodautoscalers", forbidden("autoscaling", "horizontalpodautoscalers"))
				c.refuse("httproutes", forbidden("gateway.networking.k8s.io", "httproutes"))
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newFakeCluster(t)
			test.prepare(c)
			c.printsGolden(t, "explain/"+test.golden, "explain", "web")
		})
	}
}

func TestExplainFails(t *testing.T) {
	for _, test := range []struct {
		name    string
		args    []string
		prepare func(*fakeCluster)
		code    int
		want    string
	}{
		{name: "another kind", args: []string{"node/web"}, code: 2, want: `"node/web" is neither a Service nor a pod; give svc/NAME or pod/NAME, with -n for its namespace (see "vicinity explain --help")`},
		{name: "a name with a mistake", args: []string{"wbe"}, code: 1, want: `no Service "wbe" is in namespace "shop"; it has crowded, elsewhere, empty, grouped, hard, lonely, near, plain, web`},
		{name: "another namespace", args: []string{"governed"}, code: 1, want: `no Service "governed" is in namespace "shop"; a Service with this name is in ops`},
		{name: "nothing in a namespace that does not exist", args: []string{"quux", "-n", "cellar"}, code: 1, want: `there is no namespace "cellar"`},
		{
			name: "a Service that may not be read", args: []string{"web"}, code: 1,
			prepare: func(c *fakeCluster) { c.refuse("services", forbidden("", "services")) },
			want:    `reading Service shop/web is not allowed: User "jane" cannot list resource "services" in API group "" at the cluster scope; see docs/reference/permissions.md`,
		},
		{
			name: "a cluster that breaks", args: []string{"web"}, code: 1,
			prepare: func(c *fakeCluster) {
				c.refuse("endpointslices", apierrors.NewInternalError(errors.New("etcd is gone")))
			},
			want: `reading EndpointSlices: Internal error occurred: etcd is gone`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newFakeCluster(t)
			if test.prepare != nil {
				test.prepare(c)
			}
			code, stdout, stderr := c.run(t.Context(), append([]string{"explain"}, test.args...)...)
			if code != test.code || stderr != "vicinity: "+test.want+"\n" || stdout != "" {
				t.Errorf("exit code %d, standard error\n%swant %d\nvicinity: %s", code, stderr, test.code, test.want)
			}
		})
	}
}
