package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/load"
	"vicinity.dev/vicinity/lab/shape"
)

// nodeOf has a node with an endpoint of each Service of the table, and one without.
var nodeOf = map[string]string{"with": "zone-a-1", "without": "zone-a-2"}

const (
	// draws is the number of connections that reach each of three endpoints: the chance of missing
	// one is one in 30 million.
	draws = 45
	// few connections suffice where no answer is wanted.
	few = 3
	// answerWait limits the wait for a wanted answer, refusalWait for a wanted refusal, and
	// silenceWait the time in which no answer may come.
	answerWait  = 5 * time.Second
	refusalWait = 20 * time.Second
	silenceWait = 700 * time.Millisecond
	// unusedPort is a port of no Service of the table.
	unusedPort = 9999
)

// do makes the connections of a try, and describes the outcome in a few words.
func (st *stage) do(ctx context.Context, service string, t try, family corev1.IPFamily) (string, error) {
	namespace, err := st.namespaceOf(t.from)
	if err != nil {
		return "", err
	}
	target, err := st.target(service, t, family)
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(t.to, "health") {
		return st.checkHealth(ctx, namespace, target)
	}
	network, number, timeout := "tcp", draws, answerWait
	if strings.HasSuffix(t.port, "udp") {
		network = "udp"
	}
	switch t.want {
	case refused:
		number, timeout = 1, refusalWait
	case noAnswer:
		number, timeout = few, silenceWait
	}
	seen := map[string]bool{}
	who, as := map[string]bool{}, map[string]bool{}
	for range number {
		answer, local, err := exchange(ctx, probe{
			namespace: namespace, network: network, to: target, http: t.port == "http", timeout: timeout, insist: t.want == refused,
		})
		if err != nil {
			seen[outcomeOf(err)] = true
		} else {
			who[answer.Pod] = true
			as[st.client(answer.Client, local)] = true
		}
		// A wrong outcome needs no more connections.
		if err != nil && outcomeOf(err) != t.want {
			break
		}
	}
	if len(who) > 0 {
		names := strings.Join(slices.Sorted(maps.Keys(who)), " ")
		if strings.HasPrefix(t.want, "always the same") && len(who) == 1 {
			names = "always the same"
		}
		seen[names+" as "+strings.Join(slices.Sorted(maps.Keys(as)), ", ")] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(seen)), " or "), nil
}

// namespaceOf returns the network namespace where connections start.
func (st *stage) namespaceOf(from string) (string, error) {
	name := st.cluster.Shape().Name
	place, where, _ := strings.Cut(from, "-")
	switch {
	case from == "outside":
		return shape.FabricNamespace(name), nil
	case from == "endpoint":
		return shape.PodNamespace(name, string(st.pods["be-a"].UID)), nil
	case place == "pod":
		return shape.PodNamespace(name, string(st.pods["client-"+where].UID)), nil
	case place == "node":
		node, ok := st.cluster.Shape().Node(nodeOf[where])
		if ok {
			return shape.NodeNamespace(name, node.Index), nil
		}
	}
	return "", fmt.Errorf("the place %q is unknown", from)
}

// target returns the address of a try.
func (st *stage) target(service string, t try, family corev1.IPFamily) (netip.AddrPort, error) {
	object := st.services[service]
	is4 := family == corev1.IPv4Protocol
	end, where, _ := strings.Cut(t.to, "@")
	port := corev1.ServicePort{Port: unusedPort}
	for _, p := range object.Spec.Ports {
		if p.Name == t.portName() {
			port = p
		}
	}
	var candidates []netip.Addr
	number := port.Port
	switch end {
	case "cluster":
		for _, text := range object.Spec.ClusterIPs {
			candidates = append(candidates, netip.MustParseAddr(text))
		}
	case "external", "load-balancer":
		candidates = st.addresses[service][t.to]
	case "node-port", "health":
		number = port.NodePort
		if end == "health" {
			number = object.Spec.HealthCheckNodePort
		}
		candidates = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}
		if node, ok := st.cluster.Shape().Node(nodeOf[where]); ok {
			candidates = st.cluster.Shape().NodeAddrs(node)
		}
	}
	i := slices.IndexFunc(candidates, func(a netip.Addr) bool { return a.Is4() == is4 })
	if i < 0 || number == 0 {
		return netip.AddrPort{}, fmt.Errorf("%s has no %s address and port for %s", service, family, t.to)
	}
	return netip.AddrPortFrom(candidates[i], uint16(number)), nil
}

// client describes the address that an endpoint saw: the client's own, or that of a node.
func (st *stage) client(seen string, local netip.Addr) string {
	address, err := netip.ParseAddrPort(seen)
	if err != nil {
		return seen
	}
	if address.Addr().Unmap() == local {
		return "itself"
	}
	for _, node := range st.cluster.Shape().Nodes() {
		if slices.Contains(st.cluster.Shape().NodeAddrs(node), address.Addr().Unmap()) {
			return node.Name
		}
	}
	return address.Addr().String()
}

// probe is one connection to make.
type probe struct {
	namespace, network string
	to                 netip.AddrPort
	http               bool
	timeout            time.Duration
	// insist repeats a datagram: the kernel limits how many refusals it sends to a host per second.
	insist bool
}

// exchange connects and sends a request. It returns the answer and the local address of the
// connection.
func exchange(ctx context.Context, p probe) (answer load.Answer, local netip.Addr, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	conn, err := fabric.Dial(ctx, p.namespace, p.network, p.to.String())
	if err != nil {
		return answer, local, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(p.timeout)); err != nil {
		return answer, local, err
	}
	if from, err := netip.ParseAddrPort(conn.LocalAddr().String()); err == nil {
		local = from.Addr().Unmap()
	}
	request := "x " + load.CloseWord + "\n"
	switch {
	case p.http:
		request = "GET /?id=x HTTP/1.0\r\n\r\n"
	case p.network == "udp":
		request = "x"
	}
	if _, err := io.WriteString(conn, request); err != nil {
		return answer, local, err
	}
	line, err := readAnswer(conn, p)
	if err != nil {
		return answer, local, err
	}
	answer, err = load.ParseAnswer(line)
	return answer, local, err
}

func readAnswer(conn net.Conn, p probe) ([]byte, error) {
	if p.network == "udp" {
		return readDatagram(conn, p)
	}
	reader := bufio.NewReader(conn)
	if p.http {
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			return nil, err
		}
		defer response.Body.Close()
		return io.ReadAll(response.Body)
	}
	return reader.ReadBytes('\n')
}

func readDatagram(conn net.Conn, p probe) ([]byte, error) {
	buffer := make([]byte, 4096)
	for deadline := time.Now().Add(p.timeout); ; {
		if p.insist {
			if err := conn.SetReadDeadline(time.Now().Add(silenceWait)); err != nil {
				return nil, err
			}
		}
		n, err := conn.Read(buffer)
		if !p.insist || !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(deadline) {
			return buffer[:n], err
		}
		if _, err := io.WriteString(conn, "x"); err != nil {
			return nil, err
		}
	}
}

// outcomeOf summarizes the error of a connection in a word or two.
func outcomeOf(err error) string {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		return refused
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.EHOSTUNREACH),
		errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.ETIMEDOUT):
		return noAnswer
	}
	return err.Error()
}

// checkHealth asks, as a load balancer does, whether a node has endpoints of a Service.
func (st *stage) checkHealth(ctx context.Context, namespace string, target netip.AddrPort) (string, error) {
	response, answer, err := fetch(ctx, namespace, target.String(), "/")
	if err != nil {
		return outcomeOf(err), nil
	}
	var body struct {
		Service             struct{ Namespace, Name string }
		LocalEndpoints      int
		ServiceProxyHealthy bool
	}
	if err := json.Unmarshal(answer, &body); err != nil {
		return "", err
	}
	text := fmt.Sprintf("%d: %d local", response.StatusCode, body.LocalEndpoints)
	if body.Service.Namespace != st.namespace || !body.ServiceProxyHealthy || response.Header.Get("X-Load-Balancing-Endpoint-Weight") != strconv.Itoa(body.LocalEndpoints) {
		text += fmt.Sprintf(", of %v, healthy %t, weight %q", body.Service, body.ServiceProxyHealthy, response.Header.Get("X-Load-Balancing-Endpoint-Weight"))
	}
	return text, nil
}

// fetch reads a page by HTTP from a network namespace.
func fetch(ctx context.Context, namespace, target, path string) (response *http.Response, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	conn, err := fabric.Dial(ctx, namespace, "tcp", target)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(answerWait)); err != nil {
		return nil, nil, err
	}
	if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.0\r\n\r\n"); err != nil {
		return nil, nil, err
	}
	if response, err = http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return response, body, err
}

func sortedCopy(list []string) []string { return slices.Sorted(slices.Values(list)) }
