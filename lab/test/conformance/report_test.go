package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

const report = `<?xml version="1.0"?>
<testsuites tests="9"><testsuite name="Kubernetes e2e suite">
<testcase name="[SynchronizedBeforeSuite]" status="passed"></testcase>
<testcase name="[It] [sig-network] passes" status="passed"></testcase>
<testcase name="[It] [sig-network] fails" status="failed"><failure type="failed">[FAILED] 3 pods of 4&#xA;In [It] at: x.go:1</failure></testcase>
<testcase name="[It] [sig-network] panics" status="panicked"><error message="" type="panicked">[PANICKED] Test Panicked</error></testcase>
<testcase name="[It] [sig-network] skips" status="skipped"><skipped message="skipped - no such thing"></skipped></testcase>
<testcase name="[It] [sig-network] skips [Disruptive]" status="skipped"><skipped message="skipped - no ssh"></skipped></testcase>
<testcase name="[It] [sig-network] is stopped" status="interrupted"></testcase>
<testcase name="[It] [sig-network] of others" status="skipped"><skipped message="skipped"></skipped></testcase>
</testsuite></testsuites>`

func reports(t *testing.T, texts ...string) string {
	t.Helper()
	folder := t.TempDir()
	for i, text := range texts {
		if err := os.WriteFile(filepath.Join(folder, []string{"junit_01.xml", "junit_02.xml"}[i]), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func TestReadReports(t *testing.T) {
	names := []string{
		"[sig-network] passes", "[sig-network] fails", "[sig-network] panics", "[sig-network] skips",
		"[sig-network] skips [Disruptive]", "[sig-network] is stopped", "[sig-network] is nowhere",
	}
	folder := reports(t, report)
	got, err := readReports(folder, names)
	if err != nil {
		t.Fatal(err)
	}
	want := []result{
		{name: names[0]},
		{name: names[1], state: failed, reason: "3 pods of 4"},
		{name: names[2], state: failed, reason: "[PANICKED] Test Panicked"},
		{name: names[3], state: skipped, reason: "no such thing"},
		{name: names[4], state: skipped, reason: "no ssh"},
		{name: names[5], state: failed, reason: "its status is interrupted"},
		{name: names[6], state: failed, reason: "it has no report: see " + folder + "/log"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("results are\n%+v\nwant\n%+v", got, want)
	}
}

func TestJudge(t *testing.T) {
	all := []result{
		{name: "d", state: skipped, reason: "no cloud", allowed: true},
		{name: "b", state: failed, reason: "broken"},
		{name: "c", state: skipped, reason: "odd"},
		{name: "a"},
	}
	lines, ok := judge("network", "proxy=vicinity", slices.Clone(all))
	want := []string{
		"FAIL b: broken", "SKIP c: odd (not in the list of tests that may be skipped)", "skip d: no cloud",
		"RESULT suite=network proxy=vicinity passed=1 failed=1 skipped=2",
	}
	if ok || !slices.Equal(lines, want) {
		t.Errorf("passed: %v, %q", ok, lines)
	}
	for _, test := range []struct {
		results []result
		ok      bool
	}{{all[:1], true}, {all[1:2], false}, {all[2:3], false}, {all[3:], true}} {
		if _, ok := judge("network", "proxy=vicinity", slices.Clone(test.results)); ok != test.ok {
			t.Errorf("%+v: passed is %v", test.results, ok)
		}
	}
}
