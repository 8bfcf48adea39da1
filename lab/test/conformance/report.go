package main

import (
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

type state int

const (
	passed state = iota
	failed
	skipped
)

type result struct {
	name  string
	state state
	// reason is one line that says why the test did not pass.
	reason string
	// allowed marks a test that is excluded.
	allowed bool
}

// junit has the parts of a JUnit file that count.
type junit struct {
	Suites []struct {
		Cases []testCase `xml:"testcase"`
	} `xml:"testsuite"`
}

type testCase struct {
	Name    string `xml:"name,attr"`
	Status  string `xml:"status,attr"`
	Skipped *note  `xml:"skipped"`
	Failure *note  `xml:"failure"`
	Error   *note  `xml:"error"`
}

type note struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// readReports reads the results of tests from the JUnit files of a folder. A test without a report
// has failed, and so has every test whose report does not show that it passed.
func readReports(folder string, names []string) ([]result, error) {
	files, err := filepath.Glob(filepath.Join(folder, "junit_*.xml"))
	if err != nil {
		return nil, err
	}
	cases := map[string]testCase{}
	var whole *testCase
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var report junit
		if err := xml.Unmarshal(text, &report); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		for _, suite := range report.Suites {
			for _, c := range suite.Cases {
				if name, ok := strings.CutPrefix(c.Name, "[It] "); ok {
					cases[name] = c
				} else if c.problem() != nil && whole == nil {
					whole = &c
				}
			}
		}
	}
	results := make([]result, len(names))
	for i, name := range names {
		c, reported := cases[name]
		switch {
		case whole != nil && (!reported || c.Skipped != nil):
			results[i] = result{name: name, state: failed, reason: whole.Name + ": " + firstLine(*whole.problem())}
		case !reported:
			results[i] = result{name: name, state: failed, reason: "it has no report: see " + filepath.Join(folder, logFile)}
		default:
			results[i] = c.result(name)
		}
	}
	return results, nil
}

func (c testCase) problem() *note {
	if c.Failure != nil {
		return c.Failure
	}
	return c.Error
}

func (c testCase) result(name string) result {
	switch {
	case c.problem() != nil:
		return result{name: name, state: failed, reason: firstLine(*c.problem())}
	case c.Skipped != nil:
		reason := strings.TrimPrefix(c.Skipped.Message, "skipped - ")
		return result{name: name, state: skipped, reason: firstLine(note{Message: reason})}
	case c.Status == "passed":
		return result{name: name}
	}
	return result{name: name, state: failed, reason: "its status is " + c.Status}
}

// Only the first longest bytes of a reason are printed; the report has the rest.
const longest = 300

func firstLine(n note) string {
	for line := range strings.Lines(n.Message + "\n" + n.Text) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "[FAILED]"))
		if line == "" {
			continue
		}
		if cut := []rune(line); len(cut) > longest {
			line = string(cut[:longest]) + "…"
		}
		return line
	}
	return "its report gives no reason"
}

// judge returns a line for each test that did not pass and a summary, and whether the run passed.
func judge(suite, mode string, results []result) (lines []string, ok bool) {
	slices.SortFunc(results, func(a, b result) int { return strings.Compare(a.name, b.name) })
	count := map[state]int{}
	ok = true
	for _, r := range results {
		count[r.state]++
		switch {
		case r.state == failed:
			ok = false
			lines = append(lines, fmt.Sprintf("FAIL %s: %s", r.name, r.reason))
		case r.state == skipped && !r.allowed:
			ok = false
			lines = append(lines, fmt.Sprintf("SKIP %s: %s (not in the list of tests that may be skipped)", r.name, r.reason))
		case r.state == skipped:
			lines = append(lines, fmt.Sprintf("skip %s: %s", r.name, r.reason))
		}
	}
	return append(lines, fmt.Sprintf("RESULT suite=%s %s passed=%d failed=%d skipped=%d",
		suite, mode, count[passed], count[failed], count[skipped])), ok
}
