// Package console serves pages about a cluster to a browser on the same machine, and the
// values of the pages as JSON.
//
// It reads with the rights of its user, by watches, and never writes. It judges nothing:
// what it shows are values of package inspect, as explain, status and plan print them. A page
// is rendered from a snapshot of what was read. The browser is told by Server-Sent Events that
// a part of it has changed, and asks for that part again; without a script it is reloaded.
//
// What it asks for once, instead of watching it, is asked of a Cluster, which the command line
// implements.
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

// Cluster answers what the console asks once. What is not known is said in sentences.
type Cluster interface {
	// ExplainName says which records a client gets for a name: a pod as NAMESPACE/NAME, or an
	// address.
	ExplainName(ctx context.Context, name, from string) (*inspect.NameExplanation, error)
	// Traffic is what the proxies of all nodes have counted.
	Traffic(ctx context.Context) (readings []inspect.ProxyReading, notKnown []string, err error)
	// Autoscalers are the names of those that scale the pods of a Service.
	Autoscalers(ctx context.Context, service *corev1.Service) (names, notKnown []string, err error)
}

// Options are what a console is made of.
type Options struct {
	Typed   kubernetes.Interface
	Dynamic dynamic.Interface
	Cluster Cluster
	// Server is the address of the cluster, for messages.
	Server string
	// Namespace restricts what is read of namespaces; empty is all.
	Namespace string
	// TrafficEvery is how often proxies are asked for what they have counted while someone looks;
	// they are not asked if it is zero.
	TrafficEvery time.Duration
	// Listen is where to serve: an address of the machine itself.
	Listen netip.AddrPort
	// Serving is called with the address of the first page when it can be opened.
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
		// Streams of events do not end by themselves, and nobody waits for pages.
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

// run reads and measures until the context ends.
func (c *console) run(ctx context.Context) {
	go c.traffic.run(ctx)
	go c.pulse(ctx)
	c.watcher.run(ctx)
}

// pulse has pages look anew whose values follow the time or Leases, which are not watched:
// proxies renew them every few seconds.
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
