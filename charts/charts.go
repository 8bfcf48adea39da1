// Package charts holds the Helm chart of Vicinity, so that what the lab and the tests
// install is what users install.
package charts

import (
	"embed"
	"io/fs"
)

// The prefix takes in files whose names begin with a dot or an underscore, as those of
// shared templates do.
//
//go:embed all:vicinity
var files embed.FS

// Vicinity is the folder of the chart.
func Vicinity() (fs.FS, error) { return fs.Sub(files, "vicinity") }
