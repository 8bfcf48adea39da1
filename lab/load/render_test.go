package load

import (
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "rewrite the golden files of renderings")

// golden compares with a file of testdata, or writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (-update writes the file):\n%s\nwant\n%s", path, got, want)
	}
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// measured is a result of three zones, of which zone-c has no endpoint, and is not
// allowed to reach the others all the time.
func measured() Result {
	r := newRecorder(nil)
	endpoint := func(zone, n string) Endpoint {
		return Endpoint{Pod: "echo-" + zone + "-" + n, Namespace: "default", Node: "zone-" + zone + "-" + n, Zone: "zone-" + zone, Service: "echo"}
	}
	for i := range 1500 {
		from := Place{Pod: "client-a", Node: "zone-a-1", Zone: "zone-a"}
		to := endpoint("a", string("12"[i%2]))
		switch i % 3 {
		case 1:
			from = Place{Pod: "client-b", Node: "zone-b-1", Zone: "zone-b"}
			if i%30 != 1 {
				to = endpoint("b", "1")
			}
		case 2:
			from = Place{Pod: "client-c", Node: "zone-c-2", Zone: "zone-c"}
			if i%2 == 0 {
				to = endpoint("b", "1")
			}
		}
		at := noon.Add(time.Duration(i) * 5 * time.Millisecond)
		latency := 400*time.Microsecond + time.Duration(i)*time.Microsecond/2
		if from.Zone != to.Zone {
			latency += 2 * time.Millisecond
		}
		r.update(at, func(r *Result) { r.Due++; r.Connections++; r.Lag.Record(time.Duration(i%7) * 10 * time.Microsecond) })
		r.answered(at.Add(latency), from, to, latency)
	}
	b1 := endpoint("b", "1")
	other := Endpoint{Pod: "web-0", Namespace: "default", Zone: "zone-a", Service: "web"}
	for i, f := range []Failure{
		{Kind: TimedOut, To: &b1, Local: "10.128.5.2:40312", Reused: true, After: 5 * time.Second, Error: "read: i/o timeout"},
		{Kind: WrongService, To: &other, Local: "10.128.5.2:40313", After: 1530 * time.Microsecond, Error: "the answer is from Service default/web, not from echo"},
		{Kind: Refused, After: 210 * time.Microsecond, Error: "connect: connection refused"},
	} {
		f.Time = noon.Add(time.Duration(i+1) * 1234 * time.Millisecond)
		f.From, f.Target, f.Protocol = Place{Pod: "client-c", Node: "zone-c-2", Zone: "zone-c"}, "10.96.0.7:80", HTTP
		r.update(f.Time, func(r *Result) { r.Due++ })
		r.failed(f)
	}
	r.update(noon, func(r *Result) {
		r.Due += 6
		r.Unsent = Unsent{Busy: 3, Late: 2}
		r.Resent, r.Abandoned = 5, 1
		r.Replaced = 4
	})
	return r.take()
}

func measuredPlan() Plan {
	return Plan{Targets: []netip.AddrPort{netip.MustParseAddrPort("10.96.0.7:80")}, Protocol: HTTP, Service: "default/echo", Rate: 150, Duration: 10 * time.Second}
}

func TestRenderings(t *testing.T) {
	plan, result := measuredPlan(), measured()
	summary := Summarize(plan, 3, result)
	golden(t, "table.golden", Table(summary))
	text, err := json.MarshalIndent(summary, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "json.golden", string(text)+"\n")
	view := View{Plan: plan, Sources: 3, Progress: Progress{Elapsed: 7500 * time.Millisecond, Total: result}}
	view.Last = Result{
		Due: 150, Answered: 148,
		Flows: []Flow{
			{Zone: "zone-a", Node: "zone-a-1", To: Endpoint{Pod: "echo-a-1", Zone: "zone-a"}, Answers: 100},
			{Zone: "zone-b", Node: "zone-b-1", To: Endpoint{Pod: "echo-a-1", Zone: "zone-a"}, Answers: 16},
			{Zone: "zone-b", Node: "zone-b-1", To: Endpoint{Pod: "echo-b-1", Zone: "zone-b"}, Answers: 32},
		},
		Latencies: []Latency{{From: "zone-a", To: "zone-a", Histogram: histogramOf([]time.Duration{time.Millisecond, 12 * time.Millisecond})}},
		Failures:  []FailureCount{{From: "zone-c", Kind: Refused, Count: 2}},
	}
	golden(t, "live.golden", Live(view, 120))
	golden(t, "line.golden", Line(view)+"\n")

	empty := View{Plan: Plan{Protocol: UDP, KeepAlive: true, Rate: 0.5, Duration: time.Minute, Targets: plan.Targets}, Sources: 1}
	golden(t, "empty.golden", Table(Summarize(empty.Plan, 1, Result{}))+"\n"+Live(empty, 80)+"\n"+Line(empty)+"\n")
}

func TestTheLiveViewFitsTheTerminal(t *testing.T) {
	view := View{Plan: measuredPlan(), Sources: 3, Progress: Progress{Elapsed: time.Minute, Total: measured()}}
	for _, width := range []int{10, 40, 80} {
		for line := range strings.Lines(Live(view, width)) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("a line of %d characters in %d: %s", n, width, line)
			}
		}
	}
}

// merge adds results up as a run does with those of its intervals.
func merge(results ...Result) Result {
	t := newTally()
	for _, r := range results {
		t.add(r)
	}
	return t.result()
}

func TestMergingHasNoOrder(t *testing.T) {
	whole := measured()
	other := Result{Due: 1, Answered: 1, Start: noon.Add(-time.Second), End: noon.Add(-time.Second), Flows: []Flow{{Zone: "zone-z", Answers: 1}}}
	if !reflect.DeepEqual(merge(other, whole), merge(whole, merge(), other)) {
		t.Error("the order of results matters")
	}
	twice := merge(whole, whole)
	if twice.Due != 2*whole.Due || twice.Failed() != 2*whole.Failed() || twice.InZone() != whole.InZone() || len(twice.Examples) != 6 || !twice.Start.Equal(whole.Start) {
		t.Errorf("twice the result is %+v", twice)
	}
	if !reflect.DeepEqual(whole, measured()) {
		t.Error("merging changed what was merged")
	}
}

func TestExamplesAreBounded(t *testing.T) {
	var results []Result
	for i := range 3 * maxExamples {
		results = append(results, Result{Examples: []Failure{{Time: noon.Add(-time.Duration(i) * time.Second)}}})
	}
	got := merge(results...).Examples
	if len(got) != maxExamples || !got[0].Time.Equal(noon.Add(-time.Duration(3*maxExamples-1)*time.Second)) {
		t.Errorf("%d examples from %v", len(got), got[0].Time)
	}
}
