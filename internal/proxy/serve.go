package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Serve answers HTTP requests at an address until the context ends. It has opened the
// address when it returns, and calls failed should the server end before that.
func Serve(ctx context.Context, address string, handler http.Handler, failed func(error)) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() }) // nobody waits for its answers then
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failed(fmt.Errorf("serving %s: %w", address, err))
		}
	}()
	return nil
}
