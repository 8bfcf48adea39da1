package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/load"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/test/kube"
)

// wide returns a Service with so many hand-made endpoints in each zone. No pod has their addresses.
func (s *scene) wide(name, annotations string, each int) string {
	text := fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s, annotations: {%s}}\nspec: {ipFamilyPolicy: SingleStack, ipFamilies: [IPv4], ports: [{name: tcp, port: 81, targetPort: 8081}]}\n", name, annotations)
	for z, zone := range s.cluster.Shape().Zones {
		text += fmt.Sprintf("---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s-%s, labels: {kubernetes.io/service-name: %s, endpointslice.kubernetes.io/managed-by: test}}\naddressType: IPv4\nports: [{name: tcp, port: 8081, protocol: TCP}]\nendpoints:\n", name, zone.Name, name)
		for i := range each {
			text += fmt.Sprintf("- {addresses: [10.%d.%d.%d], nodeName: %s, zone: %s, conditions: {ready: true}}\n",
				60+z, i/250, i%250+1, zone.Nodes[i%len(zone.Nodes)].Name, zone.Name)
		}
	}
	return text
}

// subsetting keeps the traffic of a Service in three zones of equal size. It measures which part
// the proxies of a zone receive, and what they receive of a change in another zone.
func subsetting(ctx context.Context, s *scene) (string, error) {
	const each = 300
	wide := s.wide("wide", `vicinity.dev/proxy: "true", endpointslice.kubernetes.io/same-zone: Require`, each)
	check(s.Apply(ctx, s.namespace, wide))
	check(s.waitServedBy(ctx, "wide", true))
	groups := must(s.waitGroups(ctx, "wide", 3*each))
	size := func(seen func(*v1alpha1.EndpointGroup) bool) (objects, endpoints, bytes int, err error) {
		for i := range groups {
			if !seen(&groups[i]) {
				continue
			}
			text, err := json.Marshal(groups[i])
			if err != nil {
				return 0, 0, 0, err
			}
			objects, endpoints, bytes = objects+1, endpoints+len(groups[i].Spec.Endpoints), bytes+len(text)
		}
		return objects, endpoints, bytes, nil
	}
	objects, endpoints, bytes, err := size(func(*v1alpha1.EndpointGroup) bool { return true })
	check(err)
	worst := 0.0
	for _, zone := range s.cluster.Shape().Zones {
		own, ownEndpoints, ownBytes, err := size(func(g *v1alpha1.EndpointGroup) bool {
			_, not := g.Labels[v1alpha1.LabelNotForPrefix+zone.Name]
			return !not
		})
		check(err)
		worst = max(worst, ratio(float64(own), float64(objects)), ratio(float64(ownEndpoints), float64(endpoints)), ratio(float64(ownBytes), float64(bytes)))
	}
	const most = 0.36
	if worst > most {
		return "", fmt.Errorf("a zone receives %.0f %% of the objects, endpoints or bytes; at most %.0f %% are allowed", 100*worst, 100*most)
	}
	// Proxies of other zones must not receive a change of one zone.
	quiet := must(s.waitQuietReceived(ctx))
	gone := strings.Replace(wide, "- {addresses: [10.60.0.1], nodeName: zone-a-1, zone: zone-a, conditions: {ready: true}}\n", "", 1)
	check(s.Apply(ctx, s.namespace, gone))
	must(s.waitGroups(ctx, "wide", 3*each-1))
	var news, noNews float64
	check(kube.Wait(ctx, "the zone's proxies to receive the change", func(ctx context.Context) (string, error) {
		after, err := s.allReceived(ctx)
		if err != nil {
			return "", err
		}
		news, noNews = math.Inf(1), 0
		for node, received := range after {
			if strings.HasPrefix(node, "zone-a-") {
				news = min(news, received-quiet[node])
			} else {
				noNews = max(noNews, received-quiet[node])
			}
		}
		if news == 0 {
			return "not all have", nil
		}
		return "", nil
	}))
	if noNews > news/10 {
		return "", fmt.Errorf("for a change in one zone, its proxies received %.0f bytes, and those of another zone %.0f", news, noNews)
	}
	return fmt.Sprintf("%d endpoints in 3 zones: a zone receives at most %.0f %% of %d groups with %d kB; of a change in another zone a proxy receives %.0f bytes, in its own %.0f",
		3*each, 100*worst, objects, bytes>>10, noNews, news), nil
}

// waitGroups waits until the groups of a Service have so many endpoints and no hand-over is in
// progress.
func (s *scene) waitGroups(ctx context.Context, service string, endpoints int) (groups []v1alpha1.EndpointGroup, err error) {
	err = kube.Wait(ctx, fmt.Sprintf("groups with %d endpoints", endpoints), func(ctx context.Context) (string, error) {
		if groups, err = s.groupsOf(ctx, service); err != nil {
			return "", err
		}
		n := 0
		for i := range groups {
			if _, passing := groups[i].Labels[v1alpha1.LabelHandOver]; passing {
				return "a hand-over is in progress", nil
			}
			n += len(groups[i].Spec.Endpoints)
		}
		if n != endpoints {
			return fmt.Sprintf("they have %d", n), nil
		}
		return "", nil
	})
	return groups, err
}

// allReceived returns the bytes of groups that each proxy has received, by node.
func (s *scene) allReceived(ctx context.Context) (map[string]float64, error) {
	all := map[string]float64{}
	for _, node := range s.cluster.Shape().Nodes() {
		metrics, err := s.proxyMetrics(ctx, node)
		if err != nil {
			return nil, err
		}
		all[node.Name] = metrics.sum("vicinity_proxy_received_bytes_total", `resource="endpointgroups"`)
	}
	return all, nil
}

// waitQuietReceived is allReceived after two seconds in which no proxy has received anything. Proxies
// also receive the removal of groups of earlier promises, which takes a while.
func (s *scene) waitQuietReceived(ctx context.Context) (received map[string]float64, err error) {
	var since time.Time
	err = kube.Wait(ctx, "the proxies to receive nothing more", func(ctx context.Context) (string, error) {
		now, err := s.allReceived(ctx)
		if err != nil {
			return "", err
		}
		if !maps.Equal(now, received) {
			received, since = now, time.Now()
		}
		if quiet := time.Since(since); quiet < 2*time.Second {
			return fmt.Sprintf("quiet for %s", quiet.Round(100*time.Millisecond)), nil
		}
		return "", nil
	})
	return received, err
}

// group returns a hand-made group.
func group(name, service, family, rest string) string {
	return fmt.Sprintf("---\napiVersion: vicinity.dev/v1alpha1\nkind: EndpointGroup\nmetadata: {name: %s, labels: {vicinity.dev/service-name: %s}}\nspec: {service: %s, addressType: %s, anyReady: true, %s}\n",
		name, service, service, family, rest)
}

// proxyBadInput writes objects that are wrong or odd, and then a right Service. The right Service
// and the earlier ones are served.
func proxyBadInput(ctx context.Context, s *scene) (string, error) {
	check(s.deployed(ctx, 6, ""))
	refused := []struct{ what, manifest, names string }{
		{"a weight of 0", group("bad", "echo", "IPv4", `consumers: [{zone: zone-a, weight: 0}]`), "weight"},
		{"a weight of 1001", group("bad", "echo", "IPv4", `consumers: [{zone: zone-a, weight: 1001}]`), "weight"},
		{"a zone twice", group("bad", "echo", "IPv4", `consumers: [{zone: zone-a}, {zone: zone-a}]`), "zone"},
		{"an invalid family", group("bad", "echo", "FQDN", ``), "addressType"},
		{"an invalid address", group("bad", "echo", "IPv4", `endpoints: [{address: example.com}]`), "address"},
		{"a port of 0", group("bad", "echo", "IPv4", `ports: [{name: tcp, port: 0}]`), "port"},
		{"a node port out of range", "apiVersion: v1\nkind: Service\nmetadata: {name: bad}\nspec: {type: NodePort, ports: [{port: 80, nodePort: 80}]}\n", "nodePort"},
	}
	for _, r := range refused {
		if err := s.Apply(ctx, s.namespace, r.manifest); err == nil || !strings.Contains(err.Error(), r.names) {
			return "", errors.Join(err, fmt.Errorf("the refusal of %s does not name it", r.what))
		}
	}
	odd := s.oddities()
	for _, manifest := range odd {
		check(s.Apply(ctx, s.namespace, manifest))
	}
	begun := time.Now()
	good := "apiVersion: v1\nkind: Service\nmetadata: {name: good, annotations: {vicinity.dev/proxy: \"true\"}}\nspec:\n  selector: {app: echo}\n  ports: [{name: http, port: 80, targetPort: http}]\n"
	check(s.Apply(ctx, s.namespace, good))
	check(s.waitServedBy(ctx, "good", true))
	took := time.Since(begun)
	for _, service := range []string{"good", "echo"} {
		job := must(s.planLoadOf(ctx, service, lightPlan()))
		if _, err := flawlessly(job.Run(ctx, load.Watch{})); err != nil {
			return "", fmt.Errorf("%s: %w", service, err)
		}
	}
	status := must(s.cluster.Status(ctx))
	for _, component := range status.Components {
		if strings.HasPrefix(component.Name, "vicinity-proxy-") && component.State != "ready" {
			return "", fmt.Errorf("%s is %s", component.Name, component.State)
		}
	}
	pods := must(s.CoreV1().Pods(vicinityNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=proxy"}))
	// An earlier promise may have killed some. None may have ended since.
	for i := range pods.Items {
		for _, container := range pods.Items[i].Status.ContainerStatuses {
			if running := container.State.Running; running == nil || running.StartedAt.After(begun) {
				return "", fmt.Errorf("the proxy of %s ended", pods.Items[i].Spec.NodeName)
			}
		}
	}
	return fmt.Sprintf("%d mistakes refused by name, %d oddities accepted; a Service made after them was served after %.1f s, no proxy ended", len(refused), len(odd), took.Seconds()), nil
}

// oddities returns objects that the API accepts, but that are useless or too large.
func (s *scene) oddities() []string {
	annotated := `vicinity.dev/proxy: "true"`
	service := func(name, spec string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s, annotations: {%s}}\nspec: {%s}\n", name, annotated, spec)
	}
	const port = "ports: [{name: tcp, port: 81, targetPort: 8081}]"
	endpoint := func(addresses ...string) string {
		var all []string
		for _, address := range addresses {
			all = append(all, fmt.Sprintf("{address: %q}", address))
		}
		return "ports: [{name: tcp, port: 8081}], endpoints: [" + strings.Join(all, ", ") + "]"
	}
	odd := []string{
		s.wide("crowd", annotated, 1000),
		"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: crowd-names, labels: {kubernetes.io/service-name: crowd}}\naddressType: FQDN\nports: [{name: tcp, port: 8081}]\nendpoints: [{addresses: [example.com]}]\n",
		"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: crowd-empty, labels: {kubernetes.io/service-name: crowd}}\naddressType: IPv4\nports: []\nendpoints: []\n",
		"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: crowd-again, labels: {kubernetes.io/service-name: crowd}}\naddressType: IPv4\nports: [{name: tcp, port: 8081}]\nendpoints: [{addresses: [10.60.0.1]}, {addresses: [10.60.0.1]}, {addresses: [10.60.0.2]}]\n",
		"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: crowd-other-port, labels: {kubernetes.io/service-name: crowd}}\naddressType: IPv4\nports: [{name: other, port: 1}]\nendpoints: [{addresses: [10.60.0.3]}]\n",
		service("headless", "clusterIP: None, selector: {app: echo}, "+port),
		service("elsewhere", "type: ExternalName, externalName: example.com"),
		service("sticky", "sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 86400}}, selector: {app: absent}, "+port),
		service("no-selector", port),
		// Two Services want the same address and port.
		service("first", "externalIPs: [192.0.2.7], selector: {app: echo}, "+port),
		service("second", "externalIPs: [192.0.2.7], selector: {app: echo}, "+port),
		service("bad-port-name", "selector: {app: echo}, ports: [{name: tcp, port: 81, targetPort: nowhere}]"),
		group("of-nothing", "nothing", "IPv4", endpoint("10.60.0.1")),
		group("of-headless", "headless", "IPv4", endpoint("10.60.0.1")),
		group("of-elsewhere", "elsewhere", "IPv4", endpoint("10.60.0.1")),
		group("wrong-family", "no-selector", "IPv4", endpoint("fd00::1", "10.60.0.1")),
		group("not-an-address", "no-selector", "IPv4", endpoint("999.1.1.1", "1.1", "::::", "10.60.0.2")),
		group("not-a-host", "no-selector", "IPv4", endpoint("127.0.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "10.60.0.3")),
		group("no-ports", "no-selector", "IPv4", "endpoints: [{address: 10.60.0.4}]"),
		group("no-endpoints", "no-selector", "IPv4", "ports: [{name: tcp, port: 8081}]"),
		group("nothing-at-all", "no-selector", "IPv6", "tiers: []"),
		group("same-address", "no-selector", "IPv4", endpoint("10.60.0.3", "10.60.0.3")),
		group("odd-tiers", "no-selector", "IPv4", `tiers: ["*", "kubernetes.io/hostname", "no such label"], `+endpoint("10.60.0.5")),
	}
	// The Service has as many ports as the API accepts.
	var ports []string
	for i := range 100 {
		ports = append(ports, fmt.Sprintf("{name: p%d, port: %d, targetPort: 8081}", i, 1000+i))
	}
	return append(odd, service("ports", "selector: {app: echo}, ports: ["+strings.Join(ports, ", ")+"]"))
}

// proxyAccounting compares the proxies' counts with those of clients and endpoints.
func proxyAccounting(ctx context.Context, s *scene) (string, error) {
	check(s.deploy(ctx))
	// This Service has no counts yet.
	const service = "counted"
	check(s.Apply(ctx, s.namespace, twin(service, `vicinity.dev/proxy: "true"`)))
	check(s.waitServedBy(ctx, service, true))
	check(s.waitOnlyIn(ctx, service, "vicinity"))
	job := must(s.planLoadOf(ctx, service, heavyPlan()))
	result := must(flawlessly(job.Run(ctx, load.Watch{})))
	want := map[[2]string]float64{}
	for _, flow := range result.Flows {
		want[[2]string{flow.Zone, flow.To.Zone}] += float64(flow.Answers)
	}
	var bytes float64
	check(kube.Wait(ctx, "proxies to count all connections", func(ctx context.Context) (string, error) {
		now, all, err := s.counted(ctx, service)
		if err != nil {
			return "", err
		}
		bytes = all
		for pair, n := range want {
			if now[pair] != n {
				return fmt.Sprintf("from %s to %s %.0f of %.0f connections are counted", pair[0], pair[1], now[pair], n), nil
			}
		}
		// A request and its answer have hundreds of bytes.
		if bytes < 500*float64(result.Answered) {
			return fmt.Sprintf("%.0f bytes are counted", bytes), nil
		}
		return "", nil
	}))
	return fmt.Sprintf("all %d connections between 3 zones counted, %.0f bytes each", result.Answered, bytes/float64(result.Answered)), nil
}

// counted returns the connections of a Service that the proxies of all nodes have counted, by the
// zones of client and endpoint, and their bytes.
func (s *scene) counted(ctx context.Context, service string) (connections map[[2]string]float64, bytes float64, err error) {
	connections = map[[2]string]float64{}
	of := []string{fmt.Sprintf("namespace=%q", s.namespace), fmt.Sprintf("service=%q", service)}
	for _, node := range s.cluster.Shape().Nodes() {
		metrics, err := s.proxyMetrics(ctx, node)
		if err != nil {
			return nil, 0, err
		}
		for _, from := range s.cluster.Shape().Zones {
			for _, to := range s.cluster.Shape().Zones {
				connections[[2]string{from.Name, to.Name}] += metrics.sum("vicinity_proxy_connections_total",
					append(slices.Clone(of), fmt.Sprintf("source_zone=%q", from.Name), fmt.Sprintf("destination_zone=%q", to.Name))...)
			}
		}
		bytes += metrics.sum("vicinity_proxy_bytes_total", of...)
	}
	return connections, bytes, nil
}

// withoutKubeProxy brings up a lab of its own in which vicinity-proxy serves all Services, and
// tries the table there too.
func withoutKubeProxy(ctx context.Context, s *scene) (figure string, err error) {
	wanted := shape.Default()
	wanted.Name, wanted.Proxy = fmt.Sprintf("alone-%d", os.Getpid()), shape.ProxyVicinity
	begun := time.Now()
	cluster := must(lab.Up(ctx, wanted, s.options))
	defer undo(&err, func() error { return cluster.Down(context.WithoutCancel(ctx)) })
	check(cluster.InstallVicinity(ctx, quickValues...))
	took := time.Since(begun)
	client := must(cluster.Client())
	alone := &scene{Client: client, cluster: cluster, namespace: metav1.NamespaceDefault, options: s.options}
	status := must(cluster.Status(ctx))
	for _, component := range status.Components {
		if strings.HasPrefix(component.Name, "kube-proxy") || component.State != "ready" {
			return "", fmt.Errorf("%s is %s", component.Name, component.State)
		}
	}
	rows := slices.DeleteFunc(table(), func(r row) bool { return r.grouped })
	tried := &scene{Client: client, cluster: cluster, options: s.options}
	tried.namespace = must(client.MakeNamespace(ctx, "table"))
	check(tried.tryAll(ctx, rows, []server{{name: "vicinity-proxy alone", suffix: "s"}}))
	check(alone.deploy(ctx, "trafficDistribution: PreferSameZone", "type: NodePort"))
	check(alone.WaitHints(ctx, alone.namespace, "echo", true))
	check(alone.waitInZone(ctx))
	near := must(alone.flawless(ctx, lab.LoadOptions{Plan: heavyPlan()}))
	if near.InZone() < 1 {
		return "", fmt.Errorf("with hints, %.1f %% stays in its zone", 100*near.InZone())
	}
	by := must(alone.flawless(ctx, lab.LoadOptions{Via: lab.ViaNodePort, IPv6: true, Plan: lightPlan()}))
	dropped := must(alone.dropsUnallocated(ctx))
	// The controller works too: it reaches the API through its Service.
	check(alone.PatchService(ctx, alone.namespace, "echo", `{"spec":{"trafficDistribution":null},"metadata":{"annotations":{"endpointslice.kubernetes.io/same-zone":"Require"}}}`))
	check(alone.waitServedBy(ctx, "echo", true)) // groups are the default there
	check(alone.waitInZone(ctx))
	grouped := must(alone.flawless(ctx, lab.LoadOptions{Plan: lightPlan()}))
	if grouped.InZone() < 1 {
		return "", fmt.Errorf("with groups, %.1f %% stays in its zone", 100*grouped.InZone())
	}
	return fmt.Sprintf("a lab without kube-proxy is up after %.1f s; the table without groups: %s; by hints %d answers, by node ports over IPv6 %d; %s; and by groups %d",
		took.Seconds(), described(rows), near.Answered, by.Answered, dropped, grouped.Answered), nil
}
