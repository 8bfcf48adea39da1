package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/dnsquery"
	"vicinity.dev/vicinity/lab/shape"
)

// dnsServer resolves a Service from pods of all nodes, exchanges the DNS server twice while
// they go on asking, gives it another Corefile, and removes it.
func dnsServer(ctx context.Context, s *scene) (figure string, err error) {
	if err := s.cluster.InstallDNS(ctx, shape.DNSVicinity); err != nil {
		return "", err
	}
	defer func() {
		err = errors.Join(err, s.cluster.InstallDNS(context.WithoutCancel(ctx), shape.DNSNone))
	}()
	// After the server: the resolv.conf of a pod is written when it starts.
	if err := s.deploy(ctx); err != nil {
		return "", err
	}
	service, err := s.CoreV1().Services(s.namespace).Get(ctx, "echo", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	list, err := s.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=client"})
	if err != nil {
		return "", err
	}
	q := questions{scene: s, addresses: service.Spec.ClusterIPs, pods: list.Items}
	if err := q.byName(ctx); err != nil {
		return "", err
	}
	for _, kind := range []shape.DNS{shape.DNSCoreDNS, shape.DNSVicinity} {
		if err := q.during(ctx, func(ctx context.Context) error { return s.cluster.InstallDNS(ctx, kind) }); err != nil {
			return "", fmt.Errorf("while the DNS server becomes %s: %w", kind, err)
		}
	}
	if err := s.ownCorefile(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d queries from %d pods while the server was exchanged twice, 0 failed", q.asked, len(q.pods)), nil
}

// questions are queries for the echo Service of the scene.
type questions struct {
	*scene
	addresses []string
	pods      []corev1.Pod
	asked     int
}

// byName has the resolver of a pod find the Service by its short name.
func (q *questions) byName(ctx context.Context) error {
	for i, database := range []string{"ahostsv4", "ahostsv6"} {
		text, err := q.exec(ctx, lab.ExecOptions{Pod: q.pods[0].Name, Command: []string{"getent", database, "echo"}})
		if err != nil {
			return fmt.Errorf("getent %s echo: %w", database, err)
		}
		if !strings.HasPrefix(text, q.addresses[i]+" ") {
			return fmt.Errorf("getent %s echo finds %q instead of %s", database, text, q.addresses[i])
		}
	}
	return nil
}

// during asks from all pods while something is done, and at least once before and after.
func (q *questions) during(ctx context.Context, do func(context.Context) error) error {
	done := make(chan struct{})
	asked, failed := make([]int, len(q.pods)), make([]error, len(q.pods))
	var begun, asking sync.WaitGroup
	for i := range q.pods {
		begun.Add(1)
		first := sync.OnceFunc(begun.Done)
		asking.Go(func() {
			defer first()
			for last := false; !last; first() {
				select {
				case <-done:
					last = true
				case <-time.After(10 * time.Millisecond):
				}
				number, err := q.ask(ctx, &q.pods[i])
				asked[i] += number
				if err != nil {
					failed[i] = fmt.Errorf("pod %s, query %d: %w", q.pods[i].Name, asked[i], err)
					return
				}
			}
		})
	}
	begun.Wait()
	err := do(ctx)
	close(done)
	asking.Wait()
	for _, number := range asked {
		q.asked += number
	}
	return errors.Join(append(failed, err)...)
}

// ask asks for both families, one over UDP and one over TCP, and counts the queries.
func (q *questions) ask(ctx context.Context, pod *corev1.Pod) (asked int, err error) {
	for i, kind := range []string{"A", "AAAA"} {
		query := dnsquery.Query{Name: "echo." + q.namespace + ".svc.cluster.local", Type: kind, TCP: i == 1, Timeout: patience}
		asked++
		answer, err := q.cluster.QueryDNSFromPod(ctx, pod, query)
		if err != nil {
			return asked, err
		}
		if got := answer.Data(kind); !slices.Equal(got, q.addresses[i:i+1]) {
			return asked, fmt.Errorf("the answer is %s %q, want %s", answer.Rcode, got, q.addresses[i])
		}
	}
	return asked, nil
}

// ownCorefile gives the DNS server a Corefile that answers for another zone.
func (s *scene) ownCorefile(ctx context.Context) error {
	corefile := "lab.test:53 {\n    template ANY ANY {\n        rcode NXDOMAIN\n    }\n}\n" + lab.DNSCorefile(shape.DNSVicinity)
	if err := s.cluster.ConfigureDNS(ctx, lab.DNSOptions{Corefile: corefile, Replicas: 1}); err != nil {
		return err
	}
	answer, err := s.cluster.QueryDNSFromNode(ctx, s.cluster.Shape().Nodes()[0].Name, dnsquery.Query{Name: "some.lab.test", Timeout: patience})
	if err != nil {
		return err
	}
	if answer.Rcode != "NXDOMAIN" {
		return fmt.Errorf("with a Corefile of its own the server answers %s, want NXDOMAIN", answer.Rcode)
	}
	return nil
}
