package plugin

import (
	"crypto/sha256"
	"encoding/hex"
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

// The manifest of krew, as its developer guide specifies it.
type manifest struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Metadata   metadata     `json:"metadata"`
	Spec       manifestSpec `json:"spec"`
}

type metadata struct {
	Name string `json:"name"`
}

type manifestSpec struct {
	Version          string     `json:"version"`
	Homepage         string     `json:"homepage"`
	ShortDescription string     `json:"shortDescription"`
	Description      string     `json:"description"`
	Caveats          string     `json:"caveats"`
	Platforms        []platform `json:"platforms"`
}

type platform struct {
	Selector selector    `json:"selector"`
	URI      string      `json:"uri"`
	SHA256   string      `json:"sha256"`
	Files    []operation `json:"files"`
	Bin      string      `json:"bin"`
}

type selector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

type operation struct {
	From string `json:"from"`
	To   string `json:"to"`
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

// Krew returns the manifest. The address is that of the folder of the archives; without one,
// krew installs them from files only.
func Krew(s source.Source, address string, downloads []Download) ([]byte, error) {
	m := manifest{APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin", Metadata: metadata{"vicinity"}}
	m.Spec = manifestSpec{
		Version:          "v" + s.Version,
		Homepage:         "https://vicinity.dev",
		ShortDescription: "Explain where the traffic of Services goes",
		Description: `Says which endpoints the clients of each zone use and why, what crosses zones, what a
headless Service resolves to for a client, and what holds an eviction or a rollout up.
It plans Services from manifests, too, without a cluster.
`,
		Caveats: "What is measured in the cluster is there once its chart is installed.\n",
	}
	for _, d := range downloads {
		sum := sha256.Sum256(d.Content)
		bin := d.Platform.File(Name)
		m.Spec.Platforms = append(m.Spec.Platforms, platform{
			Selector: selector{map[string]string{"os": d.Platform.OS, "arch": d.Platform.Architecture}},
			URI:      strings.TrimPrefix(strings.TrimSuffix(address, "/")+"/"+d.Name, "/"),
			SHA256:   hex.EncodeToString(sum[:]),
			Files:    []operation{{bin, "."}, {"LICENSE", "."}},
			Bin:      bin,
		})
	}
	text, err := yaml.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("writing the manifest of krew: %w", err)
	}
	return text, nil
}
