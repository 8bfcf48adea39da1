package release

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/strvals"

	"vicinity.dev/vicinity/charts"
)

// Values override the chart's values.
type Values map[string]any

// Set changes values as Helm's flag --set does: key.of.value=value, or several separated by
// commas.
func (v Values) Set(assignments ...string) error {
	for _, assignment := range assignments {
		if err := strvals.ParseInto(assignment, v); err != nil {
			return fmt.Errorf("%q: %w; write key=value", assignment, err)
		}
	}
	return nil
}

// Chart is Vicinity's chart, of some version.
type Chart struct{ chart *chart.Chart }

// Open reads a packaged chart.
func Open(path string) (Chart, error) {
	file, err := os.Open(path)
	if err != nil {
		return Chart{}, err
	}
	defer file.Close()
	c, err := loader.LoadArchive(file)
	if err != nil {
		return Chart{}, fmt.Errorf("reading chart %s: %w", path, err)
	}
	if c.Name() != Name {
		return Chart{}, fmt.Errorf("reading chart %s: it is chart %q, and must be %q", path, c.Name(), Name)
	}
	return Chart{c}, nil
}

// Version is the chart's version.
func (c Chart) Version() string { return c.chart.Metadata.Version }

// CRDs are the chart's CRDs as YAML. Helm would install but never upgrade them, so the caller applies
// them first.
func (c Chart) CRDs() []string {
	var all []string
	for _, crd := range c.chart.CRDObjects() {
		all = append(all, string(crd.File.Data))
	}
	return all
}

// Validate checks values against the chart's schema.
func (c Chart) Validate(v Values) error {
	all, err := util.CoalesceValues(c.chart, v)
	if err != nil {
		return fmt.Errorf("reading values: %w", err)
	}
	if err := util.ValidateAgainstSchema(c.chart, all); err != nil {
		return errors.New(summarizeViolations(err.Error()))
	}
	return nil
}

var violation = regexp.MustCompile(`(?m)^- at '/?([^']*)': (.*)$`)

// summarizeViolations turns the validator's text into one line, with a.b instead of '/a/b'.
func summarizeViolations(text string) string {
	var all []string
	for _, match := range violation.FindAllStringSubmatch(text, -1) {
		name := cmp.Or(strings.ReplaceAll(match[1], "/", "."), "the values")
		all = append(all, name+": "+match[2])
	}
	if len(all) == 0 {
		return text
	}
	return strings.Join(all, "; ")
}

// Own returns the chart that this program was built with.
func Own() (Chart, error) {
	folder, err := charts.Vicinity()
	if err != nil {
		return Chart{}, err
	}
	var files []*archive.BufferedFile
	err = fs.WalkDir(folder, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(folder, path)
		files = append(files, &archive.BufferedFile{Name: path, Data: data})
		return err
	})
	if err != nil {
		return Chart{}, fmt.Errorf("reading the chart: %w", err)
	}
	c, err := loader.LoadFiles(files)
	if err != nil {
		return Chart{}, fmt.Errorf("reading the chart: %w", err)
	}
	return Chart{c}, nil
}
