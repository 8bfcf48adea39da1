// Package httpserver makes servers for ports of a node that anybody on its network may reach. It bounds what
// clients can take: the number of connections, the time, and the size of a request.
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
	// readTime is how long a request may take to arrive, also the first one of a connection.
	readTime = 10 * time.Second
	// writeTime is how long an answer may take, from the end of the request. A profile of pprof
	// gets the requested time on top.
	writeTime = 30 * time.Second
	// idleTime is how long a connection is kept after an answer without another request.
	idleTime = time.Minute
	// maxHeaderBytes is about how much of a request's header is read.
	maxHeaderBytes = 16 << 10
)

// New makes a server whose connections count against a limit. Servers may share a limit.
func New(handler http.Handler, limit *Limit) *http.Server {
	return &http.Server{
		Handler: handler, ConnState: limit.note,
		ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeaderBytes,
	}
}

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
	server := New(handler, NewLimit(mostConnections))
	context.AfterFunc(ctx, func() { _ = server.Close() }) // nobody waits for its answers then
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failed(fmt.Errorf("serving %s: %w", address, err))
		}
	}()
	return nil
}
