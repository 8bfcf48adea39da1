package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	godigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/oci"
)

// Store is a folder of images that were unpacked from archives, by digest. A container of such an
// image has only the image's files.
type Store struct{ Folder string }

// An image in a store has a folder with its files, and a file with its OCI configuration.
const (
	rootFolder = "root"
	configFile = "config.json"
)

// Digest returns the digest of an image name, if it has one.
func Digest(name string) string {
	_, digest, _ := strings.Cut(name, "@")
	return digest
}

// Find returns the image with the digest in a name. It fails if the store does not have it.
func (s Store) Find(name string) (Image, error) {
	digest, err := godigest.Parse(Digest(name))
	if err != nil {
		return Image{}, fmt.Errorf("image %q: %w", name, err)
	}
	folder := filepath.Join(s.Folder, digest.Encoded())
	text, err := os.ReadFile(filepath.Join(folder, configFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Image{}, fmt.Errorf("image %q: no archive with this digest was loaded into the lab; vicinity lab vicinity --release FOLDER loads the archives of a release", name)
	} else if err != nil {
		return Image{}, fmt.Errorf("image %q: %w", name, err)
	}
	var config ocispec.ImageConfig
	if err := json.Unmarshal(text, &config); err != nil {
		return Image{}, fmt.Errorf("image %q: reading %s: %w", name, configFile, err)
	}
	found := Image{Name: name, Root: filepath.Join(folder, rootFolder), Alone: true, EntryPoint: config.Entrypoint, Args: config.Cmd, Env: map[string]string{}}
	for _, variable := range config.Env {
		key, value, _ := strings.Cut(variable, "=")
		found.Env[key] = value
	}
	if found.User, found.Group, err = userOf(config.User); err != nil {
		return Image{}, fmt.Errorf("image %q: %w", name, err)
	}
	return found, nil
}

// userOf parses the user and the group of an image. They must be numbers, since an image may have
// no list of users.
func userOf(text string) (user, group *uint32, err error) {
	if text == "" {
		return nil, nil, nil
	}
	parts := strings.SplitN(text, ":", 2)
	var numbers []*uint32
	for _, part := range parts {
		number, err := strconv.ParseUint(part, 10, 32)
		if err != nil {
			return nil, nil, fmt.Errorf("user %q: it must be USER or USER:GROUP, both numbers", text)
		}
		numbers = append(numbers, new(uint32(number)))
	}
	return numbers[0], numbers[len(numbers)-1], nil
}

// Load unpacks an archive, an OCI layout with one image, unless the store has the image. It returns
// the digest, which names the image for all platforms. It verifies the digest of every part.
func (s Store) Load(ctx context.Context, archive string) (digest string, err error) {
	if err := os.MkdirAll(s.Folder, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(s.Folder, ".loading-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if digest, err = s.load(ctx, archive, work); err != nil {
		return "", fmt.Errorf("loading %s: %w", archive, err)
	}
	return digest, nil
}

func (s Store) load(ctx context.Context, archive, work string) (string, error) {
	layout, err := oci.NewFromTar(ctx, archive)
	if err != nil {
		return "", err
	}
	var tags []string
	if err := layout.Tags(ctx, "", func(all []string) error { tags = all; return nil }); err != nil {
		return "", err
	}
	if len(tags) != 1 {
		return "", fmt.Errorf("the archive has %d images with a tag; it must have one", len(tags))
	}
	named, err := layout.Resolve(ctx, tags[0])
	if err != nil {
		return "", err
	}
	digest := named.Digest.String()
	kept := filepath.Join(s.Folder, named.Digest.Encoded())
	if _, err := os.Stat(kept); err == nil {
		return digest, nil
	}
	image := filepath.Join(work, "image")
	if err := os.MkdirAll(filepath.Join(image, rootFolder), 0o755); err != nil {
		return "", err
	}
	if err := os.Chmod(image, 0o755); err != nil {
		return "", err
	}
	if err := unpackImage(ctx, layout, tags[0], image); err != nil {
		return "", err
	}
	return digest, os.Rename(image, kept)
}

func unpackImage(ctx context.Context, layout *oci.ReadOnlyStore, tag, folder string) error {
	platform := &ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH}
	described, err := oras.Resolve(ctx, layout, tag, oras.ResolveOptions{TargetPlatform: platform})
	if err != nil {
		return fmt.Errorf("looking for the image for %s/%s: %w", platform.OS, platform.Architecture, err)
	}
	var manifest ocispec.Manifest
	if err := readPart(ctx, layout, described, &manifest); err != nil {
		return err
	}
	var about ocispec.Image
	if err := readPart(ctx, layout, manifest.Config, &about); err != nil {
		return err
	}
	root, err := os.OpenRoot(filepath.Join(folder, rootFolder))
	if err != nil {
		return err
	}
	defer root.Close()
	for at, layer := range manifest.Layers {
		if err := unpackLayer(ctx, layout, layer, root); err != nil {
			return fmt.Errorf("layer %d: %w", at+1, err)
		}
	}
	text, err := json.Marshal(about.Config)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, configFile), text, 0o644)
}

func readPart(ctx context.Context, layout *oci.ReadOnlyStore, part ocispec.Descriptor, value any) error {
	text, err := content.FetchAll(ctx, layout, part)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, value); err != nil {
		return fmt.Errorf("reading %s: %w", part.Digest, err)
	}
	return nil
}

func unpackLayer(ctx context.Context, layout *oci.ReadOnlyStore, layer ocispec.Descriptor, root *os.Root) error {
	packed, err := content.FetchAll(ctx, layout, layer)
	if err != nil {
		return err
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return fmt.Errorf("reading it as gzip: %w", err)
	}
	for entries := tar.NewReader(unpacked); ; {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading the archive: %w", err)
		}
		if err := unpackEntry(root, header, entries); err != nil {
			return fmt.Errorf("%s: %w", header.Name, err)
		}
	}
}

// unpackEntry makes a file or a folder. It refuses a name that leads out of the folder.
func unpackEntry(root *os.Root, header *tar.Header, from io.Reader) error {
	name, mode := filepath.Clean(header.Name), header.FileInfo().Mode().Perm()
	if strings.HasPrefix(filepath.Base(name), ".wh.") {
		return errors.New("it removes a file of an earlier layer, which is not supported")
	}
	switch header.Typeflag {
	case tar.TypeDir:
		if err := root.MkdirAll(name, 0o755); err != nil {
			return err
		}
		return root.Chmod(name, mode)
	case tar.TypeSymlink:
		return root.Symlink(header.Linkname, name)
	case tar.TypeReg:
	default:
		return fmt.Errorf("unsupported type %q: an image has files, folders and links", header.Typeflag)
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	err = errors.Join(err, file.Chmod(mode))
	// Last, because a write removes the file's capabilities.
	if capabilities := header.PAXRecords["SCHILY.xattr.security.capability"]; capabilities != "" {
		err = errors.Join(err, os.NewSyscallError("setting the capabilities", unix.Fsetxattr(int(file.Fd()), "security.capability", []byte(capabilities), 0)))
	}
	return errors.Join(err, file.Close())
}
