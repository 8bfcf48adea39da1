// Package sbom writes the modules of a program as CycloneDX. It reads them from the program, where the
// go command has recorded them.
package sbom

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"runtime/debug"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"vicinity.dev/vicinity/hack/release/image"
	"vicinity.dev/vicinity/hack/release/program"
	"vicinity.dev/vicinity/hack/release/source"
)

// Of describes a compiled program. The same file makes the same bytes.
func Of(s source.Source, p program.Program, platform program.Platform, file string) ([]byte, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("reading the modules of %s: %w", file, err)
	}
	text, err := describe(s, p, platform, content, info)
	if err != nil {
		return nil, fmt.Errorf("writing the modules of %s: %w", file, err)
	}
	return text, nil
}

func describe(s source.Source, p program.Program, platform program.Platform, content []byte, info *debug.BuildInfo) ([]byte, error) {
	sum := sha256.Sum256(content)
	main := cdx.Component{
		BOMRef: p.Name, Type: cdx.ComponentTypeApplication, Name: p.Name, Version: s.Version, Description: p.Description,
		PackageURL: programURL(info.Main.Path, "v"+s.Version, platform),
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
		Licenses:   &cdx.Licenses{{License: &cdx.License{ID: image.License}}},
	}
	libraries := []cdx.Component{standardLibrary(info.GoVersion)}
	for _, module := range info.Deps {
		libraries = append(libraries, library(module))
	}
	var references []string
	for _, component := range libraries {
		references = append(references, component.BOMRef)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Timestamp:  s.Time.Format(time.RFC3339),
		Component:  &main,
		Properties: &[]cdx.Property{{Name: "vicinity:platform", Value: platform.String()}, {Name: "vicinity:revision", Value: s.Revision}},
	}
	bom.Components = &libraries
	// The program does not record which module needs which.
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &references}}
	var text bytes.Buffer
	encoder := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true)
	err := encoder.Encode(bom)
	return text.Bytes(), err
}

func standardLibrary(goVersion string) cdx.Component {
	version := strings.TrimPrefix(goVersion, "go")
	return cdx.Component{
		BOMRef: "pkg:golang/stdlib@" + version, Type: cdx.ComponentTypeLibrary, Name: "stdlib", Version: version,
		PackageURL: "pkg:golang/stdlib@" + version,
	}
}

func library(module *debug.Module) cdx.Component {
	if module.Replace != nil {
		module = module.Replace
	}
	component := cdx.Component{
		Type: cdx.ComponentTypeLibrary, Name: module.Path, Version: module.Version,
		PackageURL: "pkg:golang/" + module.Path + "@" + url.QueryEscape(module.Version),
	}
	component.BOMRef = component.PackageURL
	if module.Sum != "" {
		component.Properties = &[]cdx.Property{{Name: "vicinity:go.sum", Value: module.Sum}}
	}
	return component
}

// programURL returns the package URL of a program.
func programURL(module, version string, platform program.Platform) string {
	return fmt.Sprintf("pkg:golang/%s@%s?goarch=%s&goos=%s", module, url.QueryEscape(version), platform.Architecture, platform.OS)
}
