package view_test

import (
	"testing"

	"vicinity.dev/vicinity/internal/proxy/view"
)

// Missing bounds follow from the memory. The chart's memory is enough for a Service with 100,000 endpoints and three
// addresses.
func TestBoundsWithin(t *testing.T) {
	for _, test := range []struct {
		memory      int64
		given, want view.Bounds
	}{
		{0, view.Bounds{}, view.Bounds{Service: 2 << 20, Total: 4 << 20}},
		{512 << 20, view.Bounds{}, view.Bounds{Service: 196_608, Total: 393_216}},
		{512 << 20, view.Bounds{Service: 1000}, view.Bounds{Service: 1000, Total: 393_216}},
		{512 << 20, view.Bounds{Service: 1_000_000}, view.Bounds{Service: 1_000_000, Total: 1_000_000}},
		{512 << 20, view.Bounds{Total: 1000}, view.Bounds{Service: 500, Total: 1000}},
		{1, view.Bounds{}, view.Bounds{Service: 1, Total: 1}},
	} {
		if got := view.BoundsWithin(test.memory, test.given); got != test.want {
			t.Errorf("with %d bytes and %+v: %+v, want %+v", test.memory, test.given, got, test.want)
		}
	}
	const withChart = 1 << 30 / 10 * 9
	if got := view.BoundsWithin(withChart, view.Bounds{}); got.Service < 3*100_100 {
		t.Errorf("with the chart's limit a Service may have %d elements", got.Service)
	}
}
