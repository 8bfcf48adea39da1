package cli

import (
	"context"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/proxy/view"
	"vicinity.dev/vicinity/internal/topology"
	"vicinity.dev/vicinity/test/golden"
)

// proxiedCluster is a cluster of two zones whose Services vicinity-proxy serves. The test can be one
// of its nodes.
type proxiedCluster struct {
	objects []runtime.Object
	groups  []runtime.Object
	here    machine
}

// proxiedNode returns a node of the zone that its name begins with.
func proxiedNode(name, address string) *corev1.Node {
	node := aNode(name, "zone-"+name[:1], "4", "")
	node.Labels[corev1.LabelHostname], node.Labels["example.com/rack"] = name, "rack-"+name[1:]
	node.Spec.PodCIDRs = []string{"10.1.0.0/16"}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	return node
}

// proxiedService has all kinds of addresses.
func proxiedService(changes ...func(*corev1.Service)) *corev1.Service {
	service := aService("shop", "web", map[string]string{v1alpha1.AnnotationProxy: "true"})
	service.Labels[v1alpha1.LabelServiceProxyName] = v1alpha1.ServiceProxyName
	service.CreationTimestamp = metav1.NewTime(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	service.Spec.Type = corev1.ServiceTypeLoadBalancer
	service.Spec.ClusterIPs = []string{service.Spec.ClusterIP}
	service.Spec.ExternalIPs = []string{"198.51.100.7"}
	service.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
	service.Spec.Ports = []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30080}}
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.1"}}
	for _, change := range changes {
		change(service)
	}
	return service
}

func isLocal(service *corev1.Service) {
	service.Spec.ExternalTrafficPolicy, service.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, 32000
	service.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
}

// notHandedOver leaves the Service to kube-proxy.
func notHandedOver(service *corev1.Service) {
	delete(service.Labels, v1alpha1.LabelServiceProxyName)
}

// aGroup has endpoints by number and node, as in 1@a1.
func aGroup(name, endpoints string, change func(*v1alpha1.EndpointGroupSpec)) *v1alpha1.EndpointGroup {
	group := &v1alpha1.EndpointGroup{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "EndpointGroup"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, ResourceVersion: "100",
			Labels: map[string]string{v1alpha1.LabelService: "web"},
		},
		Spec: v1alpha1.EndpointGroupSpec{
			Service: "web", AddressType: corev1.IPv4Protocol, AnyReady: true,
			Ports: []v1alpha1.GroupPort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 8080}},
		},
	}
	for word := range strings.FieldsSeq(endpoints) {
		number, node, _ := strings.Cut(word, "@")
		group.Spec.Endpoints = append(group.Spec.Endpoints, v1alpha1.GroupEndpoint{
			Address: "10.1.0." + number, Node: node, Zone: "zone-" + node[:1],
			Domains: map[string]string{"example.com/rack": "rack-" + node[1:]},
		})
	}
	if change != nil {
		change(&group.Spec)
	}
	return group
}

func notFor(group *v1alpha1.EndpointGroup, zone string) *v1alpha1.EndpointGroup {
	group.Labels[v1alpha1.LabelNotForPrefix+zone] = "true"
	return group
}

func tiers(keys ...string) func(*v1alpha1.EndpointGroupSpec) {
	return func(spec *v1alpha1.EndpointGroupSpec) { spec.Tiers = keys }
}

func aLease(age time.Duration, programmed string) *coordinationv1.Lease {
	holder := "a1"
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "vicinity-system", Name: "vicinity-proxy-" + holder,
			Labels: map[string]string{v1alpha1.LabelProxyLease: "true"}, Annotations: map[string]string{v1alpha1.AnnotationProgrammed: programmed},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &metav1.MicroTime{Time: time.Now().Add(-age)}},
	}
}

func aProxySet(args ...string) *appsv1.DaemonSet {
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "vicinity-system", Name: "vicinity-proxy",
		Labels: map[string]string{"app.kubernetes.io/part-of": "vicinity", "app.kubernetes.io/component": "proxy"},
	}}
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "proxy", Args: args}}
	return set
}

// newProxiedCluster has a Service with some groups.
func newProxiedCluster(service *corev1.Service, groups ...*v1alpha1.EndpointGroup) *proxiedCluster {
	c := &proxiedCluster{
		objects: []runtime.Object{
			proxiedNode("a1", "192.0.2.1"), proxiedNode("a2", "192.0.2.2"), proxiedNode("b1", "192.0.2.3"),
			&networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16"}}},
			&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "vicinity-system", Name: v1alpha1.ConfigMapNodeAddresses},
				Data:       map[string]string{v1alpha1.KeyNodeAddresses: "192.0.2.1\n192.0.2.2/31\n", v1alpha1.KeyPodRanges: "10.1.0.0/16\n10.2.0.0/16\n"},
			},
			service, aLease(3*time.Second, "100"), aProxySet("--masquerade-bit=13", "--cluster-cidr=10.0.0.0/8", "--log-level=info"),
		},
		here: machine{addresses: func() ([]netip.Addr, error) { return nil, nil }},
	}
	for _, group := range groups {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(group)
		if err != nil {
			panic(err)
		}
		c.groups = append(c.groups, &unstructured.Unstructured{Object: content})
	}
	return c
}

func (c *proxiedCluster) cluster() *fakeCluster {
	return &fakeCluster{
		typed: fake.NewClientset(c.objects...), here: c.here,
		dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), listKinds(), c.groups...),
	}
}

func (c *proxiedCluster) explain(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	return c.cluster().run(ctx, append([]string{"explain", "web", "--node"}, args...)...)
}

func TestExplainNodeGolden(t *testing.T) {
	near := aGroup("near", "1@a1 2@a2", nil)
	thirds := func(spec *v1alpha1.EndpointGroupSpec) {
		spec.Consumers = []v1alpha1.GroupConsumer{{Zone: "zone-a", Weight: 500}, {Zone: "zone-b", Weight: 500}}
	}
	slice := aSlice("shop", "web", "a=2", "b=1")
	hinted := aSlice("shop", "web", "a=2", "b=1")
	for i := range hinted.Endpoints {
		hinted.Endpoints[i].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: *hinted.Endpoints[i].Zone}}}
	}
	for _, test := range []struct {
		name    string
		service *corev1.Service
		groups  []*v1alpha1.EndpointGroup
		more    []runtime.Object
		change  func(*proxiedCluster)
		args    []string
	}{
		{name: "weights.txt", service: proxiedService(), groups: []*v1alpha1.EndpointGroup{near, aGroup("shared", "3@b1", thirds), notFor(aGroup("far", "4@b1", nil), "zone-a")}},
		{name: "weights.json", args: []string{"-o", "json"}, service: proxiedService(), groups: []*v1alpha1.EndpointGroup{near, aGroup("shared", "3@b1", thirds)}},
		{name: "local.txt", service: proxiedService(isLocal), groups: []*v1alpha1.EndpointGroup{near}},
		{name: "tiers.txt", service: proxiedService(), groups: []*v1alpha1.EndpointGroup{aGroup("g", "2@a2 3@b1", tiers(topology.Hostname, "example.com/rack", topology.Zone, topology.Anywhere))}},
		{name: "unreachable.txt", service: proxiedService(), groups: []*v1alpha1.EndpointGroup{aGroup("g", "3@b1", tiers(topology.Zone))}},
		{name: "taking.txt", service: proxiedService(notHandedOver), groups: []*v1alpha1.EndpointGroup{near}, more: []runtime.Object{slice}},
		{name: "kube-proxy.txt", service: proxiedService(notHandedOver), more: []runtime.Object{hinted}},
		{name: "all-services.txt", service: proxiedService(notHandedOver), more: []runtime.Object{hinted}, change: func(c *proxiedCluster) {
			c.objects = append(c.objects[:len(c.objects)-2], aProxySet("--all-services", "--masquerade-all", "--nodeport-addresses=192.0.2.0/24"), hinted)
		}},
		{name: "refused.txt", service: proxiedService(claimsAll), groups: []*v1alpha1.EndpointGroup{near, otherGroup()}, more: []runtime.Object{rival()}, change: func(c *proxiedCluster) {
			set := c.objects[len(c.objects)-2].(*appsv1.DaemonSet)
			set.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "KUBERNETES_SERVICE_HOST", Value: "203.0.113.6"}}
			set.Spec.Template.Spec.Containers[0].Args = append(set.Spec.Template.Spec.Containers[0].Args, "--external-ips=198.51.100.0/24,192.0.2.3/32,203.0.113.6/32")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newProxiedCluster(test.service, test.groups...)
			c.objects = append(c.objects, test.more...)
			if test.change != nil {
				test.change(c)
			}
			code, stdout, stderr := c.explain(t.Context(), append([]string{"a1"}, test.args...)...)
			if code != 0 || stderr != "" {
				t.Fatalf("exit code %d: %s", code, stderr)
			}
			golden.Compare(t, "testdata/explain-node/"+test.name, withoutTimes(stdout))
		})
	}
}

// claimsAll claims addresses that a Service may not claim.
func claimsAll(service *corev1.Service) {
	service.Spec.ExternalIPs = []string{
		"10.96.0.9", "10.96.0.77", "192.0.2.2", "192.0.2.3", "10.2.0.1", "203.0.113.6", "203.0.113.7", "169.254.169.254", "198.51.100.7",
	}
}

// rival is an older Service with the same external IP and port.
func rival() *corev1.Service {
	service := proxiedService()
	service.Name, service.CreationTimestamp = "older", metav1.NewTime(time.Date(2025, 11, 1, 12, 0, 0, 0, time.UTC))
	service.Spec.ClusterIP, service.Spec.ClusterIPs = "10.96.0.9", []string{"10.96.0.9"}
	service.Spec.Ports[0].NodePort = 30081
	service.Status.LoadBalancer.Ingress = nil
	return service
}

func otherGroup() *v1alpha1.EndpointGroup {
	group := aGroup("other", "9@a1", func(spec *v1alpha1.EndpointGroupSpec) { spec.Service = "older" })
	group.Labels[v1alpha1.LabelService] = "older"
	return group
}

// whenRenewed matches the age of the Lease in an output.
var whenRenewed = regexp.MustCompile(`("renewed": ")[^"]*|(renewed )[0-9]+s`)

func withoutTimes(text string) string { return whenRenewed.ReplaceAllString(text, "${1}${2}TIME") }

// TestExplainNodeServedBy checks what serves a Service, also with missing permissions.
func TestExplainNodeServedBy(t *testing.T) {
	near := aGroup("near", "1@a1", nil)
	without := func(kind func(runtime.Object) bool) func(*proxiedCluster) {
		return func(c *proxiedCluster) {
			var rest []runtime.Object
			for _, object := range c.objects {
				if !kind(object) {
					rest = append(rest, object)
				}
			}
			c.objects = rest
		}
	}
	leases := func(o runtime.Object) bool { _, is := o.(*coordinationv1.Lease); return is }
	for _, test := range []struct {
		name    string
		service *corev1.Service
		groups  []*v1alpha1.EndpointGroup
		change  func(*proxiedCluster)
		refuse  string
		want    []string
	}{
		{
			name: "handed over, without groups", service: proxiedService(),
			want: []string{"served by: no proxy; the label service.kubernetes.io/service-proxy-name names vicinity-proxy, and the Service has no group"},
		},
		{
			name: "rules that packets do not pass", service: proxiedService(notHandedOver), groups: []*v1alpha1.EndpointGroup{near},
			change: func(c *proxiedCluster) {
				without(leases)(c)
				lease := aLease(0, "")
				lease.Annotations[v1alpha1.AnnotationProbeFailure] = "something else answers"
				c.objects = append(c.objects, lease)
			},
			want: []string{"hand-over: it waits for this node, whose packets do not come through the rules of vicinity-proxy: something else answers\n"},
		},
		{
			name: "kube-proxy, which keeps some connections local", service: proxiedService(notHandedOver, isLocal),
			change: func(c *proxiedCluster) { c.objects = append(c.objects, aSlice("shop", "web", "a=2", "b=1")) },
			want:   []string{"warning: connections from outside have externalTrafficPolicy Local: they reach endpoints on the node alone"},
		},
		{
			name: "Cilium in place of kube-proxy", service: proxiedService(notHandedOver),
			change: func(c *proxiedCluster) { c.objects = append(c.objects, hintedCilium()...) },
			want:   []string{"served by: Cilium v1.20.1; the Service is for vicinity-proxy, and there is no group for the node yet", "which endpoints Cilium v1.20.1 chooses on the node"},
		},
		{
			name: "a proxy that died", service: proxiedService(notHandedOver), groups: []*v1alpha1.EndpointGroup{near},
			change: func(c *proxiedCluster) {
				without(leases)(c)
				c.objects = append(c.objects, aLease(time.Hour, "100"))
			},
			want: []string{"served by: kube-proxy; vicinity-proxy should serve it, but the Lease of the node's proxy was last renewed 1h0m0s ago", "hand-over: it waits for this node"},
		},
		{
			name: "handed over because of a policy", groups: []*v1alpha1.EndpointGroup{near},
			service: proxiedService(func(s *corev1.Service) {
				s.Annotations = map[string]string{v1alpha1.AnnotationSameZone: v1alpha1.Prefer}
			}),
			change: func(c *proxiedCluster) {
				c.groups = append(c.groups, inAPI(t, &v1alpha1.RoutingPolicy{
					TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "RoutingPolicy"},
					ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "near"},
					Spec:       v1alpha1.RoutingPolicySpec{Selector: &metav1.LabelSelector{}, Delivery: v1alpha1.DeliveryGroups},
				}))
			},
			want: []string{"served by: vicinity-proxy; ", "hand-over: done\n"},
		},
		{
			name: "another proxy", groups: []*v1alpha1.EndpointGroup{near},
			service: proxiedService(func(s *corev1.Service) { s.Labels[v1alpha1.LabelServiceProxyName] = "cilium" }),
			want:    []string{"served by: cilium; "},
		},
		{
			name: "Leases that may not be read", service: proxiedService(), groups: []*v1alpha1.EndpointGroup{near}, refuse: "leases",
			want: []string{"Leases may not be read", "so whether the node's proxy runs, and what it has programmed, is unknown", "served by: vicinity-proxy; "},
		},
		{
			name: "a Lease of another namespace", service: proxiedService(), groups: []*v1alpha1.EndpointGroup{near},
			change: func(c *proxiedCluster) {
				without(leases)(c)
				forged := aLease(0, "100")
				forged.Namespace = "shop"
				c.objects = append(c.objects, forged)
			},
			want: []string{"but no Lease shows that vicinity-proxy runs on the node"},
		},
		{
			name: "a Lease of the namespace of another proxy than the controller's", service: proxiedService(), groups: []*v1alpha1.EndpointGroup{near},
			change: func(c *proxiedCluster) {
				without(leases)(c)
				set, forged := aProxySet(), aLease(0, "100")
				set.Namespace, forged.Namespace = "a-shop", "a-shop"
				c.objects = append(c.objects, aController(), set, forged)
			},
			want: []string{"but no Lease shows that vicinity-proxy runs on the node"},
		},
		{
			name: "a Lease that another node holds", service: proxiedService(), groups: []*v1alpha1.EndpointGroup{near},
			change: func(c *proxiedCluster) {
				without(leases)(c)
				lease := aLease(0, "100")
				lease.Spec.HolderIdentity = new("a2")
				c.objects = append(c.objects, lease)
			},
			want: []string{"but no Lease shows that vicinity-proxy runs on the node"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			proxied := newProxiedCluster(test.service, test.groups...)
			if test.change != nil {
				test.change(proxied)
			}
			c := proxied.cluster()
			if test.refuse != "" {
				c.refuse(test.refuse, forbidden("", test.refuse))
			}
			code, stdout, stderr := c.run(t.Context(), "explain", "web", "--node=a1")
			if code != 0 {
				t.Fatalf("exit code %d: %s", code, stderr)
			}
			for _, want := range test.want {
				if !strings.Contains(stdout, want) {
					t.Errorf("%q is missing in\n%s", want, stdout)
				}
			}
		})
	}
}

// heldRules are the rules in a kernel.
type heldRules map[ruleset.Family]ruleset.Listing

func (h heldRules) Read(family ruleset.Family) (ruleset.Listing, error) {
	if listing, found := h[family]; found {
		return listing, nil
	}
	return ruleset.Listing{Family: family}, nil
}

func (heldRules) Close() error { return nil }

// heldFor returns the rules that the kernel of node a1 holds for some Services.
func heldFor(t *testing.T, inputs ...compile.Input) heldRules {
	t.Helper()
	settings := view.Settings{MasqueradeMark: ruleset.DefaultMasqueradeMark, Pods: podsFrom(t, "10.0.0.0/8"), MaxAffinityClients: ruleset.MostAffinityClients}
	node := proxiedNode("a1", "192.0.2.1")
	options := settings.Options(node, "zone-a", nil)
	var compiled []compile.Family
	for _, in := range inputs {
		compiled = append(compiled, compile.Service(in, options).Families...)
	}
	table := view.Table(settings.Config(ruleset.IPv4, node), compiled)
	return heldRules{ruleset.IPv4: table.Want()}
}

func TestExplainNodeComparesWithTheKernel(t *testing.T) {
	service, near := proxiedService(), aGroup("near", "1@a1 2@a2", nil)
	other := proxiedService()
	other.Name, other.Spec.ClusterIP, other.Spec.ClusterIPs = "other", "10.96.0.5", []string{"10.96.0.5"}
	other.Spec.ExternalIPs, other.Status.LoadBalancer.Ingress, other.Spec.Ports[0].NodePort = nil, nil, 30090
	others := aGroup("others", "5@a1 6@a1 7@a2", func(spec *v1alpha1.EndpointGroupSpec) { spec.Service = "other" })
	another := compile.Input{Service: other, Groups: []*v1alpha1.EndpointGroup{others}}
	of := func(groups ...*v1alpha1.EndpointGroup) compile.Input {
		return compile.Input{Service: service, Groups: groups}
	}
	for _, test := range []struct {
		name string
		held heldRules
		want string
		code int
	}{
		{name: "the same", held: heldFor(t, of(near)), want: "matches the rules"},
		{name: "an endpoint less", held: heldFor(t, of(aGroup("near", "1@a1", nil)), another), code: 1, want: "slots of 10.96.0.1:80/tcp are [10.1.0.1:8080] instead of [10.1.0.1:8080 10.1.0.2:8080]"},
		{name: "no table", held: heldRules{}, code: 1, want: "there is no table ip vicinity"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newProxiedCluster(service, near)
			pauses := 0
			c.here = machine{
				addresses: func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil },
				rules:     func() (rulesOfNode, error) { return test.held, nil },
				pause:     func(context.Context, time.Duration) error { pauses++; return nil },
			}
			if test.held[ruleset.IPv4].Exists {
				test.held[ruleset.IPv6] = emptyTable(t)
			}
			code, stdout, stderr := c.explain(t.Context(), "a1")
			if code != test.code || !strings.Contains(stdout, test.want) {
				t.Errorf("exit code %d, want %d; %q must be in\n%s%s", code, test.code, test.want, stdout, stderr)
			}
			if differs := strings.Contains(stderr, "the kernel of node a1 differs from the rules: "); differs != (test.code == 1) || differs != (pauses > 0) {
				t.Errorf("%d pauses, standard error %s", pauses, stderr)
			}
		})
	}
}

// podsFrom tells pods by their addresses.
func podsFrom(t *testing.T, prefixes ...string) view.Pods {
	t.Helper()
	pods, wrong := view.PodFlags{ClusterCIDRs: prefixes}.Pods()
	if wrong != nil {
		t.Fatal(wrong)
	}
	return pods
}

// emptyTable is the table of IPv6 without Services.
func emptyTable(t *testing.T) ruleset.Listing {
	var settings view.Settings
	settings.MasqueradeMark = ruleset.DefaultMasqueradeMark
	settings.Pods = podsFrom(t, "10.0.0.0/8")
	table := view.Table(settings.Config(ruleset.IPv6, nil), nil)
	return table.Want()
}

// A difference must last over several readings.
func TestExplainNodeIgnoresShortDifferences(t *testing.T) {
	service, near := proxiedService(), aGroup("near", "1@a1 2@a2", nil)
	c := newProxiedCluster(service, near)
	held := heldFor(t)
	c.here = machine{
		addresses: func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil },
		rules:     func() (rulesOfNode, error) { return held, nil },
		pause: func(context.Context, time.Duration) error {
			held = heldFor(t, compile.Input{Service: service, Groups: []*v1alpha1.EndpointGroup{near}})
			held[ruleset.IPv6] = emptyTable(t)
			return nil
		},
	}
	held[ruleset.IPv6] = emptyTable(t)
	if code, stdout, stderr := c.explain(t.Context(), "a1"); code != 0 || !strings.Contains(stdout, "matches the rules") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}
