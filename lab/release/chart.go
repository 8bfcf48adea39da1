package release

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/strvals"

	"vicinity.dev/vicinity/charts"
)

// Values override those of the chart.
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

// Validate checks values against the chart's schema.
func (v Values) Validate() error {
	c, err := load()
	if err != nil {
		return err
	}
	all, err := util.CoalesceValues(c, v)
	if err != nil {
		return fmt.Errorf("reading values: %w", err)
	}
	if err := util.ValidateAgainstSchema(c, all); err != nil {
		return errors.New(complaint(err.Error()))
	}
	return nil
}

var violation = regexp.MustCompile(`(?m)^- at '/?([^']*)': (.*)$`)

// complaint turns the validator's text into one line, with a.b instead of '/a/b'.
func complaint(text string) string {
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

func load() (*chart.Chart, error) {
	folder, err := charts.Vicinity()
	if err != nil {
		return nil, err
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
		return nil, fmt.Errorf("reading the chart: %w", err)
	}
	c, err := loader.LoadFiles(files)
	if err != nil {
		return nil, fmt.Errorf("reading the chart: %w", err)
	}
	return c, nil
}
