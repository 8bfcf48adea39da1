package image

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Store is a folder of images that were unpacked from archives, by their digests. A container
// of such an image has its files alone, and none of this machine.
type Store struct{ Folder string }

const (
	rootFolder = "root"
	configFile = "config.json"
)

// stored is what a store keeps of an image beside its files.
type stored struct {
	EntryPoint []string `json:"entryPoint,omitempty"`
	Args       []string `json:"args,omitempty"`
	Env        []string `json:"env,omitempty"`
	User       string   `json:"user,omitempty"`
}

// Digest is what a name of an image has after the @, if it has one.
func Digest(name string) string {
	_, digest, _ := strings.Cut(name, "@")
	return digest
}

// Find returns the image that a name pins by its digest. It is an error if the store does not
// have it.
func (s Store) Find(name string) (Image, error) {
	sum, err := sumOf(Digest(name))
	if err != nil {
		return Image{}, fmt.Errorf("image %q: %w", name, err)
	}
	folder := filepath.Join(s.Folder, sum)
	text, err := os.ReadFile(filepath.Join(folder, configFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Image{}, fmt.Errorf("image %q: no archive with this digest was loaded into the lab; vicinity lab vicinity --release FOLDER loads those of a release", name)
	} else if err != nil {
		return Image{}, fmt.Errorf("image %q: %w", name, err)
	}
	var config stored
	if err := json.Unmarshal(text, &config); err != nil {
		return Image{}, fmt.Errorf("image %q: reading %s: %w", name, configFile, err)
	}
	found := Image{Name: name, Root: filepath.Join(folder, rootFolder), Alone: true, EntryPoint: config.EntryPoint, Args: config.Args, Env: map[string]string{}}
	for _, variable := range config.Env {
		key, value, _ := strings.Cut(variable, "=")
		found.Env[key] = value
	}
	if found.User, found.Group, err = userOf(config.User); err != nil {
		return Image{}, fmt.Errorf("image %q: %w", name, err)
	}
	return found, nil
}

// sumOf is the checksum that a digest consists of.
func sumOf(digest string) (string, error) {
	sum, ok := strings.CutPrefix(digest, "sha256:")
	if _, err := hex.DecodeString(sum); !ok || err != nil || len(sum) != 2*sha256.Size {
		return "", fmt.Errorf("digest %q: it must be sha256: and %d hexadecimal digits", digest, 2*sha256.Size)
	}
	return sum, nil
}

// userOf reads the user and the group of an image, which are numbers: it may have no list of
// users.
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

// Load unpacks an archive, which is an OCI layout with one image, unless the store has the
// image. It returns the digest, which names the image for all platforms. Every part of the
// image is compared with the digest that it is named by.
func (s Store) Load(archive string) (digest string, err error) {
	if err := os.MkdirAll(s.Folder, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(s.Folder, ".loading-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if digest, err = s.load(archive, work); err != nil {
		return "", fmt.Errorf("loading %s: %w", archive, err)
	}
	return digest, nil
}

func (s Store) load(archive, work string) (string, error) {
	layout := filepath.Join(work, "layout")
	if err := unpackLayout(archive, layout); err != nil {
		return "", err
	}
	var outer index
	if err := readJSON(filepath.Join(layout, "index.json"), &outer); err != nil {
		return "", err
	}
	if len(outer.Manifests) != 1 {
		return "", fmt.Errorf("it has %d images, and must have one", len(outer.Manifests))
	}
	digest := outer.Manifests[0].Digest
	sum, err := sumOf(digest)
	if err != nil {
		return "", err
	}
	kept := filepath.Join(s.Folder, sum)
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
	if err := unpackImage(layout, digest, image); err != nil {
		return "", err
	}
	return digest, os.Rename(image, kept)
}

// What is read of the OCI image specification.
type (
	descriptor struct {
		Digest   string `json:"digest"`
		Platform struct {
			OS           string `json:"os"`
			Architecture string `json:"architecture"`
		} `json:"platform"`
	}
	index struct {
		Manifests []descriptor `json:"manifests"`
	}
	manifest struct {
		Config descriptor   `json:"config"`
		Layers []descriptor `json:"layers"`
	}
	config struct {
		Config struct {
			User       string   `json:"User"`
			Env        []string `json:"Env"`
			Entrypoint []string `json:"Entrypoint"`
			Cmd        []string `json:"Cmd"`
		} `json:"config"`
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
)

func blob(layout, digest string) (string, error) {
	sum, err := sumOf(digest)
	return filepath.Join(layout, "blobs", "sha256", sum), err
}

// readBlob reads a part of an image.
func readBlob(layout, digest string, value any) error {
	path, err := blob(layout, digest)
	if err != nil {
		return err
	}
	return readJSON(path, value)
}

func readJSON(path string, value any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, value); err != nil {
		return fmt.Errorf("reading %s: %w", filepath.Base(path), err)
	}
	return nil
}

// unpackImage unpacks the image of this machine's platform.
func unpackImage(layout, digest, folder string) error {
	var platforms index
	if err := readBlob(layout, digest, &platforms); err != nil {
		return err
	}
	var has []string
	for _, described := range platforms.Manifests {
		platform := described.Platform.OS + "/" + described.Platform.Architecture
		if platform != "linux/"+runtime.GOARCH {
			has = append(has, platform)
			continue
		}
		return unpackPlatform(layout, described.Digest, folder)
	}
	return fmt.Errorf("it is for %s, and this machine is linux/%s", strings.Join(has, ", "), runtime.GOARCH)
}

func unpackPlatform(layout, digest, folder string) error {
	var parts manifest
	if err := readBlob(layout, digest, &parts); err != nil {
		return err
	}
	var about config
	if err := readBlob(layout, parts.Config.Digest, &about); err != nil {
		return err
	}
	if len(about.RootFS.DiffIDs) != len(parts.Layers) {
		return fmt.Errorf("it has %d layers, and its configuration names %d", len(parts.Layers), len(about.RootFS.DiffIDs))
	}
	root, err := os.OpenRoot(filepath.Join(folder, rootFolder))
	if err != nil {
		return err
	}
	defer root.Close()
	for at, layer := range parts.Layers {
		if err := unpackLayer(layout, layer.Digest, about.RootFS.DiffIDs[at], root); err != nil {
			return fmt.Errorf("layer %d: %w", at+1, err)
		}
	}
	text, err := json.Marshal(stored{about.Config.Entrypoint, about.Config.Cmd, about.Config.Env, about.Config.User})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, configFile), text, 0o644)
}

// unpackLayout unpacks an archive, and compares its parts with their names.
func unpackLayout(archive, folder string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	return eachEntry(file, func(header *tar.Header, content io.Reader) error {
		if header.Typeflag == tar.TypeSymlink {
			return errors.New("it is a link, which could lead to what no digest names")
		}
		sum := sha256.New()
		if err := unpackEntry(root, header, io.TeeReader(content, sum)); err != nil {
			return err
		}
		name, isBlob := strings.CutPrefix(filepath.ToSlash(filepath.Clean(header.Name)), "blobs/sha256/")
		if isBlob && header.Typeflag == tar.TypeReg && name != sumText(sum) {
			return fmt.Errorf("its content has the checksum %s", sumText(sum))
		}
		return nil
	})
}

func sumText(sum hash.Hash) string { return hex.EncodeToString(sum.Sum(nil)) }

func unpackLayer(layout, digest, unpacked string, root *os.Root) error {
	path, err := blob(layout, digest)
	if err != nil {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	packed, err := gzip.NewReader(file)
	if err != nil {
		return fmt.Errorf("reading it as gzip: %w", err)
	}
	sum := sha256.New()
	all := io.TeeReader(packed, sum)
	err = eachEntry(all, func(header *tar.Header, content io.Reader) error {
		if strings.HasPrefix(filepath.Base(header.Name), ".wh.") {
			return errors.New("it removes a file of a layer before, which this program does not do")
		}
		return unpackEntry(root, header, content)
	})
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, all); err != nil {
		return err
	}
	if got := "sha256:" + sumText(sum); got != unpacked {
		return fmt.Errorf("unpacked it is %s, and the configuration names %s", got, unpacked)
	}
	return nil
}

func eachEntry(archive io.Reader, use func(*tar.Header, io.Reader) error) error {
	for reader := tar.NewReader(archive); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading the archive: %w", err)
		}
		if err := use(header, reader); err != nil {
			return fmt.Errorf("%s: %w", header.Name, err)
		}
	}
}

// unpackEntry makes a file or a folder. A name that leads out of the folder is an error.
func unpackEntry(root *os.Root, header *tar.Header, content io.Reader) error {
	name, mode := filepath.Clean(header.Name), header.FileInfo().Mode().Perm()
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
		return fmt.Errorf("it is of type %q: an image has files, folders and links", header.Typeflag)
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Chmod(mode), file.Close())
}
