// Package image makes container images of programs, and archives of them for container engines, nodes
// and registries.
//
// An image has two layers: a base that all images share, with certificates and two users, and the
// program, which is the entry point. There is no shell and no other file. The same program makes the
// same image, byte by byte.
package image

import (
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"

	"vicinity.dev/vicinity/hack/release/archive"
	"vicinity.dev/vicinity/hack/release/program"
	"vicinity.dev/vicinity/hack/release/source"
)

// License is the SPDX name of the programs' license.
const License = "Apache-2.0"

// Image is a program's image for one platform.
type Image struct {
	Platform program.Platform
	Image    v1.Image
}

// Set is a program's image for all platforms.
type Set struct {
	Program program.Program
	// Repository is the name of the image, with a registry if there is one.
	Repository string
	Version    string
	Images     []Image
	// Index has the images of all platforms; its digest pins them.
	Index v1.ImageIndex
}

// New makes the images of a program from its compiled files by platform.
func New(s source.Source, p program.Program, registry string, platforms []program.Platform, files map[program.Platform]string) (Set, error) {
	set := Set{Program: p, Repository: Repository(registry, p.Name), Version: s.Version}
	labels := labels(s, p)
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, platform := range platforms {
		made, err := one(s, p, platform, files[platform], labels)
		if err != nil {
			return Set{}, fmt.Errorf("making the image of %s for %s: %w", p.Name, platform, err)
		}
		set.Images = append(set.Images, Image{Platform: platform, Image: made})
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        made,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: platform.OS, Architecture: platform.Architecture}},
		})
	}
	set.Index = mutate.Annotations(index, labels).(v1.ImageIndex)
	return set, nil
}

// Repository returns the name of a program's image in a registry, which may be empty.
func Repository(registry, program string) string {
	if registry == "" {
		return program
	}
	return registry + "/" + program
}

// registries matches a host and folders, as the OCI distribution specification allows.
var registries = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?(:[0-9]+)?(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)

// CheckRegistry returns an error about a registry, which may be empty.
func CheckRegistry(registry string) error {
	if registry == "" {
		return nil
	}
	if _, err := name.NewRepository(Repository(registry, "vicinity")); err != nil || !registries.MatchString(registry) {
		return fmt.Errorf("REGISTRY %q: write a host, and folders in lower case if there are any, such as registry.example.org/tools", registry)
	}
	return nil
}

// Digest pins the image for all platforms.
func (s Set) Digest() (v1.Hash, error) { return s.Index.Digest() }

// labels describe the image with keys of the OCI image specification.
func labels(s source.Source, p program.Program) map[string]string {
	labels := map[string]string{
		"org.opencontainers.image.title":       p.Title,
		"org.opencontainers.image.description": p.Description,
		"org.opencontainers.image.version":     s.Version,
		"org.opencontainers.image.licenses":    License,
		"org.opencontainers.image.url":         "https://vicinity.dev",
	}
	if s.Revision != "" {
		labels["org.opencontainers.image.revision"] = s.Revision
	}
	return labels
}

// netBindService is cap_net_bind_service=ep, as the kernel's struct vfs_cap_data of revision 2.
const netBindService = "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

func one(s source.Source, p program.Program, platform program.Platform, file string, labels map[string]string) (v1.Image, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	executable := archive.File{Name: p.Name, Mode: 0o755, Content: content}
	if p.BindsLowPorts {
		executable.Capabilities = netBindService
	}
	created, level := v1.Time{Time: s.Time}, gzip.DefaultCompression
	if s.Development {
		level = gzip.BestSpeed
	}
	for _, part := range []struct {
		files   []archive.File
		comment string
	}{
		{base(), "certificates and users"},
		{[]archive.File{executable}, p.Name},
	} {
		layer, err := layer(part.files, level)
		if err != nil {
			return nil, err
		}
		image, err = mutate.Append(image, mutate.Addendum{
			Layer:   layer,
			History: v1.History{Created: created, CreatedBy: "vicinity release", Comment: part.comment},
		})
		if err != nil {
			return nil, err
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = platform.OS, platform.Architecture, created
	config.Config = v1.Config{
		User:       p.User,
		Entrypoint: []string{"/" + p.Name},
		WorkingDir: "/",
		Labels:     labels,
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, err
	}
	return mutate.Annotations(image, labels).(v1.Image), nil
}

func layer(files []archive.File, level int) (v1.Layer, error) {
	packed, err := archive.Tar(time.Unix(0, 0), files)
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed)), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer),
		tarball.WithCompressionLevel(level), tarball.WithCompressedCaching)
}

// Sizes returns the bytes that a node fetches, and the bytes of the files.
func (i Image) Sizes() (compressed, files int64, err error) {
	manifest, err := i.Image.Manifest()
	if err != nil {
		return 0, 0, err
	}
	compressed = manifest.Config.Size
	for _, layer := range manifest.Layers {
		compressed += layer.Size
	}
	layers, err := i.Image.Layers()
	if err != nil {
		return 0, 0, err
	}
	for _, layer := range layers {
		packed, err := layer.Uncompressed()
		if err != nil {
			return 0, 0, err
		}
		size, err := io.Copy(io.Discard, packed)
		if err != nil {
			return 0, 0, err
		}
		files += size
	}
	return compressed, files, nil
}

// Users of an image, for programs that look up their user name.
const (
	passwd = "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"
	group  = "root:x:0:\nnonroot:x:65532:\n"
)

// base has the files of all images.
func base() []archive.File {
	return []archive.File{
		{Name: "etc/", Mode: 0o755},
		{Name: "etc/group", Mode: 0o644, Content: []byte(group)},
		{Name: "etc/passwd", Mode: 0o644, Content: []byte(passwd)},
		{Name: "etc/ssl/", Mode: 0o755},
		{Name: "etc/ssl/certs/", Mode: 0o755},
		{Name: "etc/ssl/certs/ca-certificates.crt", Mode: 0o644, Content: certificates()},
	}
}

// certificates are the roots that Mozilla trusts, from a pinned module and in its order. Roots with
// constraints are left out, since the file cannot express them.
func certificates() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			text.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return text.Bytes()
}

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

// LayoutName returns the name of the archive with all platforms.
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
	var files []archive.File
	err = fs.WalkDir(os.DirFS(folder), ".", func(name string, found fs.DirEntry, err error) error {
		if err != nil || found.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(folder, name))
		files = append(files, archive.File{Name: name, Mode: 0o644, Content: content})
		return err
	})
	if err != nil {
		return err
	}
	packed, err := archive.Tar(time.Unix(0, 0), files)
	if err != nil {
		return err
	}
	return os.WriteFile(path, packed, 0o644)
}
