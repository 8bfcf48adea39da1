// Package plugin makes the archives of the kubectl plugin, and its manifest for krew.
package plugin

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/hack/release/archive"
	"vicinity.dev/vicinity/hack/release/program"
	"vicinity.dev/vicinity/hack/release/source"
)

// Name is the program's name in the archives; kubectl finds it by the prefix.
const Name = "kubectl-vicinity"

// Archive returns the archive of a compiled program and the license, and its name: a zip for
// Windows, and else a tar.gz. The same files make the same bytes.
func Archive(s source.Source, platform program.Platform, compiled string, license []byte) (name string, content []byte, err error) {
	built, err := os.ReadFile(compiled)
	if err != nil {
		return "", nil, err
	}
	files := []archive.File{{Name: "LICENSE", Mode: 0o644, Content: license}, {Name: platform.File(Name), Mode: 0o755, Content: built}}
	name = fmt.Sprintf("%s-%s-%s", Name, s.Version, platform.Hyphened())
	if platform.OS == "windows" {
		content, err = zipped(s.Time, files)
		return name + ".zip", content, err
	}
	content, err = tarred(s.Time, files)
	return name + ".tar.gz", content, err
}

func tarred(changed time.Time, files []archive.File) ([]byte, error) {
	unpacked, err := archive.Tar(changed, files)
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	compressor := gzip.NewWriter(&packed)
	_, err = compressor.Write(unpacked)
	err = errors.Join(err, compressor.Close())
	return packed.Bytes(), err
}

func zipped(at time.Time, files []archive.File) ([]byte, error) {
	var packed bytes.Buffer
	writer := zip.NewWriter(&packed)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.Name, Method: zip.Deflate, Modified: at}
		header.SetMode(f.Mode)
		to, err := writer.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := to.Write(f.Content); err != nil {
			return nil, err
		}
	}
	err := writer.Close()
	return packed.Bytes(), err
}

// Download is an archive in the manifest.
type Download struct {
	Platform program.Platform
	Name     string
	Content  []byte
}

// CheckAddress returns an error about the URL of the archives' folder, which may be empty.
func CheckAddress(address string) error {
	if address == "" {
		return nil
	}
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme != "https" && parsed.Scheme != "http" || parsed.Host == "" || parsed.RawQuery != "" || parsed.Fragment != "" {
		return fmt.Errorf("DOWNLOADS %q: write the URL of a folder, such as https://example.org/vicinity/0.1.0", address)
	}
	return nil
}

// Krew returns the manifest, as in krew's developer guide. address is the URL of the archives' folder;
// without one, krew can install them only from files.
func Krew(s source.Source, address string, downloads []Download) ([]byte, error) {
	type object map[string]any
	var platforms []object
	for _, d := range downloads {
		bin := d.Platform.File(Name)
		platforms = append(platforms, object{
			"selector": object{"matchLabels": object{"os": d.Platform.OS, "arch": d.Platform.Architecture}},
			"uri":      strings.TrimPrefix(strings.TrimSuffix(address, "/")+"/"+d.Name, "/"),
			"sha256":   fmt.Sprintf("%x", sha256.Sum256(d.Content)),
			"files":    []object{{"from": bin, "to": "."}, {"from": "LICENSE", "to": "."}},
			"bin":      bin,
		})
	}
	text, err := yaml.Marshal(object{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
		"kind":       "Plugin",
		"metadata":   object{"name": "vicinity"},
		"spec": object{
			"version":          "v" + s.Version,
			"homepage":         "https://vicinity.dev",
			"shortDescription": "Explain where the traffic of Services goes",
			"description": `Says which endpoints the clients of each zone use and why, what crosses zones, what a
headless Service resolves to for a client, and what holds an eviction or a rollout up.
It plans Services from manifests, too, without a cluster.
`,
			"caveats":   "Measured traffic needs Vicinity's chart in the cluster.\n",
			"platforms": platforms,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("writing the manifest of krew: %w", err)
	}
	return text, nil
}
