package load

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// controlled serves the API of a client program on a socket, and dials it.
func controlled(t *testing.T, handler http.Handler) func(context.Context) (net.Conn, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "control")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		if err := errors.Join(server.Close(), <-served); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return func(ctx context.Context) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "unix", path)
	}
}

func TestClientProgramsMeasureAsThisOneDoes(t *testing.T) {
	target := serve(t, responding(func(id string) string {
		if strings.HasSuffix(id, "-3") {
			return line(id, "other")
		}
		return line(id, "echo")
	}))
	var dialer net.Dialer
	plan := Plan{
		Targets: []netip.AddrPort{target}, Protocol: TCP, Service: "echo", KeepAlive: true,
		Rate: 500, Duration: 200 * time.Millisecond, Interval: 20 * time.Millisecond, Timeout: 30 * time.Second,
	}
	sources := zones(dialer.DialContext, "zone-a", "zone-b", "zone-c")
	for i := range 2 {
		sources[i].Dial = nil
		sources[i].Control = controlled(t, Handler(Place{Zone: "elsewhere"}, dialer.DialContext))
	}
	reports, told := 0, 0
	r, err := Run(t.Context(), plan, sources, Watch{
		Progress: func(Progress) { reports++ },
		Failure:  func(Failure) { told++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	balanced(t, r)
	if r.Due != 100 || r.Answered+r.Unsent.Total() != 97 || r.FailedAs(WrongService) != 3 || told != 1 || reports < 2 {
		t.Errorf("%d due, %d answered, %+v unsent, failures %+v, told of %d in %d reports", r.Due, r.Answered, r.Unsent, r.Failures, told, reports)
	}
	s := Summarize(plan, len(sources), r)
	if len(s.Matrix) != 3 || s.Matrix[0].From != "zone-a" || s.Matrix[2].From != "zone-c" {
		t.Errorf("the matrix is %+v", s.Matrix)
	}
}

func TestAClientProgramStopsWhenTheRunDoes(t *testing.T) {
	asked := make(chan struct{}, 100)
	target := serve(t, func(conn *net.TCPConn) {
		asked <- struct{}{}
		_, _ = io.Copy(io.Discard, conn)
	})
	returned := make(chan struct{})
	var dialer net.Dialer
	handler := Handler(Place{}, dialer.DialContext)
	control := controlled(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(returned)
		handler.ServeHTTP(w, r)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	plan := Plan{Targets: []netip.AddrPort{target}, Protocol: TCP, Rate: 10, Duration: time.Hour, Timeout: time.Hour}
	if _, err := Run(ctx, plan, []Source{{Place: Place{Pod: "client"}, Control: control}}, Watch{}); err != nil {
		t.Errorf("a stopped run is no error: %v", err)
	}
	select {
	case <-returned:
	case <-time.After(30 * time.Second):
		t.Error("the client program goes on")
	}
}

// What cannot be used is told of; what could be used is measured all the same.
func TestClientProgramsThatFail(t *testing.T) {
	var dialer net.Dialer
	target := serve(t, responding(func(id string) string { return line(id, "echo") }))
	for _, test := range []struct {
		name    string
		control func(context.Context) (net.Conn, error)
		want    string
	}{
		{
			name:    "not there",
			control: func(context.Context) (net.Conn, error) { return nil, errors.New("no such socket") },
			want:    "sending from pod broken: asking the client program: ",
		},
		{
			name: "declines",
			control: controlled(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "out of order", http.StatusServiceUnavailable)
			})),
			want: "sending from pod broken: the client program declined: out of order",
		},
		{
			name: "dies",
			control: controlled(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, `{"result":{"due":7}}`+"\n")
			})),
			want: "sending from pod broken: the results of the client program end early: EOF",
		},
		{
			name: "says that it failed",
			control: controlled(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, `{"done":true,"error":"bad day"}`+"\n")
			})),
			want: "sending from pod broken: bad day",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			plan := Plan{Targets: []netip.AddrPort{target}, Protocol: TCP, Rate: 1000, Duration: 20 * time.Millisecond, Timeout: 30 * time.Second}
			sources := append(zones(dialer.DialContext, "zone-a"), Source{Place: Place{Pod: "broken"}, Control: test.control})
			r, err := Run(t.Context(), plan, sources, Watch{})
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if r.Answered == 0 {
				t.Error("the other source measured nothing")
			}
		})
	}
}

func TestJobsAreChecked(t *testing.T) {
	control := controlled(t, Handler(Place{}, nil))
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return control(ctx) }, DisableKeepAlives: true,
	}}
	for _, test := range []struct{ job, want string }{
		{`{`, "reading the job: unexpected EOF"},
		{`{"plan":{},"speed":1}`, `reading the job: json: unknown field "speed"`},
		{
			`{"plan":{"targets":["10.0.0.1:80"],"rate":1,"duration":1000000000},"index":2,"of":2}`,
			"part 2 of 2 does not exist; a part is a number from 0 to below the number of parts",
		},
		{`{"plan":{"rate":1},"of":1}`, "targets is empty; it must hold at least one address and port, as 10.96.0.7:80"},
	} {
		response, err := client.Post("http://client"+RunPath, "application/json", strings.NewReader(test.job))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		if err := errors.Join(err, response.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(string(text)); response.StatusCode != http.StatusBadRequest || got != test.want {
			t.Errorf("%s: status %d, %s; want %s", test.job, response.StatusCode, got, test.want)
		}
	}
}
