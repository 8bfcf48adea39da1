package plugin

import (
	"crypto/sha256"
	"fmt"
	"net/url"
	"strings"

	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/hack/release/program"
	"vicinity.dev/vicinity/hack/release/source"
)

// Download is an archive as the manifest names it.
type Download struct {
	Platform program.Platform
	Name     string
	Content  []byte
}

// CheckAddress returns what is wrong with the address of the folder of the archives, which may
// be none.
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

// Krew returns the manifest, as krew's developer guide specifies it. The address is that of the
// folder of the archives; without one, krew installs them from files only.
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
			"caveats":   "What is measured in the cluster is there once its chart is installed.\n",
			"platforms": platforms,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("writing the manifest of krew: %w", err)
	}
	return text, nil
}
