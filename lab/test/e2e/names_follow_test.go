package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// until waits until a pod is as wanted.
func (s *scene) until(ctx context.Context, name string, met func(*corev1.Pod) bool) (pod *corev1.Pod, err error) {
	err = kube.Wait(ctx, "pod "+name+" to be as wanted", func(ctx context.Context) (string, error) {
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
