package main

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

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

	rules proxyflags.Flags

	minSyncPeriod, syncPeriod                time.Duration
	accountingInterval                       time.Duration
	conntrackTCPCleanup, conntrackAccounting bool
	conntrack                                kernel.Conntrack

	probeService string
	probePort    int

	health, metrics, pprof string
	log                    logConfig
}

func (s *settings) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "file that says how to reach the API server; without it the KUBECONFIG variable, or the pod's own account")
	flags.StringVar(&s.master, "master", "", "address of the API server, instead of the one that is known otherwise")
	flags.StringVar(&s.nodeName, "node-name", os.Getenv("NODE_NAME"), "name of the node that the proxy runs on; the NODE_NAME variable by default, or else the name of the machine")
	flags.StringVar(&s.leaseNamespace, "lease-namespace", os.Getenv("POD_NAMESPACE"), "namespace of Vicinity, in which the proxy keeps its Lease; the POD_NAMESPACE variable by default")
	s.rules.Add(flags)
	flags.DurationVar(&s.minSyncPeriod, "min-sync-period", proxy.DefaultMinSyncPeriod, "least time between two syncs: the first change is programmed at once, those that follow within that time together")
	flags.DurationVar(&s.syncPeriod, "sync-period", proxy.DefaultSyncPeriod, "how often all rules are compared with the kernel's even if nobody seems to have changed them")
	flags.BoolVar(&s.conntrackTCPCleanup, "conntrack-tcp-cleanup", false, "have the kernel forget connections of TCP and SCTP to endpoints that went, too, as it does those of UDP")
	flags.BoolVar(&s.conntrackAccounting, "conntrack-accounting", false, "count connections and bytes by Service and zone; sets the sysctl net.netfilter.nf_conntrack_acct")
	flags.DurationVar(&s.accountingInterval, "accounting-interval", accounting.DefaultInterval, "shortest time between two counts of the open connections; it is longer where a count takes more than 1 % of a CPU")
	flags.StringVar(&s.probeService, "probe-service", "vicinity-proxy-probe", "Service in --lease-namespace, without a selector, by which the proxy probes whether packets of the node come through its rules; empty for none")
	flags.IntVar(&s.probePort, "probe-port", probe.DefaultPort, "port of the node at which the proxy answers what comes to --probe-service; another one if it is taken, 0 for any")
	flags.IntVar(&s.conntrack.MaxPerCPU, "conntrack-max-per-core", 0, "connections that the kernel is to track at least, for each CPU, of which 1048576 count in all; 0 leaves its limit as it is. By default 32768 with --all-services, as of kube-proxy")
	flags.IntVar(&s.conntrack.Min, "conntrack-min", 0, "connections that it is to track at least, however few CPUs there are, with --conntrack-max-per-core. By default 131072 with --all-services")
	flags.DurationVar(&s.conntrack.TCPEstablished, "conntrack-tcp-timeout-established", 0, "how long the kernel is to track a TCP connection that is idle; 0 leaves that as it is. By default 24h with --all-services")
	flags.DurationVar(&s.conntrack.TCPCloseWait, "conntrack-tcp-timeout-close-wait", 0, "how long it is to track a TCP connection that one side has closed; 0 leaves that as it is. By default 1h with --all-services")
	flags.BoolVar(&s.conntrack.TCPBeLiberal, "conntrack-tcp-be-liberal", false, "have the kernel take packets of TCP that come out of order for part of their connection")
	flags.DurationVar(&s.conntrack.UDP, "conntrack-udp-timeout", 0, "how long the kernel is to track a UDP connection without an answer; 0 leaves that as it is")
	flags.DurationVar(&s.conntrack.UDPStream, "conntrack-udp-timeout-stream", 0, "how long it is to track a UDP connection that is idle; 0 leaves that as it is")
	flags.StringVar(&s.health, flagHealth, ":10266", "address of /healthz, /livez and /readyz; 0 for none. By default :10256 with --all-services, as of kube-proxy")
	flags.StringVar(&s.metrics, flagMetrics, ":10267", "address of /metrics and /proxyMode; 0 for none. By default :10249 with --all-services, the port of kube-proxy")
	flags.StringVar(&s.pprof, flagPprof, "", "address of /debug/pprof/; none by default")
	flags.StringVar(&s.log.level, "log-level", "info", "least important messages to log: "+strings.Join(logLevels, ", "))
	flags.StringVar(&s.log.format, "log-format", "json", "how to log: "+strings.Join(logFormats, ", "))
}

// ofKubeProxy are defaults in place of kube-proxy, so that load balancers, tools and connections find what they
// had.
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

// check returns an error about the first setting that makes no sense.
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
	case !slices.Contains(logLevels, s.log.level):
		return view.FlagErrorf("log-level", "%q is unknown; allowed are %s", s.log.level, strings.Join(logLevels, ", "))
	case !slices.Contains(logFormats, s.log.format):
		return view.FlagErrorf("log-format", "%q is unknown; allowed are %s", s.log.format, strings.Join(logFormats, ", "))
	}
	if err := s.checkConntrack(); err != nil {
		return err
	}
	_, err := s.rules.Settings()
	return err
}

// checkConntrack returns an error about the first setting that the kernel could not have.
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

// options expects checked settings.
func (s *settings) options() (proxy.Options, error) {
	rules, err := s.rules.Settings()
	if err != nil {
		return proxy.Options{}, err
	}
	rules.Elements = view.BoundsWithin(memoryLimit(os.DirFS(controlGroups)), rules.Elements)
	o := proxy.Options{
		NodeName: s.nodeName, Settings: rules,
		MinSyncPeriod: s.minSyncPeriod, SyncPeriod: s.syncPeriod,
		LeaseNamespace: s.leaseNamespace, ProbeService: s.probeService, ProbePort: uint16(s.probePort),
	}
	if s.conntrackAccounting {
		o.AccountingInterval = max(time.Millisecond, s.accountingInterval)
	}
	return o, nil
}
