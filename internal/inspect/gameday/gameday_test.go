package gameday

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"vicinity.dev/vicinity/internal/inspect"
)

func TestMeasure(t *testing.T) {
	for _, test := range []struct {
		name           string
		before, during Ended
		outside        int
		want           string // measured, difference
	}{
		{"as predicted", Ended{20000, 40000}, Ended{0, 60000}, 4, "50.0 +0.0"},
		{"near clients kept to their zone", Ended{10000, 50000}, Ended{0, 60000}, 4, "20.0 -30.0"},
		{"an autoscaler doubled the endpoints", Ended{20000, 40000}, Ended{0, 60000}, 8, "-25.0 -75.0"},
		{"a tenth still ends inside", Ended{20000, 40000}, Ended{6000, 54000}, 4, "35.0 -15.0"},
		{"few before", Ended{20, 40}, Ended{0, 60000}, 4, "50.0 few"},
		{"few during", Ended{20000, 40000}, Ended{0, 60}, 4, "50.0 few"},
		{"one connection", Ended{0, 1}, Ended{0, 1}, 4, "0.0 few"},
		{"none before", Ended{}, Ended{0, 60000}, 4, "none"},
		{"none during", Ended{20000, 40000}, Ended{}, 4, "none"},
		{"none outside", Ended{20000, 40000}, Ended{60000, 0}, 0, "none"},
	} {
		s := Service{Name: "shop/web", Outside: 4, Predicted: 50}
		s.measure(test.before, test.during, test.outside)
		got := "none"
		if s.Measured != nil {
			got = fmt.Sprintf("%.1f few", *s.Measured)
		}
		if s.Difference != nil {
			got = fmt.Sprintf("%.1f %+.1f", *s.Measured, *s.Difference)
		}
		if got != test.want {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
	}
}

func TestCount(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	reading := func(after time.Duration, inside, outside, unknown float64) []inspect.ProxyReading {
		counts := map[inspect.TrafficKey]inspect.TrafficCount{}
		for to, n := range map[string]float64{"a": inside, "b": outside, "c": outside, "": unknown} {
			counts[inspect.TrafficKey{Namespace: "shop", Service: "web", From: "a", To: to}] = inspect.TrafficCount{Connections: n}
		}
		return []inspect.ProxyReading{{Pod: "proxy", At: at.Add(after), Counts: counts}}
	}
	if got, want := Count(reading(0, 1, 2, 3), reading(10*time.Second, 11, 22, 33), "a")["shop/web"], (Ended{10, 40}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := Count(nil, reading(0, 1, 2, 3), "a"); len(got) > 0 {
		t.Errorf("a first reading counts as %v", got)
	}
}

func TestFinish(t *testing.T) {
	for _, test := range []struct {
		early      string
		difference *float64
		failed     bool
		want       string
	}{
		{"", new(5.0), false, "1 compared Service is as predicted"},
		{"", new(-5.1), true, "by more than 5 points: shop/web by -5.1"},
		{"", nil, false, "no load could be compared"},
		{"it was interrupted", new(9.0), true, "ended early: it was interrupted"},
	} {
		run := Run{Services: []Service{{Name: "shop/web", Measured: test.difference, Difference: test.difference}, {Name: "shop/other"}}}
		if failed := run.Finish(test.early); failed != test.failed || !strings.Contains(run.Result, test.want) {
			t.Errorf("%+v: got %t, %q", test, failed, run.Result)
		}
		if noted := strings.Join(run.NotMeasured, ""); !strings.Contains(noted, "shop/other") {
			t.Errorf("not measured: %q", noted)
		}
	}
}
