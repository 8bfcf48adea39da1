package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// suites are the groups whose tests a suite has.
var suites = map[string]*regexp.Regexp{
	"network":    regexp.MustCompile(`^\[sig-network\] `),
	"apps":       regexp.MustCompile(`^\[sig-apps\] `),
	"scheduling": regexp.MustCompile(`^\[sig-scheduling\] `),
	"all":        regexp.MustCompile(`^\[sig-(network|apps|scheduling)\] `),
}

const suiteNames = "network, apps, scheduling or all"

// exclusion is why tests whose names match are skipped.
type exclusion struct {
	tests  *regexp.Regexp
	reason string
}

// exclusions say what a lab is not.
var exclusions = []exclusion{
	{regexp.MustCompile(`\[Feature:LoadBalancer\]`), "a lab has no cloud's load balancers"},
	{regexp.MustCompile(`\[Provider:`), "it needs the machines or the registry of a cloud"},
	{regexp.MustCompile(`\[Disruptive\]`), "it restarts components by SSH to nodes"},
	{regexp.MustCompile(`\[Feature:NetworkPolicy\]`), "a lab enforces no network policies"},
	{regexp.MustCompile(`\[Feature:SCTPConnectivity\]`), "kernels need not have SCTP"},
	{regexp.MustCompile(`\[Feature:Networking-(IPv4|IPv6|DNS)\]`), "a lab has no way to the Internet"},
	{regexp.MustCompile(`DNS configMap nameserver`), "it forwards names to servers on the Internet"},
	{regexp.MustCompile(`\[Feature:(Networking-Performance|PerformanceDNS)\]`), "it measures speed, with programs that a lab does not have"},
	{regexp.MustCompile(`\[Feature:(KubeProxyNFAcct|LocalhostNodePorts)\]`), "kube-proxy has it in the mode iptables only; a lab uses nftables"},
	{regexp.MustCompile(`\[Feature:OffByDefault\]`), "its feature is off by default"},
	{regexp.MustCompile(`CockroachDB`), "a lab has no program for that image"},
}

// slowTests run if asked for.
var slowTests = exclusion{regexp.MustCompile(`\[Slow\]`), "it takes minutes: SLOW=1 runs it"}

// excluded is why a test may be skipped; empty if it may not.
func excluded(name string) string {
	for _, e := range exclusions {
		if e.tests.MatchString(name) {
			return e.reason
		}
	}
	return ""
}

// plan is what becomes of the tests of a suite.
type plan struct {
	// parallel may run beside others, serial may not.
	parallel, serial []string
	skipped          []result
}

var serialTests = regexp.MustCompile(`\[Serial\]`)

// choose sorts the tests of a suite whose names match the focus.
func choose(names []string, suite string, focus *regexp.Regexp, slow bool) plan {
	var run []string
	var without []result
	for _, name := range names {
		if !suites[suite].MatchString(name) || !focus.MatchString(name) {
			continue
		}
		reason := excluded(name)
		if reason == "" && !slow && slowTests.tests.MatchString(name) {
			reason = slowTests.reason
		}
		if reason != "" {
			without = append(without, result{name: name, state: skipped, reason: reason, allowed: true})
		} else {
			run = append(run, name)
		}
	}
	p := order(run)
	p.skipped = without
	return p
}

// order is a plan that runs all tests.
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

// listTests asks the program of the tests for their names.
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

var listed = regexp.MustCompile(`(?m)^\s+\S+\.go:\d+: (.*\S)\s*$`)

// readNames reads lines of a source file and a name.
func readNames(text string) []string {
	var names []string
	for _, match := range listed.FindAllStringSubmatch(text, -1) {
		names = append(names, match[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// focusOn is an expression for tests by their names. Their program searches for it in text
// that ends with the name. Some names end with a space, which readNames and reports leave out.
func focusOn(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = regexp.QuoteMeta(name)
	}
	return "(" + strings.Join(quoted, "|") + ") *$"
}
