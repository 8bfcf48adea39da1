package proxy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/cluster"
	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/topology/netset"
)

// of moves an object into another namespace.
func of[T metav1.Object](namespace string, object T) T {
	object.SetNamespace(namespace)
	return object
}

// sliceAt has endpoints of a Service.
func sliceAt(service, name string, endpoints ...string) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)}},
	}
	for _, address := range endpoints {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}})
	}
	return slice
}

// Forms of the attack, by what the Service of the tenant claims.
var attackForms = map[string]func(service *corev1.Service, target string){
	"external IP": func(s *corev1.Service, target string) { s.Spec.ExternalIPs = []string{target} },
	"external IP in the notation of IPv6": func(s *corev1.Service, target string) {
		s.Spec.ExternalIPs = []string{"::ffff:" + target}
	},
	"load balancer": func(s *corev1.Service, target string) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: target}}
	},
	"external IP with Local": func(s *corev1.Service, target string) {
		s.Spec.ExternalIPs, s.Spec.ExternalTrafficPolicy = []string{target}, corev1.ServiceExternalTrafficPolicyLocal
	},
	"another port": func(s *corev1.Service, target string) {
		s.Spec.ExternalIPs, s.Spec.Ports[0].Port = []string{target}, 8443
	},
	"the number of a node port": func(s *corev1.Service, target string) {
		s.Spec.ExternalIPs, s.Spec.Ports[0].Port = []string{target}, 30053
	},
}

// attackTargets returns the attacked addresses with the Services that own them, nil for a free address.
func attackTargets() map[string]struct {
	address string
	victim  func() *corev1.Service
} {
	victim := func(namespace, name, address string) func() *corev1.Service {
		return func() *corev1.Service {
			s := of(namespace, aService(name, address))
			s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30053
			return s
		}
	}
	return map[string]struct {
		address string
		victim  func() *corev1.Service
	}{
		"another namespace's cluster IP": {"10.96.0.20", victim("bank", "accounts", "10.96.0.20")},
		"the DNS Service":                {"10.96.0.10", victim("kube-system", "kube-dns", "10.96.0.10")},
		"the Service kubernetes":         {"10.96.0.1", victim("default", "kubernetes", "10.96.0.1")},
		"the node's own address":         {"192.0.2.1", victim("bank", "accounts", "10.96.0.20")},
		"another node's address":         {"192.0.2.77", victim("bank", "accounts", "10.96.0.20")},
		"a pod's address":                {"10.1.7.7", victim("bank", "accounts", "10.96.0.20")},
		"the API server's address":       {"198.51.100.6", victim("bank", "accounts", "10.96.0.20")},
		"a free service address":         {"10.96.9.9", victim("bank", "accounts", "10.96.0.20")},
	}
}

const attackerEndpoint = "10.9.9.9"

// hijacked are the fronts of an address that lead to the tenant.
func (w *world) hijacked(target string) (found []string) {
	for _, f := range w.families {
		for name, port := range f.table.Programmed() {
			if port == nil || !strings.HasPrefix(name, "tenant/") {
				continue
			}
			for _, front := range port.Fronts {
				if front.Address == netip.MustParseAddr(target) {
					found = append(found, front.String())
				}
			}
		}
	}
	return found
}

// A tenant's Service gets no connection to an address of the cluster, by any field, whichever proxy serves the owner,
// and in any order.
func TestNoTenantTakesAddressesOfTheCluster(t *testing.T) {
	for targetName, target := range attackTargets() {
		for formName, form := range attackForms {
			for _, servedBy := range []string{"kube-proxy", "groups", "all services"} {
				for _, order := range []string{"before", "after", "together"} {
					t.Run(strings.Join([]string{targetName, formName, servedBy, order}, "/"), func(t *testing.T) {
						a := &attack{world: newWorld(t), target: target.address}
						a.settings.AllServices, a.settings.APIServer = servedBy == "all services", netset.Of(netip.MustParseAddr("198.51.100.6"))
						a.put(aRange("kubernetes", "10.96.0.0/16"), publishedNodes("192.0.2.1 192.0.2.77", "10.1.0.0/16"))
						a.service = of("tenant", aService("taker", "10.96.0.66"))
						a.service.CreationTimestamp = metav1.NewTime(start.Add(-time.Hour)) // older than all
						form(a.service, target.address)
						a.victim = target.victim()
						a.victim.CreationTimestamp = metav1.NewTime(start)
						a.mount(servedBy, order)
					})
				}
			}
		}
	}
}

type attack struct {
	*world
	target          string
	service, victim *corev1.Service
}

// none fails the test if the tenant has the target at any moment.
func (a *attack) none(when string) {
	a.t.Helper()
	a.run(10 * time.Second)
	if found := a.hijacked(a.target); len(found) > 0 {
		a.t.Fatalf("%s: the tenant has %v", when, found)
	}
	a.right(when)
}

func (a *attack) mount(servedBy, order string) {
	putVictim := func(more ...metav1.Object) {
		victim := a.victim.DeepCopy()
		all := []metav1.Object{victim}
		switch servedBy {
		case "groups":
			all = append(all, of(victim.Namespace, aGroup(victim.Name, victim.Name+"-1", "10.1.1.1")))
		case "all services":
			delete(victim.Labels, v1alpha1.LabelServiceProxyName)
			all = append(all, of(victim.Namespace, sliceAt(victim.Name, victim.Name+"-x", "10.1.1.1")))
		default:
			delete(victim.Labels, v1alpha1.LabelServiceProxyName)
		}
		a.put(append(all, more...)...)
	}
	attacking := func(labelled bool) *corev1.Service {
		s := a.service.DeepCopy()
		if !labelled {
			delete(s.Labels, v1alpha1.LabelServiceProxyName)
		}
		return s
	}
	group := of("tenant", aGroup("taker", "taker-1", attackerEndpoint))
	group.Spec.Endpoints[0].Node = "node-a"
	slice := of("tenant", sliceAt("taker", "taker-x", attackerEndpoint))
	switch order {
	case "before":
		putVictim()
		a.none("the victim alone")
		a.put(attacking(false), slice)
	case "after":
		a.put(attacking(false), slice)
		a.none("the tenant alone")
		putVictim()
	default:
		putVictim(attacking(false), slice)
	}
	a.none("before the hand-over")
	a.put(group)
	a.none("during the hand-over")
	if !a.kernel.leads(attackerEndpoint) {
		a.t.Fatal("the tenant's own cluster IP is not served")
	}
	a.checkReports()
	a.put(attacking(true))
	a.none("after the hand-over")
	if servedBy != "kube-proxy" && !a.kernel.leads("10.1.1.1") {
		a.t.Fatal("the victim is not served")
	}
	a.restart()
	a.settings.AllServices, a.settings.APIServer = servedBy == "all services", netset.Of(netip.MustParseAddr("198.51.100.6"))
	a.catalogue.Fill(func() { a.catalogue.ReplaceGroups(nil, "", "a") })
	a.put(aNode("a"), aRange("kubernetes", "10.96.0.0/16"), publishedNodes("192.0.2.1 192.0.2.77", "10.1.0.0/16"), attacking(true), group, slice)
	putVictim()
	a.none("after a restart")
	a.put(attacking(false))
	a.none("without the label again")
}

// checkReports checks that events and metrics report the refusal.
func (a *attack) checkReports() {
	a.t.Helper()
	// There may be another reason once the victim comes.
	if len(a.events.events) == 0 || len(a.events.events) > 2 {
		a.t.Errorf("the events are %q", a.events.events)
	}
	for _, event := range a.events.events {
		if !strings.HasPrefix(event, "tenant/taker Warning AddressRefused: node node-a: ") || !strings.Contains(event, a.target+" is refused") {
			a.t.Errorf("an event is %q", event)
		}
	}
	sum := 0.0
	for _, reason := range compile.Reasons() {
		sum += testutil.ToFloat64(a.metrics.refusedAddresses.WithLabelValues(string(reason)))
	}
	if sum != 1 {
		a.t.Errorf("%g addresses are counted as refused", sum)
	}
}

// With unknown ranges, a tenant has an address until a Service gets it as its cluster IP. The address changes hands in
// the same sync, and goes back with the Service.
func TestClusterIPsWinAtOnce(t *testing.T) {
	w := newWorld(t)
	taker := of("tenant", aService("taker", "10.96.0.66"))
	taker.Spec.ExternalIPs = []string{"10.96.0.20"}
	w.put(taker, of("tenant", aGroup("taker", "taker-1", attackerEndpoint)))
	w.right("the tenant alone")
	if len(w.hijacked("10.96.0.20")) != 1 {
		t.Fatal("a free address is not served")
	}
	victim := of("bank", aService("accounts", "10.96.0.20"))
	delete(victim.Labels, v1alpha1.LabelServiceProxyName) // kube-proxy's
	before := w.kernel.transactions()
	w.put(victim)
	w.step(t.Context())
	if got := w.kernel.transactions() - before; got != 1 || len(w.hijacked("10.96.0.20")) != 0 {
		t.Errorf("after %d transactions the tenant has %v", got, w.hijacked("10.96.0.20"))
	}
	w.right("with the victim")
	w.run(10 * time.Second)
	if want := []string{"tenant/taker Warning AddressRefused: node node-a: spec.externalIPs: 10.96.0.20 is refused: it is the cluster IP of Service bank/accounts; remove it"}; !slices.Equal(w.events.events, want) {
		t.Errorf("the events are %q, want %q", w.events.events, want)
	}
	w.drop(victim)
	w.right("without it again")
	if len(w.hijacked("10.96.0.20")) != 1 {
		t.Error("the address is no longer served")
	}
}

// Addresses of the cluster that become known later apply to existing Services, and only the affected ones are compiled
// again.
func TestReservedAddressesComeLater(t *testing.T) {
	key := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "tenant", Name: name} }
	for _, test := range []struct {
		name, address string
		fact, back    func(*world)
	}{
		{
			"a range", "10.96.0.20", func(w *world) { w.put(aRange("more", "10.96.0.0/16")) },
			func(w *world) { w.drop(aRange("more")) },
		},
		{
			"a range by a list", "10.96.0.20", func(w *world) {
				w.catalogue.Fill(func() { w.catalogue.ReplaceRanges([]*networkingv1.ServiceCIDR{aRange("more", "10.96.0.0/16")}) })
			},
			func(w *world) { w.catalogue.Fill(func() { w.catalogue.ReplaceRanges(nil) }) },
		},
		{
			"a node", "192.0.2.77", func(w *world) { w.put(publishedNodes("192.0.2.77", "")) },
			func(w *world) { w.put(publishedNodes("192.0.2.78", "")) },
		},
		{
			"pods", "10.1.9.1", func(w *world) { w.put(publishedNodes("192.0.2.78", "10.1.9.0/24")) },
			func(w *world) { w.put(publishedNodes("192.0.2.78", "")) },
		},
	} {
		w := newWorld(t)
		taker, other := of("tenant", aService("taker", "10.96.1.66")), of("tenant", aService("other", "10.96.1.67"))
		taker.Spec.ExternalIPs = []string{test.address}
		w.put(taker, other, of("tenant", aGroup("taker", "taker-1", attackerEndpoint)), of("tenant", aGroup("other", "other-1", "10.1.1.2")))
		w.right("the tenant alone")
		if len(w.hijacked(test.address)) != 1 {
			t.Fatalf("%s: a free address is not served", test.name)
		}
		test.fact(w)
		taken := w.catalogue.Take()
		if got, _ := w.affectedServices(taken); len(got) != 1 || !got[key("taker")] {
			t.Errorf("%s: compiled again are %v", test.name, got)
		}
		test.back(w)
		test.fact(w)
		w.catalogue.TouchService(key("taker"))
		w.right("with the fact")
		if found := w.hijacked(test.address); len(found) > 0 {
			t.Errorf("%s: the tenant has %v", test.name, found)
		}
		test.back(w)
		w.right("without it")
		if len(w.hijacked(test.address)) != 1 {
			t.Errorf("%s: the address is not served again", test.name)
		}
	}
}

// Tables have the ranges of cluster IPs only with --all-services: kube-proxy drops packets to unassigned cluster IPs
// itself.
func TestTablesKnowTheRanges(t *testing.T) {
	for _, all := range []bool{false, true} {
		w := newWorld(t)
		w.settings.AllServices = all
		w.put(aService("web", "10.96.0.1"), aGroup("web", "web-1", "10.1.1.1"))
		w.right("no range")
		w.put(aRange("one", "10.96.0.0/16", "fd00:96::/112"))
		w.right("a range")
		w.put(aRange("two", "10.97.0.0/16"))
		w.right("two ranges")
		node, _ := w.catalogue.Position()
		got := fmt.Sprint(w.settings.Config(4, node).ServiceRanges)
		if want := map[bool]string{false: "[]", true: "[10.96.0.0/15 fd00:96::/112]"}[all]; got != want {
			t.Errorf("the ranges are %s, want %s", got, want)
		}
	}
}

// Log and event name two of very many refused addresses and their number. Metrics count them by reason, and memory does
// not grow.
func TestManyRefusedAddressesAreSummarized(t *testing.T) {
	w := newWorld(t)
	logged := ""
	w.log = funcr.New(func(_, line string) { logged += line }, funcr.Options{})
	w.put(aRange("one", "10.96.0.0/16"))
	taker := of("tenant", aService("taker", "10.96.0.66"))
	for i := range 20000 {
		taker.Spec.ExternalIPs = append(taker.Spec.ExternalIPs, fmt.Sprintf("10.96.%d.%d", 100+i/256, i%256))
	}
	w.put(taker, of("tenant", aGroup("taker", "taker-1", attackerEndpoint)))
	w.run(time.Minute)
	if len(logged) > 2000 || !strings.Contains(logged, "10.96.100.0") || !strings.Contains(logged, "20000") {
		t.Errorf("the log has %d bytes: %.3000s", len(logged), logged)
	}
	const wanted = "tenant/taker Warning AddressRefused: node node-a: spec.externalIPs: 19000 addresses are refused: a Service may claim 1000 in all; remove the last ones. " +
		"spec.externalIPs: 10.96.100.0 is refused: it is in a range of cluster IPs; remove it. And 999 more"
	if !slices.Equal(w.events.events, []string{wanted}) {
		t.Errorf("the events are %q", w.events.events)
	}
	for reason, want := range map[compile.Reason]float64{compile.RefusedServiceRange: 1000, compile.RefusedTooMany: 19000} {
		if got := testutil.ToFloat64(w.metrics.refusedAddresses.WithLabelValues(string(reason))); got != want {
			t.Errorf("%s: the metric is %g, want %g", reason, got, want)
		}
	}
	if n, named := len(w.records[cluster.KeyOf(taker)].refused.First), len(w.records[cluster.KeyOf(taker)].refused.Sentences(namedRefusals)); n > 20 || named > 2 {
		t.Errorf("%d addresses and %d sentences are kept", n, named)
	}
}
