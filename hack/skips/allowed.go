package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// readAllowed reads the list of tests that may be skipped, with their reasons. A
// line is a test and its reason; empty lines and comments are left out.
func readAllowed(r io.Reader) (map[string]string, error) {
	allowed := make(map[string]string)
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		test, reason, _ := strings.Cut(line, " ")
		reason = strings.TrimSpace(reason)
		if reason == "" {
			return nil, fmt.Errorf("line %d: %q has no reason; a line is a test and the reason for which it may be skipped", n, test)
		}
		allowed[test] = reason
	}
	return allowed, lines.Err()
}
