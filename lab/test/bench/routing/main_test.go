package main

import (
	"strings"
	"testing"
	"time"
)

func TestFlags(t *testing.T) {
	o, err := parse([]string{"-size", "full", "-services", "7000", "-controller-flags", "--workers 4"})
	if err != nil {
		t.Fatal(err)
	}
	if o.nodes != 5000 || o.services != 7000 || o.changes() != 600 || len(o.flags) != 2 {
		t.Errorf("options %+v", o)
	}
	if o.duration != 30*time.Second {
		t.Errorf("slices change for %s", o.duration)
	}
	for flags, want := range map[string]string{
		"-size huge":                  `-size: "huge" is unknown; it must be short or full`,
		"-nodes -1":                   "-nodes: -1 is not allowed",
		"-services -5":                "-services: -5 is not allowed",
		"-rate 0":                     "-rate: 0 is not allowed",
		"-duration 10ms":              "makes 0 changes",
		"-services 100":               "no more than the 100 Services",
		"more":                        `argument "more"`,
		"-rate 1000 -duration 1001ms": "makes 1001 changes",
	} {
		if _, err := parse(strings.Fields(flags)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want %q", flags, err, want)
		}
	}
}
