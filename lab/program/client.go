package program

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"vicinity.dev/vicinity/lab/load"
)

// ClientAddress is where a client takes orders in the network of its pod, if not told
// otherwise.
const ClientAddress = "127.0.0.1:7070"

// runClient serves package load's API on a socket or the loopback device. Whoever
// reaches it can have it send to any address, so it listens nowhere else.
func runClient(ctx context.Context, p *process) (int, error) {
	set := p.flags()
	address := set.String("address", ClientAddress, "loopback address and port of the API; empty is none")
	socket := set.String("socket", "", "path of a unix socket for the API; empty is none")
	if err := p.parse(set); err != nil {
		return 0, err
	}
	listeners, err := clientListeners(ctx, *address, *socket)
	if err != nil {
		return 0, err
	}
	place := p.endpoint()
	var dialer net.Dialer
	server := &http.Server{
		Handler:           load.Handler(load.Place{Pod: place.Pod, Node: place.Node, Zone: place.Zone}, dialer.DialContext),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(p.stderr, "", 0),
	}
	served := make(chan error, len(listeners))
	for _, listener := range listeners {
		p.out.Printf("listening %s=%s", listener.Addr().Network(), listener.Addr())
		go func() { served <- server.Serve(listener) }()
	}
	select {
	case err := <-served:
		return 0, errors.Join(err, server.Close())
	case <-ctx.Done():
		// Orders under way end with their connections.
		return 0, server.Close()
	}
}

func clientListeners(ctx context.Context, address, socket string) ([]net.Listener, error) {
	var config net.ListenConfig
	var listeners []net.Listener
	if address == "" && socket == "" {
		return nil, usageError{errors.New("--address and --socket are both empty; a client needs one to be told what to do")}
	}
	if address != "" {
		if at, err := netip.ParseAddrPort(address); err != nil || !at.Addr().IsLoopback() {
			return nil, usageError{fmt.Errorf("--address %q is not on the loopback device; it must be like %s", address, ClientAddress)}
		}
		listener, err := config.Listen(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		listeners = append(listeners, listener)
	}
	if socket != "" {
		// One left behind by a killed process is in the way.
		if info, err := os.Lstat(socket); err == nil && info.Mode().Type() == fs.ModeSocket {
			if err := os.Remove(socket); err != nil {
				return nil, err
			}
		}
		listener, err := config.Listen(ctx, "unix", socket)
		if err != nil {
			return nil, err
		}
		listeners = append(listeners, listener)
	}
	return listeners, nil
}
