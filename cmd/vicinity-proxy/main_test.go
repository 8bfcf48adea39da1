package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"vicinity.dev/vicinity/internal/proxy/kernel"
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

// The error about an invalid flag names it.
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
		"x":                                                "unknown command",
	} {
		if err := execute(t, strings.Fields(flags)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want %q", flags, err, want)
		}
	}
}

// In place of kube-proxy, the defaults are those of kube-proxy.
func TestSettingsFollowAllServices(t *testing.T) {
	kubeProxy := settings{health: ":10256", metrics: ":10249"}
	kubeProxy.conntrack = kernel.Conntrack{MaxPerCPU: 32768, Min: 131072, TCPEstablished: 24 * time.Hour, TCPCloseWait: time.Hour}
	beside := settings{health: ":10266", metrics: ":10267"}
	with := func(s settings, change func(*settings)) settings {
		change(&s)
		return s
	}
	for name, test := range map[string]struct {
		flags []string
		want  settings
	}{
		"beside kube-proxy":           {want: beside},
		"in its place":                {flags: []string{"--all-services"}, want: kubeProxy},
		"an address is given":         {flags: []string{"--all-services", "--metrics-bind-address=127.0.0.1:10249"}, want: with(kubeProxy, func(s *settings) { s.metrics = "127.0.0.1:10249" })},
		"an address is the other":     {flags: []string{"--all-services", "--healthz-bind-address=:10266"}, want: with(kubeProxy, func(s *settings) { s.health = ":10266" })},
		"a setting is left alone":     {flags: []string{"--all-services", "--conntrack-max-per-core=0"}, want: with(kubeProxy, func(s *settings) { s.conntrack.MaxPerCPU = 0 })},
		"some settings are given":     {flags: []string{"--all-services", "--conntrack-tcp-timeout-close-wait=0s", "--conntrack-udp-timeout-stream=3m"}, want: with(kubeProxy, func(s *settings) { s.conntrack.TCPCloseWait, s.conntrack.UDPStream = 0, 3*time.Minute })},
		"settings without the others": {flags: []string{"--conntrack-tcp-be-liberal", "--conntrack-udp-timeout=1m"}, want: with(beside, func(s *settings) { s.conntrack.TCPBeLiberal, s.conntrack.UDP = true, time.Minute })},
	} {
		t.Run(name, func(t *testing.T) {
			c := &command{}
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			c.addFlags(flags)
			if err := flags.Parse(test.flags); err != nil {
				t.Fatal(err)
			}
			if err := c.complete(flags); err != nil {
				t.Fatal(err)
			}
			if c.health != test.want.health || c.metrics != test.want.metrics || c.conntrack != test.want.conntrack {
				t.Errorf("health at %s, metrics at %s, conntrack %+v; want %s, %s, %+v", c.health, c.metrics, c.conntrack, test.want.health, test.want.metrics, test.want.conntrack)
			}
		})
	}
}
