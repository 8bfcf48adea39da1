package report

import (
	"math"
	"testing"
	"time"
)

func TestNumbersInWords(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{count(0), "0"},
		{count(999), "999"},
		{count(1000), "1,000"},
		{count(39_273_145), "39,273,145"},
		{count(-1234), "−1,234"},
		{plural(1, "case", "cases"), "1 case"},
		{plural(0, "case", "cases"), "0 cases"},
		{plural(1200, "case", "cases"), "1,200 cases"},
		{percent(0), "0.0\u202f%"},
		{percent(99.96), "100.0\u202f%"},
		{percent(1234.5), "1,234.5\u202f%"},
		{shortPercent(50), "50\u202f%"},
		{shortPercent(12.5), "12.5\u202f%"},
		{shortPercent(100.0 / 3), "33.33\u202f%"},
		{points(92.517, 2), "92.52"},
		{points(-0.001, 1), "0.0"},
		{points(-2.5, 1), "−2.5"},
		{points(1e6, 0), "1,000,000"},
		{points(1e30, 1), "1e+30"},
		{points(math.NaN(), 1), "–"},
		{points(math.Inf(1), 1), "∞"},
		{points(math.Inf(-1), 1), "−∞"},
		{span(0), "0\u202fs"},
		{span(90 * time.Second), "1\u202fmin 30\u202fs"},
		{span(2*time.Hour + 5*time.Second), "2\u202fh"},
		{span(49*time.Hour + 59*time.Minute), "2\u202fd 1\u202fh"},
		{clip("zone-a", 6), "zone-a"},
		{clip("zone abc", 6), "zone…"},
		{clip("züricher", 4), "zür…"},
		{px(1.06), "1.1"},
		{px(-0.01), "0"},
		{px(12), "12"},
	} {
		if test.got != test.want {
			t.Errorf("got %q, want %q", test.got, test.want)
		}
	}
}
