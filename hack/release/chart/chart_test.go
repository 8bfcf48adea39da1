package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/chart/v2/loader"

	"vicinity.dev/vicinity/hack/release/source"
)

var from = source.Source{Root: "../../..", Version: "1.2.3-rc.4", Time: time.Unix(1700000000, 0).UTC()}

func images() []Image {
	var all []Image
	for at, name := range Images {
		all = append(all, Image{Name: name, Repository: "registry.example.org/" + name, Digest: "sha256:" + strings.Repeat(string(rune('a'+at)), 64)})
	}
	return all
}

func TestPackagedChartNamesItsImages(t *testing.T) {
	path, err := Package(from, t.TempDir(), images())
	if err != nil {
		t.Fatal(err)
	}
	if name := filepath.Base(path); name != "vicinity-1.2.3-rc.4.tgz" {
		t.Errorf("the package's name is %s", name)
	}
	c, err := loader.LoadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if c.Metadata.Version != from.Version || c.Metadata.AppVersion != from.Version {
		t.Errorf("the versions are %s and %s", c.Metadata.Version, c.Metadata.AppVersion)
	}
	for at, path := range [][]string{{"image"}, {"proxy", "image"}, {"dns", "image"}} {
		values := c.Values
		for _, part := range path {
			values, _ = values[part].(map[string]any)
		}
		want := images()[at]
		if values["repository"] != want.Repository || values["digest"] != want.Digest {
			t.Errorf("%s is %v, want %+v", strings.Join(path, "."), values, want)
		}
	}
	has := map[string]bool{}
	for _, file := range c.Files {
		has[file.Name] = true
	}
	if !has["LICENSE"] || !has["README.md"] || has[".helmignore"] {
		t.Errorf("the chart has the files %v", has)
	}
}

// The values of the tree have every field of the images that a user can set.
func TestAllImagesArePinned(t *testing.T) {
	text, err := os.ReadFile("../../../charts/vicinity/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if count := strings.Count(string(text), `digest: ""`); count != len(Images) {
		t.Errorf("the values have %d images, and %d are pinned", count, len(Images))
	}
}
