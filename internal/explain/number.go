package explain

import (
	"math"
	"strconv"
)

// Count is a number that is not negative with its noun, as in "1,200 endpoints".
func Count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Thousands(n) + " " + many
}

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

// Rounded leaves as many digits of a percentage as mean something.
func Rounded(percentage float64) float64 {
	return math.Round(percentage*1e6) / 1e6
}
