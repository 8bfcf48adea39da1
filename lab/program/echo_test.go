package program

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"vicinity.dev/vicinity/lab/load"
)

// An echo answers requests of every protocol, and ends in an orderly way.
func TestLoadIsAnswered(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	defer end()
	env := []string{
		"POD_NAME=echo-1", "POD_NAMESPACE=shop", "NODE_NAME=zone-a-1", "ZONE=zone-a", "SERVICE=echo",
		"ECHO_HOST=127.0.0.1", "ECHO_HTTP_PORT=0", "ECHO_TCP_PORT=0", "ECHO_UDP_PORT=0", "ECHO_DRAIN=1ms",
	}
	read, write := io.Pipe()
	code := make(chan int, 1)
	go func() { code <- Run(ctx, Call{Name: "echo", Env: env, Stdout: write, Stderr: t.Output()}) }()
	line, err := bufio.NewReader(read).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "listening ") {
		t.Fatalf("the echo printed %q, %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, read) }()
	sources := []load.Source{{Place: load.Place{Pod: "here", Zone: "zone-a"}, Dial: new(net.Dialer).DialContext}}
	for field := range strings.FieldsSeq(strings.TrimPrefix(line, "listening ")) {
		protocol, address, _ := strings.Cut(field, "=")
		r, err := load.Run(t.Context(), load.Plan{
			Targets: []netip.AddrPort{netip.MustParseAddrPort(address)}, Protocol: load.Protocol(protocol), Service: "shop/echo",
			Rate: 600, Duration: 50 * time.Millisecond, Timeout: 30 * time.Second,
		}, sources, load.Watch{})
		if err != nil || r.Due != 30 || r.Answered+r.Unsent.Total() != 30 || r.Answered == 0 {
			t.Fatalf("%s: %d due, %d answered, %+v unsent, failures %+v, %v", protocol, r.Due, r.Answered, r.Unsent, r.Examples, err)
		}
	}
	end()
	if got := <-code; got != 0 {
		t.Errorf("exit code %d, want 0", got)
	}
}
