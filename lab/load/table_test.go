package load

import (
	"net/netip"
	"testing"
	"time"

	"vicinity.dev/vicinity/test/golden"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// exampleResult is a result of three zones. zone-c has no endpoint, and a cut keeps it from the others for
// some time.
func exampleResult() Result {
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
		r.update(at, func(r *Result) { r.Due++; r.Connections++ })
		r.answered(at.Add(latency), from, to, latency)
	}
	b1 := endpoint("b", "1")
	other := Endpoint{Pod: "web-0", Namespace: "default", Zone: "zone-a", Service: "web"}
	for i, f := range []Failure{
		{Kind: TimedOut, To: &b1, Local: "10.128.5.2:40312", After: 5 * time.Second, Error: "read: i/o timeout"},
		{Kind: WrongService, To: &other, Local: "10.128.5.2:40313", After: 1530 * time.Microsecond, Error: "the answer is from Service default/web, not from echo"},
		{Kind: Refused, After: 210 * time.Microsecond, Error: "connect: connection refused"},
	} {
		f.Time = noon.Add(time.Duration(i+1) * 1234 * time.Millisecond)
		f.From, f.Target = Place{Pod: "client-c", Node: "zone-c-2", Zone: "zone-c"}, "10.96.0.7:80"
		r.update(f.Time, func(r *Result) { r.Due++ })
		r.failed(f)
	}
	r.update(noon, func(r *Result) {
		r.Due += 6
		r.Unsent = Unsent{Busy: 3, Late: 2}
		r.Resent, r.Abandoned = 5, 1
	})
	return r.result()
}

func examplePlan() Plan {
	return Plan{Targets: []netip.AddrPort{netip.MustParseAddrPort("10.96.0.7:80")}, Protocol: HTTP, Service: "default/echo", Rate: 150, Duration: 10 * time.Second}
}

func TestTable(t *testing.T) {
	plan := examplePlan()
	golden.Compare(t, "testdata/table.golden", Table(plan, 3, exampleResult()))
	empty := Plan{Protocol: UDP, Rate: 0.5, Duration: time.Minute, Targets: plan.Targets}
	golden.Compare(t, "testdata/empty.golden", Table(empty, 1, Result{}))
}

func TestExamplesAreBounded(t *testing.T) {
	r := newRecorder(nil)
	for i := range 3 * maxExamples {
		r.failed(Failure{Time: noon.Add(-time.Duration(i) * time.Second)})
	}
	if got := r.result().Examples; len(got) != maxExamples || !got[maxExamples-1].Time.Equal(noon) {
		t.Errorf("%d examples up to %v", len(got), got[len(got)-1].Time)
	}
}
