package main

import (
	"strings"
	"testing"
	"time"
)

func TestFlags(t *testing.T) {
	o, err := parse([]string{"-size", "full", "-rounds", "2"})
	if err != nil {
		t.Fatal(err)
	}
	if o.pods != 100_000 || o.rounds != 2 || o.duration != 3*time.Second {
		t.Errorf("options %+v", o)
	}
	if o, err = parse([]string{"-size", "full", "-pods", "150"}); err != nil || o.pods != 150 {
		t.Errorf("options %+v, %v", o, err)
	}
	for flags, want := range map[string]string{
		"-size huge":      `-size: "huge" is unknown; it must be short or full`,
		"-pods 149":       "-pods: 149 is not allowed; it must be from 150 to 1000000",
		"-pods 1000001":   "-pods: 1000001 is not allowed",
		"-rounds 0":       "-rounds: 0 is not allowed; it must be 1 or more",
		"-duration 900ms": "-duration: 900ms is not allowed; it must be 1s or more",
		"more":            `argument "more"`,
	} {
		if _, err := parse(strings.Fields(flags)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want %q", flags, err, want)
		}
	}
}
