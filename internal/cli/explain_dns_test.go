package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/capacity"
	"vicinity.dev/vicinity/internal/topology"
	"vicinity.dev/vicinity/test/golden"
)

func namedNode(name, zone, address, podRange string) *corev1.Node {
	node := aNode(name, zone, "4", "")
	node.Labels[corev1.LabelHostname] = name
	node.Spec.PodCIDRs = []string{podRange}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	return node
}

func namedPod(name, node, address string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	pod.Spec.NodeName, pod.Spec.DNSPolicy = node, corev1.DNSClusterFirst
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, address
	for _, do := range change {
		do(pod)
	}
	return pod
}

func namedSlice(slice *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	slice.Labels[corev1.IsHeadlessService] = ""
	return slice
}

// newNamedCluster has three zones of two nodes, headless Services with the groups that the controller
// writes for them, other Services, and pods that ask for names.
func newNamedCluster(t *testing.T) *fakeCluster {
	t.Helper()
	keys := func(keys ...string) map[string]string {
		return map[string]string{v1alpha1.AnnotationTopologyKeys: strings.Join(keys, ",")}
	}
	var nodes []*corev1.Node
	var objects []runtime.Object
	for i, letter := range []string{"a", "b", "c"} {
		for n := range 2 {
			node := namedNode(fmt.Sprintf("node-%s%d", letter, n+1), "zone-"+letter, fmt.Sprintf("192.0.2.%d", 2*i+n+1), fmt.Sprintf("10.%d.%d.0/24", i, n+100))
			nodes, objects = append(nodes, node), append(objects, node)
		}
	}
	members := aSlice("shop", "db", "a=1", "b=1")
	for i := range members.Endpoints {
		members.Endpoints[i].Hostname = new(fmt.Sprintf("db-%d", i))
	}
	withPort := aService("shop", "vip", nil)
	withPort.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}
	outside := aService("shop", "outside", nil)
	outside.Spec.Type, outside.Spec.ClusterIP, outside.Spec.ExternalName = corev1.ServiceTypeExternalName, "", "www.example.com"
	services := []*corev1.Service{
		headless(aService("shop", "near", keys(topology.Hostname, topology.Zone, topology.Anywhere))),
		headless(aService("shop", "hard", keys(topology.Hostname, topology.Zone))),
		headless(aService("shop", "spread", map[string]string{v1alpha1.AnnotationSameZone: v1alpha1.Prefer})),
		headless(aService("shop", "racks", keys("example.com/rack", topology.Anywhere))),
		headless(aService("shop", "db", nil)),
		headless(aService("shop", "plain", nil)),
		headless(aService("shop", "empty", keys(topology.Zone))),
		headless(aService("shop", "fresh", keys(topology.Zone))),
		withPort, outside,
	}
	eps := map[string]*discoveryv1.EndpointSlice{
		"near": aSlice("shop", "near", "a=1", "b=2", "c=1"), "hard": aSlice("shop", "hard", "a=1", "b=2"), "spread": aSlice("shop", "spread", "a=6", "b=4", "c=2"),
		"racks": aSlice("shop", "racks", "a=1", "b=1"), "db": members, "plain": aSlice("shop", "plain", "a=1", "b=1"), "fresh": aSlice("shop", "fresh", "a=1", "b=1"),
	}
	policy := &v1alpha1.RoutingPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "RoutingPolicy"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "peers"},
		Spec:       v1alpha1.RoutingPolicySpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}, Mode: v1alpha1.Prefer, Level: v1alpha1.Zone},
	}
	own := []runtime.Object{inAPI(t, policy)}
	for _, service := range services {
		in := routing.Input{Service: service, Cluster: capacity.NewCluster(nodes), Settings: routing.DefaultSettings(), Policies: []*v1alpha1.RoutingPolicy{policy}}
		if slice := eps[service.Name]; slice != nil {
			in.Slices = append(in.Slices, namedSlice(slice))
			objects = append(objects, slice)
		}
		objects = append(objects, service)
		d, err := routing.Decide(in)
		if err != nil {
			t.Fatal(err)
		}
		if service.Name == "fresh" || d.Delivery != "groups" && len(d.Families) == 0 {
			continue
		}
		for i, group := range routing.Groups(in, d, routing.GroupState{}).Create {
			group.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "EndpointGroup"}
			group.Name = fmt.Sprintf("%s-%d", service.Name, i)
			own = append(own, inAPI(t, group))
		}
	}
	for _, l := range []struct {
		name, address, node string
		made, podMade       int64
	}{
		{"cached", "10.9.0.7", "node-b1", 0, 0},
		// The PodLocator of the younger pod is the older one.
		{"first", "10.9.0.9", "node-a1", 300, 100},
		{"second", "10.9.0.9", "node-b1", 150, 0},
		{"gone", "10.9.0.9", "", 400, 0},
		{"claim-a", "192.0.2.5", "node-a1", 300, 0},
		{"claim-b", "192.0.2.5", "node-b1", 300, 0},
	} {
		locator := &v1alpha1.PodLocator{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PodLocator"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: l.name, CreationTimestamp: metav1.Unix(l.made, 0)}, IPs: []string{l.address}, NodeName: l.node,
		}
		if l.podMade > 0 {
			locator.PodCreationTimestamp = new(metav1.Unix(l.podMade, 0))
		}
		own = append(own, inAPI(t, locator))
	}
	objects = append(objects, aController(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "attic"}},
		namedPod("client-a", "node-a2", "10.0.101.7"), namedPod("client-b", "node-b1", "10.1.100.7"), namedPod("cached", "node-b1", "10.9.0.7"),
		namedPod("second", "node-b1", "10.9.0.9"), namedPod("moved", "node-c1", "10.0.101.9"), namedPod("unknown", "node-c1", "10.77.0.1"),
		namedPod("agent", "node-c1", "192.0.2.5", func(p *corev1.Pod) { p.Spec.HostNetwork = true }),
		namedPod("own-search", "node-b1", "10.1.100.8", func(p *corev1.Pod) {
			p.Namespace, p.Spec.DNSPolicy = "ops", corev1.DNSNone
			p.Spec.DNSConfig = &corev1.PodDNSConfig{Searches: []string{"corp.example", "shop.svc.cluster.local"}}
		}),
		namedPod("pending", "", ""), namedPod("job", "node-a1", "10.0.100.9", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
	)
	c := &fakeCluster{
		typed: fake.NewClientset(objects...), dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), listKinds(), own...),
	}
	addOddServices(t, c)
	return c
}

func inAPI(t *testing.T, object any) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

func TestExplainDNSGolden(t *testing.T) {
	for _, test := range []struct{ name, args string }{
		{"same-zone.txt", "near --from shop/client-b"},
		{"same-zone.json", "near --from shop/client-b -o json"},
		{"anywhere.txt", "near.shop.svc.cluster.local --from shop/unknown"},
		{"node-address.txt", "near --from 192.0.2.3"},
		{"host-network.txt", "near --from agent"},
		{"two-locators.txt", "near.shop --from shop/second"},
		{"own-search.txt", "near --from ops/own-search"},
		{"moved.txt", "near.shop --from shop/moved"},
		{"hard-none.txt", "hard --from 10.2.100.9"},
		{"hard-unknown.txt", "hard --from 203.0.113.7"},
		{"planned-port.txt", "_http._tcp.spread --from shop/client-b"},
		{"prefer.txt", "zone-c.prefer._zone.spread --from shop/client-b"},
		{"prefer-plan.txt", "zone-c.prefer._zone.spread --from shop/client-b --plan"},
		{"missing-label.txt", "racks --from shop/client-a"},
		{"peers.txt", "db --from shop/client-b"},
		{"endpoint.txt", "db-1.db --from shop/client-a"},
		{"plain.txt", "plain --from shop/client-a"},
		{"not-written.txt", "fresh --from shop/client-a"},
		{"empty.txt", "empty --from shop/client-a"},
		{"cluster-ip.txt", "vip.shop --from shop/client-a"},
		{"alias-outside.txt", "outside --from shop/client-b"},
		{"malformed.txt", "typo --from client-b"},
		{"prefer-plan-none.txt", "zone-b.prefer._zone.none --from client-b --plan"},
		{"prefer-plan-whole.txt", "zone-b.prefer._zone.plain --from client-b --plan"},
		{"by-hand.txt", "by-hand --from client-b"},
		{"by-hand-far.txt", "far --from client-b"},
		{"pin-plan.txt", "zone-b.pin._zone.plain --from client-b --plan"},
		{"loopback.txt", "near --from 127.0.0.1"},
		{"node-dns.txt", "near.shop.svc.cluster.local --from resolver"},
		{"zone-without-node.txt", "near --from 10.9.0.12"},
	} {
		t.Run(test.name, func(t *testing.T) {
			newNamedCluster(t).printsGolden(t, "explain-dns/"+test.name, append([]string{"explain", "dns"}, strings.Fields(test.args)...)...)
		})
	}
}

// addOddServices adds Services without a selector, without an endpoint and with an invalid annotation,
// and clients that are located in unusual ways.
func addOddServices(t *testing.T, c *fakeCluster) {
	t.Helper()
	byHand := headless(aService("shop", "by-hand", nil))
	byHand.Spec.Selector = nil
	far := headless(aService("shop", "far", map[string]string{v1alpha1.AnnotationTopologyKeys: topology.Zone}))
	far.Spec.Selector = nil
	none := headless(aService("shop", "none", nil))
	unready := namedSlice(aSlice("shop", "none", "a=1"))
	unready.Endpoints[0].Conditions.Ready = new(false)
	for _, object := range []runtime.Object{
		byHand, far, namedSlice(aSlice("shop", "far", "a=1")), none, unready,
		headless(aService("shop", "typo", map[string]string{v1alpha1.AnnotationTopologyKeys: "foo bar!!"})), namedSlice(aSlice("shop", "typo", "a=1")),
		namedPod("resolver", "node-b1", "10.1.100.9", func(p *corev1.Pod) { p.Spec.DNSPolicy = corev1.DNSDefault }),
	} {
		if err := c.typed.Tracker().Add(object); err != nil {
			t.Fatal(err)
		}
	}
	for service, endpoints := range map[string][]v1alpha1.GroupEndpoint{"none": nil, "far": {{Address: "10.0.0.1", Zone: "zone-a", Node: "node-a1"}}} {
		group := &v1alpha1.EndpointGroup{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "EndpointGroup"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: service + "-0", Labels: map[string]string{corev1.IsHeadlessService: "", v1alpha1.LabelService: service}},
			Spec:       v1alpha1.EndpointGroupSpec{Service: service, AddressType: corev1.IPv4Protocol, Tiers: []string{topology.Zone}, Endpoints: endpoints},
		}
		if err := c.dynamic.Tracker().Create(v1alpha1.GroupVersion.WithResource("endpointgroups"), inAPI(t, group), "shop"); err != nil {
			t.Fatal(err)
		}
	}
	placed := &v1alpha1.PodLocator{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PodLocator"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "placed"}, IPs: []string{"10.9.0.12"}, NodeLabels: map[string]string{topology.Zone: "zone-c"},
	}
	if err := c.dynamic.Tracker().Create(v1alpha1.GroupVersion.WithResource("podlocators"), inAPI(t, placed), "shop"); err != nil {
		t.Fatal(err)
	}
}

// For a headless Service, explain and status say that its plan is delivered, not that it is in force:
// they cannot see which DNS servers clients use.
func TestDeliveryToDNSServers(t *testing.T) {
	c := newNamedCluster(t)
	_, stdout, _ := c.run(t.Context(), "explain", "spread")
	wants(t, stdout,
		"delivery: Groups, for DNS servers: vicinity-dns answers from 4 groups; other servers give all endpoints to every client\n",
		"state: delivered; ", "expected of clients that ask vicinity-dns: ", "clients in zone-c get from vicinity-dns: 2 own + 2 of zone-a\n")
	_, stdout, _ = c.run(t.Context(), "explain", "fresh")
	wants(t, stdout, "delivery: Groups, for DNS servers; none is written, so every client gets all endpoints\n", "state: planned; ", "clients in zone-a, zone-b will get from vicinity-dns: 1 own\n")
	_, stdout, _ = c.run(t.Context(), "status", "-o", "json")
	wants(t, stdout, `"state": "delivered"`, `"state": "planned"`, "only vicinity-dns follows the plan; other DNS servers give every client all endpoints")
	if strings.Contains(stdout, `"state": "allocated"`) {
		t.Errorf("a headless Service has the state allocated:\n%s", stdout)
	}
}

// The command reads the same groups of a Service as the DNS server, and ignores the controller's label.
func TestExplainDNSReadsServedGroups(t *testing.T) {
	for _, test := range []struct {
		name, spec, want string
		labels           map[string]string
	}{
		{"without the controller's label", "plain", "A: 1 of 2 records", map[string]string{corev1.IsHeadlessService: ""}},
		{"of another Service by its label", "plain", "A: 1 of 2 records", map[string]string{corev1.IsHeadlessService: "", v1alpha1.LabelService: "db"}},
		{"of another Service", "other", "A: 2 records", map[string]string{corev1.IsHeadlessService: "", v1alpha1.LabelService: "plain"}},
		{"of no headless Service", "plain", "A: 2 records", map[string]string{v1alpha1.LabelService: "plain"}},
	} {
		c := newNamedCluster(t)
		group := inAPI(t, &v1alpha1.EndpointGroup{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "EndpointGroup"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "made-by-hand", Labels: test.labels},
			Spec:       v1alpha1.EndpointGroupSpec{Service: test.spec, AddressType: corev1.IPv4Protocol, Tiers: []string{topology.Zone}},
		})
		if err := c.dynamic.Tracker().Create(v1alpha1.GroupVersion.WithResource("endpointgroups"), group, "shop"); err != nil {
			t.Fatal(err)
		}
		if _, stdout, stderr := c.run(t.Context(), "explain", "dns", "plain", "--from", "client-a"); !strings.Contains(stdout, test.want+";") {
			t.Errorf("%s: want %q, got:\n%s%s", test.name, test.want, stdout, stderr)
		}
	}
}

// A short name follows the pod's search list, as far as it is known.
func TestExplainDNSSearchList(t *testing.T) {
	const doubt = "another search list than the usual one"
	config := func(options ...string) *corev1.PodDNSConfig {
		c := &corev1.PodDNSConfig{}
		for _, value := range options {
			c.Options = append(c.Options, corev1.PodDNSConfigOption{Name: "ndots", Value: &value})
		}
		return c
	}
	for _, test := range []struct {
		name    string
		spec    corev1.PodSpec
		asks    string
		want    string
		doubted bool
	}{
		{name: "the usual list", asks: "near", want: "near.shop.svc.cluster.local for"},
		{name: "the node's", spec: corev1.PodSpec{DNSPolicy: corev1.DNSDefault}, asks: "near", want: "near.shop.svc.cluster.local for", doubted: true},
		{name: "a whole name", spec: corev1.PodSpec{DNSPolicy: corev1.DNSDefault}, asks: "near.shop.svc.cluster.local", want: "near.shop.svc.cluster.local for"},
		{name: "the resolver's", spec: corev1.PodSpec{DNSPolicy: corev1.DNSNone}, asks: "near", want: "near.shop.svc.cluster.local for", doubted: true},
		{name: "few dots", spec: corev1.PodSpec{DNSConfig: config("1")}, asks: "near.shop", want: "it first tries near.shop., which may exist outside of the cluster"},
		{name: "a Service named as its namespace", asks: "near.shop", want: "near.shop.svc.cluster.local for"},
		{name: "many dots", asks: "eu.1.prefer._zone.near.shop", want: "it first tries eu.1.prefer._zone.near.shop., which may exist outside of the cluster"},
	} {
		c := newNamedCluster(t)
		pod := namedPod("searching", "node-b1", "10.1.100.9")
		pod.Spec.DNSConfig = test.spec.DNSConfig
		if test.spec.DNSPolicy != "" {
			pod.Spec.DNSPolicy = test.spec.DNSPolicy
		}
		namesake := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "shop"}}
		if err := errors.Join(c.typed.Tracker().Add(pod), c.typed.Tracker().Add(namesake)); err != nil {
			t.Fatal(err)
		}
		_, stdout, stderr := c.run(t.Context(), "explain", "dns", test.asks, "--from", "searching")
		if !strings.Contains(stdout, test.want) || strings.Contains(stdout, doubt) != test.doubted {
			t.Errorf("%s: want %q, doubted %t, got:\n%s%s", test.name, test.want, test.doubted, stdout, stderr)
		}
	}
}

func TestExplainDNSErrors(t *testing.T) {
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"near", 2, "--from is missing: it must be a pod as NAMESPACE/NAME or NAME, or an address such as 10.1.0.7"},
		{"near --from 10.0.0.0/24", 2, `--from "10.0.0.0/24" is neither a pod's name nor an address; it must be a pod`},
		{"near --from 256.1.1.1", 2, `--from "256.1.1.1" is neither a pod's name nor an address; it must be a pod`},
		{"a\x01b --from client-b", 2, `name "a\x01b" is not the name of a Service`},
		{"shop/near --from client-b", 2, `name "shop/near" is not the name of a Service`},
		{"10.0.0.1 --from client-b", 2, `name "10.0.0.1" is not the name of a Service or of a port, such as web.shop; it must have labels of 1 to 63 letters, digits, hyphens`},
		{"near --from client-b --zone a_b", 2, `--zone "a_b" is not a domain; it must be the cluster's, such as cluster.local`},
		{"a..b --from client-b", 2, `name "a..b" is not the name of a Service`},
		{strings.Repeat("x", 64) + " --from client-b", 2, "is not the name of a Service"},
		{strings.Repeat("x.", 130) + "x --from client-b", 2, "with dots between them, and at most 253 characters"},
		{"near --from clientb", 1, `no pod "clientb" is in namespace "shop"; it has `},
		{"near --from pending", 1, "pod shop/pending has no address yet; wait until it runs, or give an address"},
		{"near --from job", 1, "pod shop/job has finished; give a running pod, or an address"},
		{"neer --from client-b", 1, `no Service "neer" is in namespace "shop"; it has `},
		{"near.shpo --from client-b", 1, `near.shpo is not the name of a Service in the domain cluster.local (--zone): there is no namespace "shpo"`},
		{"www.example.com --from client-b", 1, `there is no namespace "com"`},
		{"near.shop. --from client-b", 1, "near.shop. is not the name of a Service in the domain cluster.local (--zone), so Vicinity does not change its answer"},
		{"10-0-0-1.shop.pod.cluster.local --from client-b", 1, "is not the name of a Service"},
		{"near --from 192.0.2.3 -n attic", 1, `no Service "near" is in namespace "attic"; a Service with this name is in shop`},
	} {
		code, stdout, stderr := newNamedCluster(t).run(t.Context(), append([]string{"explain", "dns"}, strings.Fields(test.args)...)...)
		if code != test.code || !strings.Contains(stderr, test.want) || stdout != "" {
			t.Errorf("%q: code %d, %q, want %d and %q", test.args, code, stderr, test.code, test.want)
		}
	}
}

// An answer that depends on something unreadable is unknown, and explain names the permission.
func TestExplainDNSForbidden(t *testing.T) {
	for _, test := range []struct{ resource, args, golden string }{
		{"podlocators", "near --from cached", "no-locators.txt"},
		{"podlocators", "near --from 192.0.2.3", "no-locators-needed.txt"},
		{"endpointgroups", "near --from client-b", "no-groups.txt"},
		{"nodes", "near --from client-b", "no-nodes.txt"},
	} {
		c := newNamedCluster(t)
		c.refuse(test.resource, forbidden(v1alpha1.GroupVersion.Group, test.resource))
		code, stdout, stderr := c.run(t.Context(), append([]string{"explain", "dns"}, strings.Fields(test.args)...)...)
		if code != 0 {
			t.Fatalf("%s: code %d: %s", test.resource, code, stderr)
		}
		golden.Compare(t, "testdata/explain-dns/"+test.golden, stdout)
	}
	c := newNamedCluster(t)
	c.refuse("services", forbidden("", "services"))
	code, _, stderr := c.run(context.Background(), "explain", "dns", "near", "--from", "client-b")
	if code != 1 || !strings.Contains(stderr, "reading Services is not allowed") {
		t.Errorf("code %d: %s", code, stderr)
	}
	c = newNamedCluster(t)
	c.refuse("podlocators", apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("podlocators").GroupResource(), ""))
	if _, stdout, _ := c.run(t.Context(), "explain", "dns", "near", "--from", "client-b"); !strings.Contains(stdout, "A: 1 of 4 records") {
		t.Errorf("without the API of PodLocators:\n%s", stdout)
	}
}
