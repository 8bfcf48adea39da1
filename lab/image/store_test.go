package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
	"oras.land/oras-go/v2/content"
)

// linkTo is the prefix of the content of a file that is a link.
const linkTo = "-> "

// capable is the prefix of the content of a file that has netBindService, which is cap_net_bind_service=ep.
const (
	capable        = "capable "
	netBindService = "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
)

// packFiles makes an archive of files by name; a name that ends in a slash is a folder.
func packFiles(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var content bytes.Buffer
	writer := tar.NewWriter(&content)
	for _, name := range sortedNames(files) {
		header := &tar.Header{Name: name, Mode: 0o755, Size: int64(len(files[name])), Typeflag: tar.TypeReg}
		if strings.HasSuffix(name, "/") {
			header.Typeflag = tar.TypeDir
		}
		content := files[name]
		if strings.HasPrefix(content, capable) {
			header.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": netBindService}
		}
		if target, isLink := strings.CutPrefix(content, linkTo); isLink {
			header.Typeflag, header.Linkname, header.Size, content = tar.TypeSymlink, target, 0, ""
		}
		if err := writer.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := writer.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return content.Bytes()
}

func sortedNames(files map[string]string) []string {
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// layoutOf returns the files of an OCI layout that has an image with one layer.
func layoutOf(t *testing.T, platform string, layer map[string]string) (files map[string]string, digest string) {
	t.Helper()
	var zipped bytes.Buffer
	compressor := gzip.NewWriter(&zipped)
	if _, err := compressor.Write(packFiles(t, layer)); err != nil {
		t.Fatal(err)
	}
	if err := compressor.Close(); err != nil {
		t.Fatal(err)
	}
	files = map[string]string{}
	add := func(kind string, text []byte) ocispec.Descriptor {
		described := content.NewDescriptorFromBytes(kind, text)
		files[blobPath(described.Digest.String())] = string(text)
		return described
	}
	addJSON := func(kind string, value any) ocispec.Descriptor {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return add(kind, text)
	}
	config := addJSON(ocispec.MediaTypeImageConfig, ocispec.Image{Config: ocispec.ImageConfig{
		User: "65532:7", Env: []string{"MODE=plain"}, Entrypoint: []string{"/web"}, Cmd: []string{"serve"},
	}})
	manifest := addJSON(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Config: config, Layers: []ocispec.Descriptor{add(ocispec.MediaTypeImageLayerGzip, zipped.Bytes())},
	})
	os, architecture, _ := strings.Cut(platform, "/")
	manifest.Platform = &ocispec.Platform{OS: os, Architecture: architecture}
	index := addJSON(ocispec.MediaTypeImageIndex, ocispec.Index{Manifests: []ocispec.Descriptor{manifest}})
	digest = index.Digest.String()
	files[ocispec.ImageLayoutFile] = `{"imageLayoutVersion": "1.0.0"}`
	files[ocispec.ImageIndexFile] = fmt.Sprintf(`{"manifests": [{"mediaType": %q, "digest": %q, "size": %d, "annotations": {%q: "0.1.0"}}]}`,
		index.MediaType, digest, index.Size, ocispec.AnnotationRefName)
	return files, digest
}

// blobPath returns the path of a part of an image.
func blobPath(digest string) string { return "blobs/sha256/" + strings.TrimPrefix(digest, "sha256:") }

func archive(t *testing.T, files map[string]string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image.oci.tar")
	if err := os.WriteFile(path, packFiles(t, files), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

var (
	own   = "linux/" + runtime.GOARCH
	layer = map[string]string{"web": "program", "etc/": "", "etc/passwd": "root"}
)

func TestImagesAreFoundByDigest(t *testing.T) {
	store := Store{Folder: filepath.Join(t.TempDir(), "images")}
	files, want := layoutOf(t, own, layer)
	for range 2 { // the second time the store has it
		digest, err := store.Load(t.Context(), archive(t, files))
		if err != nil || digest != want {
			t.Fatalf("loaded %s, want %s, %v", digest, want, err)
		}
	}
	found, err := store.Find("registry.example.org/web@" + want)
	if err != nil {
		t.Fatal(err)
	}
	if !found.Alone || !slices.Equal(found.Command(nil, nil), []string{"/web", "serve"}) || !slices.Equal(found.Variables(), []string{"MODE=plain"}) {
		t.Errorf("found %+v", found)
	}
	if found.User == nil || *found.User != 65532 || found.Group == nil || *found.Group != 7 {
		t.Errorf("the image runs as %v and %v", found.User, found.Group)
	}
	for name, content := range map[string]string{"web": "program", "etc/passwd": "root"} {
		got, err := os.ReadFile(filepath.Join(found.Root, name))
		if err != nil || string(got) != content {
			t.Errorf("%s has %q, want %q, %v", name, got, content, err)
		}
	}
	left, err := os.ReadDir(store.Folder)
	if err != nil || len(left) != 1 {
		t.Errorf("the store has %v, %v", left, err)
	}
}

func TestCapabilitiesAreKept(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("gives a file capabilities, which needs root")
	}
	store := Store{Folder: t.TempDir()}
	files, digest := layoutOf(t, own, map[string]string{"dns": capable + "program", "web": "program"})
	if _, err := store.Load(t.Context(), archive(t, files)); err != nil {
		t.Fatal(err)
	}
	found, err := store.Find("dns@" + digest)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"dns": netBindService, "web": ""} {
		got := make([]byte, 64)
		size, err := unix.Getxattr(filepath.Join(found.Root, name), "security.capability", got)
		if got := string(got[:max(0, size)]); got != want || err != nil && !errors.Is(err, unix.ENODATA) {
			t.Errorf("%s has the capabilities %q, want %q, %v", name, got, want, err)
		}
	}
}

func TestLoadErrors(t *testing.T) {
	changed := func(change func(files map[string]string, digest string)) map[string]string {
		files, digest := layoutOf(t, own, layer)
		change(files, digest)
		return files
	}
	other, _ := layoutOf(t, "linux/other", layer)
	outside, _ := layoutOf(t, own, map[string]string{"../web": "program"})
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"another platform": {other, "looking for the image for " + own},
		"outside":          {outside, "layer 1: ../web: "},
		"a changed part": {changed(func(files map[string]string, digest string) {
			files[blobPath(digest)] = strings.Replace(files[blobPath(digest)], "manifests", "Manifests", 1)
		}), "mismatched digest"},
		"a longer part": {changed(func(files map[string]string, digest string) { files[blobPath(digest)] += " " }), "trailing data"},
		"a part behind a link": {changed(func(files map[string]string, digest string) {
			files["other"], files[blobPath(digest)] = files[blobPath(digest)], linkTo+"../../other"
		}), "not supported"},
		"a missing part": {changed(func(files map[string]string, digest string) { delete(files, blobPath(digest)) }), "not found"},
		"a path as digest": {changed(func(files map[string]string, digest string) {
			files[ocispec.ImageIndexFile] = strings.Replace(files[ocispec.ImageIndexFile], digest, "sha256:../../index.json", 1)
		}), "invalid digest"},
		"no tag": {changed(func(files map[string]string, _ string) { files[ocispec.ImageIndexFile] = `{"manifests": []}` }), "the archive has 0 images with a tag"},
	} {
		store := Store{Folder: t.TempDir()}
		path := archive(t, test.files)
		_, err := store.Load(t.Context(), path)
		if err == nil || !strings.HasPrefix(err.Error(), "loading "+path) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
		if left, err := os.ReadDir(store.Folder); err != nil || len(left) > 0 {
			t.Errorf("%s: the store still has %v, %v", name, left, err)
		}
	}
}
