// Package plugin makes the archives of the kubectl plugin, and the manifest by which krew
// installs them.
package plugin

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"time"

	"vicinity.dev/vicinity/hack/release/program"
	"vicinity.dev/vicinity/hack/release/source"
)

// Name is that of the program in the archives, by which kubectl finds it.
const Name = "kubectl-vicinity"

// file is what an archive has.
type file struct {
	name    string
	mode    os.FileMode
	content []byte
}

// Archive returns the archive of a compiled program and the license, and its name: a zip for
// Windows, and else a tar.gz. The same files make the same bytes.
func Archive(s source.Source, platform program.Platform, compiled string, license []byte) (name string, content []byte, err error) {
	built, err := os.ReadFile(compiled)
	if err != nil {
		return "", nil, err
	}
	files := []file{{"LICENSE", 0o644, license}, {platform.File(Name), 0o755, built}}
	name = fmt.Sprintf("%s-%s-%s", Name, s.Version, platform.Hyphened())
	if platform.OS == "windows" {
		content, err = zipped(s.Time, files)
		return name + ".zip", content, err
	}
	content, err = tarred(s.Time, files)
	return name + ".tar.gz", content, err
}

func tarred(at time.Time, files []file) ([]byte, error) {
	var packed bytes.Buffer
	compressor := gzip.NewWriter(&packed)
	writer := tar.NewWriter(compressor)
	for _, f := range files {
		header := &tar.Header{Format: tar.FormatUSTAR, Typeflag: tar.TypeReg, Name: f.name, Mode: int64(f.mode), Size: int64(len(f.content)), ModTime: at}
		if err := writer.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := writer.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := errors.Join(writer.Close(), compressor.Close())
	return packed.Bytes(), err
}

func zipped(at time.Time, files []file) ([]byte, error) {
	var packed bytes.Buffer
	writer := zip.NewWriter(&packed)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
		header.SetMode(f.mode)
		to, err := writer.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := to.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := writer.Close()
	return packed.Bytes(), err
}
