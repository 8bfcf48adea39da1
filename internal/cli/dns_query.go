package cli

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/klog/v2"

	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/names/corefile"
)

// dnsAsker sends a query to a port of a pod over TCP. Tests replace it.
type dnsAsker func(ctx context.Context, c *connection, pod *corev1.Pod, port int32, query *dns.Msg) (*dns.Msg, error)

// dnsQuestion is a test query with the wanted answer. If that is empty, all later answers must be like the first.
type dnsQuestion struct {
	name string
	kind uint16
	want string
}

// dnsTries is how often a query is sent before a wrong answer counts: another server may answer for it late.
const dnsTries = 5

// questions asks for a Service, and for a name that does not exist.
func (d *dnsServer) questions(ctx context.Context) ([]dnsQuestion, error) {
	domain, err := corefile.Domain(d.corefile())
	if err != nil {
		return nil, err
	}
	service, err := d.typed.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return nil, d.explained("reading Service default/kubernetes for test queries", err)
	}
	questions := []dnsQuestion{{"no-such-service.default.svc." + domain + ".", dns.TypeA, dns.RcodeToString[dns.RcodeNameError]}}
	for _, ip := range service.Spec.ClusterIPs {
		kind := dns.TypeA
		if address, err := netip.ParseAddr(ip); err == nil && address.Is6() {
			kind = dns.TypeAAAA
		}
		questions = append(questions, dnsQuestion{"kubernetes.default.svc." + domain + ".", kind, ip})
	}
	return questions, nil
}

// askPods asks each ready pod all questions.
func (d *dnsServer) askPods(ctx context.Context, questions []dnsQuestion) error {
	pods, err := d.pods(ctx)
	if err != nil {
		return err
	}
	pods = slices.DeleteFunc(pods, func(pod *corev1.Pod) bool {
		return !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
	})
	if len(pods) == 0 {
		return fmt.Errorf("%s has no ready pod to ask; see: kubectl -n %s describe deployment %s", d.title(), d.namespace, d.name)
	}
	for _, pod := range pods {
		for i := range questions {
			if err := d.askPod(ctx, pod, &questions[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *dnsServer) askPod(ctx context.Context, pod *corev1.Pod, q *dnsQuestion) error {
	port := int32(53)
	for _, p := range d.container.Ports {
		if p.Protocol != corev1.ProtocolUDP && strings.HasPrefix(p.Name, "dns") {
			port = p.ContainerPort
		}
	}
	for try := 1; ; try++ {
		answer, err := d.ask(ctx, d.connection, pod, port, new(dns.Msg).SetQuestion(q.name, q.kind))
		if err == nil {
			got := addressesOrCode(answer)
			if q.want == "" {
				q.want = got
			}
			if got == q.want {
				return nil
			}
			err = fmt.Errorf("it answers %s, and should answer %s", got, q.want)
		}
		if try == dnsTries {
			return fmt.Errorf("asking pod %s/%s for %s %s: %w; see: kubectl -n %[1]s logs %[2]s", pod.Namespace, pod.Name, dns.TypeToString[q.kind], q.name, err)
		}
		if err := command.Pause(ctx, time.Second); err != nil {
			return err
		}
	}
}

// addressesOrCode describes an answer.
func addressesOrCode(answer *dns.Msg) string {
	var addresses []string
	for _, record := range answer.Answer {
		if kind := record.Header().Rrtype; kind == dns.TypeA || kind == dns.TypeAAAA {
			addresses = append(addresses, dns.Field(record, 1))
		}
	}
	if len(addresses) == 0 {
		return dns.RcodeToString[answer.Rcode]
	}
	slices.Sort(addresses)
	return strings.Join(addresses, " ")
}

// askByForwarding asks through the API server, as "kubectl port-forward" does.
func askByForwarding(ctx context.Context, c *connection, pod *corev1.Pod, port int32, query *dns.Msg) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(klog.NewContext(ctx, logr.Discard()), 10*time.Second)
	defer cancel()
	url := c.typed.CoreV1().RESTClient().Get().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	dialer, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, c.config)
	if err != nil {
		return nil, err
	}
	ready, ended := make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.NewOnAddressesForStreamingWithContext(ctx, dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, ready, nil, nil)
	if err != nil {
		return nil, err
	}
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		return nil, fmt.Errorf("forwarding a port, which needs the right to get and create pods/portforward: %w", err)
	case <-ctx.Done():
		return nil, fmt.Errorf("forwarding a port: %w", ctx.Err())
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return nil, err
	}
	answer, _, err := (&dns.Client{Net: "tcp"}).ExchangeContext(ctx, query, fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
	return answer, err
}
