package commands

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/lab/load"
)

// demoTraffic is what "vicinity status --traffic" prints when so many connections of 1,000
// bytes stayed in their zone and left it.
func demoTraffic(near, far int) []byte {
	const each = 500
	return fmt.Appendf(nil, `{"proxies": 2, "services": [
		{"namespace": "demo", "service": "other", "routes": [{"from": "a", "to": "b", "connections": 1000, "requestBytes": 1, "replyBytes": 1}]},
		{"namespace": "demo", "service": "echo", "routes": [
			{"from": "a", "to": "a", "connections": %[1]d, "requestBytes": %[2]d, "replyBytes": %[2]d},
			{"from": "a", "to": "b", "connections": %[3]d, "requestBytes": %[4]d, "replyBytes": %[4]d}]}
	], "total": {}}`, near, near*each, far, far*each)
}

func demoReading(t *testing.T, near, far int) inspect.ProxyReading {
	t.Helper()
	reading, err := readingOf(demoTraffic(near, far))
	if err != nil {
		t.Fatal(err)
	}
	return reading
}

func TestDemoCountsBetweenReadings(t *testing.T) {
	first, second := demoReading(t, 10, 20), demoReading(t, 50, 60)
	row := countedBetween(first, second, 4*time.Second)
	if row.Connections != 20 || row.CrossingBytes != 40*1000/4 || row.Bytes-row.CrossingBytes != 40*1000/4 {
		t.Errorf("got %+v", row)
	}
	if row := countedBetween(first, first, time.Second); row.Connections != 0 {
		t.Errorf("nothing new: got %+v", row)
	}
	if _, err := readingOf([]byte("none")); err == nil {
		t.Error("what is no JSON is read")
	}
}

// TestDemoCompares looks at the outcome with what proxies counted, and without.
func TestDemoCompares(t *testing.T) {
	begun := time.Unix(0, 0)
	m := measurement{result: load.Result{Answered: 80, Start: begun, End: begun.Add(4 * time.Second)}}
	d := &demo{demoFlags: demoFlags{price: 0.5}}
	before, after := m, m
	first := demoReading(t, 0, 0)
	before.counted = countedBetween(first, demoReading(t, 40, 40), m.took())
	after.counted = countedBetween(first, demoReading(t, 80, 0), m.took())
	want := []string{"counted by vicinity-proxy:\n", "connections in their zone 50.0 % 100.0 %", "across zones 10.0 kB/s 0 B/s", "a month, at 0.5 per GiB 12.24 0.00"}
	for _, counted := range []bool{true, false} {
		text := strings.Join(strings.FieldsFunc(d.compare(before, after), func(r rune) bool { return r == ' ' }), " ")
		for _, line := range want {
			if !strings.Contains(text, line) {
				t.Errorf("counted %t: %q is not in %q", counted, line, text)
			}
		}
		before.counted, after.counted = nil, nil
		want = []string{"across zones 0 B/s 0 B/s\n", "a month, at 0.5 per GiB 0.00 0.00\n"}
	}
}

// The demo fails if it does not show what it is for.
func TestDemoThatShowsNothing(t *testing.T) {
	flow := func(to string, answers int64) load.Flow {
		return load.Flow{Zone: "a", Node: "a-1", To: load.Endpoint{Zone: to}, Answers: answers}
	}
	for says, result := range map[string]load.Result{
		"": {Answered: 10, Flows: []load.Flow{flow("a", 10)}},
		"0 requests failed and 50 % of the answers came from the client's zone": {Answered: 10, Flows: []load.Flow{flow("a", 5), flow("b", 5)}},
		"1 request failed and 100 % of the answers came from the client's zone": {
			Answered: 10, Flows: []load.Flow{flow("a", 10)}, Failures: []load.FailureCount{{From: "a", Kind: load.Refused, Count: 1}},
		},
	} {
		if err := (measurement{result: result}).wrong(); (err != nil) != (says != "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
}
