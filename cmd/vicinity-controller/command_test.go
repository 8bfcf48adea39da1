package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// execute runs the command with flags.
func execute(t *testing.T, flags ...string) error {
	t.Helper()
	command := newCommand()
	command.SetArgs(flags)
	command.SetOut(new(bytes.Buffer))
	return command.ExecuteContext(context.Background())
}

// An invalid flag ends the program with a message that names it.
func TestFlagsAreChecked(t *testing.T) {
	for _, name := range []string{"POD_NAMESPACE", "POD_SERVICE_ACCOUNT", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"} {
		t.Setenv(name, "")
	}
	for flags, want := range map[string]string{
		"":                               "--namespace: it is empty",
		"--group-size 1001":              "--group-size: 1001 is not allowed; it must be from 1 to 1000",
		"--shrink-grace -1s":             "--shrink-grace: -1s is not allowed",
		"--replan-after -1s":             "--replan-after: -1s is not allowed",
		"--mark-services Auto":           `--mark-services: "Auto" is unknown; allowed are auto, always, never`,
		"--replan-rate 0":                "--replan-rate: 0 is not allowed",
		"--hand-back-grace 2h":           "--hand-back-grace: 2h0m0s is not allowed",
		"--workers 0":                    "--workers: 0 is not allowed",
		"--top-services -1":              "--top-services: -1 is not allowed",
		"--kube-api-qps 0":               "--kube-api-qps: 0 is not allowed",
		"--kube-api-burst 0":             "--kube-api-burst: 0 is not allowed",
		"--namespace v --locators=false": `--locators: "false" is unknown; allowed are all, auto, off`,
		"--leader-elect=false --webhook-policies":                                  "--namespace: it is empty",
		"--leader-elect=false --webhook-ordinals":                                  "--namespace: it is empty, and the lease and the certificate are kept there",
		"--leader-elect=false":                                                     "--namespace: it is empty, and only leases of proxies there count",
		"--leader-elect=false --groups=false --publish-node-addresses":             "--namespace: it is empty, and the addresses of nodes are published there",
		"--leader-elect=false --groups=false":                                      "--kubeconfig: it is needed outside of a cluster",
		"--namespace v --webhook-endpointslices":                                   "--service-account: it is empty",
		"--namespace v --service-account a --webhook-endpointslices --hints=false": "--webhook-endpointslices: true is not allowed with --hints=false",
		"--leader-elect=false --groups=false --webhook-services=false --budgets":   "--namespace: it is empty",
		"--namespace v --routing=false --webhook-services":                         "--routing: false is not allowed with --webhook-endpointslices, --webhook-services",
		"--namespace v --rollouts --release-pods":                                  "--release-pods: true is not allowed with --rollouts",
		"--namespace v --project-pdbs":                                             "--project-pdbs: true is not allowed without --budgets",
		"--namespace v --eviction-responder":                                       "--eviction-responder: true is not allowed without --budgets",
		"--namespace v --budgets --webhook-pods":                                   "--webhook-pods: true is not allowed without --eviction-responder",
		"--namespace v --webhook-evictions":                                        "--webhook-evictions: true is not allowed without --budgets",
		"--namespace v --budgets --top-budgets=-1":                                 "--top-budgets: -1 is not allowed",
		"--namespace v --log-level loud":                                           `--log-level: "loud" is unknown; allowed are debug, info, error`,
		"--namespace v --log-format xml":                                           `--log-format: "xml" is unknown; allowed are json, text`,
		"--namespace v":                                                            "--kubeconfig: it is needed outside of a cluster",
		"--namespace v --kubeconfig testdata/none":                                 "finding the API server",
		"--leader-elect=false --webhook-services=false --workers=1 x":              "unknown command",
	} {
		if err := execute(t, strings.Fields(flags)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want %q", flags, err, want)
		}
	}
}
