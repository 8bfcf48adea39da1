package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"vicinity.dev/vicinity/lab/shape"
)

const list = `The following spec names can be used with 'ginkgo run --focus/skip':
    ../../mod/k8s.io/kubernetes@v1.37.2/test/e2e/network/service.go:12: [sig-network] Services should work: http
    ../../mod/k8s.io/kubernetes@v1.37.2/test/e2e/network/service.go:9: [sig-network] Services should work: http (two)
    test/e2e/network/service.go:12: [sig-network] Services should work: http
    test/e2e/network/sctp.go:3: [sig-network] Networking [Feature:SCTPConnectivity] [Serial]
    test/e2e/apps/a.go:3: [sig-apps] Job should be alone [Serial]
    test/e2e/apps/a.go:4: [sig-apps] Job should take long [Slow]
    test/e2e/apps/a.go:5: [sig-apps-new] Job of others

`

func TestChoose(t *testing.T) {
	names := readNames(list)
	if len(names) != 6 || !slices.IsSorted(names) {
		t.Fatalf("the list has %q", names)
	}
	for _, test := range []struct {
		suite, focus     string
		slow             bool
		parallel, serial []string
		skipped          []string
	}{
		{
			"network", "", false,
			[]string{"[sig-network] Services should work: http", "[sig-network] Services should work: http (two)"},
			nil,
			[]string{"[sig-network] Networking [Feature:SCTPConnectivity] [Serial]"},
		},
		{"network", `\(two`, false, []string{"[sig-network] Services should work: http (two)"}, nil, nil},
		{"apps", "", false, nil, []string{"[sig-apps] Job should be alone [Serial]"}, []string{"[sig-apps] Job should take long [Slow]"}},
		{"apps", "", true, []string{"[sig-apps] Job should take long [Slow]"}, []string{"[sig-apps] Job should be alone [Serial]"}, nil},
		{
			"all", "Job|Networking", true,
			[]string{"[sig-apps] Job should take long [Slow]"},
			[]string{"[sig-apps] Job should be alone [Serial]"},
			[]string{"[sig-network] Networking [Feature:SCTPConnectivity] [Serial]"},
		},
		{"scheduling", "", true, nil, nil, nil},
	} {
		o := &options{suite: test.suite, focus: regexp.MustCompile(test.focus), slow: test.slow}
		p := o.choose("v1.37.2", names)
		var skips []string
		for _, r := range p.skipped {
			if r.state != skipped || !r.allowed || r.reason == "" {
				t.Errorf("the result of an excluded test is %+v", r)
			}
			skips = append(skips, r.name)
		}
		if !slices.Equal(p.parallel, test.parallel) || !slices.Equal(p.serial, test.serial) || !slices.Equal(skips, test.skipped) {
			t.Errorf("suite %s, focus %q, slow %v: %q, %q, without %q", test.suite, test.focus, test.slow, p.parallel, p.serial, skips)
		}
	}
}

func TestFocusOnNames(t *testing.T) {
	focus := regexp.MustCompile(focusOn([]string{"[sig-network] Services should work: http", "[sig-apps] a (b) | c"}))
	for text, want := range map[string]bool{
		"Kubernetes e2e suite [sig-network] Services should work: http":       true,
		"Kubernetes e2e suite [sig-network] Services should work: http (two)": false,
		"Kubernetes e2e suite [sig-apps] a (b) | c":                           true,
		"Kubernetes e2e suite [sig-apps] a (b) | c ":                          true,
		"Kubernetes e2e suite [sig-apps] a (b) ":                              false,
	} {
		if focus.MatchString(text) != want {
			t.Errorf("%q matches: %v", text, !want)
		}
	}
}

// Some exclusions apply to some runs only.
func TestExcluded(t *testing.T) {
	const affinity, headless = "[sig-network] Services should be able to switch session affinity", "[sig-network] Services should implement service.kubernetes.io/headless"
	for _, test := range []struct {
		options            options
		release            string
		affinity, headless bool
	}{
		{options{proxy: shape.ProxyKubeProxy}, "v1.35.4", false, false},
		{options{proxy: shape.ProxyVicinity}, "v1.35.4", false, true},
		{options{proxy: shape.ProxyBoth}, "v1.35.4", false, true},
		{options{proxy: shape.ProxyVicinity}, "v1.37.2", false, false},
		{options{proxy: shape.ProxyKubeProxy, prefer: true}, "v1.37.2", true, true},
	} {
		if got := test.options.excluded(test.release, affinity) != ""; got != test.affinity {
			t.Errorf("%s, %s, is left out of %s: %v", affinity, test.options.mode(), test.release, got)
		}
		if got := test.options.excluded(test.release, headless) != ""; got != test.headless {
			t.Errorf("%s, %s, is left out of %s: %v", headless, test.options.mode(), test.release, got)
		}
	}
}

func TestExclusions(t *testing.T) {
	for _, e := range exclusions {
		if strings.TrimSpace(e.reason) == "" {
			t.Errorf("%s has no reason", e.tests)
		}
		if e.tests.MatchString("[sig-network] Services should serve a basic endpoint from pods [Conformance]") {
			t.Errorf("%s excludes too much", e.tests)
		}
	}
}

// The page for users has the reason of each exclusion.
func TestExclusionsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range exclusions {
		if !strings.Contains(string(page), "| "+e.reason+" |\n") {
			t.Errorf("docs/conformance.md lacks %q, for %s", e.reason, e.tests)
		}
	}
}
