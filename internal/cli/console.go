package cli

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/console"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/command"
)

type consoleFlags struct {
	cluster      clusterFlags
	address      string
	port         int
	trafficEvery time.Duration
	names        explainDNSFlags
}

func newConsoleCommand(s command.Streams, reach connector) *cobra.Command {
	var f consoleFlags
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Serve pages about a cluster to a browser on this machine",
		Long: `Console serves pages that show and follow a cluster, and prints the address to open. The same
values are JSON below /api/v1.

It reads with your rights and never writes; docs/reference/permissions.md lists them. Any user of
this machine who has the printed address can open the pages. From elsewhere use a tunnel such as
ssh -L.`,
		Example: `  vicinity console
  vicinity console --context production --port 8480`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), s, reach) },
	}
	flags := cmd.Flags()
	f.cluster.add(flags, "read only one `NAMESPACE`")
	flags.StringVar(&f.address, "address", "127.0.0.1", "`ADDRESS` to listen on: 127.0.0.1 or ::1")
	flags.IntVar(&f.port, "port", 0, "`PORT` to listen on (default any free port)")
	flags.DurationVar(&f.trafficEvery, "traffic-interval", 15*time.Second, "how often to read the counts of vicinity-proxy while a page is open; 0 for never")
	flags.StringVar(&f.names.zone, "zone", "cluster.local", "`DOMAIN` of the cluster")
	flags.BoolVar(&f.names.plan, "plan", false, "the DNS server's Corefile has the directive plan")
	return cmd
}

func (f *consoleFlags) run(ctx context.Context, s command.Streams, reach connector) error {
	listen, err := f.listen()
	if err != nil {
		return err
	}
	if f.trafficEvery < 0 || f.trafficEvery > 0 && f.trafficEvery < time.Second {
		return command.UsageErrorf("--traffic-interval %s is not allowed; it must be 0, or 1s or more", f.trafficEvery)
	}
	if _, err := f.names.zoneName(); err != nil {
		return err
	}
	asked, err := reach(&f.cluster)
	if err != nil {
		return err
	}
	// A timeout would end watches.
	watching := f.cluster
	watching.timeout = 0
	watched, err := reach(&watching)
	if err != nil {
		return err
	}
	return console.Serve(ctx, console.Options{
		Typed: watched.typed, Dynamic: watched.dynamic, Cluster: &consoleCluster{asked, f.names}, Server: watched.server, Namespace: f.cluster.namespace,
		TrafficEvery: f.trafficEvery, Listen: listen,
		Serving: func(url string) {
			fmt.Fprintln(s.Out, url)
			fmt.Fprintln(s.Err, "Open this address in a browser. Ctrl+C ends the console.")
		},
	})
}

func (f *consoleFlags) listen() (netip.AddrPort, error) {
	address, err := netip.ParseAddr(f.address)
	if err != nil || !address.IsLoopback() {
		return netip.AddrPort{}, command.UsageErrorf("--address %q is not allowed; it must be a loopback address, such as 127.0.0.1 or ::1", f.address)
	}
	if f.port < 0 || f.port > math.MaxUint16 {
		return netip.AddrPort{}, command.UsageErrorf("--port %d is not allowed; it must be from 0 to %d", f.port, math.MaxUint16)
	}
	return netip.AddrPortFrom(address, uint16(f.port)), nil
}

// consoleCluster answers single requests of a console. It reads the cluster for each.
type consoleCluster struct {
	connection *connection
	names      explainDNSFlags
}

func (c *consoleCluster) reader() *clusterReader {
	return &clusterReader{connection: c.connection, now: time.Now()}
}

func (c *consoleCluster) ExplainName(ctx context.Context, name, from string) (*inspect.NameExplanation, error) {
	question := c.names
	question.from, question.fromCalled = from, "client"
	return question.explain(ctx, c.reader(), name)
}

func (c *consoleCluster) Traffic(ctx context.Context) (readings []inspect.ProxyReading, notKnown []string, err error) {
	r := c.reader()
	pods, err := r.proxies(ctx)
	if err != nil {
		return nil, nil, err
	}
	if readings, err = r.traffic(ctx, pods); err != nil {
		return nil, nil, err
	}
	r.noteLimits(readings, c.connection.namespace)
	return readings, r.notKnown, nil
}

func (c *consoleCluster) Complete(ctx context.Context, e *inspect.Explanation, service *corev1.Service) (notKnown []string, err error) {
	r := c.reader()
	err = r.complete(ctx, e, service)
	return r.notKnown, err
}
