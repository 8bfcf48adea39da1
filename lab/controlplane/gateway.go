package controlplane

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	gatewayDialTimeout = 2 * time.Second
	// gatewayAcceptPause is the pause after an error from accept.
	gatewayAcceptPause = 50 * time.Millisecond
)

// ServeGateway listens on the host's 127.0.0.1 and forwards connections to the API server
// until the context ends.
func (c *ControlPlane) ServeGateway(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.addrs.outside.String())
	if err != nil {
		return fmt.Errorf("listening for the host: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	for ctx.Err() == nil {
		client, err := listener.Accept()
		if err != nil {
			// Errors such as too many open files are temporary. Ending would cut off all clients.
			time.Sleep(gatewayAcceptPause)
			continue
		}
		go c.forward(ctx, client)
	}
	return nil
}

// forward connects a client to the API server until one of them closes the connection.
func (c *ControlPlane) forward(ctx context.Context, client net.Conn) {
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, gatewayDialTimeout)
	defer cancel()
	server, err := c.dial(c.namespace)(ctx, "tcp", c.addrs.apiServer.String())
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
}
