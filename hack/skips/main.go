// Command skips keeps count of what a test run did not test. It reads the events of
// "go test -json" on standard input and prints what "go test" would have printed,
// then how many tests passed, failed and were skipped, and why each was skipped.
//
// It exits with 1 if anything failed to build or to pass, or if the run did not end
// by itself. With -strict it also does so for a skipped test that the list of
// allowed skips lacks: a machine that is meant to test everything must not pass
// because a program is missing on it.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	strict := flag.Bool("strict", false, "fail on skipped tests that are not on the list")
	list := flag.String("list", "test/skips.txt", "`file` with the tests that may be skipped")
	flag.Parse()
	if err := run(*strict, *list); err != nil {
		fmt.Fprintln(os.Stderr, "skips:", err)
		os.Exit(1)
	}
}

func run(strict bool, list string) error {
	// The list is read first, so that a mistake in it does not cost a test run.
	file, err := os.Open(list)
	if err != nil {
		return fmt.Errorf("reading the allowed skips: %w", err)
	}
	defer file.Close()
	allowed, err := readAllowed(file)
	if err != nil {
		return fmt.Errorf("reading the allowed skips in %s: %w", list, err)
	}

	summary, err := summarize(os.Stdin, os.Stdout)
	if err != nil {
		return err
	}
	summary.print(os.Stdout, allowed)
	if err := summary.err(); err != nil {
		return err
	}
	if unlisted := summary.unlisted(allowed); strict && unlisted > 0 {
		return fmt.Errorf("tests skipped without being listed in %s: %d", list, unlisted)
	}
	return nil
}
