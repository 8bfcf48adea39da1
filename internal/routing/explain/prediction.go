package explain

import (
	"fmt"
	"slices"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/plaintext"
)

// Prediction describes the figures for the traffic of a region, as in "100 % of the traffic stays in its zone, no
// endpoint gets more than its even share".
func Prediction(region allocate.Region, figures allocate.Figures) string {
	if !slices.ContainsFunc(region.Zones, func(z allocate.Zone) bool { return z.Capacity > 0 }) {
		return "unknown, since no zone has capacity"
	}
	if region.Endpoints() == 0 {
		return "nothing, since no endpoint is ready"
	}
	text := plaintext.Percent(figures.InZone) + " of the traffic stays in its zone, "
	if figures.SameNode > 0 {
		text += plaintext.Percent(figures.SameNode) + " on its node, "
	}
	if plaintext.Percent(figures.Overload) == plaintext.Percent(0) {
		text += "no endpoint gets more than its even share"
	} else {
		text += fmt.Sprintf("the busiest endpoint gets %s more than its even share", plaintext.Percent(figures.Overload))
	}
	switch figures.Unreached {
	case 0:
		return text
	case 1:
		return text + ", 1 zone reaches nothing"
	}
	return text + fmt.Sprintf(", %d zones reach nothing", figures.Unreached)
}
