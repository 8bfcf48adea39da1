package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// fakeTests reports each test of its focus as passed, but those called bad as failed.
const fakeTests = `#!/bin/sh
for arg; do case $arg in --report-dir=*) folder=${arg#*=} ;; --ginkgo.focus=*) focus=${arg#*=} ;; esac; done
{
	echo '<testsuites><testsuite>'
	echo "$focus" | tr '(|)$' '\n' | while read -r name; do
		case $name in
		'') ;;
		bad*) echo "<testcase name='[It] $name' status='failed'><failure>it is bad</failure></testcase>" ;;
		*) echo "<testcase name='[It] $name' status='passed'/>" ;;
		esac
	done
	echo '</testsuite></testsuites>'
} >"$folder/junit_01.xml"
echo ran
! grep -q failed "$folder/junit_01.xml"
`

func TestRunTests(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "e2e.test"), []byte(fakeTests), 0o755); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	o := &options{parallel: 1, tests: folder, reports: filepath.Join(folder, "reports"), log: &log}
	p := plan{serial: []string{"bad", "good"}}
	for i := range 2*batchSize + 1 {
		p.parallel = append(p.parallel, fmt.Sprintf("test%d", i))
	}
	results, err := o.runTests(t.Context(), "kubeconfig", p)
	if err != nil {
		t.Fatal(err)
	}
	lines, ok := judge("apps", "kube-proxy", results)
	want := fmt.Sprintf("RESULT suite=apps proxy=kube-proxy passed=%d failed=1 skipped=0", len(p.parallel)+1)
	if ok || len(lines) != 2 || lines[0] != "FAIL bad: it is bad" || lines[1] != want {
		t.Errorf("passed: %v, %q\n%s", ok, lines, &log)
	}
	if text, err := os.ReadFile(filepath.Join(o.reports, "004", logFile)); err != nil || string(text) != "ran\n" {
		t.Errorf("the log of the tests that run alone is %q, %v", text, err)
	}
}

// A program that cannot be started leaves no reports, and no test of it has passed.
func TestRunTestsWithoutTheirProgram(t *testing.T) {
	folder := t.TempDir()
	var log bytes.Buffer
	o := &options{parallel: 1, tests: folder, reports: filepath.Join(folder, "reports"), log: &log}
	results, err := o.runTests(t.Context(), "kubeconfig", plan{parallel: []string{"a"}})
	if err != nil || len(results) != 1 || results[0].state != failed || log.Len() == 0 {
		t.Errorf("results are %+v, %v\n%s", results, err, &log)
	}
}
