package e2e_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab/dnsquery"
)

// oddNames asks for names at the limits of what names may be: labels of 63 characters, in any
// case, and names that do not exist or are none of the cluster's.
func oddNames(ctx context.Context, s *scene) (figure string, err error) {
	long := func(letter string) string { return strings.Repeat(letter, 63) }
	other := &scene{Client: s.Client, cluster: s.cluster, options: s.options, namespace: long("n")}
	if err := s.Apply(ctx, "", "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+other.namespace+"}\n"); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.RemoveNamespace(context.WithoutCancel(ctx), other.namespace)) }()
	err = kube.Wait(ctx, "the service account of the namespace", func(ctx context.Context) (string, error) {
		_, err := s.CoreV1().ServiceAccounts(other.namespace).Get(ctx, "default", metav1.GetOptions{})
		return "", err
	})
	if err != nil {
		return "", err
	}
	service := long("s")
	named := func(name, node string) string {
		spec := fmt.Sprintf("spec:\n  hostname: %s\n  subdomain: %s\n", name, service)
		return strings.Replace(placedPod(name, node, "echo"), "spec:\n", spec, 1)
	}
	manifests := headlessOf(service, keysAnnotation, zoneKey) + named(long("a"), "zone-a-1") + named(long("b"), "zone-b-1") + placedPod("client", "zone-a-2", "client")
	if err := other.Apply(ctx, other.namespace, manifests); err != nil {
		return "", err
	}
	if err := other.podsReady(ctx, 3); err != nil {
		return "", err
	}
	pod, err := other.pod(ctx, "client")
	if err != nil {
		return "", err
	}
	from, name := s.fromPod(pod), other.fqdn(service)
	clusterIP, err := s.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	all := []asked{
		{from, dnsquery.Query{Name: name}, long("a")},
		{from, dnsquery.Query{Name: strings.ToUpper(name)}, long("a")},
		{from, dnsquery.Query{Name: name, Type: "AAAA"}, long("a")},
		{from, dnsquery.Query{Name: name, Type: "TXT"}, noRecords},
		{from, dnsquery.Query{Name: long("b") + "." + name}, long("b")},
		{from, dnsquery.Query{Name: "_http._tcp." + name, Type: "SRV"}, "0 25 8080 " + long("a") + "." + name},
		{from, dnsquery.Query{Name: long("c") + "." + name}, noName},
		{from, dnsquery.Query{Name: other.fqdn("x" + service[1:])}, noName},
		{from, dnsquery.Query{Name: `a\.b.` + name}, noName},
		{from, dnsquery.Query{Name: "svc.cluster.local."}, noRecords},
		{from, dnsquery.Query{Name: "nothing.cluster.local."}, noName},
		{from, dnsquery.Query{Name: "kubernetes.default.svc.cluster.local."}, clusterIP.Spec.ClusterIP},
	}
	right, err := other.answers(ctx, all)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d answers for %d names are right, among them a Service, a namespace and pods of 63 characters", right, len(all)), nil
}

// oddLocators writes PodLocators that are malformed, as far as the API takes them, or that no pod
// of their name is behind. Clients get what they got before; what could not be read is counted; one
// in the place of a pod's is replaced.
func oddLocators(ctx context.Context, s *scene) (string, error) {
	if err := s.namedPods(ctx, headlessOf("near", keysAnnotation, zoneKey), inEachZone...); err != nil {
		return "", err
	}
	clients, err := s.fromClients(ctx)
	if err != nil {
		return "", err
	}
	var all []asked
	for node, from := range clients {
		at, _ := s.cluster.Shape().Node(node)
		want, err := s.podsOf(ctx, at.Zone+"-1")
		if err != nil {
			return "", err
		}
		all = append(all, asked{from, dnsquery.Query{Name: s.fqdn("near")}, want})
	}
	if _, err := s.answers(ctx, all); err != nil {
		return "", err
	}
	before, err := s.dnsMetric(ctx, clients["zone-a-1"], `coredns_vicinity_malformed_objects_total{resource="podlocators"}`)
	if err != nil {
		return "", err
	}
	inC := map[string]string{zoneKey: "zone-c"}
	malformed := []string{
		locatorManifest("too-few", "zone-c-1", inC, "10.128.1"),
		locatorManifest("too-high", "zone-c-1", inC, "10.128.1.300"),
		locatorManifest("colons", "zone-c-1", inC, ":::", "1:2:3"),
	}
	harmless := []string{
		locatorManifest("no-address", "zone-c-1", inC),
		locatorManifest("no-node", "", nil, "10.251.0.1"),
		locatorManifest("unknown-node", "nowhere", inC, "10.251.0.2"),
		locatorManifest("strange", strings.Repeat("n", 253), map[string]string{zoneKey: strings.Repeat("z", 1000), "": ""}, "::", "0.0.0.0"),
	}
	if err := s.Apply(ctx, s.namespace, strings.Join(slices.Concat(malformed, harmless), "")); err != nil {
		return "", err
	}
	for _, refused := range []string{"host.example.com", "10.128.1.2/24", "", strings.Repeat("1", 46)} {
		if err := s.Apply(ctx, s.namespace, locatorManifest("refused", "zone-c-1", inC, refused)); err == nil {
			return "", fmt.Errorf("the API takes a PodLocator with the address %q", refused)
		}
	}
	err = kube.Wait(ctx, "malformed PodLocators to be counted", func(ctx context.Context) (string, error) {
		now, err := s.dnsMetric(ctx, clients["zone-a-1"], `coredns_vicinity_malformed_objects_total{resource="podlocators"}`)
		if err != nil {
			return "", err
		}
		for instance, count := range now {
			if count < before[instance]+float64(len(malformed)) {
				return fmt.Sprintf("%s counted %v before and %v now", instance, before[instance], count), nil
			}
		}
		return "", nil
	})
	if err != nil {
		return "", err
	}
	// Somebody with all rights claims a client's address before its pod has a PodLocator.
	taken := locatorManifest("later", "zone-c-1", inC, "10.251.0.3")
	if err := s.Apply(ctx, s.namespace, taken); err != nil {
		return "", err
	}
	later, _, err := s.runsAt(ctx, "later", "zone-b-2", "client")
	if err != nil {
		return "", err
	}
	inB, err := s.podsOf(ctx, "zone-b-1")
	if err != nil {
		return "", err
	}
	right, err := s.answers(ctx, append(all, asked{s.fromPod(later), dnsquery.Query{Name: s.fqdn("near")}, inB}))
	if err != nil {
		return "", err
	}
	err = kube.Wait(ctx, "the pod to tell that its PodLocator was replaced", func(ctx context.Context) (string, error) {
		events, err := s.CoreV1().Events(s.namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=later,reason=PodLocatorReplaced"})
		if err != nil || len(events.Items) > 0 {
			return "", err
		}
		return "no event says so", nil
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d answers as before beside %d malformed and %d foreign PodLocators, 4 refused; one in the place of a pod's was replaced, with an event",
		right, len(malformed), len(harmless)), nil
}

// metricsPort is that of the directive prometheus.
const metricsPort = 9153

// dnsMetric reads a metric of all pods of the DNS server, by their addresses. It is 0 where they do
// not have it yet.
func (s *scene) dnsMetric(ctx context.Context, from place, series string) (map[string]float64, error) {
	instances, err := s.dnsInstances(ctx)
	if err != nil {
		return nil, err
	}
	values := map[string]float64{}
	for _, instance := range instances {
		response, err := from.get(ctx, netip.AddrPortFrom(instance.Addr(), metricsPort), "/metrics")
		if err != nil {
			return nil, err
		}
		defer response.Body.Close()
		values[instance.Addr().String()] = 0
		lines := bufio.NewScanner(response.Body)
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), series+" "); ok {
				if values[instance.Addr().String()], err = strconv.ParseFloat(text, 64); err != nil {
					return nil, err
				}
			}
		}
		if err := lines.Err(); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// get asks an HTTP server.
func (p place) get(ctx context.Context, server netip.AddrPort, path string) (*http.Response, error) {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: p.dial}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+server.String()+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	return transport.RoundTrip(request)
}

// handWritten are EndpointSlices of a Service with addresses that nothing answers at, the zones of
// the lab in turn.
func (s *scene) handWritten(service, network string, number int) string {
	const each = 500
	zones := s.inhabited()
	var text strings.Builder
	for i := range number {
		if i%each == 0 {
			fmt.Fprintf(&text, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: %[1]s-%[2]d
  labels: {kubernetes.io/service-name: %[1]s, endpointslice.kubernetes.io/managed-by: hand, service.kubernetes.io/headless: ""}
addressType: IPv4
ports: [{name: http, port: 80, protocol: TCP}]
endpoints:
`, service, i/each)
		}
		fmt.Fprintf(&text, "- {addresses: [%s.%d.%d], zone: %s, conditions: {ready: true}}\n", network, i/250, i%250+1, zones[i%len(zones)].Name)
	}
	return text.String()
}

// largeAnswers are those of headless Services with 1,000 endpoints, of which the zone has a third: UDP
// gives as much as the query has room for and says that this is not all, and TCP gives all.
func largeAnswers(ctx context.Context, s *scene) (string, error) {
	const number = 1000
	text := placedPod("client", "zone-b-1", "client")
	for _, service := range []struct{ name, network, annotations string }{
		{"whole", "10.240", "{}"},
		{"near", "10.241", fmt.Sprintf("{%s: %s}", keysAnnotation, zoneKey)},
	} {
		text += fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata: {name: %s, annotations: %s}\nspec: {clusterIP: None, ports: [{name: http, port: 80}]}\n", service.name, service.annotations) +
			s.handWritten(service.name, service.network, number)
	}
	if err := s.Apply(ctx, s.namespace, text); err != nil {
		return "", err
	}
	if err := s.podsReady(ctx, 1); err != nil {
		return "", err
	}
	pod, err := s.pod(ctx, "client")
	if err != nil {
		return "", err
	}
	from := s.fromPod(pod)
	inZone := 0
	for i := range number {
		if s.inhabited()[i%3].Name == "zone-b" {
			inZone++
		}
	}
	instances, err := s.dnsInstances(ctx)
	if err != nil {
		return "", err
	}
	var figures []string
	for _, service := range []struct {
		name  string
		whole int
	}{{"whole", number}, {"near", inZone}} {
		limited, cancel := context.WithTimeout(ctx, answerTime)
		err := kube.Wait(limited, "large answers to be right", func(ctx context.Context) (string, error) {
			figures = figures[:0]
			for _, server := range slices.Concat(s.dnsServers(), instances) {
				q := dnsquery.Query{Name: s.fqdn(service.name), Server: server}
				figure, missing, err := s.largeAnswer(ctx, from, q, service.whole)
				if missing != "" || err != nil {
					return missing, err
				}
				figures = append(figures, figure)
			}
			return "", nil
		})
		cancel()
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("of %d endpoints, and of %d in the zone: all over TCP, and over UDP %s", number, inZone, figures[0]), nil
}

// largeAnswer asks in all ways. It says what is missing from the answers.
func (s *scene) largeAnswer(ctx context.Context, from place, q dnsquery.Query, whole int) (figure, missing string, err error) {
	q.TCP = true
	all, _, err := s.resolve(ctx, from, q)
	if err != nil {
		return "", "", err
	}
	known := map[string]bool{}
	for _, address := range all.Data("A") {
		known[address] = true
	}
	if len(known) != whole || all.Has("tc") {
		return "", fmt.Sprintf("%s has %d addresses over TCP, flags %v, of %d", q.Name, len(known), all.Flags, whole), nil
	}
	q.TCP = false
	var counts []string
	for _, size := range []uint16{0, 1232, 4096} {
		q.UDPSize = size
		room := max(int(size), 512)
		some, _, err := s.resolve(ctx, from, q)
		if err != nil {
			return "", "", err
		}
		addresses := some.Data("A")
		if !some.Has("tc") || some.Size > room || len(addresses) == 0 || (some.UDPSize > 0) != (size > 0) {
			return "", fmt.Sprintf("%s has %d addresses in %d bytes over UDP with room for %d, flags %v, EDNS %d", q.Name, len(addresses), some.Size, room, some.Flags, some.UDPSize), nil
		}
		for _, address := range addresses {
			if !known[address] {
				return "", fmt.Sprintf("%s has %s over UDP, and not over TCP", q.Name, address), nil
			}
		}
		counts = append(counts, fmt.Sprintf("%d in %d bytes of %d", len(addresses), some.Size, room))
	}
	return strings.Join(counts, ", "), "", nil
}

// askedFromOutside asks from the network between the nodes: the place of such a client is not known
// until a PodLocator says it.
func askedFromOutside(ctx context.Context, s *scene) (string, error) {
	services := headlessOf("near", keysAnnotation, zoneKey+",*") + headlessOf("hard", keysAnnotation, zoneKey)
	if err := s.namedPods(ctx, services, inEachZone...); err != nil {
		return "", err
	}
	instances, err := s.dnsInstances(ctx)
	if err != nil {
		return "", err
	}
	whole, err := s.podsOf(ctx, inEachZone...)
	if err != nil {
		return "", err
	}
	inB, err := s.podsOf(ctx, "zone-b-1")
	if err != nil {
		return "", err
	}
	echo, err := s.CoreV1().Services(s.namespace).Get(ctx, "echo", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	from := s.fromOutside()
	conn, err := from.dial(ctx, "udp", instances[0].String())
	if err != nil {
		return "", err
	}
	own, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err := errors.Join(err, conn.Close()); err != nil {
		return "", err
	}
	gives := func(soft, hard string) []asked {
		var all []asked
		for _, server := range instances {
			for _, tcp := range []bool{false, true} {
				for name, want := range map[string]string{"near": soft, "hard": hard, "echo": echo.Spec.ClusterIP, "none": noName} {
					all = append(all, asked{from, dnsquery.Query{Name: s.fqdn(name), Server: server, TCP: tcp}, want})
				}
			}
		}
		return all
	}
	unknown, err := s.answers(ctx, gives(whole, noRecords))
	if err != nil {
		return "", fmt.Errorf("unknown: %w", err)
	}
	locator := locatorManifest("machine", "", map[string]string{zoneKey: "zone-b"}, own.Addr().Unmap().String())
	if err := s.Apply(ctx, s.namespace, locator); err != nil {
		return "", err
	}
	known, err := s.answers(ctx, gives(inB, inB))
	if err != nil {
		return "", fmt.Errorf("with a PodLocator for %s: %w", own.Addr(), err)
	}
	if err := s.Delete(ctx, s.namespace, locator); err != nil {
		return "", err
	}
	if _, err := s.answers(ctx, gives(whole, noRecords)); err != nil {
		return "", fmt.Errorf("without the PodLocator again: %w", err)
	}
	return fmt.Sprintf("%d answers to a client that is unknown: all, and none where keys are hard; %d to one that a PodLocator puts into a zone", unknown, known), nil
}
