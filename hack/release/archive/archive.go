// Package archive packs the files of a release. The same files make the same bytes.
package archive

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// File is a file of an archive. A folder has a name that ends in a slash, and no content.
type File struct {
	Name    string
	Mode    fs.FileMode
	Content []byte
	// Capabilities is the extended attribute security.capability, empty for none.
	Capabilities string
}

// Tar packs files that were all changed at one time.
func Tar(changed time.Time, files []File) ([]byte, error) {
	var packed bytes.Buffer
	writer := tar.NewWriter(&packed)
	for _, f := range files {
		header := &tar.Header{Format: tar.FormatUSTAR, Typeflag: tar.TypeReg, Name: f.Name, Mode: int64(f.Mode), Size: int64(len(f.Content)), ModTime: changed}
		if strings.HasSuffix(f.Name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if f.Capabilities != "" {
			header.Format, header.PAXRecords = tar.FormatPAX, map[string]string{"SCHILY.xattr.security.capability": f.Capabilities}
		}
		if err := writer.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("packing %s: %w", f.Name, err)
		}
		if _, err := writer.Write(f.Content); err != nil {
			return nil, fmt.Errorf("packing %s: %w", f.Name, err)
		}
	}
	if err := writer.Close(); err != nil {
		return nil, fmt.Errorf("packing: %w", err)
	}
	return packed.Bytes(), nil
}
