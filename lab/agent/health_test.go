package agent

import (
	"context"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// The server is gRPC's own.
func TestHealth(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, state := grpc.NewServer(), health.NewServer()
	grpc_health_v1.RegisterHealthServer(server, state)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	state.SetServingStatus("sick", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	asks := func(service, want string) {
		t.Helper()
		err := queryHealth(t.Context(), listener.Addr().String(), service, func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("service %q: %v, want %q", service, err, want)
		}
	}
	asks("", "")
	asks("sick", `"NOT_SERVING"`)
	asks("unknown", "NotFound")
	server.Stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	asks("", "Unavailable")
}
