package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fakeTests reports tests as passed. Tests called bad fail, odd ones are skipped, and few ones are
// skipped until the lab has grown.
const fakeTests = `#!/bin/sh
for arg; do case $arg in --report-dir=*) folder=${arg#*=} ;; --ginkgo.focus=*) focus=${arg#*=} ;; esac; done
{
	echo '<testsuites><testsuite>'
	echo "$focus" | tr -d '\\' | tr '(|)$' '\n' | while read -r name; do
		case $name in
		'') ;;
		few*) if [ -e "$0.grown" ]; then echo "<testcase name='[It] $name' status='passed'/>"; else echo "<testcase name='[It] $name' status='skipped'><skipped message='skipped - few nodes'/></testcase>"; fi ;;
		odd*) echo "<testcase name='[It] $name' status='skipped'><skipped message='skipped - odd'/></testcase>" ;;
		bad*) echo "<testcase name='[It] $name' status='failed'><failure>it is bad</failure></testcase>" ;;
		*) echo "<testcase name='[It] $name' status='passed'/>" ;;
		esac
	done
	echo '</testsuite></testsuites>'
} >"$folder/junit_01.xml"
echo ran
! grep -q failed "$folder/junit_01.xml"
`

// fakeSuite returns a run of fakeTests.
func fakeSuite(t *testing.T) (o *options, log *bytes.Buffer) {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "e2e.test"), []byte(fakeTests), 0o755); err != nil {
		t.Fatal(err)
	}
	log = &bytes.Buffer{}
	return &options{parallel: 1, tests: folder, reports: filepath.Join(folder, "reports"), log: log}, log
}

// Only a test that skips itself runs again with more nodes.
func TestRunAll(t *testing.T) {
	o, log := fakeSuite(t)
	grown := 0
	grow := func(context.Context) error {
		grown++
		return os.WriteFile(o.program()+".grown", nil, 0o600)
	}
	results, err := o.runAll(t.Context(), "kubeconfig", plan{parallel: []string{"good", "few", "bad"}, serial: []string{"few [Serial]", "odd"}}, grow)
	if err != nil {
		t.Fatal(err)
	}
	lines, _ := judge("apps", "proxy=kube-proxy", results)
	want := []string{
		"FAIL bad: it is bad", "SKIP odd: odd (not in the list of tests that may be skipped)",
		"RESULT suite=apps proxy=kube-proxy passed=3 failed=1 skipped=1",
	}
	if grown != 1 || !slices.Equal(lines, want) {
		t.Errorf("grown %d times: %q\n%s", grown, lines, log)
	}
	if results, err = o.runAll(t.Context(), "kubeconfig", plan{parallel: []string{"good", "bad"}}, grow); err != nil || grown != 1 || len(results) != 2 {
		t.Errorf("grown %d times, results %+v, %v", grown, results, err)
	}
	if err := os.Remove(o.program() + ".grown"); err != nil {
		t.Fatal(err)
	}
	failing := func(context.Context) error { return errors.New("no room") }
	if _, err = o.runAll(t.Context(), "kubeconfig", plan{parallel: []string{"few"}}, failing); err == nil || !strings.Contains(err.Error(), "adding nodes: no room") {
		t.Errorf("the error is %v", err)
	}
}

func TestRunTests(t *testing.T) {
	o, log := fakeSuite(t)
	p := plan{serial: []string{"bad", "good"}}
	for i := range 2*batchSize + 1 {
		p.parallel = append(p.parallel, fmt.Sprintf("test%d", i))
	}
	results, err := o.runTests(t.Context(), "kubeconfig", o.reports, p)
	if err != nil {
		t.Fatal(err)
	}
	lines, ok := judge("apps", "proxy=kube-proxy", results)
	want := fmt.Sprintf("RESULT suite=apps proxy=kube-proxy passed=%d failed=1 skipped=0", len(p.parallel)+1)
	if ok || len(lines) != 2 || lines[0] != "FAIL bad: it is bad" || lines[1] != want {
		t.Errorf("passed: %v, %q\n%s", ok, lines, log)
	}
	if text, err := os.ReadFile(filepath.Join(o.reports, "004", logFile)); err != nil || string(text) != "ran\n" {
		t.Errorf("the log of the tests that run alone is %q, %v", text, err)
	}
}

// If the program cannot start, it leaves no reports, and no test has passed.
func TestRunTestsWithoutTheirProgram(t *testing.T) {
	folder := t.TempDir()
	var log bytes.Buffer
	o := &options{parallel: 1, tests: folder, reports: filepath.Join(folder, "reports"), log: &log}
	results, err := o.runTests(t.Context(), "kubeconfig", o.reports, plan{parallel: []string{"a"}})
	if err != nil || len(results) != 1 || results[0].state != failed || log.Len() == 0 {
		t.Errorf("results are %+v, %v\n%s", results, err, &log)
	}
}
