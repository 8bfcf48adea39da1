package meter

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// SumMetric adds the values of a metric whose labels contain a text.
func SumMetric(metrics io.Reader, name, label string) (float64, error) {
	total := 0.0
	lines := bufio.NewScanner(metrics)
	for lines.Scan() {
		series, value, found := strings.Cut(lines.Text(), " ")
		base, labels, _ := strings.Cut(series, "{")
		if !found || base != name || !strings.Contains(labels, label) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("metric %q: %w", lines.Text(), err)
		}
		total += n
	}
	return total, lines.Err()
}
