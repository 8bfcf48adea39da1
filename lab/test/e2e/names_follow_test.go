package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab/dnsquery"
)

// inEachZone are the nodes of the endpoints of promises about clients that move.
var inEachZone = []string{"zone-a-1", "zone-b-1", "zone-c-1"}

// podsOf are the echo pods of some nodes in words.
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

// runsAt makes a pod of an image on a node, and waits until the API has its address.
func (s *scene) runsAt(ctx context.Context, name, node, image string) (pod *corev1.Pod, since time.Time, err error) {
	if err := s.Apply(ctx, s.namespace, placedPod(name, node, image)); err != nil {
		return nil, since, err
	}
	pod, err = s.until(ctx, name, func(pod *corev1.Pod) bool { return pod.Status.PodIP != "" })
	return pod, time.Now(), err
}

// podMoved moves a client and then an endpoint from node to node: the client gets what is near
// it, and other clients get the endpoint when it is near them.
func podMoved(ctx context.Context, s *scene) (string, error) {
	if err := s.namedPods(ctx, headlessOf("near", keysAnnotation, zoneKey), inEachZone...); err != nil {
		return "", err
	}
	const moves = 4
	client, endpoint := time.Duration(0), time.Duration(0)
	query := dnsquery.Query{Name: s.fqdn("near")}
	for i := range moves {
		node := inEachZone[i%len(inEachZone)]
		pod, since, err := s.runsAt(ctx, "mover", node, "client")
		if err != nil {
			return "", err
		}
		want, err := s.podsOf(ctx, node)
		if err != nil {
			return "", err
		}
		took, err := s.follow(ctx, since, asked{s.fromPod(pod), query, want})
		if err != nil {
			return "", fmt.Errorf("a client came to %s: %w", node, err)
		}
		client = max(client, took)
		if err := s.removePod(ctx, "mover"); err != nil {
			return "", err
		}
	}
	clients, err := s.fromClients(ctx)
	if err != nil {
		return "", err
	}
	for _, node := range []string{"zone-b-2", "zone-c-2"} {
		if _, _, err := s.runsAt(ctx, "wanderer", node, "echo"); err != nil {
			return "", err
		}
		if err := s.WaitEndpoints(ctx, s.namespace, "near", len(inEachZone)+1); err != nil {
			return "", err
		}
		since := time.Now()
		at, _ := s.cluster.Shape().Node(node)
		want, err := s.podsOf(ctx, node, at.Zone+"-1")
		if err != nil {
			return "", err
		}
		took, err := s.follow(ctx, since, asked{clients[node], query, want})
		if err != nil {
			return "", fmt.Errorf("an endpoint came to %s: %w", node, err)
		}
		endpoint = max(endpoint, took)
		if err := s.removePod(ctx, "wanderer"); err != nil {
			return "", err
		}
		want, err = s.podsOf(ctx, at.Zone+"-1")
		if err != nil {
			return "", err
		}
		if _, err := s.answers(ctx, []asked{{clients[node], query, want}}); err != nil {
			return "", fmt.Errorf("an endpoint left %s: %w", node, err)
		}
	}
	return fmt.Sprintf("a client on another node gets what is near after %d ms at most (of %d moves), a new endpoint is in answers after %d ms",
		client.Milliseconds(), moves, endpoint.Milliseconds()), nil
}

// nodeRelabelled moves a node with a client to other zones by its label, and to other racks, which
// only PodLocators have for clients.
func nodeRelabelled(ctx context.Context, s *scene) (figure string, err error) {
	const node, zone = "zone-a-2", "zone-a"
	services := headlessOf("near", keysAnnotation, zoneKey) + headlessOf("racks", keysAnnotation, rackLabel)
	if err := s.namedPods(ctx, services, inEachZone...); err != nil {
		return "", err
	}
	clients, err := s.fromClients(ctx)
	if err != nil {
		return "", err
	}
	defer func() {
		ctx := context.WithoutCancel(ctx)
		err = errors.Join(err, s.labelNode(ctx, node, zoneKey, zone), s.labelNode(ctx, node, rackLabel, racks[node]))
	}()
	slowest := map[string]time.Duration{}
	for _, step := range []struct{ service, key, value, pods string }{
		{"near", zoneKey, "zone-b", "zone-b-1"},
		{"near", zoneKey, "zone-c", "zone-c-1"},
		{"near", zoneKey, "zone-d", ""},
		{"near", zoneKey, zone, "zone-a-1"},
		{"racks", rackLabel, "r3", "zone-c-1"},
		{"racks", rackLabel, "r9", ""},
		{"racks", rackLabel, "r1", "zone-a-1 zone-b-1"},
	} {
		want := noRecords
		if step.pods != "" {
			if want, err = s.podsOf(ctx, strings.Fields(step.pods)...); err != nil {
				return "", err
			}
		}
		if err := s.labelNode(ctx, node, step.key, step.value); err != nil {
			return "", err
		}
		took, err := s.follow(ctx, time.Now(), asked{clients[node], dnsquery.Query{Name: s.fqdn(step.service)}, want})
		if err != nil {
			return "", fmt.Errorf("with %s=%s: %w", step.key, step.value, err)
		}
		slowest[step.key] = max(slowest[step.key], took)
	}
	return fmt.Sprintf("a client gets what is near its relabelled node after %d ms at most by zone, %d ms by rack; nothing where the zone or rack has nothing",
		slowest[zoneKey].Milliseconds(), slowest[rackLabel].Milliseconds()), nil
}

// labelNode gives a node a label, or takes it away if the value is empty.
func (s *scene) labelNode(ctx context.Context, node, key, value string) error {
	text := "null"
	if value != "" {
		text = fmt.Sprintf("%q", value)
	}
	_, err := s.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, key, text), metav1.PatchOptions{})
	return err
}

// zoneLost cuts a zone off: when its endpoints are not ready any more, clients of a zone without
// endpoints get those that are left, and names resolve all the time. Then the zone comes back.
func zoneLost(ctx context.Context, s *scene) (figure string, err error) {
	nodes := []string{"zone-a-1", "zone-a-2", "zone-b-1"}
	if err := s.namedPods(ctx, headlessOf("near", keysAnnotation, zoneKey+",*"), nodes...); err != nil {
		return "", err
	}
	clients, err := s.fromClients(ctx)
	if err != nil {
		return "", err
	}
	whole, err := s.podsOf(ctx, nodes...)
	if err != nil {
		return "", err
	}
	left, err := s.podsOf(ctx, "zone-b-1")
	if err != nil {
		return "", err
	}
	query := dnsquery.Query{Name: s.fqdn("near")}
	before := asked{clients["zone-c-1"], query, whole}
	if _, err := s.answers(ctx, []asked{before, {clients["zone-b-2"], query, left}}); err != nil {
		return "", err
	}
	const zone = "zone-a"
	// The DNS server may lose pods, too.
	instances, err := s.dnsInstances(ctx)
	if err != nil {
		return "", err
	}
	instances = slices.DeleteFunc(instances, func(a netip.AddrPort) bool { return s.zoneOf(a.Addr().String()) == zone })
	if len(instances) == 0 {
		return "", errors.New("all pods of the DNS server are in " + zone)
	}
	if err := s.cluster.CutZone(ctx, zone, true); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.cluster.HealZone(context.WithoutCancel(ctx), zone)) }()
	if err := s.readyEndpoints(ctx, "near", 1); err != nil {
		return "", err
	}
	since := time.Now()
	after := before
	after.want, after.Server = left, instances[0]
	lost, err := s.rightAfter(ctx, since, after)
	if err != nil {
		return "", fmt.Errorf("without %s: %w", zone, err)
	}
	err = kube.Wait(ctx, "pods of the DNS server in "+zone+" to be out of its Service", func(ctx context.Context) (string, error) {
		instances, err := s.dnsInstances(ctx)
		for _, instance := range instances {
			if s.zoneOf(instance.Addr().String()) == zone {
				return instance.String() + " is in it", nil
			}
		}
		return "", err
	})
	if err != nil {
		return "", err
	}
	after.Server = netip.AddrPort{}
	if _, err := s.answers(ctx, []asked{after, {clients["zone-b-2"], query, left}}); err != nil {
		return "", fmt.Errorf("without %s: %w", zone, err)
	}
	if err := s.cluster.HealZone(ctx, zone); err != nil {
		return "", err
	}
	if err := s.heard(ctx, zone); err != nil {
		return "", err
	}
	if err := s.readyEndpoints(ctx, "near", len(nodes)); err != nil {
		return "", err
	}
	back, err := s.follow(ctx, time.Now(), before)
	if err != nil {
		return "", fmt.Errorf("with %s back: %w", zone, err)
	}
	return fmt.Sprintf("a lost zone is out of answers %d ms after it is out of the slices, and in them again %d ms after it is back",
		lost.Milliseconds(), back.Milliseconds()), nil
}

// readyEndpoints waits until so many endpoints of a Service are ready.
func (s *scene) readyEndpoints(ctx context.Context, service string, number int) error {
	return kube.Wait(ctx, fmt.Sprintf("%d endpoints of Service %s to be ready", number, service), func(ctx context.Context) (string, error) {
		endpoints, err := s.Endpoints(ctx, s.namespace, service, discoveryv1.AddressTypeIPv4)
		if err != nil {
			return "", err
		}
		ready := 0
		for e := range maps.Values(endpoints) {
			if e.Conditions.Ready != nil && *e.Conditions.Ready {
				ready++
			}
		}
		if ready != number {
			return fmt.Sprintf("%d are", ready), nil
		}
		return "", nil
	})
}

// addressReused gives the address of a client to pods on virtual nodes, one after the other, each
// made before the one before is gone: the newest of them says where the address is, also when
// the older ones go.
func addressReused(ctx context.Context, s *scene) (figure string, err error) {
	if err := s.namedPods(ctx, headlessOf("near", keysAnnotation, zoneKey), inEachZone...); err != nil {
		return "", err
	}
	client, err := s.pod(ctx, "client-zone-a-2")
	if err != nil {
		return "", err
	}
	virtual := ""
	for _, zone := range []string{"zone-b", "zone-c"} {
		virtual += "---\n" + nodeManifest("virtual-"+zone, zone, "{}")
	}
	defer func() { err = errors.Join(err, s.Delete(context.WithoutCancel(ctx), "", virtual)) }()
	if err := s.Apply(ctx, "", virtual); err != nil {
		return "", err
	}
	from, query := s.fromPod(client), dnsquery.Query{Name: s.fqdn("near")}
	slowest := time.Duration(0)
	for _, step := range []struct{ make, remove, near string }{
		{near: "zone-a-1"},
		{make: "virtual-zone-b", near: "zone-b-1"},
		{make: "virtual-zone-c", near: "zone-c-1"},
		{remove: "virtual-zone-b", near: "zone-c-1"},
		{remove: "virtual-zone-c", near: "zone-a-1"},
	} {
		what := "by itself"
		switch {
		case step.make != "":
			what = "with a pod on " + step.make
			// Objects have whole seconds as their ages, and the newer counts.
			if err := s.nextSecond(ctx); err != nil {
				return "", err
			}
			if err := s.virtualPod(ctx, step.make, client.Status.PodIPs); err != nil {
				return "", err
			}
		case step.remove != "":
			what = "without the pod on " + step.remove
			if err := s.removePod(ctx, "on-"+step.remove); err != nil {
				return "", err
			}
		}
		want, err := s.podsOf(ctx, step.near)
		if err != nil {
			return "", err
		}
		took, err := s.follow(ctx, time.Now(), asked{from, query, want})
		if err != nil {
			return "", fmt.Errorf("%s: %w", what, err)
		}
		slowest = max(slowest, took)
		// What is right must stay so.
		st, err := s.askSteadily(ctx, []asked{{from, query, want}})
		if err != nil {
			return "", err
		}
		if err := errors.Join(st.more(ctx, 50), st.end()); err != nil {
			return "", fmt.Errorf("%s: %w", what, err)
		}
	}
	return fmt.Sprintf("an address that passes from pod to pod in 3 zones is that of the newest, %d ms after the API at most; none of 250 answers after that had the place of an earlier one",
		slowest.Milliseconds()), nil
}

// nextSecond waits until the next second has begun.
func (s *scene) nextSecond(ctx context.Context) error {
	begun := time.Now().Truncate(time.Second)
	return kube.Wait(ctx, "the next second", func(context.Context) (string, error) {
		if time.Now().Truncate(time.Second).After(begun) {
			return "", nil
		}
		return "it is the same", nil
	})
}

// virtualPod makes a pod on a node without a kubelet, and says that it has some addresses.
func (s *scene) virtualPod(ctx context.Context, node string, ips []corev1.PodIP) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "on-" + node},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "sleep", Image: "lab/sleep"}}},
	}
	pod, err := s.CoreV1().Pods(s.namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, ips[0].IP, ips
	_, err = s.CoreV1().Pods(s.namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}
