package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab/load"
)

// proxyKilled kills the proxy of each node, one after the other. The next one finds the
// rules right and changes none. Then endpoints change while all proxies are dead.
func proxyKilled(ctx context.Context, s *scene) (string, error) {
	if err := s.deployed(ctx, 12, annotated(zoneAnnotation, "Prefer")); err != nil {
		return "", err
	}
	if _, err := s.converged(ctx, "echo", 12); err != nil {
		return "", err
	}
	// What a change of before defers is done by then.
	if err := s.rulesRest(ctx); err != nil {
		return "", err
	}
	before, err := s.ruleHandles(ctx)
	if err != nil {
		return "", err
	}
	nodes := s.cluster.Shape().Nodes()
	u, err := s.unharmed(ctx, func(ctx context.Context, t *traffic) error {
		for _, node := range nodes {
			name := "vicinity-proxy-" + node.Name
			if err := errors.Join(s.cluster.KillComponent(ctx, name), s.cluster.StartComponent(ctx, name)); err != nil {
				return err
			}
		}
		return t.more(ctx, newRate*int64(afterRestart.Seconds()))
	})
	if err != nil {
		return "", err
	}
	after, err := s.ruleHandles(ctx)
	if err != nil {
		return "", err
	}
	for name, text := range before {
		if after[name] != text {
			return "", fmt.Errorf("a restart changed the rules of %s: %s", name, changedLines(text, after[name]))
		}
	}
	if err := s.scale(ctx, "echo", 15); err != nil {
		return "", err
	}
	if err := s.answersFrom(ctx, 15); err != nil {
		return "", err
	}
	missed, err := s.changedWhileDead(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("the proxies of %d nodes killed: %s; no rule changed by a restart, and the next change followed; an endpoint that went and one that came while all were dead: %s",
		len(nodes), u, missed), nil
}

// missedChange is a Service whose endpoints change while all proxies are dead.
type missedChange struct {
	*scene
	backends map[string]*corev1.Pod // by their letters
	clients  []corev1.Pod
	// flows are flows of datagrams from each client, by who answered them at first.
	flows map[string][]net.Conn
}

// changedWhileDead has a Service with the endpoints a and c lose a and get b while all
// proxies are dead. When they are ready again, connections go to b and c only. UDP flows to
// a move to b or c, and those to c stay.
func (s *scene) changedWhileDead(ctx context.Context) (figure string, err error) {
	u := &missedChange{scene: s, flows: map[string][]net.Conn{}}
	defer func() {
		for _, flows := range u.flows {
			for _, flow := range flows {
				_ = flow.Close() // nothing more is expected of it
			}
		}
	}()
	if err := u.prepare(ctx); err != nil {
		return "", err
	}
	if err := u.whileDead(ctx, u.change); err != nil {
		return "", err
	}
	begun := time.Now()
	answering, err := s.answering(ctx, "unseen", load.Plan{Protocol: load.TCP, Rate: 300, Duration: time.Second})
	if err != nil {
		return "", err
	}
	for node, pods := range answering {
		if !slices.Equal(pods, []string{"b", "c"}) {
			return "", fmt.Errorf("a went and b came while no proxy ran, and now connections from %s go to %s", node, strings.Join(pods, ", "))
		}
	}
	for _, flow := range u.flows["a"] {
		if err := flowReaches(ctx, flow, "b", "c"); err != nil {
			return "", fmt.Errorf("a flow to a, which went while no proxy ran: %w", err)
		}
	}
	took := time.Since(begun)
	for _, flow := range u.flows["c"] {
		if err := flowReaches(ctx, flow, "c"); err != nil {
			return "", fmt.Errorf("a flow to c, which is still there: %w", err)
		}
	}
	return fmt.Sprintf("connections go to live ones alone, %d flows of datagrams followed within %.1f s, %d to another endpoint stayed",
		len(u.flows["a"]), took.Seconds(), len(u.flows["c"])), nil
}

// prepare makes the Service with the endpoints a and c, and from each client a flow to
// either.
func (u *missedChange) prepare(ctx context.Context) error {
	text := ""
	for _, letter := range []string{"a", "b", "c"} {
		text += backendPod(letter)
	}
	if err := u.Apply(ctx, u.namespace, text); err != nil {
		return err
	}
	var err error
	if u.clients, err = u.ready(ctx, "app=client", clients); err != nil {
		return err
	}
	backends, err := u.ready(ctx, "app=be", 3)
	if err != nil {
		return err
	}
	u.backends = map[string]*corev1.Pod{}
	for i := range backends {
		u.backends[backends[i].Labels["letter"]] = &backends[i]
	}
	const manifest = "apiVersion: v1\nkind: Service\nmetadata: {name: unseen, annotations: {vicinity.dev/proxy: \"true\"}}\n" +
		"spec: {ipFamilyPolicy: SingleStack, ipFamilies: [IPv4], ports: [{name: tcp, port: 81, targetPort: 8081}, {name: udp, port: 82, targetPort: 8082, protocol: UDP}]}\n---\n"
	if err := u.Apply(ctx, u.namespace, manifest+u.slice("a", "c")); err != nil {
		return err
	}
	if err := u.servedBy(ctx, "unseen", true); err != nil {
		return err
	}
	service, err := u.CoreV1().Services(u.namespace).Get(ctx, "unseen", metav1.GetOptions{})
	if err != nil {
		return err
	}
	for i := range u.clients {
		for _, letter := range []string{"a", "c"} {
			flow, err := u.flowTo(ctx, &u.clients[i], service.Spec.ClusterIP+":82", letter)
			if err != nil {
				return err
			}
			u.flows[letter] = append(u.flows[letter], flow)
		}
	}
	return nil
}

// ready waits until so many pods with a label are ready.
func (u *missedChange) ready(ctx context.Context, selector string, number int) (pods []corev1.Pod, err error) {
	err = kube.Wait(ctx, fmt.Sprintf("%d pods with %s to be ready", number, selector), func(ctx context.Context) (string, error) {
		list, err := u.CoreV1().Pods(u.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return "", err
		}
		pods = slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return !kube.PodReady(&pod) })
		if len(pods) != number {
			return fmt.Sprintf("%d are", len(pods)), nil
		}
		return "", nil
	})
	return pods, err
}

// slice is an EndpointSlice with some of the backends.
func (u *missedChange) slice(letters ...string) string {
	text := "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: unseen, labels: {kubernetes.io/service-name: unseen, endpointslice.kubernetes.io/managed-by: test}}\n" +
		"addressType: IPv4\nports: [{name: tcp, port: 8081, protocol: TCP}, {name: udp, port: 8082, protocol: UDP}]\nendpoints:\n"
	for _, letter := range letters {
		text += fmt.Sprintf("- {addresses: [%q], nodeName: %s, zone: %s, conditions: {ready: true}}\n",
			podAddress(u.backends[letter], corev1.IPv4Protocol), backends[letter], strings.TrimSuffix(backends[letter], "-1"))
	}
	return text
}

// flowTo opens flows of datagrams until one is answered by a pod.
func (u *missedChange) flowTo(ctx context.Context, client *corev1.Pod, address, want string) (flow net.Conn, err error) {
	err = kube.Wait(ctx, fmt.Sprintf("a flow from %s to %s", client.Name, want), func(ctx context.Context) (string, error) {
		opened, err := u.cluster.DialFromPod(ctx, client, "udp", address)
		if err != nil {
			return "", err
		}
		pod, err := askDatagram(opened)
		if err == nil && pod == want {
			flow = opened
			return "", nil
		}
		_ = opened.Close() // another is tried
		return pod + " answers", err
	})
	return flow, err
}

// whileDead calls a function while no proxy runs. Proxies are paused before they are
// killed, since killed ones restart at once. Their pods go, too: a kubelet waits before it
// restarts a container that was killed before.
func (u *missedChange) whileDead(ctx context.Context, do func(context.Context) error) (err error) {
	nodes := u.cluster.Shape().Nodes()
	defer func() {
		for _, node := range nodes {
			err = errors.Join(err, u.cluster.KillComponent(context.WithoutCancel(ctx), "vicinity-proxy-"+node.Name))
		}
		err = errors.Join(err, u.CoreV1().Pods(vicinityNamespace).DeleteCollection(context.WithoutCancel(ctx), atOnce(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=proxy"}))
		for _, node := range nodes {
			err = errors.Join(err, u.cluster.StartComponent(ctx, "vicinity-proxy-"+node.Name))
		}
	}()
	for _, node := range nodes {
		if err := u.cluster.PauseComponent(ctx, "vicinity-proxy-"+node.Name); err != nil {
			return err
		}
	}
	return do(ctx)
}

// change replaces a by b, and waits until everyone but the proxies knows. On every second
// node it also removes the rules, so that nothing says which endpoints there were.
func (u *missedChange) change(ctx context.Context) error {
	for i, node := range u.cluster.Shape().Nodes() {
		if i%2 > 0 {
			continue
		}
		if _, err := u.nft(ctx, node, "delete table ip vicinity"); err != nil {
			return err
		}
	}
	if err := u.Apply(ctx, u.namespace, u.slice("b", "c")); err != nil {
		return err
	}
	if err := u.CoreV1().Pods(u.namespace).Delete(ctx, u.backends["a"].Name, atOnce()); err != nil {
		return err
	}
	if err := u.groupsName(ctx, "b", "c"); err != nil {
		return err
	}
	// Where the rules had changed the flows would show nothing.
	return kube.Wait(ctx, "flows to a to be answered no more", func(context.Context) (string, error) {
		for _, flow := range u.flows["a"] {
			if pod, err := askDatagram(flow); err == nil {
				return pod + " answers", nil
			}
		}
		return "", nil
	})
}

// groupsName waits until the groups have these endpoints and no others.
func (u *missedChange) groupsName(ctx context.Context, letters ...string) error {
	want := map[string]bool{}
	for _, letter := range letters {
		want[podAddress(u.backends[letter], corev1.IPv4Protocol).String()] = true
	}
	return kube.Wait(ctx, "the groups to have the endpoints "+strings.Join(letters, ", "), func(ctx context.Context) (string, error) {
		groups, err := u.groupsOf(ctx, "unseen")
		if err != nil {
			return "", err
		}
		got := map[string]bool{}
		for i := range groups {
			for _, endpoint := range groups[i].Spec.Endpoints {
				got[endpoint.Address] = true
			}
		}
		if !maps.Equal(got, want) {
			return fmt.Sprintf("they have %v", slices.Sorted(maps.Keys(got))), nil
		}
		return "", nil
	})
}
