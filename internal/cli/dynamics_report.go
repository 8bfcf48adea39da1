package cli

import (
	"io"

	"vicinity.dev/vicinity/internal/report"
	"vicinity.dev/vicinity/internal/simulate"
)

// writeDynamicsReport writes the page of --report.
func writeDynamicsReport(w io.Writer, results simulate.DynamicsResults) error {
	return report.Dynamics(w, results)
}
