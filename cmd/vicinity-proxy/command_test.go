package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"vicinity.dev/vicinity/internal/proxy/kernel"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// execute runs the command with flags.
func execute(t *testing.T, flags ...string) error {
	t.Helper()
	for _, name := range []string{"POD_NAMESPACE", "NODE_NAME", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"} {
		t.Setenv(name, "")
	}
	command := newCommand()
	command.SetArgs(flags)
	command.SetOut(io.Discard)
	return command.ExecuteContext(context.Background())
}

// A flag that makes no sense ends the program with a sentence that names it.
func TestFlagsAreChecked(t *testing.T) {
	for flags, want := range map[string]string{
		"":                                                 "--lease-namespace: it is empty",
		"--masquerade-bit 32":                              "--masquerade-bit: 32 is not allowed; it must be from 0 to 31",
		"--accounting-interval 2h":                         "--accounting-interval: 2h0m0s is not allowed; it must be from 0 to 1h",
		"--min-sync-period -1s":                            "--min-sync-period: -1s is not allowed",
		"--sync-period 1ms":                                "--sync-period: 1ms is not allowed",
		"--log-level loud":                                 `--log-level: "loud" is unknown; allowed are debug, info, error`,
		"--log-format xml":                                 `--log-format: "xml" is unknown; allowed are json, text`,
		"--nodeport-addresses here":                        `--nodeport-addresses: "here" is not allowed`,
		"--external-ips all,10.0.0.0/8":                    `--external-ips: "all" is not allowed together with others`,
		"--external-ips=":                                  `--external-ips: an empty list is not allowed; it must be prefixes such as 203.0.113.0/24, or "all" or "none" alone`,
		"--external-ips ::ffff:10.0.0.0/104":               `--external-ips: "::ffff:10.0.0.0/104" is not allowed; IPv4 addresses must be in the notation of IPv4`,
		"--external-ips 10.0.0.1":                          `--external-ips: "10.0.0.1" is not allowed; it must be a prefix such as`,
		"--cluster-cidr 10.0.0.1":                          `--cluster-cidr: "10.0.0.1" is not allowed`,
		"--max-elements -1":                                "--max-elements: -1 is not allowed; it must be 0 or more",
		"--max-service-elements 2 --max-elements 1":        "--max-service-elements: 2 is not allowed; it must be 0 or more, and not more than --max-elements",
		"--max-affinity-clients 0":                         "--max-affinity-clients: 0 is not allowed; it must be from 1 to 65535",
		"--max-affinity-clients 65536":                     "--max-affinity-clients: 65536 is not allowed; it must be from 1 to 65535",
		"--detect-local-mode bridge":                       `--detect-local-mode: "bridge" is unknown; allowed are ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix`,
		"--detect-local-mode=BridgeInterface":              "--pod-bridge-interface: it is needed with --detect-local-mode=BridgeInterface",
		"--pod-interface-name-prefix=veth":                 "--pod-interface-name-prefix: it is not allowed without --detect-local-mode=InterfaceNamePrefix",
		"--detect-local-mode=NodeCIDR --cluster-cidr=::/0": "--cluster-cidr: it is not allowed without --detect-local-mode=ClusterCIDR",
		"--cleanup --dry-run":                              "--cleanup: it is not allowed together with --dry-run",
		"--cleanup --init-only":                            "--init-only: it is not allowed together with --cleanup or --dry-run",
		"--dry-run --init-only":                            "--init-only: it is not allowed together with --cleanup or --dry-run",
		"--conntrack-max-per-core -1":                      "--conntrack-max-per-core: -1 is not allowed; it must be from 0 to 2147483647",
		"--conntrack-min 2147483648":                       "--conntrack-min: 2147483648 is not allowed",
		"--conntrack-tcp-timeout-established 90ms":         "--conntrack-tcp-timeout-established: 90ms is not allowed; it must be 0, or full seconds",
		"--conntrack-tcp-timeout-close-wait -1s":           "--conntrack-tcp-timeout-close-wait: -1s is not allowed",
		"--conntrack-udp-timeout 1.5s":                     "--conntrack-udp-timeout: 1.5s is not allowed",
		"--conntrack-udp-timeout-stream 1000000h":          "--conntrack-udp-timeout-stream: 1000000h0m0s is not allowed",
		"--dry-run":                                        "--kubeconfig: it is needed outside of a cluster",
		"--dry-run --kubeconfig x/y":                       "finding the API server",
		"--lease-namespace v":                              "--kubeconfig: it is needed outside of a cluster",
		"--config none.yaml":                               "--config: open none.yaml",
		"x":                                                "unknown command",
	} {
		if err := execute(t, strings.Fields(flags)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want %q", flags, err, want)
		}
	}
}

// config writes a file of settings.
func config(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	head := []string{"apiVersion: " + fileVersion, "kind: " + fileKind}
	if err := os.WriteFile(path, []byte(strings.Join(append(head, lines...), "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A file that makes no sense ends the program with a sentence that names the setting.
func TestFilesAreChecked(t *testing.T) {
	for lines, want := range map[string]string{
		"masqueradeBits: 3":       "masqueradeBits: there is no such setting; there are accountingInterval, allServices, clusterCIDR",
		"masqueradebit: 3":        "masqueradebit: there is no such setting",
		"masqueradeBit: many":     `masqueradeBit: "many" is not allowed; it must be a whole number`,
		"masqueradeBit: 40":       "masqueradeBit: 40 is not allowed; it must be from 0 to 31",
		"masqueradeAll: 1":        "masqueradeAll: 1 is not allowed; it must be true or false",
		"maxAffinityClients: 0":   "maxAffinityClients: 0 is not allowed; it must be from 1 to 65535",
		"nodeName: [a]":           `nodeName: ["a"] is not allowed; it must be a text`,
		"nodeName:":               "nodeName: null is not allowed; it must be a text",
		"minSyncPeriod: 5":        "minSyncPeriod: 5 is not allowed; it must be a time such as 10s",
		"minSyncPeriod: soon":     `minSyncPeriod: "soon" is not allowed; it must be a time such as 10s`,
		"clusterCIDR: 10.0.0.0/8": `clusterCIDR: "10.0.0.0/8" is not allowed; it must be a list of texts`,
		"clusterCIDR: [x]":        `clusterCIDR: "x" is not allowed; it must be a prefix`,
		"detectLocalMode: NodeCIDR\npodBridgeInterface: cni0":                 "podBridgeInterface: it is not allowed without --detect-local-mode=BridgeInterface",
		"detectLocalMode: InterfaceNamePrefix\npodInterfaceNamePrefix: veth/": `podInterfaceNamePrefix: "veth/" is not allowed; it must have at most 15`,
		"logLevel: info\nlogLevel: error":                                     `key "logLevel" already set`,
		"kind: Other":                                                         `key "kind" already set`,
	} {
		path := config(t, lines)
		if err := execute(t, "--config", path); err == nil || !strings.Contains(err.Error(), "--config: "+path) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want %q", lines, err, want)
		}
	}
	for text, want := range map[string]string{
		"kind: ProxyConfiguration":                              `apiVersion: "" is not understood; it must be ` + fileVersion,
		"apiVersion: v1\nkind: ProxyConfiguration":              `apiVersion: "v1" is not understood`,
		"apiVersion: [v1]":                                      `apiVersion: "" is not understood`,
		"apiVersion: proxy.config.vicinity.dev/v1alpha1":        `kind: "" is not understood; it must be ProxyConfiguration`,
		"apiVersion: proxy.config.vicinity.dev/v1alpha1\nkind:": `kind: "" is not understood`,
		"- a list": "it must be a map of settings",
	} {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := execute(t, "--config", path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: the error is %v, want %q", text, err, want)
		}
	}
}

// The file counts where the command line says nothing, and defaults where neither does.
func TestFlagsWin(t *testing.T) {
	path := config(t, "nodeName: from-file", "masqueradeBit: 20", "masqueradeAll: true", "clusterCIDR: [10.0.0.0/8, 2001:db8::/32]",
		"nodePortAddresses: [192.0.2.0/24]", "externalIPs: [none]", "minSyncPeriod: 5ms", "maxAffinityClients: 1000", "logLevel: error")
	var s settings
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	s.addFlags(flags)
	if err := flags.Parse([]string{"--masquerade-bit", "21", "--nodeport-addresses", "198.51.100.0/24", "--masquerade-all=false"}); err != nil {
		t.Fatal(err)
	}
	set, err := load(path, flags)
	if err != nil {
		t.Fatal(err)
	}
	if wrong := s.check(); wrong != nil {
		t.Fatal(wrong.Flag, wrong.Text)
	}
	o, err := s.options()
	if err != nil {
		t.Fatal(err)
	}
	if o.NodeName != "from-file" || o.MasqueradeMark != 1<<21 || o.MasqueradeAll || o.MinSyncPeriod != 5*time.Millisecond || o.MaxAffinityClients != 1000 ||
		!o.ExternalIPs.None || s.log.level != "error" || s.log.format != "json" || !slices.Equal(s.rules.NodePortAddresses, []string{"198.51.100.0/24"}) {
		t.Errorf("options %+v of settings %+v", o, s)
	}
	var pods [2]ruleset.Config
	for i, family := range []ruleset.Family{ruleset.IPv4, ruleset.IPv6} {
		pods[i].Family = family
		o.Pods.Configure(&pods[i], nil)
	}
	if got := fmt.Sprint(pods[0].ClusterCIDRs, pods[1].ClusterCIDRs); got != "[10.0.0.0/8] [2001:db8::/32]" {
		t.Errorf("pods are told by %s", got)
	}
	if !set["node-name"] || set["masquerade-bit"] || set["log-format"] {
		t.Errorf("the file has set %v", set)
	}
	// What is wrong on the command line is not blamed on the file.
	if err := execute(t, "--config", path, "--masquerade-bit", "99"); err == nil || !strings.HasPrefix(err.Error(), "--masquerade-bit: 99") {
		t.Errorf("the error is %v", err)
	}
}

// In the place of kube-proxy settings are those of kube-proxy, unless they are given.
func TestSettingsFollowAllServices(t *testing.T) {
	kubeProxy := settings{health: ":10256", metrics: ":10249"}
	kubeProxy.conntrack = kernel.Conntrack{MaxPerCPU: 32768, Min: 131072, TCPEstablished: 24 * time.Hour, TCPCloseWait: time.Hour}
	beside := settings{health: ":10266", metrics: ":10267"}
	with := func(s settings, change func(*settings)) settings {
		change(&s)
		return s
	}
	for name, test := range map[string]struct {
		flags, lines []string
		want         settings
	}{
		"beside kube-proxy":           {want: beside},
		"in its place":                {flags: []string{"--all-services"}, want: kubeProxy},
		"in its place, by the file":   {lines: []string{"allServices: true"}, want: kubeProxy},
		"the command line wins":       {flags: []string{"--all-services=false"}, lines: []string{"allServices: true"}, want: beside},
		"an address is given":         {flags: []string{"--all-services", "--metrics-bind-address=127.0.0.1:10249"}, want: with(kubeProxy, func(s *settings) { s.metrics = "127.0.0.1:10249" })},
		"an address is the other":     {flags: []string{"--all-services", "--healthz-bind-address=:10266"}, want: with(kubeProxy, func(s *settings) { s.health = ":10266" })},
		"a setting is left alone":     {flags: []string{"--all-services", "--conntrack-max-per-core=0"}, want: with(kubeProxy, func(s *settings) { s.conntrack.MaxPerCPU = 0 })},
		"the file gives some":         {flags: []string{"--all-services"}, lines: []string{"conntrackTCPTimeoutCloseWait: 0s", "conntrackUDPTimeoutStream: 3m"}, want: with(kubeProxy, func(s *settings) { s.conntrack.TCPCloseWait, s.conntrack.UDPStream = 0, 3*time.Minute })},
		"settings without the others": {flags: []string{"--conntrack-tcp-be-liberal", "--conntrack-udp-timeout=1m"}, want: with(beside, func(s *settings) { s.conntrack.TCPBeLiberal, s.conntrack.UDP = true, time.Minute })},
	} {
		t.Run(name, func(t *testing.T) {
			c := &command{file: config(t, append(test.lines, "nodeName: a")...)}
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			c.addFlags(flags)
			if err := flags.Parse(test.flags); err != nil {
				t.Fatal(err)
			}
			if err := c.settle(flags); err != nil {
				t.Fatal(err)
			}
			if c.health != test.want.health || c.metrics != test.want.metrics || c.conntrack != test.want.conntrack {
				t.Errorf("health at %s, metrics at %s, conntrack %+v; want %s, %s, %+v", c.health, c.metrics, c.conntrack, test.want.health, test.want.metrics, test.want.conntrack)
			}
		})
	}
}

// The interfaces of pods may come from a file.
func TestPodsAreToldAsTheFileSays(t *testing.T) {
	for want, lines := range map[ruleset.Interfaces][]string{
		{Name: "cni0"}:               {"detectLocalMode: BridgeInterface", "podBridgeInterface: cni0"},
		{Name: "veth", Prefix: true}: {"detectLocalMode: InterfaceNamePrefix", "podInterfaceNamePrefix: veth"},
		{}:                           {"detectLocalMode: \"\"", "podBridgeInterface: \"\""},
	} {
		var s settings
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		s.addFlags(flags)
		if _, err := load(config(t, lines...), flags); err != nil {
			t.Fatal(err)
		}
		o, err := s.options()
		if err != nil {
			t.Fatal(err)
		}
		var c ruleset.Config
		if o.Pods.Configure(&c, nil); c.PodInterfaces != want {
			t.Errorf("%q: %+v, want %+v", lines, c.PodInterfaces, want)
		}
	}
}
