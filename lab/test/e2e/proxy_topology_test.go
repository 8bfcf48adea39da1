package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/load"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/test/kube"
)

// placedPod returns a pod of an image on a node.
func placedPod(name, node, image string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, labels: {app: %[3]s}}
spec:
  nodeName: %[2]s
  terminationGracePeriodSeconds: 5
  containers:
  - name: %[3]s
    image: lab/%[3]s
    ports: [{name: http, containerPort: 8080}, {name: tcp, containerPort: 8081}, {name: udp, containerPort: 8082, protocol: UDP}]
    env:
    - {name: POD_NAME, value: %[1]s}
    - {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
    - {name: NODE_NAME, value: %[2]s}
    - {name: ZONE, valueFrom: {fieldRef: {fieldPath: "metadata.labels['topology.kubernetes.io/zone']"}}}
    - {name: SERVICE, value: echo}
`, name, node, image)
}

// echoOf is the Service of the pods of place.
const echoOf = `apiVersion: v1
kind: Service
metadata: {name: echo}
spec:
  ipFamilyPolicy: PreferDualStack
  selector: {app: echo}
  ports:
  - {name: http, port: 80, targetPort: http}
  - {name: tcp, port: 81, targetPort: tcp}
  - {name: udp, port: 82, targetPort: udp, protocol: UDP}
`

// placed runs an echo Service with an endpoint for each given node, and a client on every node. It
// patches the Service and hands it over to vicinity-proxy.
func (s *scene) placed(ctx context.Context, patch string, nodes ...string) error {
	if err := s.place(ctx, nodes...); err != nil {
		return err
	}
	return s.handOverEcho(ctx, patch)
}

// place runs the pods of placed.
func (s *scene) place(ctx context.Context, nodes ...string) error {
	if err := s.placeFor(ctx, echoOf, nodes...); err != nil {
		return err
	}
	return s.WaitEndpoints(ctx, s.namespace, "echo", len(nodes))
}

// placeFor runs the pods of placed for another Service, which need not select them.
func (s *scene) placeFor(ctx context.Context, manifests string, nodes ...string) error {
	for i, node := range nodes {
		manifests += placedPod(fmt.Sprintf("echo-%s-%d", node, i), node, "echo")
	}
	for _, node := range s.cluster.Shape().Nodes() {
		manifests += placedPod("client-"+node.Name, node.Name, "client")
	}
	if err := s.Apply(ctx, s.namespace, manifests); err != nil {
		return err
	}
	return s.waitPodsReady(ctx, len(nodes)+len(s.cluster.Shape().Nodes()))
}

// waitPodsReady waits until so many pods exist and all are ready.
func (s *scene) waitPodsReady(ctx context.Context, number int) error {
	return kube.Wait(ctx, fmt.Sprintf("%d pods to be ready", number), func(ctx context.Context) (string, error) {
		list, err := s.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		ready := 0
		for i := range list.Items {
			if kube.PodReady(&list.Items[i]) && list.Items[i].DeletionTimestamp == nil {
				ready++
			}
		}
		if ready != number {
			return fmt.Sprintf("%d are", ready), nil
		}
		return "", nil
	})
}

// reach has the nodes whose endpoints answer the clients of each node. An empty list means that
// connections are refused.
type reach map[string][]string

// reaches waits until clients reach exactly the wanted endpoints, and then confirms it with more
// connections from all nodes at once.
func (s *scene) reaches(ctx context.Context, want reach) (connections int64, err error) {
	for _, plan := range []load.Plan{
		{Rate: 100, Duration: 500 * time.Millisecond, Timeout: 2 * time.Second},
		{Rate: 200, Duration: time.Second, Timeout: 5 * time.Second},
	} {
		err := kube.Wait(ctx, "clients to reach the wanted endpoints", func(ctx context.Context) (string, error) {
			type ended struct {
				sent    int64
				missing string
				err     error
			}
			done := make(chan ended, len(want))
			for node, endpoints := range want {
				go func() {
					result, err := s.load(ctx, lab.LoadOptions{Nodes: []string{node}, Plan: plan})
					done <- ended{sent(result), differs(node, result, endpoints), err}
				}()
			}
			connections = 0
			missing := ""
			var failed error
			for range want {
				one := <-done
				connections, failed = connections+one.sent, errors.Join(failed, one.err)
				missing = max(missing, one.missing)
			}
			return missing, failed
		})
		if err != nil {
			return 0, err
		}
	}
	return connections, nil
}

// differs describes how the endpoints that answered the clients of a node differ from the wanted
// ones.
func differs(node string, result load.Result, want []string) string {
	got := map[string]bool{}
	for _, flow := range result.Flows {
		got[flow.To.Node] = true
	}
	answered := slices.Sorted(maps.Keys(got))
	if !slices.Equal(answered, want) {
		return fmt.Sprintf("%s is answered from %q, want %q (%d refused of %d)", node, answered, want, result.FailedAs(load.Refused), sent(result))
	}
	if len(want) == 0 && result.FailedAs(load.Refused) != sent(result) {
		return fmt.Sprintf("%d of %d connections from %s were refused, want all: %s", result.FailedAs(load.Refused), sent(result), node, failures(result))
	}
	if len(want) > 0 && result.Failed() > 0 {
		return node + ": " + failures(result)
	}
	return ""
}

// endpointsByHand serves a Service without a selector from an Endpoints object: near endpoints by
// hints, then by vicinity-proxy with soft keys and with hard ones, also after a change by hand.
func endpointsByHand(ctx context.Context, s *scene) (string, error) {
	check(s.placeFor(ctx, strings.Replace(echoOf, "  selector: {app: echo}\n", "", 1), "zone-a-1", "zone-b-1", "zone-c-1"))
	check(s.writeEndpoints(ctx, "zone-a-1", "zone-b-1"))
	check(s.PatchService(ctx, s.namespace, "echo", preferZone))
	check(s.WaitHints(ctx, s.namespace, "echo", true))
	total := must(s.reaches(ctx, reach{"zone-a-2": {"zone-a-1"}, "zone-b-2": {"zone-b-1"}}))
	check(s.handOverEcho(ctx, annotated(zoneAnnotation, "", keysAnnotation, zoneKey+",*")))
	for _, step := range []struct {
		keys    string
		written []string
		want    reach
	}{
		{zoneKey + ",*", []string{"zone-a-1", "zone-b-1"}, reach{"zone-a-2": {"zone-a-1"}, "zone-b-2": {"zone-b-1"}, "zone-c-1": {"zone-a-1", "zone-b-1"}}},
		{zoneKey, []string{"zone-a-1", "zone-b-1"}, reach{"zone-a-2": {"zone-a-1"}, "zone-b-2": {"zone-b-1"}, "zone-c-1": nil}},
		{zoneKey, []string{"zone-a-1", "zone-c-1"}, reach{"zone-a-2": {"zone-a-1"}, "zone-b-2": nil, "zone-c-2": {"zone-c-1"}}},
		{zoneKey + ",*", []string{"zone-a-1", "zone-c-1"}, reach{"zone-a-2": {"zone-a-1"}, "zone-b-2": {"zone-a-1", "zone-c-1"}, "zone-c-2": {"zone-c-1"}}},
	} {
		check(s.writeEndpoints(ctx, step.written...))
		check(s.PatchService(ctx, s.namespace, "echo", annotated(keysAnnotation, step.keys)))
		n, err := s.reaches(ctx, step.want)
		if err != nil {
			return "", fmt.Errorf("with the keys %s and Endpoints on %v: %w", step.keys, step.written, err)
		}
		total += n
	}
	return fmt.Sprintf("near by hints, then near or refused by keys, before and after a change by hand; %d connections", total), nil
}

// writeEndpoints writes the Endpoints object of the echo Service, with the echo pods of nodes.
func (s *scene) writeEndpoints(ctx context.Context, nodes ...string) error {
	pods, err := s.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=echo"})
	if err != nil {
		return err
	}
	text := "apiVersion: v1\nkind: Endpoints\nmetadata: {name: echo}\nsubsets:\n" +
		"- ports: [{name: http, port: 8080}, {name: tcp, port: 8081}, {name: udp, port: 8082, protocol: UDP}]\n  addresses:\n"
	for i := range pods.Items {
		if pod := &pods.Items[i]; slices.Contains(nodes, pod.Spec.NodeName) {
			text += fmt.Sprintf("  - {ip: %s, nodeName: %s}\n", pod.Status.PodIP, pod.Spec.NodeName)
		}
	}
	if err := s.Apply(ctx, s.namespace, text); err != nil {
		return err
	}
	return s.WaitEndpoints(ctx, s.namespace, "echo", len(nodes))
}

// proxyKeys sends clients to endpoints of the node, then of the zone, then to any.
func proxyKeys(ctx context.Context, s *scene) (string, error) {
	keys := annotated(keysAnnotation, hostnameKey+","+zoneKey+",*")
	check(s.placed(ctx, keys, "zone-a-1", "zone-b-1", "zone-b-2"))
	all := []string{"zone-a-1", "zone-b-1", "zone-b-2"}
	n := must(s.reaches(ctx, reach{
		"zone-a-1": {"zone-a-1"}, "zone-a-2": {"zone-a-1"}, "zone-b-1": {"zone-b-1"}, "zone-b-2": {"zone-b-2"},
		"zone-c-1": all, "zone-c-2": all,
	}))
	check(s.CoreV1().Pods(s.namespace).Delete(ctx, "echo-zone-a-1-0", metav1.DeleteOptions{}))
	rest := []string{"zone-b-1", "zone-b-2"}
	more, err := s.reaches(ctx, reach{"zone-a-1": rest, "zone-a-2": rest, "zone-b-1": {"zone-b-1"}, "zone-c-2": rest})
	if err != nil {
		return "", fmt.Errorf("after the removal of a zone's endpoint: %w", err)
	}
	return fmt.Sprintf("node, zone, then anywhere; without the zone's endpoint anywhere; %d connections", n+more), nil
}

// nodesWithinTheBound lets nodes prefer their own endpoints. Zone-a-1 would load its single
// endpoint to twice the even share, so it uses those of its zone; all others use their own. deliver
// writes the Service's annotations.
func nodesWithinTheBound(deliver func(ctx context.Context, s *scene, patch string) error) func(context.Context, *scene) (string, error) {
	return func(ctx context.Context, s *scene) (string, error) {
		check(s.place(ctx, "zone-a-1", "zone-a-2", "zone-a-2", "zone-a-2", "zone-b-1", "zone-b-1", "zone-b-2", "zone-b-2",
			"zone-c-1", "zone-c-1", "zone-c-2", "zone-c-2"))
		check(deliver(ctx, s, annotated(zoneAnnotation, "Prefer", nodeAnnotation, "Prefer")))
		must(s.reaches(ctx, reach{
			"zone-a-1": {"zone-a-1", "zone-a-2"}, "zone-a-2": {"zone-a-2"}, "zone-b-1": {"zone-b-1"}, "zone-b-2": {"zone-b-2"},
			"zone-c-1": {"zone-c-1"}, "zone-c-2": {"zone-c-2"},
		}))
		result := must(s.load(ctx, lab.LoadOptions{Plan: heavyPlan()}))
		const most = 2 // points: four standard deviations
		answers, all := map[string]float64{}, 0.0
		for _, flow := range result.Flows {
			answers[flow.To.Node] += float64(flow.Answers)
			all += float64(flow.Answers)
		}
		// A sixth of the traffic is from zone-a-1, and a quarter of that stays on the node.
		if alone := answers["zone-a-1"] / all; points(alone, 1.0/24) > most {
			return "", fmt.Errorf("the endpoint on zone-a-1 gets %.1f %% of the traffic, want %.1f %%", 100*alone, 100.0/24)
		}
		each := answers["zone-a-2"] / all / 3
		if points(each, 7.0/72) > most {
			return "", fmt.Errorf("an endpoint on zone-a-2 gets %.1f %% of the traffic, want %.1f %%", 100*each, 700.0/72)
		}
		return fmt.Sprintf("alone on its node: %.2f times the even share, without the bound 2; the busiest %.2f times, predicted 1.17; %d requests",
			12*answers["zone-a-1"]/all, 12*each, result.Answered), nil
	}
}

// byHints leaves a Service to kube-proxy, byGroups hands it over to vicinity-proxy.
func byHints(ctx context.Context, s *scene, patch string) error {
	return s.PatchService(ctx, s.namespace, "echo", patch)
}

func byGroups(ctx context.Context, s *scene, patch string) error { return s.handOverEcho(ctx, patch) }

// proxyHardKeys sends clients to their own node and nowhere else.
func proxyHardKeys(ctx context.Context, s *scene) (string, error) {
	check(s.placed(ctx, annotated(keysAnnotation, hostnameKey), "zone-a-1", "zone-b-2"))
	n := must(s.reaches(ctx, reach{
		"zone-a-1": {"zone-a-1"}, "zone-b-2": {"zone-b-2"}, "zone-a-2": {}, "zone-b-1": {}, "zone-c-1": {}, "zone-c-2": {},
	}))
	check(s.waitUnreachableReported(ctx))
	return fmt.Sprintf("the node or nothing: refused on 4 of 6 nodes, each reported by an event; %d connections", n), nil
}

// proxyRacks sends clients to their rack, which may span zones, then to their zone, and nowhere
// else.
func proxyRacks(ctx context.Context, s *scene) (string, error) {
	check(s.placed(ctx, annotated(keysAnnotation, rackLabel+","+zoneKey), "zone-a-1", "zone-b-2", "zone-c-2"))
	n := must(s.reaches(ctx, reach{
		"zone-a-1": {"zone-a-1"}, "zone-b-1": {"zone-a-1"}, // rack r1
		"zone-a-2": {"zone-b-2"}, "zone-b-2": {"zone-b-2"}, // rack r2
		"zone-c-1": {"zone-c-2"}, "zone-c-2": {"zone-c-2"}, // rack r3 has no endpoint; the last node has no rack
	}))
	check(s.CoreV1().Pods(s.namespace).Delete(ctx, "echo-zone-c-2-2", metav1.DeleteOptions{}))
	more, err := s.reaches(ctx, reach{"zone-b-1": {"zone-a-1"}, "zone-a-2": {"zone-b-2"}, "zone-c-1": {}, "zone-c-2": {}})
	if err != nil {
		return "", fmt.Errorf("after the removal of a zone's last endpoint: %w", err)
	}
	return fmt.Sprintf("rack across zones, then zone, then refused; %d connections", n+more), nil
}

// proxyRequire sends clients to their zone, and refuses those of a zone without endpoints.
func proxyRequire(ctx context.Context, s *scene) (string, error) {
	check(s.placed(ctx, annotated(zoneAnnotation, "Require"), "zone-a-1", "zone-a-2", "zone-b-1"))
	own := []string{"zone-a-1", "zone-a-2"}
	n := must(s.reaches(ctx, reach{
		"zone-a-1": own, "zone-a-2": own, "zone-b-1": {"zone-b-1"}, "zone-b-2": {"zone-b-1"}, "zone-c-1": {}, "zone-c-2": {},
	}))
	check(s.Apply(ctx, s.namespace, placedPod("echo-zone-c-2-9", "zone-c-2", "echo")))
	more, err := s.reaches(ctx, reach{"zone-a-1": own, "zone-b-2": {"zone-b-1"}, "zone-c-1": {"zone-c-2"}, "zone-c-2": {"zone-c-2"}})
	if err != nil {
		return "", fmt.Errorf("after the zone got an endpoint: %w", err)
	}
	return fmt.Sprintf("each zone its own; a zone without endpoints refused until it has one; %d connections", n+more), nil
}

// behindLoadBalancers lets each node answer whether it reaches a Service by its hard keys, of zones and then of racks, as
// connections from outside find. The condition names the zones that refuse.
func behindLoadBalancers(ctx context.Context, s *scene) (string, error) {
	check(s.place(ctx, "zone-a-1", "zone-b-2"))
	check(s.PatchService(ctx, s.namespace, "echo", `{"spec":{"type":"NodePort"}}`))
	check(s.handOverEcho(ctx, annotated(zoneAnnotation, "Require")))
	reached := map[string]int{"zone-a-1": 1, "zone-a-2": 1, "zone-b-1": 1, "zone-b-2": 1, "zone-c-1": 0, "zone-c-2": 0}
	const refusing = "connections from outside are refused at all nodes of zone-c, which"
	check(s.waitReached(ctx, reached))
	check(s.waitConditionHas(ctx, refusing, true))
	code, _, err := s.reachOf(ctx, s.cluster.Shape().Nodes()[0], "absent")
	check(err)
	if code != http.StatusNotFound {
		return "", fmt.Errorf("a Service that does not exist is answered by %d", code)
	}
	check(s.Apply(ctx, s.namespace, placedPod("echo-zone-c-2-9", "zone-c-2", "echo")))
	reached["zone-c-1"], reached["zone-c-2"] = 1, 1
	if err := s.waitReached(ctx, reached); err != nil {
		return "", fmt.Errorf("after the zone got an endpoint: %w", err)
	}
	check(s.waitConditionHas(ctx, refusing, false))
	check(s.PatchService(ctx, s.namespace, "echo", annotated(zoneAnnotation, "", keysAnnotation, rackLabel)))
	reached["zone-c-1"], reached["zone-c-2"] = 0, 0 // rack r3 has no endpoint; the last node has no rack
	if err := s.waitReached(ctx, reached); err != nil {
		return "", fmt.Errorf("by racks: %w", err)
	}
	check(s.waitConditionHas(ctx, refusing, true))
	return "zones, then racks: 200 from nodes that serve clients outside, 503 from nodes that refuse, which the condition names; 404 for others", nil
}

// waitReached waits until each node answers that it reaches so many endpoints of echo, and treats connections from outside
// accordingly.
func (s *scene) waitReached(ctx context.Context, want map[string]int) error {
	object, err := s.CoreV1().Services(s.namespace).Get(ctx, "echo", metav1.GetOptions{})
	if err != nil {
		return err
	}
	at := slices.IndexFunc(object.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == "tcp" })
	return kube.Wait(ctx, "nodes to answer whether they reach the Service", func(ctx context.Context) (string, error) {
		for _, node := range s.cluster.Shape().Nodes() {
			code, reachable, err := s.reachOf(ctx, node, "echo")
			if err != nil {
				return "", err
			}
			wanted := http.StatusOK
			if want[node.Name] == 0 {
				wanted = http.StatusServiceUnavailable
			}
			if code != wanted || reachable != want[node.Name] {
				return fmt.Sprintf("%s answers %d with %d endpoints, want %d with %d", node.Name, code, reachable, wanted, want[node.Name]), nil
			}
			_, _, err = exchange(ctx, probe{
				namespace: shape.FabricNamespace(s.cluster.Shape().Name), network: "tcp", timeout: answerWait,
				to: netip.AddrPortFrom(s.cluster.Shape().NodeAddrs(node)[0], uint16(object.Spec.Ports[at].NodePort)),
			})
			if (err == nil) != (wanted == http.StatusOK) || err != nil && outcomeOf(err) != refused {
				return fmt.Sprintf("%s answers %d, and a connection to its node port ends with: %v", node.Name, code, err), nil
			}
		}
		return "", nil
	})
}

// reachOf asks a node, as a load balancer outside does, how many endpoints of a Service it reaches.
func (s *scene) reachOf(ctx context.Context, node shape.Node, service string) (code, reachable int, err error) {
	at := netip.AddrPortFrom(s.cluster.Shape().NodeAddrs(node)[0], proxyHealthPort)
	response, text, err := fetch(ctx, shape.FabricNamespace(s.cluster.Shape().Name), at.String(), "/healthz/services/"+s.namespace+"/"+service)
	if err != nil {
		return 0, 0, fmt.Errorf("asking %s about Service %s: %w", node.Name, service, err)
	}
	var body struct{ ReachableEndpoints int }
	err = json.Unmarshal(text, &body)
	return response.StatusCode, body.ReachableEndpoints, err
}

// waitConditionHas waits until the condition of echo has a text, or does not have it.
func (s *scene) waitConditionHas(ctx context.Context, text string, has bool) error {
	return kube.Wait(ctx, fmt.Sprintf("the condition to say that %s: %t", text, has), func(ctx context.Context) (string, error) {
		object, err := s.CoreV1().Services(s.namespace).Get(ctx, "echo", metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		if condition := whyNotServed(object); strings.Contains(condition, text) != has {
			return condition, nil
		}
		return "", nil
	})
}

// planKept has a policy that gives Services to vicinity-proxy, with an algorithm that lends endpoints
// between zones. With uneven zones, traffic of a Service that prefers its zone follows the plan.
func planKept(algorithm string) func(context.Context, *scene) (string, error) {
	return func(ctx context.Context, s *scene) (string, error) {
		policy := fmt.Sprintf("apiVersion: vicinity.dev/v1alpha1\nkind: RoutingPolicy\nmetadata: {name: near}\nspec: {selector: {}, algorithm: %s, delivery: Groups}\n", algorithm)
		check(s.Apply(ctx, s.namespace, policy))
		check(s.routeUneven(ctx, preferZone, 7, 5, 2))
		check(s.waitServedBy(ctx, "echo", true))
		e := must(s.waitConverged(ctx, "echo", 14))
		want, lent := plannedShares(e)
		if lent == 0 {
			return "", fmt.Errorf("the plan of %s lends nothing, which proves nothing: %v", algorithm, want)
		}
		check(s.waitFollowsPlan(ctx, want))
		// For a while, zones keep endpoints that a change takes from them.
		check(kube.Wait(ctx, "no zone to leave a group", func(ctx context.Context) (string, error) {
			groups, err := s.groupsOf(ctx, "echo")
			for i := range groups {
				if strings.Contains(groups[i].Annotations["vicinity.dev/marks"], `"leaving"`) {
					return "a zone is leaving " + groups[i].Name, err
				}
			}
			return "", err
		}))
		result := must(s.flawless(ctx, lab.LoadOptions{Plan: load.Plan{Rate: 3000, Duration: 3 * time.Second}}))
		chance := must(byChance(result))
		far, where := farthest(result, want)
		if most := max(3, chance); far > most {
			return "", fmt.Errorf("%s; at most %.1f points are allowed", where, most)
		}
		return fmt.Sprintf("7, 5 and 2 endpoints: shares at most %.1f points from the plan, which sends at most %.0f %% of a zone's traffic to another; %d connections, 0 failed",
			far, 100*lent, result.Answered), nil
	}
}

// waitFollowsPlan waits until the traffic of each node roughly follows the plan.
func (s *scene) waitFollowsPlan(ctx context.Context, want map[[2]string]float64) error {
	return kube.Wait(ctx, "traffic to follow the plan", func(ctx context.Context) (string, error) {
		result, err := s.load(ctx, lab.LoadOptions{Plan: load.Plan{Rate: 1500, Duration: time.Second}})
		if err != nil {
			return "", err
		}
		// Each node has a proxy of its own that must know the plan.
		byNode := map[string]load.Result{}
		for _, flow := range result.Flows {
			one := byNode[flow.Node]
			one.Flows = append(one.Flows, flow)
			byNode[flow.Node] = one
		}
		for node, one := range byNode {
			ofZone := maps.Clone(want)
			maps.DeleteFunc(ofZone, func(pair [2]string, _ float64) bool { return pair[0] != one.Flows[0].Zone })
			if far, where := farthest(one, ofZone); far > 15 {
				return node + ": " + where, nil
			}
		}
		return failures(result), nil
	})
}

// plannedShares returns the planned shares of each zone's traffic for the endpoints of each zone,
// and the largest share that leaves its zone.
func plannedShares(e explained) (shares map[[2]string]float64, lent float64) {
	shares = map[[2]string]float64{}
	sums := map[string]float64{}
	for _, group := range e.Families[0].Plan.Groups {
		for _, consumer := range group.Consumers {
			for _, member := range group.Members {
				part := consumer.Weight * float64(member.Endpoints)
				shares[[2]string{consumer.Zone, member.Zone}] += part
				sums[consumer.Zone] += part
			}
		}
	}
	for pair := range shares {
		shares[pair] /= sums[pair[0]]
		if pair[0] != pair[1] {
			lent = max(lent, shares[pair])
		}
	}
	return shares, lent
}

// farthest returns the largest difference, in points, between a measured share and the planned one,
// and describes it.
func farthest(result load.Result, want map[[2]string]float64) (far float64, where string) {
	got, sums := map[[2]string]float64{}, map[string]float64{}
	for _, flow := range result.Flows {
		got[[2]string{flow.Zone, flow.To.Zone}] += float64(flow.Answers)
		sums[flow.Zone] += float64(flow.Answers)
	}
	pairs := maps.Clone(want)
	maps.Copy(pairs, got)
	for _, pair := range slices.SortedFunc(maps.Keys(pairs), func(a, b [2]string) int { return strings.Compare(a[0]+a[1], b[0]+b[1]) }) {
		share := ratio(got[pair], sums[pair[0]])
		if p := points(share, want[pair]); p > far {
			far, where = p, fmt.Sprintf("%.1f %% of the traffic of %s goes to %s, the plan has %.1f %%", 100*share, pair[0], pair[1], 100*want[pair])
		}
	}
	return far, where
}

// byChance returns how many points a share may be off by chance when each connection is random:
// four standard deviations of a share of one half, for the zone with the fewest answers. It returns
// an error if that is too much for a useful measurement.
func byChance(result load.Result) (float64, error) {
	answers := map[string]int64{}
	for _, flow := range result.Flows {
		answers[flow.Zone] += flow.Answers
	}
	const much = 5
	fewest := slices.Min(slices.Collect(maps.Values(answers)))
	chance := 4 * 50 / math.Sqrt(float64(fewest))
	if chance > much {
		return 0, fmt.Errorf("a zone has only %d answers, whose shares may be off by %.1f points by chance", fewest, chance)
	}
	return chance, nil
}

// labelNode sets a node's zone; an empty zone removes the label.
func (s *scene) labelNode(ctx context.Context, node, zone string) error {
	text := "null"
	if zone != "" {
		text = fmt.Sprintf("%q", zone)
	}
	_, err := s.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, zoneKey, text), metav1.PatchOptions{})
	return err
}

// waitUnreachableReported waits until each proxy reports by an event that its node cannot reach the
// Service.
func (s *scene) waitUnreachableReported(ctx context.Context) error {
	return kube.Wait(ctx, "proxies to report that the Service is out of reach", func(ctx context.Context) (string, error) {
		events, err := s.CoreV1().Events(s.namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Service,involvedObject.name=echo,type=Warning"})
		if err != nil {
			return "", err
		}
		nodes := map[string]int{}
		for _, event := range events.Items {
			if event.ReportingController == "vicinity-proxy" {
				nodes[event.ReportingInstance]++
			}
		}
		if len(nodes) < 4 {
			return fmt.Sprintf("events are from %v", nodes), nil
		}
		return "", nil
	})
}
