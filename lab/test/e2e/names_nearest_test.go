package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab/dnsquery"
	"vicinity.dev/vicinity/lab/shape"
)

// The headless Services of namesNearest, by their keys.
var keysOf = map[string]string{
	"soft":      hostnameKey + "," + zoneKey + ",*",
	"hard-node": hostnameKey,
	"hard-zone": hostnameKey + "," + zoneKey,
}

// namesNearest has a pod on each of six nodes, and clients on all of them: these get their
// node's pod, without it those of their zone, and without these all or nothing, as the keys
// say. Clients are pods, over both families, and the nodes themselves.
func namesNearest(ctx context.Context, s *scene) (string, error) {
	services := ""
	for _, name := range slices.Sorted(maps.Keys(keysOf)) {
		services += headlessOf(name, keysAnnotation, keysOf[name])
	}
	nodes := s.cluster.Shape().Nodes()
	var placed []string
	left := map[string]string{} // pods by their nodes
	for i, node := range nodes {
		placed = append(placed, node.Name)
		left[node.Name] = fmt.Sprintf("echo-%s-%d", node.Name, i)
	}
	if err := s.namedPods(ctx, services, placed...); err != nil {
		return "", err
	}
	clients, err := s.fromClients(ctx)
	if err != nil {
		return "", err
	}
	right := 0
	var counts []string
	for _, gone := range []string{"", "zone-a-1", "zone-a-2"} {
		if gone != "" {
			if err := s.removePod(ctx, left[gone]); err != nil {
				return "", err
			}
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
		if err := s.portsNearest(ctx, clients, nodes, left); err != nil {
			return "", fmt.Errorf("with %d pods: %w", len(left), err)
		}
		right += n
		counts = append(counts, fmt.Sprintf("%d pods, nothing near for %d of %d", len(left), empty, len(nodes)*len(keysOf)))
	}
	return fmt.Sprintf("%d answers of 3 Services to pods and nodes are those of the node, its zone, or all, or NODATA with the SOA where keys are hard (%s)",
		right, strings.Join(counts, "; ")), nil
}

// nearestPods is what a client on a node is to get of a Service of namesNearest.
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

// portsNearest checks the SRV records of a port, whose additional records must be of the same
// endpoints.
func (s *scene) portsNearest(ctx context.Context, clients map[string]place, nodes []shape.Node, left map[string]string) error {
	pods, err := s.podNames(ctx)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return kube.Wait(limited, "records of ports to be those of what is near", func(ctx context.Context) (string, error) {
		for _, node := range nodes {
			for service := range keysOf {
				q := dnsquery.Query{Name: "_http._tcp." + s.fqdn(service), Type: "SRV", UDPSize: 4096}
				answer, _, err := s.resolve(ctx, clients[node.Name], q)
				if err != nil {
					return "", err
				}
				is := inWords(answer, "SRV", nil)
				if len(answer.Answers) > 0 {
					is = strings.Join(endpointsOf(answer, pods), " ")
				}
				if want := nearestPods(service, node, nodes, left); is != want {
					return fmt.Sprintf("%s from %s gives %s; it should be %s", q.Name, node.Name, is, want), nil
				}
			}
		}
		return "", nil
	})
}

// endpointsOf are the pods that the records of a port lead to, which have an address each for
// both families. What does not fit together is among them.
func endpointsOf(answer dnsquery.Answer, pods map[string]string) []string {
	addresses := map[string][]string{} // by the names of endpoints
	for _, r := range answer.Additional {
		addresses[r.Name] = append(addresses[r.Name], r.Data)
	}
	seen := map[string]bool{}
	for _, data := range answer.Data("SRV") {
		fields := strings.Fields(data)
		target := fields[len(fields)-1]
		if len(addresses[target]) == 0 {
			seen[target+" without an address"] = true
		}
		for _, address := range addresses[target] {
			seen[pods[address]] = true
		}
		delete(addresses, target)
	}
	for name := range addresses {
		seen["addresses of "+name+" for no target"] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

// peersManifests are a StatefulSet of three, one in each zone, with its governing Service, and
// a headless Service for the same pods that gives them no names. A policy selects both.
const peersManifests = `apiVersion: v1
kind: Service
metadata: {name: db, labels: {near: please}}
spec:
  clusterIP: None
  ipFamilyPolicy: PreferDualStack
  selector: {app: db}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: readers, labels: {near: please}}
spec:
  clusterIP: None
  ipFamilyPolicy: PreferDualStack
  selector: {app: db, reads: "yes"}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: vicinity.dev/v1alpha1
kind: RoutingPolicy
metadata: {name: near}
spec:
  selector: {matchLabels: {near: please}}
  keys: [topology.kubernetes.io/zone]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 3
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 0
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: db}}}
      containers: [{name: echo, image: lab/echo}]
`

// namesOfPeers is a StatefulSet whose members find each other by its governing Service: under
// a policy alone all records stay, while another Service that the policy selects is filtered.
// What the Service itself says is obeyed, with a warning. Names of single pods always stay.
func namesOfPeers(ctx context.Context, s *scene) (string, error) {
	// A member of another kind, so that "readers" has a pod without a name of its own.
	manifests := peersManifests
	for _, node := range s.cluster.Shape().Nodes() {
		manifests += placedPod("client-"+node.Name, node.Name, "client")
	}
	var readers []string
	for _, zone := range s.inhabited() {
		name := "reader-" + zone.Name
		readers = append(readers, name)
		manifests += fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s, labels: {app: db, reads: \"yes\"}}\nspec:\n  nodeName: %s\n  terminationGracePeriodSeconds: 0\n  containers: [{name: echo, image: lab/echo}]\n",
			name, zone.Nodes[0].Name)
	}
	if err := s.Apply(ctx, s.namespace, manifests); err != nil {
		return "", err
	}
	if err := s.podsReady(ctx, 3+len(readers)+len(s.cluster.Shape().Nodes())); err != nil {
		return "", err
	}
	clients, err := s.fromClients(ctx)
	if err != nil {
		return "", err
	}
	list, err := s.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=db"})
	if err != nil {
		return "", err
	}
	inZone := map[string][]string{}
	var members []string
	for i := range list.Items {
		node, _ := s.cluster.Shape().Node(list.Items[i].Spec.NodeName)
		inZone[node.Zone] = append(inZone[node.Zone], list.Items[i].Name)
		members = append(members, list.Items[i].Name)
	}
	whole := strings.Join(sortedCopy(members), " ")
	var own, all, near []asked
	for _, node := range s.cluster.Shape().Nodes() {
		from := clients[node.Name]
		for _, member := range []string{"db-0", "db-1", "db-2"} {
			own = append(own, asked{from, dnsquery.Query{Name: s.fqdn(member + ".db")}, member})
		}
		all = append(all, asked{from, dnsquery.Query{Name: s.fqdn("db")}, whole},
			asked{from, dnsquery.Query{Name: s.fqdn("readers")}, "reader-" + node.Zone})
		near = append(near, asked{from, dnsquery.Query{Name: s.fqdn("db")}, strings.Join(sortedCopy(inZone[node.Zone]), " ")})
	}
	right, err := s.answers(ctx, slices.Concat(all, own))
	if err != nil {
		return "", fmt.Errorf("under the policy: %w", err)
	}
	const peers = "its members may find each other by its name"
	explanation, err := s.vicinity(ctx, "explain", "svc/db", "-n", s.namespace)
	if err != nil {
		return "", err
	}
	if !strings.Contains(string(explanation), peers) {
		return "", fmt.Errorf("explain does not say that %s but:\n%s", peers, explanation)
	}
	output, err := s.kubectl(ctx, "", "annotate", "service", "db", keysAnnotation+"="+zoneKey)
	if err != nil {
		return "", err
	}
	if !strings.Contains(output, "Warning:") || !strings.Contains(output, peers) {
		return "", fmt.Errorf("keys on the Service should bring a warning that %s; kubectl shows %q", peers, output)
	}
	n, err := s.answers(ctx, slices.Concat(near, own))
	if err != nil {
		return "", fmt.Errorf("with keys on the Service itself: %w", err)
	}
	return fmt.Sprintf("%d answers: under a policy alone 3 peers and %d others find all, and a Service without peers is filtered; with keys of its own, and a warning, those of the zone; the names of the 3 always stay",
		right+n, len(readers)), nil
}
