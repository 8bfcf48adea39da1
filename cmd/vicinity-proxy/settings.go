package main

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/daemon"
	"vicinity.dev/vicinity/internal/proxy"
	"vicinity.dev/vicinity/internal/proxy/accounting"
	"vicinity.dev/vicinity/internal/proxy/kernel"
	"vicinity.dev/vicinity/internal/proxy/probe"
	"vicinity.dev/vicinity/internal/proxy/proxyflags"
	"vicinity.dev/vicinity/internal/proxy/view"
)

const (
	flagHealth  = "healthz-bind-address"
	flagMetrics = "metrics-bind-address"
	flagPprof   = "pprof-bind-address"
)

type settings struct {
	kubeconfig, master       string
	nodeName, leaseNamespace string
	startupTaint             bool

	rules proxyflags.Flags

	minSyncPeriod, syncPeriod                time.Duration
	accountingInterval                       time.Duration
	conntrackTCPCleanup, conntrackAccounting bool
	conntrack                                kernel.Conntrack

	probeService string
	probePort    int

	health, metrics, pprof string
	log                    daemon.Log
}

func (s *settings) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "kubeconfig file (default $KUBECONFIG, or the pod's service account)")
	flags.StringVar(&s.master, "master", "", "address of the API server; overrides the kubeconfig file")
	flags.StringVar(&s.nodeName, "node-name", os.Getenv("NODE_NAME"), "name of the node (default $NODE_NAME, or the host name)")
	flags.StringVar(&s.leaseNamespace, "lease-namespace", os.Getenv("POD_NAMESPACE"), "namespace of the proxy's Lease (default $POD_NAMESPACE)")
	flags.BoolVar(&s.startupTaint, "startup-taint", false, "remove the taint "+v1alpha1.TaintProxyNotReady+" from the node once its rules are programmed")
	s.rules.Add(flags)
	flags.DurationVar(&s.minSyncPeriod, "min-sync-period", proxy.DefaultMinSyncPeriod, "least time between two syncs")
	flags.DurationVar(&s.syncPeriod, "sync-period", proxy.DefaultSyncPeriod, "how often all rules are compared with the kernel's")
	flags.BoolVar(&s.conntrackTCPCleanup, "conntrack-tcp-cleanup", false, "forget established TCP and SCTP connections to removed endpoints too")
	flags.BoolVar(&s.conntrackAccounting, "conntrack-accounting", false, "count connections and bytes by Service and zone; sets net.netfilter.nf_conntrack_acct")
	flags.DurationVar(&s.accountingInterval, "accounting-interval", accounting.DefaultInterval, "least time between two counts of open connections")
	flags.StringVar(&s.probeService, "probe-service", "vicinity-proxy-probe", "Service without a selector in --lease-namespace to probe the rules with; empty for no probe")
	flags.IntVar(&s.probePort, "probe-port", probe.DefaultPort, "port of the node that answers the probe, or another one if it is taken; 0 for any")
	flags.IntVar(&s.conntrack.MaxPerCPU, "conntrack-max-per-core", 0, "least limit of tracked connections for each CPU; 0 leaves it alone (32768 with --all-services)")
	flags.IntVar(&s.conntrack.Min, "conntrack-min", 0, "least limit of tracked connections in all (131072 with --all-services)")
	flags.DurationVar(&s.conntrack.TCPEstablished, "conntrack-tcp-timeout-established", 0, "timeout of idle TCP connections; 0 leaves it alone (24h with --all-services)")
	flags.DurationVar(&s.conntrack.TCPCloseWait, "conntrack-tcp-timeout-close-wait", 0, "timeout of TCP connections that one side has closed; 0 leaves it alone (1h with --all-services)")
	flags.BoolVar(&s.conntrack.TCPBeLiberal, "conntrack-tcp-be-liberal", false, "accept TCP packets outside of the window as part of their connection")
	flags.DurationVar(&s.conntrack.UDP, "conntrack-udp-timeout", 0, "timeout of UDP connections without an answer; 0 leaves it alone")
	flags.DurationVar(&s.conntrack.UDPStream, "conntrack-udp-timeout-stream", 0, "timeout of idle UDP connections; 0 leaves it alone")
	flags.StringVar(&s.health, flagHealth, ":10266", "address of /healthz, /livez and /readyz; 0 for none (:10256 with --all-services)")
	flags.StringVar(&s.metrics, flagMetrics, ":10267", "address of /metrics and /proxyMode; 0 for none (:10249 with --all-services)")
	flags.StringVar(&s.pprof, flagPprof, "", "address of /debug/pprof/ (default none)")
	s.log.AddFlags(flags)
}

// ofKubeProxy has the defaults in place of kube-proxy, so that load balancers, tools and connections work as before.
var ofKubeProxy = map[string]string{
	flagHealth: ":10256", flagMetrics: ":10249",
	"conntrack-max-per-core": "32768", "conntrack-min": "131072",
	"conntrack-tcp-timeout-established": "24h", "conntrack-tcp-timeout-close-wait": "1h",
}

// replaceKubeProxy sets the defaults that depend on --all-services.
func (s *settings) replaceKubeProxy(flags *pflag.FlagSet) error {
	if !s.rules.AllServices {
		return nil
	}
	for name, value := range ofKubeProxy {
		if flags.Changed(name) {
			continue
		}
		if err := flags.Lookup(name).Value.Set(value); err != nil {
			return fmt.Errorf("--%s: %w", name, err)
		}
	}
	return nil
}

// check returns an error about the first invalid setting.
func (s *settings) check() error {
	s.nodeName = cmp.Or(s.nodeName, hostname())
	switch {
	case s.nodeName == "":
		return view.FlagErrorf("node-name", "it is empty, and the machine has no name either")
	case s.minSyncPeriod < 0 || s.minSyncPeriod > time.Minute:
		return view.FlagErrorf("min-sync-period", "%s is not allowed; it must be from 0 to 1m", s.minSyncPeriod)
	case s.syncPeriod < time.Second:
		return view.FlagErrorf("sync-period", "%s is not allowed; it must be 1s or more", s.syncPeriod)
	case s.accountingInterval < 0 || s.accountingInterval > time.Hour:
		return view.FlagErrorf("accounting-interval", "%s is not allowed; it must be from 0 to 1h", s.accountingInterval)
	case s.probePort < 0 || s.probePort > 65535:
		return view.FlagErrorf("probe-port", "%d is not allowed; it must be from 0 to 65535", s.probePort)
	}
	if err := s.log.Check(); err != nil {
		return err
	}
	if err := s.checkConntrack(); err != nil {
		return err
	}
	_, err := s.rules.Settings()
	return err
}

// checkConntrack returns an error about the first setting that the kernel refuses.
func (s *settings) checkConntrack() error {
	for _, number := range []struct {
		flag  string
		value int
	}{{"conntrack-max-per-core", s.conntrack.MaxPerCPU}, {"conntrack-min", s.conntrack.Min}} {
		if number.value < 0 || number.value > math.MaxInt32 {
			return view.FlagErrorf(number.flag, "%d is not allowed; it must be from 0 to %d", number.value, math.MaxInt32)
		}
	}
	const longest = 10 * 365 * 24 * time.Hour
	for _, timeout := range []struct {
		flag  string
		value time.Duration
	}{
		{"conntrack-tcp-timeout-established", s.conntrack.TCPEstablished},
		{"conntrack-tcp-timeout-close-wait", s.conntrack.TCPCloseWait},
		{"conntrack-udp-timeout", s.conntrack.UDP},
		{"conntrack-udp-timeout-stream", s.conntrack.UDPStream},
	} {
		if timeout.value%time.Second != 0 || timeout.value < 0 || timeout.value > longest {
			return view.FlagErrorf(timeout.flag, "%s is not allowed; it must be 0, or full seconds up to %s", timeout.value, longest)
		}
	}
	return nil
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return strings.ToLower(strings.TrimSpace(name))
}

// options returns the options of the proxy. The settings must be checked before.
func (s *settings) options() (proxy.Options, error) {
	rules, err := s.rules.Settings()
	if err != nil {
		return proxy.Options{}, err
	}
	rules.Elements = view.BoundsWithin(memoryLimit(os.DirFS(controlGroups)), rules.Elements)
	o := proxy.Options{
		NodeName: s.nodeName, Settings: rules,
		MinSyncPeriod: s.minSyncPeriod, SyncPeriod: s.syncPeriod,
		LeaseNamespace: s.leaseNamespace, StartupTaint: s.startupTaint, ProbeService: s.probeService, ProbePort: uint16(s.probePort),
	}
	if s.conntrackAccounting {
		o.AccountingInterval = max(time.Millisecond, s.accountingInterval)
	}
	return o, nil
}
