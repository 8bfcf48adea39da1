package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"os"
	"runtime"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"

	"vicinity.dev/vicinity/internal/kit/daemon"
	"vicinity.dev/vicinity/internal/proxy"
	"vicinity.dev/vicinity/internal/proxy/accounting"
	"vicinity.dev/vicinity/internal/proxy/httpserver"
	"vicinity.dev/vicinity/internal/proxy/kernel"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

func (c *command) serve(ctx context.Context) error {
	if c.leaseNamespace == "" {
		return errors.New("--lease-namespace: it is empty, and the controller looks for the proxy's Lease there")
	}
	log := c.log.Logger(os.Stderr)
	klog.SetLogger(log.WithName("client"))
	o, err := c.options()
	if err != nil {
		return err
	}
	if o.API, err = c.api(); err != nil {
		return err
	}
	conn, err := openKernel(ctx, log)
	if err != nil {
		return err
	}
	defer conn.Close()
	c.trackConnections(log)
	if o.WithoutIPv6, err = lacksIPv6(ctx, kernel.HasIPv6, conn); err != nil {
		return err
	}
	if o.WithoutIPv6 {
		log.Info("Services have no IPv6 on this node, because its kernel lacks IPv6")
	}
	tracker, err := kernel.OpenTracker(kernel.TrackerOptions{TCP: c.conntrackTCPCleanup})
	if err != nil {
		return err
	}
	defer tracker.Close()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	o.Kernel, o.Tracker, o.Registry, o.Log = conn, tracker, registry, log
	groups := os.DirFS(controlGroups)
	o.Programmed = raiseMemoryUse(memoryLimit(groups), heapLimit(groupLimit(groups), o.Elements.KernelMemory()))
	p, err := proxy.New(o)
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	if err := c.listen(ctx, p.Health(), metricsHandler(registry), fail); err != nil {
		return err
	}
	err = p.Run(ctx)
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// listen opens the ports of the flags, and answers until the context ends. It calls fail if a server ends early.
func (c *command) listen(ctx context.Context, health, metrics http.Handler, fail func(error)) error {
	for _, server := range []struct {
		flag, address string
		handler       http.Handler
	}{
		{flagHealth, c.health, health},
		{flagMetrics, c.metrics, metrics},
		{flagPprof, cmp.Or(c.pprof, "0"), pprofHandler()},
	} {
		if server.address == "0" {
			continue
		}
		switch err := httpserver.Serve(ctx, server.address, server.handler, fail); {
		case errors.Is(err, unix.EADDRINUSE):
			return fmt.Errorf("--%s: %w: another program of the node uses the port; kube-proxy uses 10256 and 10249; end it, or choose another port", server.flag, err)
		case err != nil:
			return fmt.Errorf("--%s: %w", server.flag, err)
		}
	}
	return nil
}

// openKernel connects to the kernel and checks its support and its settings.
func openKernel(ctx context.Context, log logr.Logger) (*kernel.Conn, error) {
	conn, err := open()
	if err != nil {
		return nil, err
	}
	if err := conn.CheckSupport(ctx, ruleset.IPv4); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	for _, family := range ruleset.Families {
		found, err := kernel.Findings(os.DirFS("/proc/sys"), family)
		if err != nil {
			log.Error(err, "Cannot read settings of the kernel")
		}
		for _, one := range found {
			logFinding(log, one)
		}
	}
	return conn, nil
}

// supportChecker is a *kernel.Conn outside of tests.
type supportChecker interface {
	CheckSupport(ctx context.Context, family ruleset.Family) error
}

// lacksIPv6 reports whether the kernel has no IPv6. A kernel with IPv6 that does not support the rules is an error:
// half of the addresses of Services would silently fail.
func lacksIPv6(ctx context.Context, hasIPv6 func() (bool, error), conn supportChecker) (bool, error) {
	if has, err := hasIPv6(); err != nil || !has {
		return err == nil, err
	}
	if err := conn.CheckSupport(ctx, ruleset.IPv6); err != nil {
		return false, fmt.Errorf("the kernel has IPv6, and does not support the rules for it: %w; to do without IPv6, start the kernel with ipv6.disable=1", err)
	}
	return false, nil
}

func open() (*kernel.Conn, error) {
	conn, err := kernel.Open()
	if errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("the capability NET_ADMIN is missing: %w", err)
	}
	return conn, err
}

func cleanUp(ctx context.Context) error {
	conn, err := open()
	if err != nil {
		return err
	}
	return errors.Join(conn.Cleanup(ctx), conn.Close())
}

// prepare configures how the kernel tracks and counts connections, for which the proxy itself may lack the rights. It logs
// failures: the proxy serves anyway.
func (c *command) prepare(ctx context.Context, log logr.Logger) {
	// This loads the modules of the settings.
	conn, err := openKernel(ctx, logr.Discard())
	if err != nil {
		log.Error(err, "Cannot load nftables: connections may not be tracked yet")
	} else {
		defer conn.Close()
	}
	c.trackConnections(log)
	if !c.conntrackAccounting {
		return
	}
	if err := accounting.CountBytes(c.switches); err != nil {
		log.Error(err, "Cannot count bytes of connections")
	}
}

func (c *command) trackConnections(log logr.Logger) {
	cpus, err := cpuset.NumCPU() // of the node; the process may have fewer
	if err != nil || cpus < 1 {
		cpus = runtime.NumCPU()
	}
	changes := c.conntrack.Set(c.switches, cpus)
	for i := range changes {
		if one := &changes[i]; one.Err != nil {
			logFinding(log.WithValues("cause", one.Err.Error()), one.Finding)
		} else {
			log.Info("Changed a setting of the kernel", "setting", one.Name, "before", one.Value, "value", one.Want)
		}
	}
}

func logFinding(log logr.Logger, one kernel.Finding) {
	log.Info("A setting of the kernel is wrong", "setting", one.Name, "value", one.Value, "want", one.Want, "consequence", one.Consequence)
}

// mostScrapes bounds the concurrent requests for metrics. Each has all figures in memory.
const mostScrapes = 8

func metricsHandler(registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	// kube-proxy answers these too. Tools read the mode, and monitors check /healthz.
	mux.HandleFunc("/proxyMode", textHandler(proxyMode))
	mux.HandleFunc("/healthz", textHandler("ok"))
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: mostScrapes}))
	return mux
}

// proxyMode is the corresponding mode of kube-proxy.
const proxyMode = "nftables"

func textHandler(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = io.WriteString(w, text) // the client may be gone
	}
}

func pprofHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// The limits of requests to the API server, per second and at once. Events have their own limit.
const (
	apiQPS   = 20
	apiBurst = 40
)

// api returns the configuration of the API client.
func (c *command) api() (*rest.Config, error) {
	api, err := daemon.API(c.kubeconfig, c.master)
	if errors.Is(err, daemon.ErrOutside) {
		return nil, fmt.Errorf("%w or --master", err)
	}
	if err != nil {
		return nil, err
	}
	api.QPS, api.Burst = apiQPS, apiBurst
	api.UserAgent = "vicinity-proxy"
	return api, nil
}
