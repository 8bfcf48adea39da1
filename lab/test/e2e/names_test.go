package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/dnsquery"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/test/kube"
)

// namesArea covers names in a cluster with vicinity-dns as its DNS server.
func namesArea() area {
	return area{
		name:  "names",
		setup: zones,
		promises: []promise{
			{name: "nearest", keep: namesNearest, tier: inTest},
			{name: "planned", keep: namesPlanned, tier: inTest},
			{name: "pod-moved", keep: podMoved, tier: inTest},
			{name: "locators", keep: locators, within: 4 * time.Minute, tier: inTest},
			{name: "drop-in", keep: dropIn, within: 6 * time.Minute},
			{name: "locators-at-scale", keep: locatorsAtScale, within: 6 * time.Minute, alone: true},
		},
	}
}

// exampleAddress is the answer for all names below example.com. The DNS server has it in its
// Corefile.
const exampleAddress = "192.0.2.1"

// configureNames installs vicinity-dns as the cluster's DNS server. Its zone-qualified names follow
// the plan, and it answers some names outside the cluster. It does not wait long for an API server.
func configureNames(ctx context.Context, c *lab.Cluster) error {
	corefile := strings.NewReplacer(
		"    vicinity cluster.local\n", "    vicinity cluster.local {\n        plan\n        startup_timeout 1s\n    }\n",
		"        pods insecure\n", "        pods insecure\n        zonal\n        startup_timeout 1s\n",
		"    prometheus ", "    template IN A example.com {\n        answer \"{{ .Name }} 60 IN A "+exampleAddress+"\"\n    }\n    template IN ANY example.com {\n        rcode NOERROR\n    }\n    prometheus ",
	).Replace(lab.DNSCorefile(shape.DNSVicinity))
	return c.ConfigureDNS(ctx, lab.DNSOptions{Kind: shape.DNSVicinity, Corefile: corefile})
}

// locateAll has the chart's values for PodLocators of all pods.
var locateAll = []string{"locators.enabled=true", "locators.all=true"}

// headlessOf returns a headless Service for the echo pods of a scene, with annotations.
func headlessOf(name string, annotations ...string) string {
	text := ""
	for i := 0; i < len(annotations); i += 2 {
		text += fmt.Sprintf("    %s: %q\n", annotations[i], annotations[i+1])
	}
	return fmt.Sprintf(`---
apiVersion: v1
kind: Service
metadata:
  name: %s
  annotations:
%sspec:
  clusterIP: None
  ipFamilyPolicy: PreferDualStack
  selector: {app: echo}
  ports:
  - {name: http, port: 80, targetPort: http}
  - {name: tcp, port: 81, targetPort: tcp}
`, name, text)
}

// namedPods runs Services, echo pods on the given nodes, and a client on every node. Pods are named
// after their nodes: echo-NODE-INDEX and client-NODE.
func (s *scene) namedPods(ctx context.Context, services string, nodes ...string) error {
	if err := s.Apply(ctx, s.namespace, services); err != nil {
		return err
	}
	return s.place(ctx, nodes...)
}

// removePod deletes a pod of the scene at once, and waits until it is gone.
func (s *scene) removePod(ctx context.Context, name string) error {
	if err := s.CoreV1().Pods(s.namespace).Delete(ctx, name, atOnce()); err != nil {
		return err
	}
	return kube.Wait(ctx, "pod "+name+" to be deleted", func(ctx context.Context) (string, error) {
		list, err := s.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		if err != nil || len(list.Items) == 0 {
			return "", err
		}
		return "it exists", nil
	})
}

// namesPlanned has six, four and two endpoints in three equal zones. The clients of each zone get
// exactly the endpoints that the plan gives the zone.
func namesPlanned(ctx context.Context, s *scene) (string, error) {
	numbers := map[string]int{}
	for i, zone := range s.cluster.Shape().Zones {
		numbers[zone.Name] = []int{6, 4, 2}[i]
	}
	// Waiting for all endpoints ensures that the plan is made once.
	check(s.serve(ctx, lab.UnevenEchoManifests("echo", numbers), 12))
	check(s.Apply(ctx, s.namespace, headlessOf("near", zoneAnnotation, "Prefer")))
	e := must(s.waitConverged(ctx, "near", 12))
	if e.Families[0].Family != "IPv4" {
		return "", fmt.Errorf("explain begins with %s, want IPv4", e.Families[0].Family)
	}
	pods := must(s.podNames(ctx))
	clients := must(s.fromClients(ctx))
	planned := map[string][]string{} // addresses, by zone
	for address, zones := range e.Families[0].Endpoints {
		for _, zone := range zones {
			planned[zone] = append(planned[zone], address)
		}
	}
	var all []asked
	for node, from := range clients {
		at, _ := s.cluster.Shape().Node(node)
		var want []string
		for _, address := range planned[at.Zone] {
			want = append(want, pods[address])
		}
		gets := strings.Join(sortedCopy(want), " ")
		all = append(all, asked{from, dnsquery.Query{Name: s.fqdn("near")}, gets})
		for _, other := range clients {
			all = append(all, asked{other, dnsquery.Query{Name: at.Zone + ".prefer._zone." + s.fqdn("near")}, gets})
		}
	}
	right := must(s.answers(ctx, all))
	return fmt.Sprintf("6, 4 and 2 endpoints: %d answers have exactly the endpoints that the plan gives the zone", right), nil
}

// keysOf has the keys of the headless Services of namesNearest.
var keysOf = map[string]string{
	"soft":      hostnameKey + "," + zoneKey + ",*",
	"hard-node": hostnameKey,
	"hard-zone": hostnameKey + "," + zoneKey,
}

// namesNearest has a pod on each of six nodes. Clients get the pod of their node; when it is gone,
// those of their zone; and when these are gone, all or nothing, as the keys say. Clients are pods,
// over both families, and the nodes themselves.
func namesNearest(ctx context.Context, s *scene) (string, error) {
	services := ""
	for _, name := range slices.Sorted(maps.Keys(keysOf)) {
		services += headlessOf(name, keysAnnotation, keysOf[name])
	}
	nodes := s.cluster.Shape().Nodes()
	var placed []string
	left := map[string]string{} // pods by node
	for i, node := range nodes {
		placed = append(placed, node.Name)
		left[node.Name] = fmt.Sprintf("echo-%s-%d", node.Name, i)
	}
	check(s.namedPods(ctx, services, placed...))
	clients := must(s.fromClients(ctx))
	right := 0
	var counts []string
	for _, gone := range []string{"", "zone-a-1", "zone-a-2"} {
		if gone != "" {
			check(s.removePod(ctx, left[gone]))
			delete(left, gone)
		}
		var all []asked
		empty := 0
		for _, node := range nodes {
			for service := range keysOf {
				want := nearestPods(service, node, nodes, left)
				if want == noRecords {
					empty++
				}
				q := dnsquery.Query{Name: s.fqdn(service)}
				for _, q.Type = range []string{"A", "AAAA"} {
					all = append(all, asked{clients[node.Name], q, want})
				}
				q.Type = "A"
				all = append(all, asked{s.fromNode(node), q, want})
			}
		}
		n, err := s.answers(ctx, all)
		if err != nil {
			return "", fmt.Errorf("with %d pods: %w", len(left), err)
		}
		right += n
		counts = append(counts, fmt.Sprintf("%d pods, none near for %d of %d", len(left), empty, len(nodes)*len(keysOf)))
	}
	return fmt.Sprintf("%d answers of 3 Services to pods and nodes have the pods of the node, of its zone, or all, or NODATA with the SOA for hard keys (%s)",
		right, strings.Join(counts, "; ")), nil
}

// nearestPods returns the wanted answer for a Service of namesNearest to a client on a node.
func nearestPods(service string, node shape.Node, nodes []shape.Node, left map[string]string) string {
	if pod := left[node.Name]; pod != "" {
		return pod
	}
	var inZone []string
	for _, other := range nodes {
		if pod := left[other.Name]; pod != "" && other.Zone == node.Zone {
			inZone = append(inZone, pod)
		}
	}
	switch {
	case service != "hard-node" && len(inZone) > 0:
		return strings.Join(sortedCopy(inZone), " ")
	case service == "soft":
		return strings.Join(slices.Sorted(maps.Values(left)), " ")
	}
	return noRecords
}

// inEachZone has the endpoints' nodes for promises about moving clients.
var inEachZone = []string{"zone-a-1", "zone-b-1", "zone-c-1"}

// podsOf returns the names of the echo pods on some nodes, as inWords does.
func (s *scene) podsOf(ctx context.Context, nodes ...string) (string, error) {
	list, err := s.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=echo"})
	if err != nil {
		return "", err
	}
	var names []string
	for i := range list.Items {
		if slices.Contains(nodes, list.Items[i].Spec.NodeName) {
			names = append(names, list.Items[i].Name)
		}
	}
	return strings.Join(sortedCopy(names), " "), nil
}

// runsAt creates a pod of an image on a node, and waits for its address.
func (s *scene) runsAt(ctx context.Context, name, node, image string) (pod *corev1.Pod, since time.Time, err error) {
	if err := s.Apply(ctx, s.namespace, placedPod(name, node, image)); err != nil {
		return nil, since, err
	}
	pod, err = s.until(ctx, name, func(pod *corev1.Pod) bool { return pod.Status.PodIP != "" })
	return pod, time.Now(), err
}

// until waits until a pod meets a condition.
func (s *scene) until(ctx context.Context, name string, met func(*corev1.Pod) bool) (pod *corev1.Pod, err error) {
	err = kube.Wait(ctx, "pod "+name+" to meet the condition", func(ctx context.Context) (string, error) {
		var err error
		if pod, err = s.CoreV1().Pods(s.namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return "", err
		}
		if met(pod) {
			return "", nil
		}
		return fmt.Sprintf("its phase is %s, its containers are %+v", pod.Status.Phase, pod.Status.ContainerStatuses), nil
	})
	return pod, err
}

// podMoved moves a client and then an endpoint from node to node. The client gets near endpoints,
// and near clients get the endpoint.
func podMoved(ctx context.Context, s *scene) (string, error) {
	check(s.namedPods(ctx, headlessOf("near", keysAnnotation, zoneKey), inEachZone...))
	const moves = 4
	client, endpoint := time.Duration(0), time.Duration(0)
	query := dnsquery.Query{Name: s.fqdn("near")}
	for i := range moves {
		node := inEachZone[i%len(inEachZone)]
		pod, since, err := s.runsAt(ctx, "mover", node, "client")
		check(err)
		want := must(s.podsOf(ctx, node))
		took, err := s.follow(ctx, since, asked{s.fromPod(pod), query, want})
		if err != nil {
			return "", fmt.Errorf("a client moved to %s: %w", node, err)
		}
		client = max(client, took)
		check(s.removePod(ctx, "mover"))
	}
	clients := must(s.fromClients(ctx))
	for _, node := range []string{"zone-b-2", "zone-c-2"} {
		if _, _, err := s.runsAt(ctx, "wanderer", node, "echo"); err != nil {
			return "", err
		}
		check(s.WaitEndpoints(ctx, s.namespace, "near", len(inEachZone)+1))
		since := time.Now()
		at, _ := s.cluster.Shape().Node(node)
		want := must(s.podsOf(ctx, node, at.Zone+"-1"))
		took, err := s.follow(ctx, since, asked{clients[node], query, want})
		if err != nil {
			return "", fmt.Errorf("an endpoint moved to %s: %w", node, err)
		}
		endpoint = max(endpoint, took)
		check(s.removePod(ctx, "wanderer"))
		want = must(s.podsOf(ctx, at.Zone+"-1"))
		if _, err := s.answers(ctx, []asked{{clients[node], query, want}}); err != nil {
			return "", fmt.Errorf("an endpoint left %s: %w", node, err)
		}
	}
	return fmt.Sprintf("a client on another node gets near endpoints after %d ms at most (of %d moves), a new endpoint is in answers after %d ms",
		client.Milliseconds(), moves, endpoint.Milliseconds()), nil
}
