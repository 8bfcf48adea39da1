package chart

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"

	"vicinity.dev/vicinity/hack/release/changelog"
	"vicinity.dev/vicinity/hack/release/source"
)

var (
	from    = source.Source{Root: "../../..", Version: "1.2.3-rc.4", Time: time.Unix(1700000000, 0).UTC()}
	changes = changelog.Section{Changes: []changelog.Change{{Kind: "added", Description: "This: and \"that\""}, {Kind: "security", Description: "A hole"}}}
)

func images() []Image {
	var all []Image
	for at, name := range Images {
		all = append(all, Image{Name: name, Repository: "registry.example.org/" + name, Digest: "sha256:" + strings.Repeat(string(rune('a'+at)), 64)})
	}
	return all
}

func packaged(t *testing.T) (*chart.Chart, []byte) {
	t.Helper()
	path, err := Package(from, t.TempDir(), images(), changes)
	if err != nil {
		t.Fatal(err)
	}
	if name := filepath.Base(path); name != "vicinity-1.2.3-rc.4.tgz" {
		t.Errorf("the chart is %s", name)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := loader.LoadArchive(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return c, content
}

func TestPackagedChartNamesItsImages(t *testing.T) {
	c, _ := packaged(t)
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

// The values of the tree say everything about images that the chart lets users say.
func TestAllImagesArePinned(t *testing.T) {
	text, err := os.ReadFile("../../../charts/vicinity/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if count := strings.Count(string(text), `digest: ""`); count != len(Images) {
		t.Errorf("the values have %d images, and %d are pinned", count, len(Images))
	}
}

func TestPackagedChartTellsArtifactHub(t *testing.T) {
	c, _ := packaged(t)
	for name, want := range map[string]string{
		"category": "networking", "license": "Apache-2.0", "prerelease": "true", "containsSecurityUpdates": "true",
		"changes": "- description: 'This: and \"that\"'\n  kind: added\n- description: A hole\n  kind: security\n",
	} {
		if got := c.Metadata.Annotations["artifacthub.io/"+name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]string{
		"images": "image: registry.example.org/vicinity-dns:1.2.3-rc.4\n  name: vicinity-dns\n", "crds": "kind: RoutingPolicy\n",
	} {
		if got := c.Metadata.Annotations["artifacthub.io/"+name]; !strings.Contains(got, want) {
			t.Errorf("%s is %q, want %q in it", name, got, want)
		}
	}
}

func TestSameChartMakesTheSamePackage(t *testing.T) {
	_, one := packaged(t)
	_, two := packaged(t)
	if !bytes.Equal(one, two) {
		t.Error("the package is not the same when it is made again")
	}
}

// What an editor leaves beside the chart is not packaged, as helm does not.
func TestIgnoredFilesAreNotPackaged(t *testing.T) {
	root := t.TempDir()
	copied := filepath.Join(root, "charts", "vicinity")
	if err := os.CopyFS(copied, os.DirFS("../../../charts/vicinity")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"LICENSE", "charts/vicinity/values.yaml.orig", "charts/vicinity/templates/proxy.yaml~"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := load(source.Source{Root: root, Version: from.Version, Time: from.Time}, images())
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Templates) == 0 || len(c.Files) == 0 {
		t.Fatal("the chart has no files")
	}
	for _, file := range slices.Concat(c.Templates, c.Files) {
		if strings.HasSuffix(file.Name, ".orig") || strings.HasSuffix(file.Name, "~") {
			t.Errorf("the chart has %s", file.Name)
		}
	}
}

func TestPinSaysWhatIsMissing(t *testing.T) {
	for values, want := range map[string]string{
		"image:\n  name: a\n": `no value is "repository: a"`,
		"x:\n  repository: a\ny:\n  repository: b\n  digest: \"\"\n": `no "digest: \"\"" follows "repository: a"`,
		"x:\n  repository: a\n": `no "digest: \"\"" follows "repository: a"`,
	} {
		if _, err := pin(values, []Image{{Name: "a"}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", values, err, want)
		}
	}
}
