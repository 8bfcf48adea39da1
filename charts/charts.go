// Package charts embeds the Helm chart of Vicinity, so that the lab and the tests install the same
// chart as users.
package charts

import (
	"embed"
	"errors"
	"io/fs"
	"strings"
)

// The prefix all includes files whose names begin with a dot or an underscore, such as shared
// templates.
//
//go:embed all:vicinity
var files embed.FS

// Vicinity returns the folder of the chart.
func Vicinity() (fs.FS, error) { return fs.Sub(files, "vicinity") }

// CRDs returns the CRDs of the chart, as YAML. Helm would install but never upgrade them, so the
// caller applies them first.
func CRDs() ([]string, error) {
	names, err := fs.Glob(files, "vicinity/crds/*.yaml")
	if err != nil {
		return nil, err
	}
	var all []string
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		all = append(all, string(text))
	}
	return all, nil
}

// Version returns the version of the chart.
func Version() (string, error) {
	text, err := files.ReadFile("vicinity/Chart.yaml")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if version, is := strings.CutPrefix(line, "version:"); is {
			return strings.Trim(strings.TrimSpace(version), `"'`), nil
		}
	}
	return "", errors.New("the file Chart.yaml has no version")
}
