package sbom

import (
	"bytes"
	"reflect"
	"runtime/debug"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"vicinity.dev/vicinity/hack/release/program"
	"vicinity.dev/vicinity/hack/release/source"
)

var (
	from     = source.Source{Version: "1.2.3", Revision: "0123", Time: time.Unix(1700000000, 0).UTC()}
	test     = program.Program{Name: "test", Description: "Tests"}
	platform = program.Platform{OS: "linux", Architecture: "amd64"}
)

func decode(t *testing.T, text []byte) *cdx.BOM {
	t.Helper()
	bom := new(cdx.BOM)
	if err := cdx.NewBOMDecoder(bytes.NewReader(text), cdx.BOMFileFormatJSON).Decode(bom); err != nil {
		t.Fatal(err)
	}
	return bom
}

func TestModulesAreListed(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26.1", Main: debug.Module{Path: "example.org/main"}, Deps: []*debug.Module{
		{Path: "example.org/a", Version: "v1.0.0", Sum: "h1:a"},
		{Path: "example.org/b", Version: "v2.0.0", Replace: &debug.Module{Path: "example.org/c", Version: "v3.0.0+incompatible"}},
	}}
	text, err := describe(from, test, platform, []byte("abc"), info)
	if err != nil {
		t.Fatal(err)
	}
	bom := decode(t, text)
	main := bom.Metadata.Component
	if want := "pkg:golang/example.org/main@v1.2.3?goarch=amd64&goos=linux"; main.PackageURL != want || main.Version != "1.2.3" {
		t.Errorf("the program is %+v, want %s", main, want)
	}
	if want := "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"; (*main.Hashes)[0].Value != want {
		t.Errorf("the checksum is %s, want %s", (*main.Hashes)[0].Value, want)
	}
	var got []string
	for _, component := range *bom.Components {
		got = append(got, component.PackageURL)
	}
	want := []string{"pkg:golang/stdlib@1.26.1", "pkg:golang/example.org/a@v1.0.0", "pkg:golang/example.org/c@v3.0.0%2Bincompatible"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the modules are %q, want %q", got, want)
	}
	if depends := *(*bom.Dependencies)[0].Dependencies; !reflect.DeepEqual(depends, want) {
		t.Errorf("the program depends on %q, want %q", depends, want)
	}
}
