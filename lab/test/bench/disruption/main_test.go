package main

import (
	"strings"
	"testing"
	"time"

	"vicinity.dev/vicinity/lab/test/evictions"
)

func TestFlags(t *testing.T) {
	o, err := parse([]string{"-size", "full", "-pods", "30"})
	if err != nil {
		t.Fatal(err)
	}
	if o.evictions != 10000 || o.pods != 30 || o.inFlight != 200 || o.native != 0 {
		t.Errorf("options %+v", o)
	}
	for flags, want := range map[string]string{
		"-size huge":      `-size: "huge" is unknown; it must be short or full`,
		"-in-flight 0":    "-in-flight: 0 is not allowed",
		"-evictions -1":   "-evictions: -1 is not allowed",
		"-pods 421":       "-pods: 421 is not allowed",
		"-start-time -1s": "-start-time: -1s is not allowed",
		"-nodes 3":        "-nodes: 3 is not allowed",
		"more":            `argument "more"`,
	} {
		if _, err := parse(strings.Fields(flags)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want %q", flags, err, want)
		}
	}
}

func TestFigures(t *testing.T) {
	f := figures{
		options:    &options{pods: 420, inFlight: 200, startTime: 2 * time.Second, nodes: 500},
		many:       evictions.BudgetsFigures{Figures: evictions.Figures{Admitted: 100, Took: time.Second, Times: []time.Duration{time.Millisecond}}, Calls: evictions.Counts{"PUT 200": 100, "GET 200": 50}},
		one:        evictions.BudgetsFigures{Figures: evictions.Figures{Admitted: 100, Took: 3 * time.Second, Times: []time.Duration{3 * time.Millisecond}}, Calls: evictions.Counts{"PUT 200": 50}},
		manyNative: evictions.Figures{Admitted: 30, Took: time.Second, Times: []time.Duration{2 * time.Millisecond}},
		oneNative:  evictions.Figures{Admitted: 30, Took: 2 * time.Second, Times: []time.Duration{4 * time.Millisecond}},
		native:     evictions.RecycleFigures{Moved: 42, Took: time.Minute},
		byZone:     evictions.RecycleFigures{Moved: 420, Took: 12 * time.Second, Report: evictions.Report{Disturbed: 1}},
		updates:    []evictions.UpdateFigures{{UpdateOptions: evictions.UpdateOptions{By: evictions.ByNative, Pods: 420}, Took: time.Minute, Updated: 42, Calls: 420, Waves: evictions.Waves{MostDomains: 2}}},
		retry:      evictions.RetryFigures{Refused: 1000, Took: 2 * time.Second, Calls: 500, Times: []time.Duration{time.Millisecond}},
	}
	text := f.String()
	for _, want := range []string{
		"RESULT evictions=200 over_budget=0 p99_ms=3.0 per_second=50.0 api_calls_per_pod=1.00",
		"recycle_native_s=600", "recycle_zones_s=12", "zones_down=1", "refusals_per_second=500",
		"PUT 200 1.00, GET 200 0.50", "RESULT rollout=native seconds=600 zones_down_max=2 api_calls_per_pod=10.0 pods=420 updated=42", "600 s (from 42 pods in 60 s), 2, 10.0", "api_calls_per_refusal=0.50", "native_p99_ms=4.0 native_per_second=20.0",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}
