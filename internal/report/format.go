package report

import (
	"math"
	"strconv"

	"vicinity.dev/vicinity/internal/kit/plaintext"
)

// thinSpace keeps a percent sign on the line of its number.
const thinSpace = "\u202f"

func percent(value float64) string {
	return plaintext.Fixed(value, 1) + thinSpace + "%"
}

// shortPercent writes a percentage without unneeded decimals.
func shortPercent(value float64) string {
	return plaintext.Decimal(value, 2) + thinSpace + "%"
}

func px(length float64) string {
	// Adding 0 turns -0 into 0.
	return strconv.FormatFloat(math.Round(length*10)/10+0, 'f', -1, 64)
}
