// Package console serves pages about a cluster to a browser on the same machine, and the values of the
// pages as JSON.
//
// It reads by watches, with the rights of its user, and never writes. It judges nothing: it shows
// values of package inspect, as explain, status and plan print them. A page is rendered from a
// snapshot. Server-Sent Events tell the browser that a part of the page has changed, and the browser
// requests that part again. Without a script the page is reloaded.
//
// Reads that are not watches go through Cluster, which the command line implements.
package console

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"vicinity.dev/vicinity/internal/inspect"
)

// Cluster answers single requests. The strings are sentences about what is not known.
type Cluster interface {
	// ExplainName returns the records that a client gets for a name. The client is a pod as
	// NAMESPACE/NAME, or an address.
	ExplainName(ctx context.Context, name, from string) (*inspect.NameExplanation, error)
	// Traffic returns the counts of the proxies on all nodes.
	Traffic(ctx context.Context) (readings []inspect.ProxyReading, notKnown []string, err error)
	// Complete adds to the explanation of a Service what the console does not watch.
	Complete(ctx context.Context, e *inspect.Explanation, service *corev1.Service) (notKnown []string, err error)
}

// Options configure Serve.
type Options struct {
	Typed   kubernetes.Interface
	Dynamic dynamic.Interface
	Cluster Cluster
	// Server is the address of the cluster, for messages.
	Server string
	// Namespace limits what is read; empty is all.
	Namespace string
	// TrafficEvery is the interval of reading traffic while a page is open, or zero for never.
	TrafficEvery time.Duration
	// Listen is a loopback address.
	Listen netip.AddrPort
	// Serving is called with the address of the first page once it can be opened.
	Serving func(url string)
}

// Serve serves until the context ends.
func Serve(ctx context.Context, o Options) error {
	if !o.Listen.Addr().IsLoopback() {
		return fmt.Errorf("address %s is not allowed; it must be a loopback address, such as 127.0.0.1 or ::1", o.Listen.Addr())
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.Listen.String())
	if err != nil {
		return fmt.Errorf("listening on %s: %w", o.Listen, err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return fmt.Errorf("listening on %s: %w", o.Listen, err)
	}
	c := newConsole(o)
	token := rand.Text()
	serving := &http.Server{
		Handler: newAccess(c.routes(), token, port), MaxHeaderBytes: 16 << 10,
		ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	go c.run(ctx)
	failed := make(chan error, 1)
	go func() { failed <- serving.Serve(listener) }()
	number, _ := strconv.Atoi(port)
	o.Serving(fmt.Sprintf("http://%s/?token=%s", netip.AddrPortFrom(o.Listen.Addr(), uint16(number)), token))
	select {
	case err = <-failed:
	case <-ctx.Done():
		// Streams of events never end by themselves.
		err = serving.Close()
	}
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving on %s: %w", listener.Addr(), err)
	}
	return nil
}

type console struct {
	options   Options
	watcher   *watcher
	traffic   *trafficMeter
	leases    *leaseReader
	listeners *listeners
	now       func() time.Time

	explanations explanations
}

func newConsole(o Options) *console {
	c := &console{options: o, listeners: newListeners(), now: time.Now, explanations: explanations{kept: map[string]explained{}}}
	c.watcher = newWatcher(o, c.listeners, func() time.Time { return c.now() })
	c.leases = &leaseReader{typed: o.Typed, now: func() time.Time { return c.now() }}
	c.traffic = &trafficMeter{cluster: o.Cluster, every: o.TrafficEvery, listeners: c.listeners}
	return c
}

func (c *console) run(ctx context.Context) {
	go c.traffic.run(ctx)
	go c.pulse(ctx)
	c.watcher.run(ctx)
}

// pulse refreshes pages whose values depend on the time or on Leases. Leases are not watched: proxies
// renew them every few seconds.
func (c *console) pulse(ctx context.Context) {
	ticks := time.NewTicker(leasesEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			c.listeners.publish(partProxies)
		}
	}
}
