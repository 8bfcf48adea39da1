package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab/shape"
)

const (
	// stickyPause is how long a client waits after an answer before it connects again.
	stickyPause = 50 * time.Millisecond
	// stickyAnswers are enough to see that a client stays: that it is led to one of six
	// endpoints by chance each time is as likely as one in three quadrillions.
	stickyAnswers = 21
)

// handOverSticky hands over a Service with session affinity while its clients connect to it.
// vicinity-proxy does not know what kube-proxy remembers, so that each client is given an
// endpoint once more, and stays with that one.
func handOverSticky(ctx context.Context, s *scene) (figure string, err error) {
	if err := s.deploy(ctx); err != nil {
		return "", err
	}
	const service = "sticky"
	if err := s.Apply(ctx, s.namespace, twin(service, "")+"  sessionAffinity: ClientIP\n"); err != nil {
		return "", err
	}
	clients, err := s.stickyClients(ctx, service)
	if err != nil {
		return "", err
	}
	flow, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer func() {
		stop()
		running.Wait()
	}()
	for _, c := range clients {
		running.Go(func() { c.connect(flow) })
	}

	if err := clients.more(ctx, stickyAnswers); err != nil {
		return "", err
	}
	if err := clients.stay("while kube-proxy serves the Service", 1); err != nil {
		return "", err
	}
	begun := time.Now()
	if err := s.PatchService(ctx, s.namespace, service, byVicinity); err != nil {
		return "", err
	}
	if err := s.servedBy(ctx, service, true); err != nil {
		return "", err
	}
	took := time.Since(begun)
	// The first of two connections may have begun before.
	if err := clients.more(ctx, 2); err != nil {
		return "", err
	}
	moved := clients.moved()
	if err := clients.more(ctx, stickyAnswers); err != nil {
		return "", err
	}
	stop()
	running.Wait()
	if err := clients.stay("at the hand-over and afterwards", 2); err != nil {
		return "", err
	}
	if late := clients.moved() - moved; late > 0 {
		return "", fmt.Errorf("%d clients moved to another endpoint after the hand-over was over", late)
	}
	return fmt.Sprintf("handed over after %.1f s; of %d clients %d moved to another endpoint, each once, and stay with it; %d connections, 0 failed",
		took.Seconds(), len(clients), moved, clients.connections()), nil
}

// stickyClient connects to a Service again and again.
type stickyClient struct {
	name  string
	probe probe

	mu      sync.Mutex
	answers int
	// pods are those that answered, each after another.
	pods []string
	// failed is why a connection failed, after which the client ends.
	failed error
}

type stickyClients []*stickyClient

// stickyClients are the client pods, for each address of a Service, once all are served.
func (s *scene) stickyClients(ctx context.Context, service string) (clients stickyClients, err error) {
	object, err := s.CoreV1().Services(s.namespace).Get(ctx, service, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	list, err := s.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=client"})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		for _, text := range object.Spec.ClusterIPs {
			address, err := netip.ParseAddr(text)
			if err != nil {
				return nil, err
			}
			clients = append(clients, newStickyClient(s.cluster.Shape().Name, &list.Items[i], netip.AddrPortFrom(address, 80)))
		}
	}
	err = kube.Wait(ctx, "all clients of "+service+" to be served", func(ctx context.Context) (string, error) {
		for _, c := range clients {
			one := c.probe
			one.timeout = patient
			if _, _, err := exchange(ctx, one); err != nil {
				return fmt.Sprintf("%s is not: %v", c.name, err), nil
			}
		}
		return "", nil
	})
	return clients, err
}

func newStickyClient(labName string, pod *corev1.Pod, to netip.AddrPort) *stickyClient {
	return &stickyClient{
		name:  fmt.Sprintf("%s at %s", pod.Name, to.Addr()),
		probe: probe{namespace: shape.PodNamespace(labName, string(pod.UID)), network: "tcp", http: true, to: to, timeout: patience},
	}
}

// connect connects until a connection fails or all is over.
func (c *stickyClient) connect(ctx context.Context) {
	pause := time.NewTicker(stickyPause)
	defer pause.Stop()
	for ctx.Err() == nil {
		answer, _, err := exchange(ctx, c.probe)
		if ctx.Err() != nil {
			return
		}
		c.note(answer.Pod, err)
		if err != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
	}
}

// note notes the answer of a pod, or why there is none.
func (c *stickyClient) note(pod string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.failed = err
		return
	}
	c.answers++
	if len(c.pods) == 0 || c.pods[len(c.pods)-1] != pod {
		c.pods = append(c.pods, pod)
	}
}

// sum adds up what a function says of each client.
func (all stickyClients) sum(of func(*stickyClient) int) int {
	n := 0
	for _, c := range all {
		c.mu.Lock()
		n += of(c)
		c.mu.Unlock()
	}
	return n
}

// moved is how many times clients were led to another endpoint.
func (all stickyClients) moved() int {
	return all.sum(func(c *stickyClient) int { return max(0, len(c.pods)-1) })
}

func (all stickyClients) connections() int {
	return all.sum(func(c *stickyClient) int { return c.answers })
}

// more waits until each client has so many more answers, or one of them cannot go on. It is
// an error if a connection failed.
func (all stickyClients) more(ctx context.Context, number int) error {
	goals := make([]int, len(all))
	for i, c := range all {
		c.mu.Lock()
		goals[i] = c.answers + number
		c.mu.Unlock()
	}
	err := kube.Wait(ctx, fmt.Sprintf("%d answers to each client", number), func(context.Context) (string, error) {
		missing := ""
		for i, c := range all {
			c.mu.Lock()
			answers, over := c.answers, c.failed != nil
			c.mu.Unlock()
			if over {
				return "", nil
			}
			if answers < goals[i] {
				missing = fmt.Sprintf("%s misses %d", c.name, goals[i]-answers)
			}
		}
		return missing, nil
	})
	return errors.Join(err, all.failure())
}

// failure is why connections failed.
func (all stickyClients) failure() error {
	var failed error
	for _, c := range all {
		c.mu.Lock()
		if c.failed != nil {
			failed = errors.Join(failed, fmt.Errorf("a connection of %s failed: %w", c.name, c.failed))
		}
		c.mu.Unlock()
	}
	return failed
}

// stay is an error if a client had more than so many endpoints one after the other.
func (all stickyClients) stay(when string, most int) error {
	for _, c := range all {
		c.mu.Lock()
		pods := strings.Join(c.pods, ", then ")
		moves := len(c.pods) - most
		c.mu.Unlock()
		if moves > 0 {
			return fmt.Errorf("%s %s was led to %s", when, c.name, pods)
		}
	}
	return nil
}
