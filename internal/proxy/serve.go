package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"vicinity.dev/vicinity/internal/proxy/httpserver"
)

// mostConnections is how many connections a server holds at once. Few clients ask at its
// port: the kubelet, a load balancer, a scraper.
const mostConnections = 64

// Serve answers HTTP requests at an address until the context ends. It has opened the
// address when it returns, and calls failed should the server end before that.
func Serve(ctx context.Context, address string, handler http.Handler, failed func(error)) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := httpserver.New(handler, httpserver.NewLimit(mostConnections))
	context.AfterFunc(ctx, func() { _ = server.Close() }) // nobody waits for its answers then
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failed(fmt.Errorf("serving %s: %w", address, err))
		}
	}()
	return nil
}
