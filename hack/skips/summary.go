package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// event is one line of "go test -json", see "go doc test2json" and, for the events
// of builds, "go help buildjson".
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

// summary is what a test run came to.
type summary struct {
	packages, passed, failed int
	skipped                  []skip
	failures                 []failure
	// unfinished are the packages that started and did not end.
	unfinished []string
}

// skip is a test that was skipped.
type skip struct {
	test   string // its package, a dot and its name, as in the list of allowed skips
	reason string
}

// failure is a test that failed, or did not end.
type failure struct {
	test string   // its package, a dot and its name
	said []string // the beginnings of the lines that it logged
}

// summarize reads a test run to its end and prints it to w as it goes on.
func summarize(r io.Reader, w io.Writer) (summary, error) {
	var s summary
	running := make(map[string]*testedPackage)
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			s.read(line, running, w)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return summary{}, fmt.Errorf("reading test events: %w", err)
		}
	}
	for name, pkg := range running {
		s.unfinished = append(s.unfinished, name)
		s.failures = append(s.failures, pkg.failures(name)...)
		pkg.printFailure(w)
	}
	slices.Sort(s.unfinished)
	slices.SortFunc(s.failures, func(a, b failure) int { return strings.Compare(a.test, b.test) })
	return s, nil
}

// read takes one line of the run.
func (s *summary) read(line string, running map[string]*testedPackage, w io.Writer) {
	var e event
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		// The go command says some of its own errors in plain words.
		io.WriteString(w, line)
		return
	}
	if e.Package == "" {
		// The output of compilers names an import path instead.
		io.WriteString(w, e.Output)
		return
	}
	pkg := running[e.Package]
	if pkg == nil {
		pkg = new(testedPackage)
		running[e.Package] = pkg
	}
	if e.Test != "" {
		s.readTest(e, pkg)
		return
	}
	switch e.Action {
	case "output":
		pkg.output = append(pkg.output, e.Output)
		return
	case "pass", "skip":
		// A package is skipped when it has no tests.
		pkg.printSuccess(w)
	case "fail":
		if pkg.failed == 0 {
			// It did not build, or ended in some other way than by a test.
			s.failed++
		}
		s.failures = append(s.failures, pkg.failures(e.Package)...)
		pkg.printFailure(w)
	default:
		return
	}
	s.packages++
	delete(running, e.Package)
}

// readTest takes an event of a test of pkg.
func (s *summary) readTest(e event, pkg *testedPackage) {
	test := pkg.test(e.Test)
	switch e.Action {
	case "output":
		if !strings.HasPrefix(e.Output, "=== ") {
			test.output = append(test.output, e.Output)
		}
		return
	case "pass":
		s.passed++
	case "fail":
		s.failed++
		pkg.failed++
		return
	case "skip":
		s.skipped = append(s.skipped, skip{test: e.Package + "." + e.Test, reason: reasonIn(test.output)})
	default:
		return
	}
	test.good = true
	test.output = nil
}

// print ends the output of a run: what failed, in short, since logs may have buried it; the counts;
// then the skipped tests.
func (s *summary) print(w io.Writer, allowed map[string]string) {
	for _, failure := range s.failures {
		fmt.Fprintf(w, "failed %s\n", failure.test)
		for _, line := range failure.said {
			fmt.Fprintln(w, line)
		}
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", s.passed, s.failed, len(s.skipped))
	for _, skip := range s.skipped {
		fmt.Fprintf(w, "skipped %s: %s", skip.test, skip.reason)
		if reason, ok := allowed[skip.test]; ok {
			fmt.Fprintf(w, " (allowed: %s)", reason)
		}
		fmt.Fprintln(w)
	}
}

// err says why the run is not a success, if it is not.
func (s *summary) err() error {
	switch {
	case len(s.unfinished) > 0:
		return fmt.Errorf("the run ended before these packages did: %s", strings.Join(s.unfinished, ", "))
	case s.packages == 0:
		return errors.New("no package was tested")
	case s.failed > 0:
		return fmt.Errorf("%d failed", s.failed)
	}
	return nil
}

// unlisted counts the skipped tests that are not allowed to be.
func (s *summary) unlisted(allowed map[string]string) int {
	n := 0
	for _, skip := range s.skipped {
		if _, ok := allowed[skip.test]; !ok {
			n++
		}
	}
	return n
}

// testedPackage is a package whose tests are running.
type testedPackage struct {
	output []string // of no test
	failed int      // tests
	tests  []*tested
	byName map[string]*tested
}

// tested is a test of a package.
type tested struct {
	name   string
	output []string
	good   bool // passed or skipped
}

// test is the package's test of that name, in the order in which they started.
func (p *testedPackage) test(name string) *tested {
	if t := p.byName[name]; t != nil {
		return t
	}
	if p.byName == nil {
		p.byName = make(map[string]*tested)
	}
	t := &tested{name: name}
	p.byName[name] = t
	p.tests = append(p.tests, t)
	return t
}

// verdict is what the go command says of a package that passed.
var verdict = regexp.MustCompile(`^(ok  |\?   |)\t`)

// printSuccess prints the verdict alone, as "go test" does.
func (p *testedPackage) printSuccess(w io.Writer) {
	for _, line := range p.output {
		if verdict.MatchString(line) {
			io.WriteString(w, line)
		}
	}
}

// printFailure prints the tests that failed or did not end, then the package's own
// output with the verdict.
func (p *testedPackage) printFailure(w io.Writer) {
	for _, t := range p.tests {
		if t.good {
			continue
		}
		for _, line := range t.output {
			io.WriteString(w, line)
		}
	}
	for _, line := range p.output {
		io.WriteString(w, line)
	}
}

const (
	mostSaid    = 10  // lines of a test that failed
	longestSaid = 300 // characters of a line
)

// failures are the tests of the package that are not good and said something themselves.
func (p *testedPackage) failures(name string) (all []failure) {
	for _, t := range p.tests {
		if t.good {
			continue
		}
		f := failure{test: name + "." + t.name}
		for _, line := range t.output {
			if logged.MatchString(line) && len(f.said) < mostSaid {
				line = strings.TrimRight(line, "\n")
				f.said = append(f.said, line[:min(len(line), longestSaid)])
			}
		}
		if len(f.said) > 0 {
			all = append(all, f)
		}
	}
	return all
}

// logged is a line that a test logs.
var logged = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)`)

// reasonIn is what a skipped test said last.
func reasonIn(output []string) string {
	reason := ""
	for _, line := range output {
		text := strings.TrimSpace(line)
		if match := logged.FindStringSubmatch(line); match != nil {
			reason = strings.TrimSpace(match[1])
		} else if text != "" && !strings.HasPrefix(text, "--- SKIP") {
			reason = strings.TrimSpace(reason + " " + text)
		}
	}
	if reason == "" {
		return "no reason given"
	}
	return reason
}
