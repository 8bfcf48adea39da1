// Package chart packages Vicinity's chart for a release: with its version, the digests of its images,
// and the license.
package chart

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"

	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/ignore"

	"vicinity.dev/vicinity/hack/release/source"
)

// Image is an image in the chart's values.
type Image struct {
	Name string // of the repository in the values of the tree
	// Repository replaces it, and Digest pins it.
	Repository, Digest string
}

// Images are the names of the images in the values of the tree.
var Images = []string{"vicinity-controller", "vicinity-proxy", "vicinity-dns"}

// Package packages the chart of a repository into a folder, and returns the path of the package.
// The same chart gives the same bytes.
func Package(s source.Source, folder string, images []Image) (string, error) {
	c, err := load(s, images)
	if err != nil {
		return "", err
	}
	c.Metadata.Version, c.Metadata.AppVersion = s.Version, s.Version
	path, err := util.Save(c, folder)
	if err != nil {
		return "", fmt.Errorf("packaging the chart: %w", err)
	}
	return path, nil
}

func load(s source.Source, images []Image) (*chart.Chart, error) {
	license, err := os.ReadFile(path.Join(s.Root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	files := []*archive.BufferedFile{{Name: "LICENSE", Data: license, ModTime: s.Time}}
	chartFolder := path.Join(s.Root, "charts", "vicinity")
	rules, err := ignore.ParseFile(path.Join(chartFolder, ignore.HelmIgnore))
	if err != nil {
		return nil, err
	}
	folder := os.DirFS(chartFolder)
	err = fs.WalkDir(folder, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || name == ignore.HelmIgnore {
			return err
		}
		if info, err := entry.Info(); err != nil || rules.Ignore(name, info) {
			return err
		}
		data, err := fs.ReadFile(folder, name)
		if err == nil && name == util.ValuesfileName {
			data, err = pin(string(data), images)
		}
		files = append(files, &archive.BufferedFile{Name: name, Data: data, ModTime: s.Time})
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

// pin writes repositories and digests into the text of values, and keeps its comments.
func pin(values string, images []Image) ([]byte, error) {
	for _, image := range images {
		before, after, found := cutLine(values, "repository: "+image.Name)
		if !found {
			return nil, fmt.Errorf("%s: no value is \"repository: %s\"", util.ValuesfileName, image.Name)
		}
		between, rest, found := cutLine(after, `digest: ""`)
		if !found || strings.Contains(between, "repository: ") {
			return nil, fmt.Errorf("%s: no \"digest: \\\"\\\"\" follows \"repository: %s\"", util.ValuesfileName, image.Name)
		}
		values = before + "repository: " + image.Repository + between + "digest: " + image.Digest + rest
	}
	return []byte(values), nil
}

// cutLine splits a text around an indented line.
func cutLine(text, content string) (before, after string, found bool) {
	at := regexp.MustCompile(`(?m)^ +(` + regexp.QuoteMeta(content) + `)$`).FindStringSubmatchIndex(text)
	if at == nil {
		return text, "", false
	}
	return text[:at[2]], text[at[3]:], true
}
