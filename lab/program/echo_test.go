package program

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	grpcstatus "google.golang.org/grpc/status"

	"vicinity.dev/vicinity/lab/load"
)

// local is the environment of an echo that meets nobody.
var local = []string{"ECHO_HOST=127.0.0.1", "ECHO_HTTP_PORT=0", "ECHO_TCP_PORT=0", "ECHO_UDP_PORT=0", "ECHO_DRAIN=1ms"}

// pod is the environment of an echo that is a pod.
var pod = append([]string{"POD_NAME=echo-1", "POD_NAMESPACE=shop", "NODE_NAME=zone-a-1", "ZONE=zone-a", "SERVICE=echo"}, local...)

var endpoint = load.Endpoint{Pod: "echo-1", Namespace: "shop", Node: "zone-a-1", Zone: "zone-a", Service: "echo"}

// echoing is an echo that listens.
type echoing struct {
	*running
	at map[load.Protocol]netip.AddrPort
}

func startEcho(t *testing.T, env []string, args ...string) echoing {
	t.Helper()
	e := echoing{start(t, "echo", env, args...), make(map[load.Protocol]netip.AddrPort)}
	for field := range strings.FieldsSeq(e.line("listening ")) {
		protocol, address, _ := strings.Cut(field, "=")
		e.at[load.Protocol(protocol)] = netip.MustParseAddrPort(address)
	}
	return e
}

// ask makes one request of HTTP, over a connection of its own.
func (e echoing) ask(method, path string) (status int, body string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("http://%s%s", e.at[load.HTTP], path), nil)
	if err != nil {
		return 0, "", err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, strings.TrimSpace(string(text)), err
}

// says checks what a path answers.
func (e echoing) says(method, path string, status int, body string) {
	e.t.Helper()
	gotStatus, got, err := e.ask(method, path)
	if err != nil || gotStatus != status || got != body {
		e.t.Errorf("%s %s: %d %q, %v; want %d %q", method, path, gotStatus, got, err, status, body)
	}
}

func (e echoing) stats() Stats {
	e.t.Helper()
	_, body, err := e.ask(http.MethodGet, "/stats")
	if err != nil {
		e.t.Fatal(err)
	}
	var s Stats
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		e.t.Fatal(err)
	}
	return s
}

// dial opens a connection that does not outlive the test's patience.
func (e echoing) dial(protocol load.Protocol) net.Conn {
	e.t.Helper()
	network := "tcp"
	if protocol == load.UDP {
		network = "udp"
	}
	conn, err := net.DialTimeout(network, e.at[protocol].String(), patience)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		e.t.Fatal(err)
	}
	return conn
}

func write(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

func TestEveryAnswerSaysWhereItIsFrom(t *testing.T) {
	e := startEcho(t, pod)
	get := "GET /anything?id=1 HTTP/1.1\r\nHost: echo\r\n\r\n"
	for _, test := range []struct {
		protocol load.Protocol
		request  string
	}{
		{load.HTTP, get},
		{load.TCP, "1\n"},
		{load.UDP, "1"},
	} {
		conn := e.dial(test.protocol)
		reader := bufio.NewReader(conn)
		for range 2 { // the connection stays
			write(t, conn, test.request)
			if test.protocol == load.HTTP {
				for line := "-"; line != "\r\n"; {
					var err error
					if line, err = reader.ReadString('\n'); err != nil {
						t.Fatal(err)
					}
				}
			}
			line, err := reader.ReadBytes('\n')
			if err != nil {
				t.Fatal(err)
			}
			answer, err := load.ParseAnswer(line)
			want := load.Answer{Endpoint: endpoint, Protocol: test.protocol, Client: conn.LocalAddr().String(), ID: "1"}
			if err != nil || answer != want {
				t.Errorf("%s: %+v, %v; want %+v", test.protocol, answer, err, want)
			}
		}
	}
	until(t, "all answers are counted", func() bool {
		s := e.stats()
		return s.HTTP == 2 && s.TCP == 2 && s.UDP == 2 && s.InFlight == 0 && s.Ready && !s.Draining
	})
}

// The load and the echo understand each other.
func TestLoadIsAnswered(t *testing.T) {
	e := startEcho(t, pod)
	var dialer net.Dialer
	sources := []load.Source{{Place: load.Place{Pod: "here", Zone: "zone-a"}, Dial: dialer.DialContext}}
	for _, protocol := range []load.Protocol{load.HTTP, load.TCP, load.UDP} {
		plan := load.Plan{
			Targets: []netip.AddrPort{e.at[protocol]}, Protocol: protocol, Service: "shop/echo", KeepAlive: true,
			Rate: 600, Duration: 50 * time.Millisecond, Timeout: patience, Interval: 10 * time.Millisecond,
		}
		r, err := load.Run(t.Context(), plan, sources, load.Watch{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Due != 30 || r.Answered+r.Unsent.Total() != 30 || r.Answered == 0 {
			t.Errorf("%s: %d due, %d answered, %+v unsent, failures %+v", protocol, r.Due, r.Answered, r.Unsent, r.Examples)
		}
		for _, flow := range r.Flows {
			if flow.To != endpoint || flow.Zone != "zone-a" {
				t.Errorf("%s: a flow from %s to %+v", protocol, flow.Zone, flow.To)
			}
		}
	}
}

func TestAnEchoIsToldHowToBehave(t *testing.T) {
	e := startEcho(t, local, "--unready-after", "2")
	e.says("GET", "/readyz", 200, "ok")
	for range 2 {
		if status, body, err := e.ask("GET", "/"); status != 200 || !strings.Contains(body, `"pod":"unknown"`) {
			t.Fatalf("%d %s %v", status, body, err)
		}
	}
	until(t, "it is unready after two answers", func() bool { return !e.stats().Ready })
	e.says("GET", "/readyz", 503, "not ready")
	e.says("POST", "/control?ready=true", 200, "ok")
	e.says("GET", "/readyz", 200, "ok")
	e.says("POST", "/control?ready=false&live=false", 200, "ok")
	e.says("GET", "/readyz", 503, "not ready")
	e.says("GET", "/livez", 503, "not live")
	e.says("POST", "/control?live=true", 200, "ok")
	e.says("GET", "/livez", 200, "ok")

	e.says("GET", "/control?live=false", 405, "to control it, POST")
	e.says("POST", "/control?live=false&mood=bad", 400, `"mood" is unknown; it must be one of delay, ready, live, unready-after, crash-after, crash`)
	e.says("POST", "/control?live=false&delay=long", 400, `delay "long" is no time; it must be like 50ms, or 0`)
	e.says("GET", "/livez", 200, "ok") // nothing by halves
}

func TestAnEchoTellsItsHealthByGRPC(t *testing.T) {
	e := startEcho(t, local, "--grpc-port", "0")
	conn, err := grpc.NewClient(e.at["grpc"].String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := grpc_health_v1.NewHealthClient(conn)
	says := func(service, want string) {
		t.Helper()
		answer, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
		got := answer.GetStatus().String()
		if err != nil {
			got = grpcstatus.Code(err).String()
		}
		if got != want {
			t.Errorf("service %q: %s, want %s", service, got, want)
		}
	}
	for _, service := range []string{"", "ready", "live"} {
		says(service, "SERVING")
	}
	says("other", "NotFound")
	e.says("POST", "/control?ready=false", 200, "ok")
	says("", "NOT_SERVING")
	says("ready", "NOT_SERVING")
	says("live", "SERVING")
	e.says("POST", "/control?ready=true&live=false", 200, "ok")
	says("ready", "SERVING")
	says("live", "NOT_SERVING")
}

func TestACrashLosesWhatIsUnderWay(t *testing.T) {
	e := startEcho(t, append(pod, "ECHO_DELAY=1h"))
	requests := map[load.Protocol]string{load.HTTP: "GET / HTTP/1.1\r\nHost: echo\r\n\r\n", load.TCP: "1\n", load.UDP: "1"}
	conns := make(map[load.Protocol]net.Conn)
	for protocol, request := range requests {
		conns[protocol] = e.dial(protocol)
		write(t, conns[protocol], request)
	}
	until(t, "three requests are under way", func() bool { return e.stats().InFlight == 3 })
	e.says("POST", "/control?crash=3", 200, "ok")
	e.line("crashing with exit code 3")
	e.ends(3)
	for _, protocol := range []load.Protocol{load.HTTP, load.TCP} {
		if text, err := io.ReadAll(conns[protocol]); len(text) > 0 || errors.Is(err, syscall.ETIMEDOUT) {
			t.Errorf("%s: %q, %v", protocol, text, err)
		}
	}
}

func TestCrashesByAnswersAndAtTheStart(t *testing.T) {
	e := startEcho(t, pod, "--crash-after", "2", "--crash", "9")
	for range 2 {
		if status, _, err := e.ask("GET", "/"); status != 200 || err != nil {
			t.Fatalf("%d %v", status, err)
		}
	}
	e.ends(9)

	start(t, "echo", append(local, "ECHO_CRASH=4")).ends(4)
}

func TestAnEchoServesOnWhileItDrains(t *testing.T) {
	e := startEcho(t, pod, "--drain", "1h")
	held := e.dial(load.TCP)
	lines := bufio.NewReader(held)
	write(t, held, "1\n")
	if line, err := lines.ReadString('\n'); err != nil || strings.Contains(line, "last") {
		t.Fatalf("%s %v", line, err)
	}

	e.end()
	e.line("draining for 1h0m0s")
	e.says("GET", "/readyz", 503, "not ready")
	e.says("GET", "/livez", 200, "ok")
	if s := e.stats(); s.Ready || !s.Draining {
		t.Errorf("%+v", s)
	}
	// New requests are answered, and connections end in good order.
	write(t, held, "2\n")
	line, err := lines.ReadBytes('\n')
	answer, parseErr := load.ParseAnswer(line)
	if err := errors.Join(err, parseErr); err != nil || answer.ID != "2" || !answer.Last {
		t.Errorf("%+v, %v", answer, err)
	}
	if _, err := lines.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the connection does not end: %v", err)
	}
	conn := e.dial(load.HTTP)
	write(t, conn, "GET /?id=3 HTTP/1.1\r\nHost: echo\r\n\r\n")
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if !response.Close || response.StatusCode != http.StatusOK {
		t.Errorf("status %s, closing %t", response.Status, response.Close)
	}
	e.says("POST", "/control?crash=5", 200, "ok")
	e.ends(5)
}

// Where other nodes learn of its end later than it drains, it serves until nobody asks any more.
func TestAnEchoServesUntilItIsQuiet(t *testing.T) {
	const quiet = 200 * time.Millisecond
	e := startEcho(t, pod, "--drain", "0", "--drain-quiet", quiet.String())
	asked := time.Now()
	if status, _, err := e.ask(http.MethodGet, "/"); err != nil || status != http.StatusOK {
		t.Fatal(status, err)
	}
	e.end()
	e.ends(0)
	if took := time.Since(asked); took < quiet {
		t.Errorf("it ends %s after a request", took)
	}

	// What is under way counts as asked, also if it takes longer than the last call.
	e = startEcho(t, append(pod, "ECHO_DELAY="+(3*lastCall/2).String()), "--drain", "0", "--drain-quiet", "1ms")
	conn := e.dial(load.HTTP)
	write(t, conn, "GET / HTTP/1.1\r\nHost: echo\r\n\r\n")
	until(t, "the request came", func() bool { return e.stats().InFlight == 1 })
	e.end()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	e.ends(0)
}

func TestWhatIsUnderWayIsAnsweredBeforeTheEnd(t *testing.T) {
	e := startEcho(t, append(pod, "ECHO_DELAY=150ms"), "--drain", "0")
	requests := map[load.Protocol]string{load.HTTP: "GET / HTTP/1.1\r\nHost: echo\r\n\r\n", load.TCP: "1\n", load.UDP: "1"}
	conns := make(map[load.Protocol]net.Conn)
	idle := e.dial(load.TCP)
	for protocol := range requests {
		conns[protocol] = e.dial(protocol)
	}
	for protocol, request := range requests {
		write(t, conns[protocol], request)
	}
	until(t, "three requests came", func() bool { s := e.stats(); return s.InFlight+s.HTTP+s.TCP+s.UDP == 3 })
	e.end()
	e.ends(0)
	for protocol, conn := range conns {
		text := make([]byte, 4096)
		if n, err := conn.Read(text); err != nil || !strings.Contains(string(text[:n]), "echo-1") && protocol != load.HTTP {
			t.Errorf("%s: %q, %v", protocol, text[:n], err)
		}
	}
	if _, err := idle.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the idle connection ends with %v", err)
	}
	if conn, err := net.DialTimeout("tcp", e.at[load.HTTP].String(), patience); err == nil {
		_ = conn.Close()
		t.Error("it still listens")
	}
}

func TestASlowStartCanBeEnded(t *testing.T) {
	slow := start(t, "echo", local, "--start-delay", "1h")
	slow.end()
	slow.ends(0)

	startEcho(t, local, "--start-delay", "1ms")
}

func TestPortsCanBeLeftOut(t *testing.T) {
	e := startEcho(t, local, "--tcp-port", "-1", "--udp-port", "-1")
	if len(e.at) != 1 || !e.at[load.HTTP].IsValid() {
		t.Errorf("it listens on %v", e.at)
	}
	start(t, "echo", []string{"ECHO_HOST=127.0.0.1", "ECHO_TCP_PORT=-1", "ECHO_UDP_PORT=-1"},
		"--http-port", fmt.Sprint(e.at[load.HTTP].Port())).ends(exitFailure)
}
