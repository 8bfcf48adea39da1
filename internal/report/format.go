package report

import (
	"math"
	"strconv"
	"strings"
	"time"

	"vicinity.dev/vicinity/internal/kit/plaintext"
)

// thinSpace keeps a unit on the line of its number.
const thinSpace = "\u202f"

func count[N int | int64](n N) string {
	if n < 0 {
		return "−" + plaintext.Thousands(-int64(n))
	}
	return plaintext.Thousands(int64(n))
}

func plural[N int | int64](n N, one, many string) string { return plaintext.Count(int64(n), one, many) }

func percent(value float64) string {
	return points(value, 1) + thinSpace + "%"
}

// shortPercent writes a percentage without unneeded decimals.
func shortPercent(value float64) string {
	return strconv.FormatFloat(math.Round(value*100)/100, 'f', -1, 64) + thinSpace + "%"
}

func points(n float64, decimals int) string {
	switch {
	case math.IsNaN(n):
		return "–"
	case math.IsInf(n, 1):
		return "∞"
	case math.IsInf(n, -1):
		return "−∞"
	}
	text := strconv.FormatFloat(math.Abs(n), 'f', decimals, 64)
	whole, rest, found := strings.Cut(text, ".")
	if len(whole) > 15 {
		return strconv.FormatFloat(n, 'g', 4, 64)
	}
	value, err := strconv.ParseInt(whole, 10, 64)
	if err != nil {
		return text
	}
	whole = count(value)
	if found {
		whole += "." + rest
	}
	if n < 0 && strings.ContainsAny(text, "123456789") {
		whole = "−" + whole
	}
	return whole
}

func span(d time.Duration) string {
	d = d.Round(time.Second)
	units := []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}}
	var parts []string
	for _, unit := range units {
		n := d / unit.size
		d -= n * unit.size
		if n > 0 {
			parts = append(parts, strconv.FormatInt(int64(n), 10)+thinSpace+unit.name)
		} else if len(parts) > 0 {
			break
		}
		if len(parts) == 2 {
			break
		}
	}
	if len(parts) == 0 {
		return "0" + thinSpace + "s"
	}
	return strings.Join(parts, " ")
}

func px(length float64) string {
	// Adding 0 turns -0 into 0.
	return strconv.FormatFloat(math.Round(length*10)/10+0, 'f', -1, 64)
}
