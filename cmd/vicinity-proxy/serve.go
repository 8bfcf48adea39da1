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
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"

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
	log := c.log.logger(os.Stderr)
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
		log.Info("Services do not have IPv6 on this node, whose kernel does not have it")
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
	o.Programmed = startGenerously(memoryLimit(groups), heapLimit(groupLimit(groups), o.Elements.KernelMemory()))
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

// listen opens the ports that flags name, and answers until the context ends. It calls fail if a server ends
// before.
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
			return fmt.Errorf("--%s: %w: another program of the node has the port, as kube-proxy has 10256 and 10249 while it runs; end it, or give another port", server.flag, err)
		case err != nil:
			return fmt.Errorf("--%s: %w", server.flag, err)
		}
	}
	return nil
}

// openKernel connects to the kernel and checks what it can do.
func openKernel(ctx context.Context, log logr.Logger) (*kernel.Conn, error) {
	conn, err := open()
	if err != nil {
		return nil, err
	}
	if err := conn.CheckSupport(ctx, ruleset.IPv4); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	for _, family := range []ruleset.Family{ruleset.IPv4, ruleset.IPv6} {
		found, err := kernel.Findings(os.DirFS("/proc/sys"), family)
		if err != nil {
			log.Error(err, "Settings of the kernel are not known")
		}
		for _, one := range found {
			tellSetting(log, one)
		}
	}
	return conn, nil
}

// supportChecker checks what the kernel can do. It is a *kernel.Conn outside of tests.
type supportChecker interface {
	CheckSupport(ctx context.Context, family ruleset.Family) error
}

// lacksIPv6 reports whether the kernel has no IPv6. It is an error if the kernel has IPv6 and cannot
// do what rules need: half of the addresses of Services would not work, silently.
func lacksIPv6(ctx context.Context, hasIPv6 func() (bool, error), conn supportChecker) (bool, error) {
	if has, err := hasIPv6(); err != nil || !has {
		return err == nil, err
	}
	if err := conn.CheckSupport(ctx, ruleset.IPv6); err != nil {
		return false, fmt.Errorf("the kernel has IPv6, and no rules of IPv6 can be made: %w; to do without IPv6, start the kernel with ipv6.disable=1", err)
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

// prepare does what the proxy itself may lack the rights for: it sets how the kernel tracks and counts
// connections. It logs failures, and the proxy serves anyway.
func (c *command) prepare(ctx context.Context, log logr.Logger) {
	// This loads the modules whose settings are set.
	conn, err := openKernel(ctx, logr.Discard())
	if err != nil {
		log.Error(err, "Connections may not be tracked yet")
	} else {
		defer conn.Close()
	}
	c.trackConnections(log)
	if !c.conntrackAccounting {
		return
	}
	if err := accounting.CountBytes(c.switches); err != nil {
		log.Error(err, "Bytes of connections are not counted")
	}
}

func (c *command) trackConnections(log logr.Logger) {
	cpus, err := cpuset.NumCPU() // of the node, of which the process may have fewer
	if err != nil || cpus < 1 {
		cpus = runtime.NumCPU()
	}
	changes := c.conntrack.Set(c.switches, cpus)
	for i := range changes {
		if one := &changes[i]; one.Err != nil {
			tellSetting(log.WithValues("cause", one.Err.Error()), one.Finding)
		} else {
			log.Info("A setting of the kernel was changed", "setting", one.Name, "before", one.Value, "value", one.Want)
		}
	}
}

func tellSetting(log logr.Logger, one kernel.Finding) {
	log.Info("A setting of the kernel is not as it should be", "setting", one.Name, "value", one.Value, "want", one.Want, "consequence", one.Consequence)
}

// mostScrapes bounds the requests for metrics at once. Each holds all figures in memory.
const mostScrapes = 8

func metricsHandler(registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	// kube-proxy answers these too: tools look for the mode, and monitors for a sign of life.
	mux.HandleFunc("/proxyMode", says(proxyMode))
	mux.HandleFunc("/healthz", says("ok"))
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: mostScrapes}))
	return mux
}

// proxyMode is the mode of kube-proxy that the rules are like.
const proxyMode = "nftables"

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = io.WriteString(w, text) // the client may have gone
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

// Requests to the API server per second, and at once. Events have a bound of their own.
const (
	apiQPS   = 20
	apiBurst = 40
)

// api configures the API server by a file or a flag, else by the pod's account.
func (c *command) api() (*rest.Config, error) {
	var api *rest.Config
	var err error
	if c.kubeconfig == "" && c.master == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		api, err = rest.InClusterConfig()
	} else {
		rules := clientcmd.NewDefaultClientConfigLoadingRules()
		rules.ExplicitPath = c.kubeconfig
		overrides := &clientcmd.ConfigOverrides{}
		overrides.ClusterInfo.Server = c.master
		api, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	}
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, errors.New("--kubeconfig: it is needed outside of a cluster, or else the KUBECONFIG variable or --master")
	}
	if err != nil {
		return nil, fmt.Errorf("finding the API server: %w", err)
	}
	api.QPS, api.Burst = apiQPS, apiBurst
	api.UserAgent = "vicinity-proxy"
	return api, nil
}
