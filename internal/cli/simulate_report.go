package cli

import (
	"io"

	"vicinity.dev/vicinity/internal/report"
	"vicinity.dev/vicinity/internal/simulate"
)

// writeSimulateReport writes the page of --report.
func writeSimulateReport(w io.Writer, results simulate.Results) error {
	return report.Static(w, results)
}
