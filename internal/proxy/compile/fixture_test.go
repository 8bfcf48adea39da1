package compile

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/topology"
)

// testService is shop/web with the cluster IP 10.96.0.1 and port 80 named http.
func testService(changes ...func(*corev1.Service)) *corev1.Service {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: map[string]string{}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:      []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
	for _, change := range changes {
		change(service)
	}
	return service
}

// ours gives the Service to this proxy.
func ours(service *corev1.Service) {
	service.Labels[v1alpha1.LabelServiceProxyName] = v1alpha1.ServiceProxyName
}

func nodePort(service *corev1.Service) {
	service.Spec.Type = corev1.ServiceTypeNodePort
	service.Spec.Ports[0].NodePort = 30080
}

// balancer has a load balancer with some addresses.
func balancer(ips ...string) func(*corev1.Service) {
	return func(service *corev1.Service) {
		nodePort(service)
		service.Spec.Type = corev1.ServiceTypeLoadBalancer
		for _, ip := range ips {
			service.Status.LoadBalancer.Ingress = append(service.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
		}
	}
}

func ranges(texts ...string) func(*corev1.Service) {
	return func(service *corev1.Service) { service.Spec.LoadBalancerSourceRanges = texts }
}

func externalIPs(texts ...string) func(*corev1.Service) {
	return func(service *corev1.Service) { service.Spec.ExternalIPs = texts }
}

func outsideLocal(service *corev1.Service) {
	service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

func insideLocal(service *corev1.Service) {
	service.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
}

func dualStack(service *corev1.Service) {
	service.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	service.Spec.ClusterIPs = []string{"10.96.0.1", "fd00::1"}
}

// testNodeA is the node a1 of the zone a.
func testNodeA() Node {
	return Node{
		Name: "a1", Zone: "a",
		Labels:            map[string]string{topology.Zone: "a", topology.Hostname: "a1", topology.Region: "r", "rack": "r1"},
		Addresses:         addressList("192.0.2.1 2001:db8::1"),
		NodePortAddresses: addressList("192.0.2.1 2001:db8::1"),
	}
}

func addressList(text string) []netip.Addr {
	var list []netip.Addr
	for word := range strings.FieldsSeq(text) {
		list = append(list, netip.MustParseAddr(word))
	}
	return list
}

// sliceOf makes a slice with port http 8080. Endpoints are words like 1@a1: 10.1.0.1 on
// node a1, whose zone is a. A "!" after it makes it unready, "-" terminating but
// serving, "~" terminating and not serving.
func sliceOf(name, endpoints string, changes ...func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{slicePortOf("http", 8080)},
	}
	for word := range strings.FieldsSeq(endpoints) {
		slice.Endpoints = append(slice.Endpoints, sliceEndpoint(word))
	}
	for _, change := range changes {
		change(slice)
	}
	return slice
}

func slicePortOf(name string, number int32) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: &name, Port: &number, Protocol: new(corev1.ProtocolTCP)}
}

func sliceEndpoint(word string) discoveryv1.Endpoint {
	g := groupEndpoint(word)
	e := discoveryv1.Endpoint{
		Addresses:  []string{g.Address},
		Conditions: discoveryv1.EndpointConditions{Ready: new(!g.NotReady), Serving: new(!g.NotServing), Terminating: new(g.Terminating)},
	}
	if g.Node != "" {
		e.NodeName, e.Zone = &g.Node, &g.Zone
	}
	return e
}

// groupEndpoint is the same for groups. "%rack=r1" sets the rack of its node.
func groupEndpoint(word string) v1alpha1.GroupEndpoint {
	var e v1alpha1.GroupEndpoint
	word, domain, _ := strings.Cut(word, "%")
	if key, value, found := strings.Cut(domain, "="); found {
		e.Domains = map[string]string{key: value}
	}
	switch {
	case strings.HasSuffix(word, "!"):
		e.NotReady = true
	case strings.HasSuffix(word, "-"):
		e.NotReady, e.Terminating = true, true
	case strings.HasSuffix(word, "~"):
		e.NotReady, e.NotServing, e.Terminating = true, true, true
	}
	number, node, _ := strings.Cut(strings.TrimRight(word, "!-~"), "@")
	e.Address, e.Node = number, node
	if n, err := strconv.Atoi(number); err == nil {
		e.Address = fmt.Sprintf("10.%d.%d.%d", 1+n/62500, n/250%250, n%250)
	}
	if node != "" {
		e.Zone = node[:1]
	}
	return e
}

// groupOf makes a group with port http 8080 of endpoints before an arrow, and after it
// what else it says: zones that use it, with a weight as in b*250, "not c" for zones that
// it is kept from, "tiers rack,*", "local" and "none-ready".
func groupOf(name, text string, changes ...func(*v1alpha1.EndpointGroup)) *v1alpha1.EndpointGroup {
	group := &v1alpha1.EndpointGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{v1alpha1.LabelService: "web"}},
		Spec: v1alpha1.EndpointGroupSpec{
			Service: "web", AddressType: corev1.IPv4Protocol, AnyReady: true,
			Ports: []v1alpha1.GroupPort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 8080}},
		},
	}
	endpoints, rest, _ := strings.Cut(text, "->")
	for word := range strings.FieldsSeq(endpoints) {
		group.Spec.Endpoints = append(group.Spec.Endpoints, groupEndpoint(word))
	}
	words := strings.Fields(rest)
	for i := 0; i < len(words); i++ {
		switch words[i] {
		case "not":
			i++
			group.Labels[v1alpha1.LabelNotForPrefix+words[i]] = "true"
		case "tiers":
			i++
			group.Spec.Tiers = strings.Split(words[i], ",")
		case "local":
			group.Spec.LocalOnly = true
		case "none-ready":
			group.Spec.AnyReady = false
		default:
			zone, weight, weighted := strings.Cut(words[i], "*")
			consumer := v1alpha1.GroupConsumer{Zone: zone, Weight: fullWeight}
			if weighted {
				n, err := strconv.ParseInt(weight, 10, 32)
				if err != nil {
					panic(err)
				}
				consumer.Weight = int32(n)
			}
			group.Spec.Consumers = append(group.Spec.Consumers, consumer)
		}
	}
	for _, change := range changes {
		change(group)
	}
	return group
}

// lines show a result, a line for each front and each pool.
func lines(r Result) []string {
	var list []string
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	for _, f := range r.Families {
		for _, p := range f.Ports {
			name := p.Name
			if p.Affinity > 0 {
				name += " sticky " + p.Affinity.String()
			}
			add("%s", name)
			for _, front := range p.Fronts {
				add("  %s", frontText(front))
			}
			if p.Cluster != nil {
				add("  cluster %s", poolText(p.Cluster, p.Weights))
			}
			if p.Local != nil {
				add("  local %s", poolText(p.Local, nil))
			}
			if slices.Contains(f.Unreachable, p.Name) {
				add("  unreachable")
			}
		}
		if f.Health != nil {
			add("health %d: %d", f.Health.Port, f.Health.LocalEndpoints)
		}
	}
	for _, note := range r.Notes {
		add("note: %s", note)
	}
	return list
}

var (
	poolNames     = map[ruleset.Pool]string{ruleset.PoolCluster: "cluster", ruleset.PoolLocal: "local", ruleset.PoolSplit: "split"}
	refusalNames  = map[ruleset.Refusal]string{ruleset.Reject: "reject", ruleset.Drop: "drop", ruleset.DropOutside: "drop from outside", ruleset.Ignore: "ignore"}
	protocolNames = map[ruleset.Protocol]string{ruleset.TCP: "TCP", ruleset.UDP: "UDP", ruleset.SCTP: "SCTP"}
)

func frontText(f ruleset.FrontEnd) string {
	text := fmt.Sprintf("%s/%s", netip.AddrPortFrom(f.Address, f.Port), protocolNames[f.Protocol])
	if f.ClusterIP {
		text += " cluster-ip"
	}
	text += " -> " + poolNames[f.Pool]
	if f.Masquerade {
		text += " masqueraded"
	}
	text += ", else " + refusalNames[f.Empty]
	if f.Sources != nil {
		text += ", from"
		for _, source := range f.Sources {
			text += " " + source.String()
		}
	}
	return text
}

// poolText shows targets by the last number of addresses like 10.1.0.7, with the port
// unless it is 8080 and their weights.
func poolText(pool []netip.AddrPort, weights []uint32) string {
	var words []string
	for i := range pool {
		word := pool[i].String()
		if rest, short := strings.CutPrefix(word, "10.1.0."); short {
			word = strings.TrimSuffix(rest, ":8080")
		}
		if weights != nil {
			word += fmt.Sprintf("*%d", weights[i])
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// expect compares a result with lines.
func expect(t *testing.T, r Result, want ...string) {
	t.Helper()
	if got := lines(r); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// anyOf draws some of the texts.
func anyOf(t *rapid.T, label string, texts ...string) []string {
	var list []string
	for _, text := range texts {
		if rapid.Bool().Draw(t, label+" "+text) {
			list = append(list, text)
		}
	}
	return list
}

// compiledSafely compiles and checks that the input stays as it is and that its order
// does not matter.
func compiledSafely(t *rapid.T, in Input, o Options) Result {
	before := Input{Service: in.Service.DeepCopy()}
	for _, s := range in.Slices {
		before.Slices = append(before.Slices, s.DeepCopy())
	}
	for _, g := range in.Groups {
		before.Groups = append(before.Groups, g.DeepCopy())
	}
	r := Service(in, o)
	if !reflect.DeepEqual(before, in) {
		t.Fatalf("the input is changed")
	}
	other := Input{Service: in.Service, Slices: slices.Clone(in.Slices), Groups: slices.Clone(in.Groups)}
	shuffle := rand.New(rand.NewPCG(1, 2))
	shuffle.Shuffle(len(other.Slices), func(i, j int) { other.Slices[i], other.Slices[j] = other.Slices[j], other.Slices[i] })
	shuffle.Shuffle(len(other.Groups), func(i, j int) { other.Groups[i], other.Groups[j] = other.Groups[j], other.Groups[i] })
	if again := Service(other, o); !reflect.DeepEqual(r, again) {
		t.Fatalf("another order gives\n%s\nbefore\n%s", strings.Join(lines(again), "\n"), strings.Join(lines(r), "\n"))
	}
	for _, f := range r.Families {
		if !slices.IsSortedFunc(f.Endpoints, func(a, b Endpoint) int {
			if a.Address == b.Address {
				return 1
			}
			return a.Address.Compare(b.Address)
		}) {
			t.Fatalf("endpoints are not in order: %v", f.Endpoints)
		}
		for _, p := range f.Ports {
			for _, target := range slices.Concat(p.Cluster, p.Local) {
				if _, found := f.Endpoints.Find(target.Addr()); !found {
					t.Fatalf("%s is used and not known", target)
				}
			}
		}
	}
	return r
}
