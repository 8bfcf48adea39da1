package image

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"

	"vicinity.dev/vicinity/hack/release/program"
	"vicinity.dev/vicinity/hack/release/source"
)

var (
	from  = source.Source{Version: "1.2.3-rc.4", Revision: "0123456789abcdef", Time: time.Unix(1700000000, 0).UTC()}
	small = program.Program{Name: "vicinity-small", Title: "Small", Description: "Does little", User: "65532:65532"}
	tag   = "1.2.3-rc.4"
)

// writeArchives writes the archives of some content, and returns their folder.
func writeArchives(t *testing.T, content string) (string, Set) {
	t.Helper()
	folder, files := t.TempDir(), map[program.Platform]string{}
	for _, platform := range program.ImagePlatforms {
		files[platform] = filepath.Join(t.TempDir(), "compiled")
		if err := os.WriteFile(files[platform], []byte(content+platform.String()), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	set, err := New(from, small, "", program.ImagePlatforms, files)
	if err != nil {
		t.Fatal(err)
	}
	names, err := set.Write(folder)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"vicinity-small-" + tag + "-linux-amd64.tar", "vicinity-small-" + tag + "-linux-arm64.tar", "vicinity-small-" + tag + ".oci.tar"}
	if !slices.Equal(names, want) {
		t.Fatalf("the archives are %q, want %q", names, want)
	}
	left, err := filepath.Glob(filepath.Join(folder, ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("Write left %q, %v", left, err)
	}
	return folder, set
}

// vicinity-dns replaces CoreDNS, which listens on port 53 as another user than root.
func TestOnlyDNSBindsLowPorts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "compiled")
	if err := os.WriteFile(file, []byte("a program"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, p := range program.All {
		made, err := one(from, p, program.ImagePlatforms[0], file, nil)
		if err != nil {
			t.Fatal(err)
		}
		layers, err := made.Layers()
		if err != nil {
			t.Fatal(err)
		}
		packed, err := layers[1].Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		header, err := tar.NewReader(packed).Next()
		if err != nil {
			t.Fatal(err)
		}
		want := ""
		if p.Name == "vicinity-dns" {
			want = "\x01\x00\x00\x02\x00\x04" + strings.Repeat("\x00", 14) // getcap: cap_net_bind_service=ep
		}
		if got := header.PAXRecords["SCHILY.xattr.security.capability"]; header.Name != p.Name || got != want {
			t.Errorf("%s has the capabilities %q, want those of %s: %q", header.Name, got, p.Name, want)
		}
	}
}

// A registry gets the layout unchanged, so the index's digest pins the image.
func TestArchiveOfAllPlatforms(t *testing.T) {
	folder, set := writeArchives(t, "a program")
	unpacked := t.TempDir()
	unpack(t, filepath.Join(folder, LayoutName(small.Name, tag)), unpacked)
	found, err := layout.ImageIndexFromPath(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	outer, err := found.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := set.Digest()
	if err != nil || len(outer.Manifests) != 1 || outer.Manifests[0].Digest != digest || outer.Manifests[0].Annotations[refName] != tag {
		t.Fatalf("the layout has %+v, want %s of version %s, %v", outer.Manifests, digest, tag, err)
	}
	inner, err := found.ImageIndex(digest)
	if err != nil {
		t.Fatal(err)
	}
	index, err := inner.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var layers []string
	for at, platform := range program.ImagePlatforms {
		described := index.Manifests[at]
		if described.Platform.OS != platform.OS || described.Platform.Architecture != platform.Architecture {
			t.Errorf("manifest %d is of %s, want %s", at, described.Platform, platform)
		}
		image, err := inner.Image(described.Digest)
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := image.Manifest()
		if err != nil || len(manifest.Layers) != 2 {
			t.Fatalf("the image of %s has %d layers, want 2, %v", platform, len(manifest.Layers), err)
		}
		layers = append(layers, manifest.Layers[0].Digest.String())
	}
	if layers[0] != layers[1] {
		t.Errorf("the platforms have the bases %q, want one", layers)
	}
}

func unpack(t *testing.T, archive, folder string) {
	t.Helper()
	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	before := ""
	for reader := tar.NewReader(file); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		if header.Name < before || header.ModTime.Unix() != 0 {
			t.Errorf("%s comes after %s and has the time %s", header.Name, before, header.ModTime)
		}
		before = header.Name
		path := filepath.Join(folder, header.Name)
		content, err := io.ReadAll(reader)
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Go programs find the roots in this place.
func TestCertificatesAreTrusted(t *testing.T) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(certificates()) {
		t.Fatal("no certificate can be read")
	}
	const few = 50
	if count := bytes.Count(certificates(), []byte("BEGIN CERTIFICATE")); count < few {
		t.Errorf("%d certificates, want at least %d", count, few)
	}
}
