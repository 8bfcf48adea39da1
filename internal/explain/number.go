package explain

import (
	"fmt"
	"math"
	"strconv"
	"strings"
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

// FirstOf names at most so many of some things, as in "a, b and 3 more".
func FirstOf(names []string, most int) string {
	text := strings.Join(names[:min(most, len(names))], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Rounded leaves as many digits of a percentage as mean something.
func Rounded(percentage float64) float64 {
	return math.Round(percentage*1e6) / 1e6
}
