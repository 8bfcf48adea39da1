// Package httpserver makes servers for ports of a node that any host on its network can reach. It bounds the number of
// connections, their time, and the size of a request.
package httpserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

const (
	// readTime bounds the arrival of a request.
	readTime = 10 * time.Second
	// writeTime bounds an answer, from the end of the request. A profile of pprof adds the requested time.
	writeTime = 30 * time.Second
	// idleTime bounds the pause between an answer and the next request.
	idleTime       = time.Minute
	maxHeaderBytes = 16 << 10
)

// New returns a server with a limit of connections. Servers can share a limit.
func New(handler http.Handler, limit *Limit) *http.Server {
	return &http.Server{
		Handler: handler, ConnState: limit.note,
		ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeaderBytes,
	}
}

// mostConnections bounds the connections of one server. It has few clients: the kubelet, a load balancer, a scraper.
const mostConnections = 64

// Serve answers HTTP requests at an address until the context ends. When it returns, the address is open. It calls failed if
// the server ends early.
func Serve(ctx context.Context, address string, handler http.Handler, failed func(error)) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := New(handler, NewLimit(mostConnections))
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failed(fmt.Errorf("serving %s: %w", address, err))
		}
	}()
	return nil
}
