package image

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Write writes the archives of an image into a folder: one for each platform, as docker save
// makes them, and one of all platforms, which is an OCI layout. It returns their names.
func (s Set) Write(folder string) ([]string, error) {
	var names []string
	for _, image := range s.Images {
		name := fmt.Sprintf("%s-%s-%s.tar", s.Program.Name, s.Version, image.Platform.Hyphened())
		if err := s.writeOne(filepath.Join(folder, name), image); err != nil {
			return nil, fmt.Errorf("writing %s: %w", name, err)
		}
		names = append(names, name)
	}
	name := LayoutName(s.Program.Name, s.Version)
	if err := s.writeLayout(filepath.Join(folder, name)); err != nil {
		return nil, fmt.Errorf("writing %s: %w", name, err)
	}
	return append(names, name), nil
}

// LayoutName is the name of the archive that has all platforms.
func LayoutName(program, version string) string { return program + "-" + version + ".oci.tar" }

func (s Set) writeOne(path string, image Image) error {
	tag, err := name.NewTag(s.Repository + ":" + s.Version)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(path, tag, image.Image)
}

// refName names an image in an OCI layout.
const refName = "org.opencontainers.image.ref.name"

func (s Set) writeLayout(path string) (err error) {
	folder, err := os.MkdirTemp(filepath.Dir(path), ".layout-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	made, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	if err := made.AppendIndex(s.Index, layout.WithAnnotations(map[string]string{refName: s.Version})); err != nil {
		return err
	}
	var files []entry
	err = fs.WalkDir(os.DirFS(folder), ".", func(name string, found fs.DirEntry, err error) error {
		if err != nil || found.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(folder, name))
		files = append(files, entry{name, 0o644, content})
		return err
	})
	if err != nil {
		return err
	}
	packed, err := pack(files)
	if err != nil {
		return err
	}
	return os.WriteFile(path, packed, 0o644)
}
