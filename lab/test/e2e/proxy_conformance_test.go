package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/test/kube"
)

// tablePods has the clients of the table on the two nodes of the first zone: one node has an
// endpoint of each Service, the other has none. backendPod makes the endpoints, one in each zone on
// the first node.
const tablePods = `apiVersion: v1
kind: Pod
metadata: {name: client-with, labels: {app: client}}
spec: {nodeName: zone-a-1, terminationGracePeriodSeconds: 1, containers: [{name: client, image: lab/client}]}
---
apiVersion: v1
kind: Pod
metadata: {name: client-without, labels: {app: client}}
spec: {nodeName: zone-a-2, terminationGracePeriodSeconds: 1, containers: [{name: client, image: lab/client}]}
`

// backends has the nodes of the endpoints, by their letters in the table.
var backends = map[string]string{"a": "zone-a-1", "b": "zone-b-1", "c": "zone-c-1"}

func backendPod(letter string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: be-%[1]s, labels: {app: be, letter: %[1]s}}
spec:
  nodeName: %[2]s
  terminationGracePeriodSeconds: 1
  containers:
  - name: echo
    image: lab/echo
    ports: [{name: http, containerPort: 8080}, {name: tcp, containerPort: 8081}, {name: udp, containerPort: 8082, protocol: UDP}]
    env: [{name: POD_NAME, value: %[1]s}]
    readinessProbe: {httpGet: {path: /readyz, port: http}, periodSeconds: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: host-%[1]s, labels: {app: host, letter: %[1]s}}
spec:
  nodeName: %[2]s
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - name: echo
    image: lab/echo
    env:
    - {name: POD_NAME, value: %[1]s}
    - {name: ECHO_HTTP_PORT, value: "18080"}
    - {name: ECHO_TCP_PORT, value: "18081"}
    - {name: ECHO_UDP_PORT, value: "18082"}
    readinessProbe: {httpGet: {path: /readyz, port: 18080}, periodSeconds: 1}
`, letter, backends[letter])
}

// server is a proxy under test.
type server struct {
	name, suffix, annotations string
}

// serves reports whether this proxy can serve the Service of a row.
func (s server) serves(r *row) bool {
	if s.annotations == "" {
		return !r.grouped
	}
	return !r.ungrouped
}

var servers = []server{
	{name: "kube-proxy", suffix: "k"},
	{name: "vicinity-proxy", suffix: "v", annotations: `vicinity.dev/proxy: "true"`},
}

// row is a Service of the table, with the tries of it.
type row struct {
	name string
	// annotations are YAML, added to the annotation that chooses the proxy.
	annotations string
	// spec has lines of YAML beside the defaults: all backends, the ports tcp, http and udp, and both
	// families.
	spec string
	// selector and ports replace the defaults. The selector "none" means no selector.
	selector, ports string
	// ingress gives the Service addresses of a load balancer.
	ingress, proxyMode bool
	// external gives it external IPs.
	external bool
	// ungrouped says that the Service has no plan and so no groups: vicinity-proxy serves it only
	// when it serves all Services.
	ungrouped bool
	// grouped says that the row tests its groups, so that vicinity-proxy serves it only with
	// groups.
	grouped bool
	// endpoints are put into hand-made slices, in place of a selector.
	endpoints []handmade
	tries     []try
}

// handmade is an endpoint of a hand-made slice.
type handmade struct {
	letter     string
	conditions string
	// slice separates the endpoints of several slices.
	slice string
	// name is a domain name instead of an address.
	name string
}

// try is a number of connections of one kind, with the wanted outcome.
type try struct {
	from, to string
	port     string // default tcp
	want     string
	// only limits the try to one family.
	only string
}

// Common outcomes of tries.
const (
	all      = "a b c as itself"
	refused  = "refused"
	noAnswer = "no answer"
)

// table covers all fields of Services that concern a proxy.
func table() []row {
	return []row{
		{name: "plain", tries: []try{
			{from: "pod-with", to: "cluster", want: all},
			{from: "pod-without", to: "cluster", want: all},
			{from: "pod-with", to: "cluster", port: "http", want: all},
			{from: "pod-without", to: "cluster", port: "udp", want: all},
			{from: "pod-with", to: "cluster", port: "numbered", want: all},
			{from: "node-with", to: "cluster", want: all},
			{from: "node-without", to: "cluster", want: all},
			{from: "node-without", to: "cluster", port: "udp", want: all},
			{from: "pod-with", to: "cluster", port: "unused-tcp", want: refused},
			{from: "pod-with", to: "cluster", port: "unused-udp", want: refused},
			{from: "node-with", to: "cluster", port: "unused-tcp", want: refused},
		}},
		{name: "same-number", ports: "[{name: tcp, port: 53, targetPort: tcp}, {name: udp, port: 53, targetPort: udp, protocol: UDP}]", tries: []try{
			{from: "pod-with", to: "cluster", want: all},
			{from: "pod-with", to: "cluster", port: "udp", want: all},
		}},
		{name: "no-endpoints", selector: "{app: absent}", spec: "type: NodePort", tries: []try{
			{from: "pod-with", to: "cluster", want: refused},
			{from: "pod-with", to: "cluster", port: "udp", want: refused},
			{from: "node-with", to: "cluster", want: refused},
			{from: "outside", to: "node-port@with", want: refused},
			{from: "pod-with", to: "node-port@without", want: refused},
			{from: "node-with", to: "node-port@with", want: refused},
		}},
		{name: "node-port", spec: "type: NodePort", tries: []try{
			{from: "outside", to: "node-port@with", want: "a b c as zone-a-1"},
			{from: "outside", to: "node-port@without", want: "a b c as zone-a-2"},
			{from: "outside", to: "node-port@without", port: "udp", want: "a b c as zone-a-2"},
			{from: "pod-with", to: "node-port@with", want: "a b c as zone-a-1"},
			// The packet leaves the client's node untranslated. The other node translates it.
			{from: "pod-with", to: "node-port@without", want: "a b c as zone-a-2"},
			{from: "node-with", to: "node-port@with", want: all},
			{from: "node-with", to: "node-port@without", want: "a b c as zone-a-2"},
			{from: "node-with", to: "node-port@localhost", want: refused},
			{from: "pod-with", to: "cluster", want: all},
		}},
		{name: "external-ip", external: true, tries: []try{
			{from: "outside", to: "external@with", want: "a b c as zone-a-1"},
			{from: "outside", to: "external@without", want: "a b c as zone-a-2"},
			{from: "pod-with", to: "external@without", want: "a b c as zone-a-1"},
			{from: "node-with", to: "external@without", want: all},
			{from: "pod-with", to: "cluster", want: all},
		}},
		{name: "load-balancer", spec: "type: LoadBalancer", ingress: true, tries: []try{
			{from: "outside", to: "load-balancer@with", want: "a b c as zone-a-1"},
			{from: "outside", to: "load-balancer@without", want: "a b c as zone-a-2"},
			{from: "outside", to: "load-balancer@without", port: "udp", want: "a b c as zone-a-2"},
			{from: "pod-without", to: "load-balancer@with", want: "a b c as zone-a-2"},
			{from: "node-with", to: "load-balancer@without", want: all},
			{from: "outside", to: "node-port@without", want: "a b c as zone-a-2"},
		}},
		{name: "no-node-ports", spec: "type: LoadBalancer\n  allocateLoadBalancerNodePorts: false", ingress: true, tries: []try{
			{from: "outside", to: "load-balancer@with", want: "a b c as zone-a-1"},
		}},
		{name: "ip-mode-proxy", spec: "type: LoadBalancer", ingress: true, proxyMode: true, tries: []try{
			{from: "outside", to: "load-balancer@with", want: noAnswer},
			{from: "pod-with", to: "load-balancer@with", want: noAnswer},
			{from: "outside", to: "node-port@with", want: "a b c as zone-a-1"},
		}},
		{name: "ranges-allow", spec: "type: LoadBalancer\n  loadBalancerSourceRanges: [172.30.0.1/32, \"fd00:172:30::1/128\"]", ingress: true, tries: []try{
			{from: "outside", to: "load-balancer@with", want: "a b c as zone-a-1"},
			{from: "pod-with", to: "load-balancer@with", want: noAnswer},
			{from: "node-with", to: "load-balancer@with", want: noAnswer},
			{from: "pod-with", to: "cluster", want: all},
			{from: "outside", to: "node-port@with", want: "a b c as zone-a-1"},
		}},
		{name: "ranges-deny", spec: "type: LoadBalancer\n  loadBalancerSourceRanges: [192.0.2.0/24, \"2001:db8::/32\"]", ingress: true, tries: []try{
			{from: "outside", to: "load-balancer@with", want: noAnswer},
			{from: "outside", to: "load-balancer@with", port: "udp", want: noAnswer},
			{from: "outside", to: "node-port@with", want: "a b c as zone-a-1"},
		}},
		{name: "internal-local", spec: "internalTrafficPolicy: Local", ungrouped: true, tries: []try{
			{from: "pod-with", to: "cluster", want: "a as itself"},
			{from: "node-with", to: "cluster", want: "a as itself"},
			{from: "pod-without", to: "cluster", want: noAnswer},
			{from: "pod-without", to: "cluster", port: "udp", want: noAnswer},
			{from: "node-without", to: "cluster", want: noAnswer},
		}},
		{name: "internal-local-none", spec: "internalTrafficPolicy: Local", selector: "{app: absent}", ungrouped: true, tries: []try{
			{from: "pod-with", to: "cluster", want: refused},
		}},
		{name: "external-local", spec: "type: NodePort\n  externalTrafficPolicy: Local", tries: []try{
			{from: "outside", to: "node-port@with", want: "a as itself"},
			{from: "outside", to: "node-port@with", port: "udp", want: "a as itself"},
			{from: "outside", to: "node-port@without", want: noAnswer},
			{from: "pod-with", to: "node-port@with", want: all},
			{from: "pod-without", to: "node-port@without", want: all},
			// Endpoints answer past the node that translated the packet.
			{from: "pod-with", to: "node-port@without", want: noAnswer},
			{from: "node-without", to: "node-port@without", want: all},
			{from: "node-with", to: "node-port@with", want: all},
			{from: "pod-without", to: "cluster", want: all},
		}},
		{name: "external-local-none", spec: "type: NodePort\n  externalTrafficPolicy: Local", selector: "{app: absent}", tries: []try{
			{from: "outside", to: "node-port@with", want: refused},
			{from: "pod-with", to: "node-port@with", want: refused},
		}},
		{name: "load-balancer-local", spec: "type: LoadBalancer\n  externalTrafficPolicy: Local", ingress: true, tries: []try{
			{from: "outside", to: "load-balancer@with", want: "a as itself"},
			{from: "outside", to: "load-balancer@without", want: noAnswer},
			{from: "pod-without", to: "load-balancer@without", want: all},
			{from: "pod-with", to: "load-balancer@without", want: all},
			{from: "outside", to: "health@with", want: "200: 1 local"},
			{from: "outside", to: "health@without", want: "503: 0 local"},
		}},
		{name: "affinity", spec: "type: NodePort\n  sessionAffinity: ClientIP", tries: []try{
			{from: "pod-with", to: "cluster", want: "always the same as itself"},
			{from: "pod-without", to: "cluster", port: "udp", want: "always the same as itself"},
			{from: "node-with", to: "cluster", want: "always the same as itself"},
			{from: "outside", to: "node-port@without", want: "always the same as zone-a-2"},
		}},
		{name: "affinity-local", spec: "type: NodePort\n  sessionAffinity: ClientIP\n  externalTrafficPolicy: Local", tries: []try{
			{from: "outside", to: "node-port@with", want: "a as itself"},
			{from: "outside", to: "node-port@without", want: noAnswer},
			{from: "pod-without", to: "node-port@without", want: "always the same as itself"},
		}},
		{name: "hairpin", selector: "{letter: a, app: be}", tries: []try{
			{from: "endpoint", to: "cluster", want: "a as zone-a-1"},
			{from: "endpoint", to: "cluster", port: "udp", want: "a as zone-a-1"},
			{from: "pod-with", to: "cluster", want: "a as itself"},
		}},
		{name: "host-network", selector: "{app: host}", ports: "[{name: tcp, port: 81, targetPort: 18081}, {name: udp, port: 82, targetPort: 18082, protocol: UDP}]", spec: "type: NodePort", tries: []try{
			{from: "pod-without", to: "cluster", want: all},
			{from: "node-with", to: "cluster", want: all},
			{from: "outside", to: "node-port@without", want: "a b c as zone-a-2"},
			{from: "pod-without", to: "cluster", port: "udp", want: all},
		}},
		{name: "one-family", spec: "ipFamilyPolicy: SingleStack\n  ipFamilies: [IPv6]", tries: []try{
			{from: "pod-with", to: "cluster", want: all, only: "IPv6"},
		}},
		{name: "terminating", endpoints: []handmade{
			{letter: "a", conditions: "{ready: false, serving: true, terminating: true}"},
			{letter: "b", conditions: "{ready: false, serving: true, terminating: true}"},
			{letter: "c", conditions: "{ready: false, serving: false, terminating: true}"},
		}, tries: []try{{from: "pod-with", to: "cluster", want: "a b as itself"}}},
		{name: "ready-beside-terminating", endpoints: []handmade{
			{letter: "a", conditions: "{ready: true, serving: true}"},
			{letter: "b", conditions: "{ready: false, serving: true, terminating: true}"},
		}, tries: []try{{from: "pod-with", to: "cluster", want: "a as itself"}}},
		{name: "terminating-local", spec: "type: NodePort\n  externalTrafficPolicy: Local", endpoints: []handmade{
			{letter: "a", conditions: "{ready: false, serving: true, terminating: true}"},
			{letter: "b", conditions: "{ready: true}"},
		}, tries: []try{
			{from: "outside", to: "node-port@with", want: "a as itself"},
			{from: "pod-with", to: "cluster", want: "b as itself"},
		}},
		{name: "readiness-unknown", endpoints: []handmade{{letter: "a", conditions: "{}"}, {letter: "b", conditions: "{ready: false}"}}, tries: []try{
			{from: "pod-with", to: "cluster", want: "a as itself"},
		}},
		{name: "not-ready", endpoints: []handmade{{letter: "a", conditions: "{ready: false, serving: false}"}}, tries: []try{
			{from: "pod-with", to: "cluster", want: refused},
		}},
		{name: "ready-not-serving", endpoints: []handmade{{letter: "a", conditions: "{ready: true, serving: false, terminating: true}"}, {letter: "b", conditions: "{ready: true}"}}, tries: []try{
			{from: "pod-with", to: "cluster", want: "a b as itself"},
		}},
		{name: "address-twice", endpoints: []handmade{
			{letter: "a", conditions: "{ready: true}"},
			{letter: "b", conditions: "{ready: true}"},
			{letter: "a", conditions: "{ready: true}", slice: "two"},
		}, tries: []try{{from: "pod-with", to: "cluster", want: "a b as itself"}}},
		{name: "domain-names", endpoints: []handmade{
			{letter: "a", conditions: "{ready: true}"}, {name: "example.com", conditions: "{ready: true}", slice: "names"},
		}, tries: []try{{from: "pod-with", to: "cluster", want: "a as itself"}}},
		// A hard key of the node differs from externalTrafficPolicy: Local: it applies to pods too.
		{name: "hard-hostname", grouped: true, annotations: fmt.Sprintf("%s: %q", keysAnnotation, hostnameKey), spec: "type: LoadBalancer", ingress: true, tries: []try{
			{from: "pod-with", to: "cluster", want: "a as itself"},
			{from: "pod-without", to: "cluster", want: refused},
			{from: "outside", to: "node-port@with", want: "a as zone-a-1"},
			{from: "outside", to: "node-port@without", want: refused},
			{from: "outside", to: "load-balancer@with", want: "a as zone-a-1"},
			{from: "outside", to: "load-balancer@without", want: refused},
			{from: "pod-without", to: "load-balancer@with", want: refused},
		}},
		// With the policy, clients outside find the same as without the key.
		{name: "hard-hostname-local", grouped: true, annotations: fmt.Sprintf("%s: %q", keysAnnotation, hostnameKey), spec: "type: LoadBalancer\n  externalTrafficPolicy: Local", ingress: true, tries: []try{
			{from: "pod-with", to: "cluster", want: "a as itself"},
			{from: "pod-without", to: "cluster", want: refused},
			{from: "pod-without", to: "load-balancer@without", want: refused},
			{from: "outside", to: "node-port@with", want: "a as itself"},
			{from: "outside", to: "node-port@with", port: "udp", want: "a as itself"},
			{from: "outside", to: "node-port@without", want: noAnswer},
			{from: "outside", to: "load-balancer@with", want: "a as itself"},
			{from: "outside", to: "load-balancer@without", want: noAnswer},
			{from: "outside", to: "health@with", want: "200: 1 local"},
			{from: "outside", to: "health@without", want: "503: 0 local"},
		}},
		{name: "same-node-local", grouped: true, annotations: nodeAnnotation + ": Require", spec: "type: LoadBalancer\n  externalTrafficPolicy: Local", tries: []try{
			{from: "pod-without", to: "cluster", want: refused},
			{from: "outside", to: "node-port@with", want: "a as itself"},
			{from: "outside", to: "node-port@without", want: noAnswer},
			{from: "outside", to: "health@with", want: "200: 1 local"},
			{from: "outside", to: "health@without", want: "503: 0 local"},
		}},
	}
}

// families are the IP families in the order of the tries.
var families = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}

// stage has the state of a table under test.
type stage struct {
	*scene
	rows    []row
	servers []server
	pods    map[string]*corev1.Pod
	// given counts the addresses that Services were given.
	given int
	// addresses has the addresses given to each Service, by end, such as external@with.
	addresses map[string]map[string][]netip.Addr
	services  map[string]*corev1.Service
}

// conformance tries the table with Services of vicinity-proxy. Except in "make test" it also tries
// Services of kube-proxy, whose behaviour the table describes.
func conformance(ctx context.Context, s *scene) (string, error) {
	rows, with, whose := table(), servers, "each proxy's"
	if inMakeTest() {
		with, whose = servers[1:], "vicinity-proxy's"
	}
	check(s.tryAll(ctx, rows, with))
	return whose + " " + described(rows), nil
}

// described summarizes a table that passed.
func described(rows []row) string {
	tries, left := 0, 0
	for i := range rows {
		r := &rows[i]
		if r.ungrouped {
			left++
		}
		for _, t := range r.tries {
			for _, family := range families {
				if t.only == "" || t.only == string(family) {
					tries++
				}
			}
		}
	}
	return fmt.Sprintf("%d kinds of Services (%d only kube-proxy's unless vicinity-proxy serves all) and %d kinds of connections over IPv4 and IPv6: as the table says",
		len(rows), left, tries)
}

// tryAll tries a table with Services of some proxies.
func (s *scene) tryAll(ctx context.Context, rows []row, with []server) error {
	st := &stage{scene: s, rows: rows, servers: with, addresses: map[string]map[string][]netip.Addr{}, services: map[string]*corev1.Service{}}
	if err := st.prepare(ctx); err != nil {
		return err
	}
	// Proxies may need a moment to program the whole table.
	if wrong := st.all(ctx, 45*time.Second); len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}

// prepare makes the pods and the Services of the table, and waits until each Service is served by
// its proxy.
func (st *stage) prepare(ctx context.Context) error {
	text := tablePods
	for _, letter := range slices.Sorted(maps.Keys(backends)) {
		text += backendPod(letter)
	}
	if err := st.Apply(ctx, st.namespace, text); err != nil {
		return err
	}
	err := kube.Wait(ctx, "the pods of the table", func(ctx context.Context) (string, error) {
		list, err := st.CoreV1().Pods(st.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		st.pods = map[string]*corev1.Pod{}
		for i := range list.Items {
			if !kube.PodReady(&list.Items[i]) {
				return list.Items[i].Name + " is not ready", nil
			}
			st.pods[list.Items[i].Name] = &list.Items[i]
		}
		return "", nil
	})
	if err != nil {
		return err
	}
	for i := range st.rows {
		for _, by := range st.servers {
			if !by.serves(&st.rows[i]) {
				continue
			}
			if err := st.make(ctx, &st.rows[i], by); err != nil {
				return fmt.Errorf("%s: %w", st.rows[i].name, err)
			}
		}
	}
	for i := range st.rows {
		r := &st.rows[i]
		for _, by := range st.servers {
			if !by.serves(r) {
				continue
			}
			name := r.name + "-" + by.suffix
			if by.annotations != "" {
				if err := st.waitServedBy(ctx, name, true); err != nil {
					return err
				}
			}
			object, err := st.CoreV1().Services(st.namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			st.services[name] = object
		}
	}
	return nil
}

// make makes the Service of a row for one proxy.
func (st *stage) make(ctx context.Context, r *row, by server) error {
	name := r.name + "-" + by.suffix
	st.addresses[name] = map[string][]netip.Addr{}
	extra := r.spec
	if r.external {
		external, err := st.give(name, "external")
		if err != nil {
			return err
		}
		extra += "\n  externalIPs: [" + strings.Join(external, ", ") + "]"
	}
	if !strings.Contains(extra, "ipFamilyPolicy") {
		extra += "\n  ipFamilyPolicy: RequireDualStack"
	}
	ports := r.ports
	if ports == "" {
		ports = "[{name: tcp, port: 81, targetPort: tcp}, {name: http, port: 80, targetPort: http}, {name: udp, port: 82, targetPort: udp, protocol: UDP}, {name: numbered, port: 83, targetPort: 8081}]"
	}
	selector := r.selector
	if selector == "" {
		selector = "{app: be}"
	}
	if r.endpoints != nil {
		selector = ""
		ports = "[{name: tcp, port: 81, targetPort: 8081}]"
	}
	annotations := strings.TrimPrefix(by.annotations+", "+r.annotations, ", ")
	manifest := fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s, annotations: {%s}}\nspec:\n  ports: %s\n", name, strings.TrimSuffix(annotations, ", "), ports)
	if selector != "" {
		manifest += "  selector: " + selector + "\n"
	}
	manifest += "  " + strings.TrimSpace(extra) + "\n" + st.slices(r, name)
	if err := st.Apply(ctx, st.namespace, manifest); err != nil {
		return err
	}
	if !r.ingress {
		return nil
	}
	balancers, err := st.give(name, "load-balancer")
	if err != nil {
		return err
	}
	var ingress []string
	for _, address := range balancers {
		mode := "VIP"
		if r.proxyMode {
			mode = "Proxy"
		}
		ingress = append(ingress, fmt.Sprintf(`{"ip":%s,"ipMode":%q}`, address, mode))
	}
	status := fmt.Sprintf(`{"status":{"loadBalancer":{"ingress":[%s]}}}`, strings.Join(ingress, ","))
	_, err = st.CoreV1().Services(st.namespace).Patch(ctx, name, types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status")
	return err
}

// give gives a Service external addresses: of each family one that the fabric routes to the node
// with an endpoint, and one that it routes to the node without. They lie outside the cluster's
// ranges, whose addresses no Service may claim.
func (st *stage) give(name, end string) ([]string, error) {
	st.given++
	var quoted []string
	for i, where := range []string{"with", "without"} {
		node, _ := st.cluster.Shape().Node(nodeOf[where])
		for _, via := range st.cluster.Shape().NodeAddrs(node) {
			address := netip.AddrFrom4([4]byte{198, byte(18 + i), byte(st.given >> 8), byte(st.given)})
			if via.Is6() {
				address = netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 7: byte(i), 14: byte(st.given >> 8), 15: byte(st.given)})
			}
			if err := st.bring(address, via); err != nil {
				return nil, err
			}
			st.addresses[name][end+"@"+where] = append(st.addresses[name][end+"@"+where], address)
			quoted = append(quoted, fmt.Sprintf("%q", address))
		}
	}
	return quoted, nil
}

// bring routes the packets for an address to a node.
func (st *stage) bring(address, node netip.Addr) error {
	err := fabric.InNamespace(shape.FabricNamespace(st.cluster.Shape().Name), func() error {
		known, err := netlink.RouteGet(node.AsSlice())
		if err != nil {
			return err
		}
		if len(known) == 0 {
			return errors.New("no route to the node")
		}
		made := &netlink.Route{
			LinkIndex: known[0].LinkIndex, Src: known[0].Src, Gw: node.AsSlice(),
			Dst: &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(address.BitLen(), address.BitLen())},
		}
		made.SetFlag(netlink.FLAG_ONLINK)
		return netlink.RouteReplace(made)
	})
	if err != nil {
		return fmt.Errorf("routing %s to node %s: %w", address, node, err)
	}
	return nil
}

// slices returns the hand-made slices of a row.
func (st *stage) slices(r *row, service string) string {
	text := ""
	for _, family := range families {
		byName := map[string][]handmade{}
		for _, e := range r.endpoints {
			byName[e.slice] = append(byName[e.slice], e)
		}
		for _, slice := range slices.Sorted(maps.Keys(byName)) {
			kind := string(family)
			if byName[slice][0].name != "" {
				kind = "FQDN"
			}
			text += fmt.Sprintf("---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s-%s-%s, labels: {kubernetes.io/service-name: %s, endpointslice.kubernetes.io/managed-by: table}}\naddressType: %s\nports: [{name: tcp, port: 8081, protocol: TCP}]\nendpoints:\n",
				service, strings.ToLower(string(family)), "x"+slice, service, kind)
			for _, e := range byName[slice] {
				address, node := e.name, ""
				if e.letter != "" {
					address = podAddress(st.pods["be-"+e.letter], family).String()
					node = fmt.Sprintf(", nodeName: %s, zone: %s", backends[e.letter], strings.TrimSuffix(backends[e.letter], "-1"))
				}
				text += fmt.Sprintf("- {addresses: [%q], conditions: %s%s}\n", address, e.conditions, node)
			}
		}
	}
	return text
}

// podAddress returns a pod's address of a family.
func podAddress(pod *corev1.Pod, family corev1.IPFamily) netip.Addr {
	for _, ip := range pod.Status.PodIPs {
		if address, err := netip.ParseAddr(ip.IP); err == nil && address.Is4() == (family == corev1.IPv4Protocol) {
			return address
		}
	}
	return netip.Addr{}
}

// triesAtOnce is the number of tries that run at the same time.
const triesAtOnce = 12

// all tries all rows, each try again until it passes or the timeout is over. It describes the tries
// that failed.
func (st *stage) all(ctx context.Context, timeout time.Duration) []string {
	var mu sync.Mutex
	var wrong []string
	slots := make(chan struct{}, triesAtOnce)
	var running sync.WaitGroup
	deadline := time.Now().Add(timeout)
	for i := range st.rows {
		for _, t := range st.rows[i].tries {
			for _, family := range families {
				for _, by := range st.servers {
					if t.only != "" && t.only != string(family) || !by.serves(&st.rows[i]) {
						continue
					}
					slots <- struct{}{}
					running.Go(func() {
						defer func() { <-slots }()
						if text := st.settle(ctx, &st.rows[i], attempt{t, by, family}, deadline); text != "" {
							mu.Lock()
							defer mu.Unlock()
							wrong = append(wrong, text)
						}
					})
				}
			}
		}
	}
	running.Wait()
	slices.Sort(wrong)
	return wrong
}

// attempt is a try with one proxy over one family.
type attempt struct {
	try
	by     server
	family corev1.IPFamily
}

// settle repeats an attempt until it passes or the deadline is over. It describes the failure.
func (st *stage) settle(ctx context.Context, r *row, a attempt, deadline time.Time) string {
	t, by, family := a.try, a.by, a.family
	want := t.want
	for {
		got, err := st.do(ctx, r.name+"-"+by.suffix, t, family)
		if err != nil {
			got = err.Error()
		}
		if got == want {
			return ""
		}
		if ctx.Err() != nil || !time.Now().Before(deadline) {
			return fmt.Sprintf("%s: %s of %s from %s to %s %s: %q, want %q", by.name, family, r.name, t.from, t.to, t.portName(), got, want)
		}
	}
}

func (t try) portName() string {
	if t.port == "" {
		return "tcp"
	}
	return t.port
}
