package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// linkTo begins the content of a file that is a link.
const linkTo = "-> "

// packed makes an archive of files by their names; one that ends in a slash is a folder.
func packed(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var content bytes.Buffer
	writer := tar.NewWriter(&content)
	for _, name := range sortedNames(files) {
		header := &tar.Header{Name: name, Mode: 0o755, Size: int64(len(files[name])), Typeflag: tar.TypeReg}
		if strings.HasSuffix(name, "/") {
			header.Typeflag = tar.TypeDir
		}
		content := files[name]
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

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// layoutOf are the files of an OCI layout with an image of one layer.
func layoutOf(t *testing.T, platform string, layer map[string]string) (files map[string]string, digest string) {
	t.Helper()
	unpacked := packed(t, layer)
	var zipped bytes.Buffer
	compressor := gzip.NewWriter(&zipped)
	if _, err := compressor.Write(unpacked); err != nil {
		t.Fatal(err)
	}
	if err := compressor.Close(); err != nil {
		t.Fatal(err)
	}
	files = map[string]string{"oci-layout": "{}"}
	add := func(content string) string {
		digest := digestOf([]byte(content))
		files["blobs/sha256/"+strings.TrimPrefix(digest, "sha256:")] = content
		return digest
	}
	config := add(fmt.Sprintf(`{"config": {"User": "65532:7", "Env": ["MODE=plain"], "Entrypoint": ["/web"], "Cmd": ["serve"]}, "rootfs": {"diff_ids": [%q]}}`, digestOf(unpacked)))
	manifest := add(fmt.Sprintf(`{"config": {"digest": %q}, "layers": [{"digest": %q}]}`, config, add(zipped.String())))
	os, architecture, _ := strings.Cut(platform, "/")
	digest = add(fmt.Sprintf(`{"manifests": [{"digest": %q, "platform": {"os": %q, "architecture": %q}}]}`, manifest, os, architecture))
	files["index.json"] = fmt.Sprintf(`{"manifests": [{"digest": %q}]}`, digest)
	return files, digest
}

func archive(t *testing.T, files map[string]string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image.oci.tar")
	if err := os.WriteFile(path, packed(t, files), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

var (
	own   = "linux/" + runtime.GOARCH
	layer = map[string]string{"web": "program", "etc/": "", "etc/passwd": "root"}
)

func TestLoadedImagesAreFoundByTheirDigest(t *testing.T) {
	store := Store{Folder: filepath.Join(t.TempDir(), "images")}
	files, want := layoutOf(t, own, layer)
	for range 2 { // there already, it stays
		digest, err := store.Load(archive(t, files))
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
		t.Errorf("it runs as %v and %v", found.User, found.Group)
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

func TestLoadNamesWhatIsWrong(t *testing.T) {
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
		"another platform": {other, "it is for linux/other, and this machine is " + own},
		"outside":          {outside, "layer 1: ../web: "},
		"a changed part": {changed(func(files map[string]string, digest string) {
			files["blobs/sha256/"+strings.TrimPrefix(digest, "sha256:")] += " "
		}), "its content has the checksum "},
		"a part behind a link": {changed(func(files map[string]string, digest string) {
			part := "blobs/sha256/" + strings.TrimPrefix(digest, "sha256:")
			files["other"], files[part] = files[part]+" ", linkTo+"../../other"
		}), "it is a link, which could lead to what no digest names"},
		"a folder behind a link": {changed(func(files map[string]string, digest string) {
			part := strings.TrimPrefix(digest, "sha256:")
			files["other/sha256/"+part] = files["blobs/sha256/"+part] + " "
			delete(files, "blobs/sha256/"+part)
			files["blobs"] = linkTo + "other"
		}), "blobs: it is a link"},
		"a path as digest": {changed(func(files map[string]string, _ string) {
			files["index.json"] = `{"manifests": [{"digest": "sha256:../../index.json"}]}`
		}), "it must be sha256:"},
	} {
		store := Store{Folder: t.TempDir()}
		path := archive(t, test.files)
		_, err := store.Load(path)
		if err == nil || !strings.HasPrefix(err.Error(), "loading "+path) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
		if left, err := os.ReadDir(store.Folder); err != nil || len(left) > 0 {
			t.Errorf("%s: %v is left, %v", name, left, err)
		}
	}
}
