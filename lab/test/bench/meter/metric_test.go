package meter

import (
	"strings"
	"testing"
)

func TestMetric(t *testing.T) {
	metrics := "# HELP a b\na{x=\"1\",y=\"2\"} 3\na{x=\"2\"} 4.5\nab{x=\"1\"} 100\na 7\n"
	for label, want := range map[string]float64{"": 14.5, `x="1"`: 3, `x="3"`: 0} {
		if got, err := SumMetric(strings.NewReader(metrics), "a", label); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", label, got, err, want)
		}
	}
}
