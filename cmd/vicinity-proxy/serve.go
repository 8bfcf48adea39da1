package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"
	"os"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"vicinity.dev/vicinity/internal/proxy"
	"vicinity.dev/vicinity/internal/proxy/accounting"
	"vicinity.dev/vicinity/internal/proxy/kernel"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// serve serves Services until the context ends.
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
	// A node that has IPv6 must not go without it because something else failed: its rules
	// would stay as an earlier run has left them.
	switch err := conn.CheckSupport(ctx, ruleset.IPv6); {
	case kernel.Lacking(err):
		o.WithoutIPv6 = true
		log.Info("Services do not have IPv6 on this node", "cause", err.Error())
	case err != nil:
		return fmt.Errorf("finding out whether the kernel has IPv6: %w", err)
	}
	tracker, err := kernel.OpenTracker(kernel.TrackerOptions{TCP: c.conntrackTCPCleanup})
	if err != nil {
		return err
	}
	defer tracker.Close()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	o.Kernel, o.Tracker, o.Registry, o.Log = conn, tracker, registry, log
	p, err := proxy.New(o)
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	for _, server := range []struct {
		flag, address string
		handler       http.Handler
	}{
		{"healthz-bind-address", c.health, p.Health()},
		{"metrics-bind-address", c.metrics, metricsHandler(registry)},
		{"pprof-bind-address", cmp.Or(c.pprof, "0"), pprofHandler()},
	} {
		if server.address == "0" {
			continue
		}
		if err := proxy.Serve(ctx, server.address, server.handler, fail); err != nil {
			return fmt.Errorf("--%s: %w", server.flag, err)
		}
	}
	err = p.Run(ctx)
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// openKernel connects to the kernel, and sees whether it can do what it has to.
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
			log.Info("A setting of the kernel is not as it should be", "setting", one.Name, "value", one.Value, "want", one.Want, "consequence", one.Consequence)
		}
	}
	return conn, nil
}

// open connects to the kernel.
func open() (*kernel.Conn, error) {
	conn, err := kernel.Open()
	if errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("the capability NET_ADMIN is missing: %w", err)
	}
	return conn, err
}

// cleanUp deletes all rules.
func cleanUp(ctx context.Context) error {
	conn, err := open()
	if err != nil {
		return err
	}
	return errors.Join(conn.Cleanup(ctx), conn.Close())
}

// prepare does what the proxy may not have the rights for: it sets the switches of the
// kernel in a folder.
func prepare(ctx context.Context, folder string) error {
	// Which has the kernel load what the switches are of.
	conn, err := openKernel(ctx, logr.Discard())
	if err != nil {
		return err
	}
	return errors.Join(accounting.CountBytes(folder), conn.Close())
}

func metricsHandler(registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
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

// Requests to the API server: at all times, and at once. Watches are few, Leases one in ten
// seconds, and events have a bound of their own.
const (
	apiQPS   = 20
	apiBurst = 40
)

// api says how to reach the API server: as a file says that is named, or else as a pod.
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
