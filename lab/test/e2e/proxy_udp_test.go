package e2e_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab/load"
)

// maxTrailing is how long a UDP flow may take to follow its endpoints. As long as its
// client sends, the kernel keeps an entry that was not deleted.
const maxTrailing = 20 * time.Second

// udpFollows removes and adds endpoints of UDP flows: the flows follow, although the kernel
// would keep its entries.
func udpFollows(ctx context.Context, s *scene) (string, error) {
	text := tablePods
	for _, letter := range []string{"a", "b"} {
		text += backendPod(letter)
	}
	if err := s.Apply(ctx, s.namespace, text); err != nil {
		return "", err
	}
	if err := s.podsReady(ctx, 6); err != nil {
		return "", err
	}
	pods := map[string]*corev1.Pod{}
	for _, name := range []string{"client-with", "be-a", "be-b"} {
		pod, err := s.CoreV1().Pods(s.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		pods[name] = pod
	}
	slice := func(name, letter, conditions string) string {
		return fmt.Sprintf("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s, labels: {kubernetes.io/service-name: %s, endpointslice.kubernetes.io/managed-by: test}}\naddressType: IPv4\nports: [{name: udp, port: 8082, protocol: UDP}]\nendpoints: [{addresses: [%q], nodeName: %s, zone: %s, conditions: %s}]\n",
			name, name, podAddress(pods["be-"+letter], corev1.IPv4Protocol), backends[letter], strings.TrimSuffix(backends[letter], "-1"), conditions)
	}
	var figures []string
	for _, by := range servers {
		name := "udp-" + by.suffix
		manifest := fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s, annotations: {%s}}\nspec: {ipFamilyPolicy: SingleStack, ipFamilies: [IPv4], ports: [{name: udp, port: 82, targetPort: 8082, protocol: UDP}]}\n---\n", name, by.annotations)
		if err := s.Apply(ctx, s.namespace, manifest+slice(name, "a", "{ready: false, serving: false}")); err != nil {
			return "", err
		}
		if by.annotations != "" {
			if err := s.servedBy(ctx, name, true); err != nil {
				return "", err
			}
		}
		service, err := s.CoreV1().Services(s.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		flow, err := s.cluster.DialFromPod(ctx, pods["client-with"], "udp", service.Spec.ClusterIP+":82")
		if err != nil {
			return "", err
		}
		defer flow.Close()
		for i, letter := range []string{"a", "b", "a"} {
			if err := s.Apply(ctx, s.namespace, slice(name, letter, "{ready: true}")); err != nil {
				return "", err
			}
			begun := time.Now()
			if err := flowReaches(ctx, flow, letter); err != nil {
				return "", fmt.Errorf("by %s: %w", by.name, err)
			}
			if i > 0 {
				figures = append(figures, fmt.Sprintf("%d ms", time.Since(begun).Milliseconds()))
			}
		}
	}
	return fmt.Sprintf("one flow of datagrams followed from no endpoint to one, to another and back; the last two after %s by kube-proxy, %s by vicinity-proxy",
		strings.Join(figures[:2], " and "), strings.Join(figures[2:], " and ")), nil
}

// flowReaches waits until datagrams of a flow are answered by one of some pods.
func flowReaches(ctx context.Context, flow net.Conn, pods ...string) error {
	ctx, cancel := context.WithTimeout(ctx, maxTrailing)
	defer cancel()
	return kube.Wait(ctx, fmt.Sprintf("datagrams of one flow to come to %s", strings.Join(pods, " or ")), func(context.Context) (string, error) {
		pod, err := askDatagram(flow)
		if err != nil || slices.Contains(pods, pod) {
			return "", err
		}
		return pod + " answers", nil
	})
}

// askDatagram sends a datagram of a flow and says which pod answers.
func askDatagram(flow net.Conn) (pod string, err error) {
	if err := flow.SetDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		return "", err
	}
	// Without an endpoint the kernel reports the refusal at the next datagram.
	if _, err := flow.Write([]byte("x")); err != nil && !refusedOrLate(err) {
		return "", err
	}
	buffer := make([]byte, 4096)
	n, err := flow.Read(buffer)
	if err != nil {
		return "", err
	}
	answer, err := load.ParseAnswer(buffer[:n])
	return answer.Pod, err
}
