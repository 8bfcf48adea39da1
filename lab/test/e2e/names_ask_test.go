package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab/dnsquery"
	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/test/kube"
)

// Descriptions of answers without records.
const (
	noRecords = "no records, SOA" // NODATA: the name exists
	noName    = "NXDOMAIN"
)

// place is a network namespace that queries come from.
type place struct{ name, namespace string }

// fromPod returns the place of a pod.
func (s *scene) fromPod(pod *corev1.Pod) place {
	return place{pod.Name, shape.PodNamespace(s.cluster.Shape().Name, string(pod.UID))}
}

// fromNode returns the host network of a node.
func (s *scene) fromNode(node shape.Node) place {
	return place{"node " + node.Name, shape.NodeNamespace(s.cluster.Shape().Name, node.Index)}
}

// fromClients returns the places of the scene's client pods, by node.
func (s *scene) fromClients(ctx context.Context) (map[string]place, error) {
	list, err := s.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=client"})
	if err != nil {
		return nil, err
	}
	places := map[string]place{}
	for i := range list.Items {
		places[list.Items[i].Spec.NodeName] = s.fromPod(&list.Items[i])
	}
	if len(places) == 0 {
		return nil, errors.New("no client pod exists")
	}
	return places, nil
}

func (p place) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return fabric.Dial(ctx, p.namespace, network, address)
}

// fqdn returns the full name of a Service of the scene, or of a name below it.
func (s *scene) fqdn(name string) string { return name + "." + s.namespace + ".svc.cluster.local." }

// dnsServers returns the cluster IPs of the DNS server, as in the pods' resolv.conf.
func (s *scene) dnsServers() []netip.AddrPort {
	var servers []netip.AddrPort
	for _, addr := range s.cluster.Shape().DNSAddrs() {
		servers = append(servers, netip.AddrPortFrom(addr, dnsquery.Port))
	}
	return servers
}

// dnsInstances returns the addresses of the DNS server's ready pods.
func (s *scene) dnsInstances(ctx context.Context) ([]netip.AddrPort, error) {
	list, err := s.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=kube-dns"})
	if err != nil {
		return nil, err
	}
	var all []netip.AddrPort
	for _, slice := range list.Items {
		for _, port := range slice.Ports {
			if slice.AddressType != discoveryv1.AddressTypeIPv4 || port.Protocol == nil || *port.Protocol != corev1.ProtocolUDP {
				continue
			}
			for _, endpoint := range slice.Endpoints {
				if endpoint.Conditions.Ready != nil && *endpoint.Conditions.Ready {
					all = append(all, netip.AddrPortFrom(netip.MustParseAddr(endpoint.Addresses[0]), uint16(*port.Port)))
				}
			}
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no pod of the DNS server is ready")
	}
	return all, nil
}

// Resolvers of pods behave like the C library's: each attempt asks each server once.
const (
	attempts       = 2
	attemptTimeout = 5 * time.Second
)

// resolve asks like a resolver: one server after the other, until one answers. It returns how many
// queries were lost before.
func (s *scene) resolve(ctx context.Context, from place, q dnsquery.Query) (answer dnsquery.Answer, lost int, err error) {
	servers := s.dnsServers()
	if q.Server.IsValid() {
		servers = []netip.AddrPort{q.Server}
	}
	q.Timeout = attemptTimeout
	for range attempts {
		for _, q.Server = range servers {
			if answer, err = q.Ask(ctx, from.dial); err == nil {
				return answer, lost, nil
			}
			lost++
		}
	}
	return answer, lost, err
}

// asked is a query from a place, and the wanted answer in the form of inWords.
type asked struct {
	from place
	dnsquery.Query
	want string
}

func (a asked) String() string {
	return fmt.Sprintf("%s %s from %s", a.Name, kindOf(a.Query), a.from.name)
}

// inWords describes an answer by its records in order. Addresses with a known name are replaced by
// it. Without records it describes the result.
func inWords(a dnsquery.Answer, kind string, names map[string]string) string {
	data := a.Data(kind)
	switch {
	case a.Rcode != "NOERROR":
		return a.Rcode
	case len(data) > 0:
	case slices.ContainsFunc(a.Authority, func(r dnsquery.Record) bool { return r.Type == "SOA" }):
		return noRecords
	default:
		return "no records"
	}
	for i, text := range data {
		if name, known := names[text]; known {
			data[i] = name
		}
	}
	slices.Sort(data)
	text := strings.Join(data, " ")
	if a.Truncated {
		text += " (truncated)"
	}
	return text
}

// podNames returns the names of the scene's pods by address.
func (s *scene) podNames(ctx context.Context) (map[string]string, error) {
	list, err := s.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for i := range list.Items {
		for _, ip := range list.Items[i].Status.PodIPs {
			names[ip.IP] = list.Items[i].Name
		}
	}
	return names, nil
}

// answerTime limits the wait for right answers. It is longer than the DNS server caches one; the
// time they took is printed.
const answerTime = time.Minute

// answers waits until all pods of the DNS server give the wanted answers, also through its cluster
// IPs. It returns the number of right answers.
func (s *scene) answers(ctx context.Context, all []asked) (right int, err error) {
	instances, err := s.dnsInstances(ctx)
	if err != nil {
		return 0, err
	}
	var each []asked
	for _, a := range all {
		if a.Server.IsValid() {
			each = append(each, a)
			continue
		}
		for _, a.Server = range slices.Concat(s.dnsServers(), instances) {
			each = append(each, a)
		}
	}
	names, err := s.podNames(ctx)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return len(each), kube.Wait(ctx, "right answers", func(ctx context.Context) (string, error) { return s.wrong(ctx, each, names) })
}

// wrong describes the first wrong answer; empty if all are right.
func (s *scene) wrong(ctx context.Context, all []asked, names map[string]string) (string, error) {
	for _, a := range all {
		answer, _, err := s.resolve(ctx, a.from, a.Query)
		if err != nil {
			return "", fmt.Errorf("%s: %w", a, err)
		}
		if is := inWords(answer, kindOf(a.Query), names); is != a.want {
			return fmt.Sprintf("%s by %s gives %s, want %s", a, answer.Server, is, a.want), nil
		}
	}
	return "", nil
}

func kindOf(q dnsquery.Query) string {
	if q.Type == "" {
		return "A"
	}
	return q.Type
}

// follow asks until the answers are right, and returns how long that took since a moment. It also
// waits until all pods of the DNS server answer right.
func (s *scene) follow(ctx context.Context, since time.Time, all ...asked) (time.Duration, error) {
	took, err := s.rightAfter(ctx, since, all...)
	if err != nil {
		return 0, err
	}
	_, err = s.answers(ctx, all)
	return took, err
}

// rightAfter asks until the answers are right, and returns how long that took since a moment.
func (s *scene) rightAfter(ctx context.Context, since time.Time, all ...asked) (time.Duration, error) {
	names, err := s.podNames(ctx)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	err = kube.Wait(ctx, "right answers", func(ctx context.Context) (string, error) { return s.wrong(ctx, all, names) })
	return time.Since(since), err
}

// steady repeats queries, each in a goroutine of its own.
type steady struct {
	stop    context.CancelFunc
	running sync.WaitGroup

	mu          sync.Mutex
	right, lost int
	wrong       []string
}

// beat is the pause after an answer.
const beat = 10 * time.Millisecond

// askSteadily starts to repeat queries. A query without an answer after a resolver's attempts
// counts as wrong.
func (s *scene) askSteadily(ctx context.Context, all []asked) (*steady, error) {
	names, err := s.podNames(ctx)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	st := &steady{stop: stop}
	for _, a := range all {
		st.running.Go(func() {
			for ctx.Err() == nil {
				answer, lost, err := s.resolve(ctx, a.from, a.Query)
				if ctx.Err() != nil {
					return
				}
				is := inWords(answer, kindOf(a.Query), names)
				if err != nil {
					is = err.Error()
				}
				st.note(a, is, lost)
				select {
				case <-ctx.Done():
				case <-time.After(beat):
				}
			}
		})
	}
	return st, nil
}

func (st *steady) note(a asked, is string, lost int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.lost += lost
	if is == a.want {
		st.right++
	} else {
		st.wrong = append(st.wrong, fmt.Sprintf("at %s %s gave %s, want %s", time.Now().Format("15:04:05.000"), a, is, a.want))
	}
}

// more waits for a number of further right answers.
func (st *steady) more(ctx context.Context, number int) error {
	count := func() int {
		st.mu.Lock()
		defer st.mu.Unlock()
		return st.right
	}
	goal := count() + number
	return kube.Wait(ctx, fmt.Sprintf("%d more right answers", number), func(context.Context) (string, error) {
		if missing := goal - count(); missing > 0 {
			return fmt.Sprintf("%d are missing", missing), nil
		}
		return "", nil
	})
}

// end stops the queries. It returns an error if an answer was wrong.
func (st *steady) end() error {
	st.stop()
	st.running.Wait()
	if len(st.wrong) > 0 {
		return fmt.Errorf("%d of %d names resolved wrong, the first %s", len(st.wrong), len(st.wrong)+st.right, st.wrong[0])
	}
	return nil
}

func (st *steady) String() string {
	return fmt.Sprintf("%d names resolved, 0 failed (%d queries were lost and answered on retry)", st.right, st.lost)
}
