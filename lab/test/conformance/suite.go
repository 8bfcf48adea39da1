package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"vicinity.dev/vicinity/lab/shape"
)

// suites has the tests of each suite.
var suites = map[string]*regexp.Regexp{
	"network":    regexp.MustCompile(`^\[sig-network\] `),
	"apps":       regexp.MustCompile(`^\[sig-apps\] `),
	"scheduling": regexp.MustCompile(`^\[sig-scheduling\] `),
	"all":        regexp.MustCompile(`^\[sig-(network|apps|scheduling)\] `),
}

const suiteNames = "network, apps, scheduling or all"

type exclusion struct {
	tests  *regexp.Regexp
	reason string
	// only limits the exclusion to some runs.
	only func(o *options, release string) bool
}

// exclusions are the tests that a lab cannot run, or that do not fit Services with Vicinity's
// annotations.
var exclusions = []exclusion{
	{tests: regexp.MustCompile(`\[Feature:LoadBalancer\]`), reason: "a lab has no cloud's load balancers"},
	{tests: regexp.MustCompile(`\[Provider:`), reason: "it needs the machines or the registry of a cloud"},
	{tests: regexp.MustCompile(`\[Disruptive\]`), reason: "it restarts components by SSH to nodes"},
	{tests: regexp.MustCompile(`\[Feature:NetworkPolicy\]`), reason: "a lab enforces no network policies"},
	{tests: regexp.MustCompile(`\[Feature:SCTPConnectivity\]`), reason: "kernels need not have SCTP"},
	{tests: regexp.MustCompile(`\[Feature:Networking-(IPv4|IPv6|DNS)\]`), reason: "a lab has no way to the Internet"},
	{tests: regexp.MustCompile(`DNS configMap nameserver`), reason: "it forwards names to servers on the Internet"},
	{tests: regexp.MustCompile(`\[Feature:(Networking-Performance|PerformanceDNS)\]`), reason: "it measures speed, with programs that a lab does not have"},
	{tests: regexp.MustCompile(`\[Feature:(KubeProxyNFAcct|LocalhostNodePorts)\]`), reason: "kube-proxy has it in the mode iptables only; a lab uses nftables"},
	{tests: regexp.MustCompile(`\[Feature:OffByDefault\]`), reason: "its feature is off by default"},
	{tests: regexp.MustCompile(`CockroachDB`), reason: "a lab has no program for that image"},
	{
		tests:  regexp.MustCompile(`Granular Checks: Services|switch session affinity|session affinity timeout|to up and down services|service-proxy-name|named targetPorts that resolve to different`),
		reason: "PREFER=1: it wants one client to reach endpoints of all zones",
		only:   preferring,
	},
	{
		tests: regexp.MustCompile(`service\.kubernetes\.io/headless`), reason: "PREFER=1: it wants to be alone in writing an EndpointSlice",
		only: preferring,
	},
	{
		tests:  regexp.MustCompile(`service\.kubernetes\.io/headless`),
		reason: "Kubernetes 1.35 with vicinity-proxy: kube-proxy 1.35 leaves out Services with the label; 1.37 and vicinity-proxy leave out EndpointSlices with it",
		only: func(o *options, release string) bool {
			return o.proxy != shape.ProxyKubeProxy && strings.HasPrefix(release, "v1.35.")
		},
	},
	{
		tests: regexp.MustCompile(`\[Slow\]`), reason: "it takes minutes: SLOW=1 runs it",
		only: func(o *options, _ string) bool { return !o.slow },
	},
}

func preferring(o *options, _ string) bool { return o.prefer }

// excluded returns why a test is excluded; empty if it runs.
func (o *options) excluded(release, name string) string {
	for _, e := range exclusions {
		if e.tests.MatchString(name) && (e.only == nil || e.only(o, release)) {
			return e.reason
		}
	}
	return ""
}

type plan struct {
	// parallel tests may run beside others, serial ones may not.
	parallel, serial []string
	skipped          []result
}

var serialTests = regexp.MustCompile(`\[Serial\]`)

// choose sorts the tests of a suite whose names match the focus.
func (o *options) choose(release string, names []string) plan {
	var run []string
	var without []result
	for _, name := range names {
		if !suites[o.suite].MatchString(name) || !o.focus.MatchString(name) {
			continue
		}
		if reason := o.excluded(release, name); reason != "" {
			without = append(without, result{name: name, state: skipped, reason: reason, allowed: true})
		} else {
			run = append(run, name)
		}
	}
	p := order(run)
	p.skipped = without
	return p
}

// order returns a plan that runs all tests.
func order(names []string) plan {
	var p plan
	for _, name := range names {
		if serialTests.MatchString(name) {
			p.serial = append(p.serial, name)
		} else {
			p.parallel = append(p.parallel, name)
		}
	}
	return p
}

func listTests(ctx context.Context, program string) ([]string, error) {
	text, err := exec.CommandContext(ctx, program, "--list-tests", "--ginkgo.no-color").Output()
	if err != nil {
		return nil, fmt.Errorf("listing the tests of %s: %w", program, err)
	}
	names := readNames(string(text))
	if len(names) == 0 {
		return nil, fmt.Errorf("listing the tests of %s: it lists none", program)
	}
	return names, nil
}

func releaseOf(ctx context.Context, program string) (string, error) {
	text, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("asking %s for its version: %w", program, err)
	}
	return strings.TrimSpace(string(text)), nil
}

var listed = regexp.MustCompile(`(?m)^\s+\S+\.go:\d+: (.*\S)\s*$`)

func readNames(text string) []string {
	var names []string
	for _, match := range listed.FindAllStringSubmatch(text, -1) {
		names = append(names, match[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// focusOn returns an expression that matches tests by name. The test program searches for it in a
// text that ends with the name. Some names end with a space, which readNames and the reports omit.
func focusOn(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = regexp.QuoteMeta(name)
	}
	return "(" + strings.Join(quoted, "|") + ") *$"
}
