package plaintext

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Count is a number that is not negative with its noun, as in "1,200 endpoints".
func Count[N int | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Thousands(int64(n)) + " " + many
}

// Plural is Count with a regular noun.
func Plural[N int | int64](n N, noun string) string { return Count(n, noun, noun+"s") }

// PluralVerb is Plural with a verb, as in "3 pods are".
func PluralVerb(n int, noun, one, many string) string { return Count(n, noun+" "+one, noun+"s "+many) }

// Thousands writes a number with separators.
func Thousands(n int64) string {
	s, sign := strconv.FormatInt(n, 10), ""
	if n < 0 {
		s, sign = s[1:], "-"
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// FirstOf names at most a number of things, as in "a, b and 3 more".
func FirstOf(names []string, most int) string {
	text := strings.Join(names[:min(most, len(names))], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Rounded keeps the significant digits of a percentage.
func Rounded(percentage float64) float64 {
	return math.Round(percentage*1e6) / 1e6
}

// Percent writes a fraction: 0.783 is "78.3 %".
func Percent(fraction float64) string {
	return Decimal(100*fraction, 1) + " %"
}

// Decimal writes a number with up to a number of decimals, without trailing zeros.
func Decimal(x float64, places int) string {
	s := Fixed(x, places)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// Fixed writes a number with a fixed number of decimals, for columns.
func Fixed(x float64, places int) string {
	s := strconv.FormatFloat(x, 'f', places, 64)
	if strings.Trim(s, "-0.") == "" {
		s = strings.TrimPrefix(s, "-") // of a number that rounds to 0
	}
	return s
}

// maxNames bounds the bytes of a List.
const maxNames = 180

// List joins names as far as they fit, as in "a, b and c" or "a, b and 7 more".
func List(names []string) string {
	space := maxNames
	for i, name := range names {
		if space -= len(name); space < 0 && i > 0 {
			return fmt.Sprintf("%s and %d more", strings.Join(names[:i], ", "), len(names)-i)
		}
	}
	if last := len(names) - 1; last > 0 {
		return strings.Join(names[:last], ", ") + " and " + names[last]
	}
	return names[0]
}

// Span writes a duration without trailing zeros, as in 1m.
func Span(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Clock writes a time in UTC.
func Clock(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05 UTC") }
