package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"vicinity.dev/vicinity/internal/proxy"
	"vicinity.dev/vicinity/internal/proxy/view"
)

// settings are what flags and the configuration file say.
type settings struct {
	kubeconfig, master       string
	nodeName, leaseNamespace string

	allServices       bool
	nodePortAddresses []string
	pods              view.PodFlags
	masqueradeAll     bool
	masqueradeBit     int

	minSyncPeriod, syncPeriod                time.Duration
	conntrackTCPCleanup, conntrackAccounting bool

	health, metrics, pprof string
	log                    logConfig
}

// addFlags binds the settings to flags, which gives them their defaults.
func (s *settings) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "file that says how to reach the API server; without it the KUBECONFIG variable, or the pod's own account")
	flags.StringVar(&s.master, "master", "", "address of the API server, instead of the one that is known otherwise")
	flags.StringVar(&s.nodeName, "node-name", os.Getenv("NODE_NAME"), "name of the node that the proxy runs on; the NODE_NAME variable by default, or else the name of the machine")
	flags.StringVar(&s.leaseNamespace, "lease-namespace", os.Getenv("POD_NAMESPACE"), "namespace of Vicinity, in which the proxy keeps its Lease; the POD_NAMESPACE variable by default")
	flags.BoolVar(&s.allServices, "all-services", false, "serve Services without EndpointGroups too, by their EndpointSlices, instead of kube-proxy")
	flags.StringSliceVar(&s.nodePortAddresses, "nodeport-addresses", []string{"primary"}, "prefixes of the node's addresses that take NodePorts, or primary for those that the node's object names first")
	flags.StringVar(&s.pods.Mode, view.FlagPodMode, "", "how traffic of pods is told from other traffic, as kube-proxy does: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix; by default by --cluster-cidr, and by the prefixes of the node's own pods for IPv4 or IPv6 where that has none")
	flags.StringSliceVar(&s.pods.ClusterCIDRs, view.FlagClusterCIDR, nil, "prefixes that pods get their addresses from; by default those of the node's own pods")
	flags.StringVar(&s.pods.Bridge, view.FlagPodBridge, "", "bridge that traffic of pods comes in by, with --detect-local-mode=BridgeInterface")
	flags.StringVar(&s.pods.InterfacePrefix, view.FlagPodInterfacePrefix, "", "what the names of interfaces begin with that traffic of pods comes in by, with --detect-local-mode=InterfaceNamePrefix")
	flags.BoolVar(&s.masqueradeAll, "masquerade-all", false, "give all connections to addresses of Services the node's address as their source")
	flags.IntVar(&s.masqueradeBit, "masquerade-bit", proxy.DefaultMasqueradeBit, "bit of packet marks by which connections are chosen that get the node's address as their source, 0 to 31; nobody else may use it, and kube-proxy has 14")
	flags.DurationVar(&s.minSyncPeriod, "min-sync-period", proxy.DefaultMinSyncPeriod, "least time between two syncs: the first change is programmed at once, those that follow within that time together")
	flags.DurationVar(&s.syncPeriod, "sync-period", proxy.DefaultSyncPeriod, "how often all rules are compared with the kernel's even if nobody seems to have changed them")
	flags.BoolVar(&s.conntrackTCPCleanup, "conntrack-tcp-cleanup", false, "have the kernel forget connections of TCP and SCTP to endpoints that went, too, as it does those of UDP")
	flags.BoolVar(&s.conntrackAccounting, "conntrack-accounting", false, "count connections and bytes by Service and zone; sets the sysctl net.netfilter.nf_conntrack_acct")
	flags.StringVar(&s.health, "healthz-bind-address", ":10266", "address of /healthz, /livez and /readyz; 0 for none. That of kube-proxy is :10256")
	flags.StringVar(&s.metrics, "metrics-bind-address", ":10267", "address of /metrics; 0 for none")
	flags.StringVar(&s.pprof, "pprof-bind-address", "", "address of /debug/pprof/; none by default")
	flags.StringVar(&s.log.level, "log-level", "info", "least important messages to log: "+strings.Join(logLevels, ", "))
	flags.StringVar(&s.log.format, "log-format", "json", "how to log: "+strings.Join(logFormats, ", "))
}

// fault is a setting that is not allowed.
type fault struct {
	flag string
	text string
}

func faultf(flag, format string, args ...any) *fault {
	return &fault{flag, fmt.Sprintf(format, args...)}
}

// check finds the first setting that makes no sense. It is nil if there is none.
func (s *settings) check() *fault {
	s.nodeName = cmp.Or(s.nodeName, hostname())
	switch {
	case s.nodeName == "":
		return faultf("node-name", "it is empty, and the machine has no name either")
	case s.masqueradeBit < 0 || s.masqueradeBit > 31:
		return faultf("masquerade-bit", "%d is not allowed; it must be from 0 to 31", s.masqueradeBit)
	case s.minSyncPeriod < 0 || s.minSyncPeriod > time.Minute:
		return faultf("min-sync-period", "%s is not allowed; it must be from 0 to 1m", s.minSyncPeriod)
	case s.syncPeriod < time.Second:
		return faultf("sync-period", "%s is not allowed; it must be 1s or more", s.syncPeriod)
	case !slices.Contains(logLevels, s.log.level):
		return faultf("log-level", "%q is unknown; allowed are %s", s.log.level, strings.Join(logLevels, ", "))
	case !slices.Contains(logFormats, s.log.format):
		return faultf("log-format", "%q is unknown; allowed are %s", s.log.format, strings.Join(logFormats, ", "))
	}
	if _, err := view.ParseNodePorts(s.nodePortAddresses); err != nil {
		return faultf("nodeport-addresses", "%s", err)
	}
	if _, wrong := s.pods.Pods(); wrong != nil {
		return &fault{wrong.Flag, wrong.Text}
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

// options are the settings as package proxy has them. They were checked.
func (s *settings) options() (proxy.Options, error) {
	ports, err := view.ParseNodePorts(s.nodePortAddresses)
	if err != nil {
		return proxy.Options{}, err
	}
	pods, wrong := s.pods.Pods()
	if wrong != nil {
		return proxy.Options{}, wrong
	}
	return proxy.Options{
		NodeName: s.nodeName, AllServices: s.allServices, NodePortAddresses: ports, Pods: pods,
		MasqueradeAll: s.masqueradeAll, MasqueradeMark: 1 << s.masqueradeBit,
		MinSyncPeriod: s.minSyncPeriod, SyncPeriod: s.syncPeriod,
		LeaseNamespace: s.leaseNamespace, Accounting: s.conntrackAccounting,
	}, nil
}
