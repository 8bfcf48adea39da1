package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"vicinity.dev/vicinity/internal/controller/locator"
)

// execute runs the command with flags.
func execute(t *testing.T, flags ...string) error {
	t.Helper()
	command := newCommand()
	command.SetArgs(flags)
	command.SetOut(new(bytes.Buffer))
	return command.ExecuteContext(context.Background())
}

// A flag that makes no sense ends the program with a sentence that names it.
func TestFlagsAreChecked(t *testing.T) {
	for _, name := range []string{"POD_NAMESPACE", "POD_SERVICE_ACCOUNT", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"} {
		t.Setenv(name, "")
	}
	for flags, want := range map[string]string{
		"":                                        "--namespace: it is empty",
		"--group-size 1001":                       "--group-size: 1001 is not allowed; it must be from 1 to 1000",
		"--shrink-grace -1s":                      "--shrink-grace: -1s is not allowed",
		"--replan-after -1s":                      "--replan-after: -1s is not allowed",
		"--replan-rate 0":                         "--replan-rate: 0 is not allowed",
		"--hand-back-grace 2h":                    "--hand-back-grace: 2h0m0s is not allowed",
		"--workers 0":                             "--workers: 0 is not allowed",
		"--top-services -1":                       "--top-services: -1 is not allowed",
		"--kube-api-qps 0":                        "--kube-api-qps: 0 is not allowed",
		"--kube-api-burst 0":                      "--kube-api-burst: 0 is not allowed",
		"--namespace v --locators=false":          `--locators: "false" is unknown; allowed are all, auto, off`,
		"--namespace v --locator-labels a,*":      `--locator-labels: "a,*" is not allowed`,
		"--namespace v --locator-labels a,b/c/d":  `--locator-labels: "b/c/d" is not a label key`,
		"--namespace v --locator-labels a,,b":     `--locator-labels: "" is not a label key`,
		"--leader-elect=false --webhook-policies": "--namespace: it is empty",
		"--leader-elect=false --webhook-ordinals": "--namespace: it is empty, and the lease and the certificate are kept there",
		"--leader-elect=false":                    "--namespace: it is empty, and only leases of proxies there count",
		"--leader-elect=false --groups=false --publish-node-addresses":             "--namespace: it is empty, and the addresses of nodes are published there",
		"--leader-elect=false --groups=false":                                      "--kubeconfig: it is needed outside of a cluster",
		"--namespace v --webhook-endpointslices":                                   "--service-account: it is empty",
		"--namespace v --service-account a --webhook-endpointslices --hints=false": "--webhook-endpointslices: true is not allowed with --hints=false",
		"--leader-elect=false --groups=false --webhook-services=false --budgets":   "--namespace: it is empty",
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

func TestFlagsReachTheController(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "system")
	t.Setenv("POD_SERVICE_ACCOUNT", "routing")
	c := &config{}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.addFlags(flags)
	if err := flags.Parse([]string{"--take-over-auto", "--groups=false", "--hints=false", "--exclude-namespaces", "kube-system,other", "--webhook-services", "--locators=auto", "--locator-labels=a,b.example/c", "--kube-api-qps=50"}); err != nil {
		t.Fatal(err)
	}
	if err := c.check(); err != nil {
		t.Fatal(err)
	}
	o := c.routing
	if !o.Settings.TakeOverAuto || !o.Settings.WithoutGroups || !o.Settings.WithoutHints || o.Exclusion.Own != "system" || len(o.Exclusion.Namespaces) != 2 {
		t.Errorf("options %+v", o)
	}
	if l := c.locators; l.Mode != "auto" || len(l.Labels) != 2 || l.Rate != 25 || l.Burst != 200 || l.Workers != o.Workers {
		t.Errorf("options of PodLocators %+v", l)
	}
	if got := c.user(); got != "system:serviceaccount:system:routing" {
		t.Errorf("the user is %s", got)
	}
}

// PodLocators of before go only where that is asked for: a controller without the flag may be
// another one's neighbour.
func TestPodLocatorsAreRemovedOnRequest(t *testing.T) {
	for args, want := range map[string]locator.Mode{
		"": locator.Unset, "--locators=off": locator.Off, "--locators=auto": locator.Auto, "--locators=all": locator.All,
	} {
		c := &config{}
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		c.addFlags(flags)
		if err := flags.Parse(append(strings.Fields(args), "--namespace=system")); err != nil {
			t.Fatal(err)
		}
		if err := c.check(); err != nil || c.locators.Mode != want {
			t.Errorf("%q: the mode is %q, want %q; %v", args, c.locators.Mode, want, err)
		}
	}
}
