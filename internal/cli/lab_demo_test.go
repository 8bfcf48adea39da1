package cli

import (
	"strings"
	"testing"
	"time"

	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/lab/load"
)

// reading is what the proxy of a node has counted of the demo's Service.
func demoReading(pod string, near, far float64) inspect.ProxyReading {
	const each = 500
	return inspect.ProxyReading{Pod: pod, Node: pod, Counts: map[inspect.TrafficKey]inspect.TrafficCount{
		{Namespace: demoNamespace, Service: demoService, From: "a", To: "a"}: {Connections: near, Request: near * each, Reply: near * each},
		{Namespace: demoNamespace, Service: demoService, From: "a", To: "b"}: {Connections: far, Request: far * each, Reply: far * each},
		{Namespace: "shop", Service: "web", From: "a", To: "b"}:              {Connections: 1000, Request: 1000, Reply: 1000},
	}}
}

func TestDemoCountsBetweenReadings(t *testing.T) {
	first := []inspect.ProxyReading{demoReading("one", 10, 20), demoReading("two", 0, 0)}
	second := []inspect.ProxyReading{demoReading("one", 10, 60), demoReading("two", 40, 0)}
	row := countedBetween(first, second, 4*time.Second)
	if row.Connections != 20 || row.CrossingBytes != 40*1000/4 || row.Bytes-row.CrossingBytes != 40*1000/4 {
		t.Errorf("got %+v", row)
	}
	if row := countedBetween(first, first, time.Second); row.Connections != 0 {
		t.Errorf("nothing new: got %+v", row)
	}
}

// TestDemoCompares looks at the outcome with what proxies counted, and without.
func TestDemoCompares(t *testing.T) {
	begun := time.Unix(0, 0)
	m := measurement{result: load.Result{Answered: 80, Start: begun, End: begun.Add(4 * time.Second)}}
	first := []inspect.ProxyReading{demoReading("one", 0, 0)}
	d := &demo{demoFlags: demoFlags{price: 0.5}}
	before, after := m, m
	before.counted = countedBetween(first, []inspect.ProxyReading{demoReading("one", 40, 40)}, m.took())
	after.counted = countedBetween(first, []inspect.ProxyReading{demoReading("one", 80, 0)}, m.took())
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
