// Package chart packages Vicinity's chart for a release: with its version, the digests of its images,
// the license, and annotations for Artifact Hub.
package chart

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/ignore"
	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/hack/release/changelog"
	"vicinity.dev/vicinity/hack/release/image"
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
func Package(s source.Source, folder string, images []Image, changes changelog.Section) (string, error) {
	c, err := load(s, images)
	if err != nil {
		return "", err
	}
	c.Metadata.Version, c.Metadata.AppVersion = s.Version, s.Version
	if err := annotate(c, s, images, changes); err != nil {
		return "", err
	}
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

// object is an entry of a list for Artifact Hub, which is YAML in a string.
type object map[string]string

func annotate(c *chart.Chart, s source.Source, images []Image, changes changelog.Section) error {
	var listed, changed []object
	for _, i := range images {
		listed = append(listed, object{"name": i.Name, "image": i.Repository + ":" + s.Version})
	}
	for _, change := range changes.Changes {
		changed = append(changed, object{"kind": change.Kind, "description": change.Description})
	}
	crds, err := crds(c)
	if err != nil {
		return err
	}
	if c.Metadata.Annotations == nil {
		c.Metadata.Annotations = map[string]string{}
	}
	annotations := c.Metadata.Annotations
	annotations["artifacthub.io/license"] = image.License
	annotations["artifacthub.io/prerelease"] = strconv.FormatBool(s.Prerelease())
	annotations["artifacthub.io/containsSecurityUpdates"] = strconv.FormatBool(
		slices.ContainsFunc(changes.Changes, func(c changelog.Change) bool { return c.Kind == "security" }))
	for name, list := range map[string]any{"images": listed, "crds": crds, "changes": changed} {
		text, err := yaml.Marshal(list)
		if err != nil {
			return fmt.Errorf("annotating the chart: %w", err)
		}
		if string(text) != "null\n" {
			annotations["artifacthub.io/"+name] = string(text)
		}
	}
	return nil
}

// crds lists the kinds that the chart defines.
func crds(c *chart.Chart) ([]object, error) {
	var found []object
	for _, file := range c.CRDObjects() {
		var crd struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Spec struct {
				Names struct {
					Kind string `json:"kind"`
				} `json:"names"`
				Versions []struct {
					Name   string `json:"name"`
					Schema struct {
						OpenAPI struct {
							Description string `json:"description"`
						} `json:"openAPIV3Schema"`
					} `json:"schema"`
				} `json:"versions"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal(file.File.Data, &crd); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file.Filename, err)
		}
		kind := crd.Spec.Names.Kind
		for _, version := range crd.Spec.Versions {
			about := strings.Join(strings.Fields(version.Schema.OpenAPI.Description), " ")
			found = append(found, object{"kind": kind, "version": version.Name, "name": crd.Metadata.Name, "displayName": kind, "description": about})
		}
	}
	if len(found) == 0 {
		return nil, errors.New("the chart defines no kind")
	}
	slices.SortFunc(found, func(a, b object) int { return strings.Compare(a["name"], b["name"]) })
	return found, nil
}
