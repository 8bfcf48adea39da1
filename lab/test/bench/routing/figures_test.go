package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFiguresOfChanges(t *testing.T) {
	start := time.Unix(0, 0)
	after := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	f := figures{services: 7, convergeWrites: 30, convergeSliceWrites: 10, convergeServiceWrites: 15}
	f.measure([]*change{
		{adds: true, sent: after(0), answered: after(20), wrote: 2 * time.Millisecond},
		{adds: true, sent: after(5), answered: after(15), wrote: time.Millisecond},
		{sent: after(0), answered: after(100), wrote: 3 * time.Millisecond},
		{sent: after(0), wrote: 4 * time.Millisecond},
	})
	if f.untouched != 1 || len(f.own) != 4 || slices.Min(f.own) != time.Millisecond {
		t.Errorf("figures %+v", f)
	}
	text := regexp.MustCompile(" +").ReplaceAllString(f.String(), " ")
	for _, want := range []string{
		"one endpoint more: p50, p99, most 10.0 ms, 20.0 ms, 20.0 ms",
		"4: 2 endpoints more, 2 less", "30: 10 slices, 15 Services, 5 others",
		"\nRESULT nodes=0 services=7 ", "change_p50_ms=20.0 change_p99_ms=100.0 writes=30\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}
