package plugin

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vicinity.dev/vicinity/hack/release/program"
	"vicinity.dev/vicinity/hack/release/source"
)

var from = source.Source{Version: "1.2.3", Time: time.Unix(1700000000, 0).UTC()}

func buildArchive(t *testing.T, platform program.Platform) (string, []byte) {
	t.Helper()
	compiled := filepath.Join(t.TempDir(), "vicinity")
	if err := os.WriteFile(compiled, []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	name, content, err := Archive(from, platform, compiled, []byte("license"))
	if err != nil {
		t.Fatal(err)
	}
	if _, again, err := Archive(from, platform, compiled, []byte("license")); err != nil || !bytes.Equal(content, again) {
		t.Errorf("%s is not the same when it is made again: %v", name, err)
	}
	return name, content
}

func TestArchiveOfUnix(t *testing.T) {
	name, content := buildArchive(t, program.Platform{OS: "darwin", Architecture: "arm64"})
	if name != "kubectl-vicinity-1.2.3-darwin-arm64.tar.gz" {
		t.Errorf("the archive is %s", name)
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for reader := tar.NewReader(unpacked); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		got = append(got, header.FileInfo().Mode().String()+" "+header.Name)
	}
	if want := []string{"-rw-r--r-- LICENSE", "-rwxr-xr-x kubectl-vicinity"}; !slices.Equal(got, want) {
		t.Errorf("the archive has %q, want %q", got, want)
	}
}

func TestKrew(t *testing.T) {
	download := Download{Platform: program.Platform{OS: "windows", Architecture: "amd64"}, Name: "a.zip", Content: []byte("abc")}
	for address, uri := range map[string]string{"": "uri: a.zip\n", "https://example.org/0/": "uri: https://example.org/0/a.zip\n"} {
		text, err := Krew(from, address, []Download{download})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			uri, "name: vicinity\n", "version: v1.2.3\n", "bin: kubectl-vicinity.exe\n", "arch: amd64\n        os: windows\n",
			"sha256: ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n",
		} {
			if !strings.Contains(string(text), want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
	}
}
