// Package image says which programs of this machine stand for container images.
//
// A lab pulls no images: a name maps to a program. The lab's own images are lab/NAME and the programs
// of Vicinity. A Map adds others, so that foreign manifests and tests run unchanged. The package reads
// and checks a Map, and finds the image of a name. It starts nothing.
package image

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/lab/shape"
)

// Map has images. The first one whose name matches counts.
type Map []Image

// Image stands for the container images whose name matches.
type Image struct {
	// Name is a pattern, as of path.Match, of image names without tag and digest. A pattern without a
	// slash matches the last part of the name.
	Name string `json:"name"`
	// Program is a file of this machine. The container has it at MountPath.
	Program   string `json:"program,omitempty"`
	MountPath string `json:"mountPath,omitempty"`
	// Mounts are more files and folders of this machine, by their paths in the container.
	Mounts map[string]string `json:"mounts,omitempty"`
	// EntryPoint is the command of a container that has none. The default is the program. Args
	// are its arguments if the container has neither a command nor arguments.
	EntryPoint []string `json:"entryPoint,omitempty"`
	Args       []string `json:"args,omitempty"`
	// Env is the environment. The pod's variables replace variables of the same name.
	Env map[string]string `json:"env,omitempty"`
	// Root is a folder whose files each container has as its own, over those of this machine.
	Root string `json:"root,omitempty"`
	// Alone means that a container has only the files of Root. User and Group run it. Images of a
	// [Store] set these.
	Alone       bool    `json:"-"`
	User, Group *uint32 `json:"-"`
}

// Find returns the first image whose pattern matches a name.
func (m Map) Find(name string) (Image, bool) {
	name = shape.Repository(name)
	for _, image := range m {
		if image.matches(name) {
			return image, true
		}
	}
	return Image{}, false
}

// String lists the patterns.
func (m Map) String() string {
	names := make([]string, len(m))
	for at, image := range m {
		names[at] = image.Name
	}
	return strings.Join(names, ", ")
}

func (i Image) matches(repository string) bool {
	if !strings.Contains(i.Name, "/") {
		repository = path.Base(repository)
	}
	matched, err := path.Match(i.Name, repository)
	return err == nil && matched
}

// Command is the command line of a container with its own command or arguments, which may be empty.
func (i Image) Command(command, args []string) []string {
	if len(command) == 0 {
		command = i.EntryPoint
		if len(args) == 0 {
			args = i.Args
		}
	}
	return slices.Concat(command, args)
}

// Variables returns the environment as name=value, sorted.
func (i Image) Variables() []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(i.Env)) {
		list = append(list, name+"="+i.Env[name])
	}
	return list
}

// Read reads a map from YAML or JSON, completes and validates it. Relative paths of the machine are
// relative to the folder.
//
//	images:
//	- name: agnhost
//	  program: bin/agnhost
//	  mountPath: /agnhost
//	  args: [pause]
//	  mounts: {/coredns: bin/coredns}
//	- name: registry.example.org/web/*
//	  entryPoint: [busybox, httpd, -f]
//	  env: {MODE: plain}
//	  root: web
func Read(r io.Reader, folder string) (Map, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("reading images: %w", err)
	}
	var read struct {
		Images Map `json:"images"`
	}
	if err := yaml.UnmarshalStrict(text, &read); err != nil {
		return nil, fmt.Errorf("reading images: %w", err)
	}
	if len(read.Images) == 0 {
		return nil, errors.New("images is missing: write a list of images")
	}
	for at := range read.Images {
		read.Images[at].complete(folder)
	}
	return read.Images, read.Images.Validate()
}

func (i *Image) complete(folder string) {
	absolute := func(file string) string {
		if file == "" || filepath.IsAbs(file) {
			return file
		}
		return filepath.Join(folder, file)
	}
	i.Program, i.Root = absolute(i.Program), absolute(i.Root)
	for at, file := range i.Mounts {
		i.Mounts[at] = absolute(file)
	}
	if i.Program == "" {
		return
	}
	if i.MountPath == "" {
		i.MountPath = MountPath(i.Program)
	}
	if len(i.EntryPoint) == 0 {
		i.EntryPoint = []string{i.MountPath}
	}
}

// MountPath returns the default path of a program in a container. It is not the path on the machine,
// since only root may have access to the folder there.
func MountPath(program string) string { return path.Join("/.image", filepath.Base(program)) }

// Validate returns an error about the first invalid field, with its value and what is allowed.
func (m Map) Validate() error {
	names := map[string]bool{}
	for at, image := range m {
		field := fmt.Sprintf("images[%d]", at)
		if err := image.validate(field); err != nil {
			return err
		}
		if names[image.Name] {
			return fmt.Errorf("%s.name %q: an earlier image has this name; write each name once", field, image.Name)
		}
		names[image.Name] = true
	}
	return nil
}

func (i Image) validate(at string) error {
	if err := validateName(at, i.Name); err != nil {
		return err
	}
	if i.Program != "" {
		info, err := os.Stat(i.Program)
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return fmt.Errorf("%s.program %q: %s; write the path of a program of this machine", at, i.Program, fileProblem(err, "it is not a program"))
		}
	}
	switch {
	case len(i.EntryPoint) == 0 && len(i.Args) == 0:
		return fmt.Errorf("%s %q: it has no command; write program, entryPoint or args", at, i.Name)
	case i.MountPath != "" && i.Program == "":
		return fmt.Errorf("%s.mountPath %q: there is no program to mount; write program too", at, i.MountPath)
	case i.MountPath != "" && !isFile(i.MountPath):
		return fmt.Errorf("%s.mountPath %q: write an absolute path of a file, such as /agnhost", at, i.MountPath)
	}
	for _, target := range slices.Sorted(maps.Keys(i.Mounts)) {
		switch _, err := os.Stat(i.Mounts[target]); {
		case !isFile(target) || target == i.MountPath:
			return fmt.Errorf("%s.mounts: path %q: write an absolute path other than mountPath", at, target)
		case err != nil:
			return fmt.Errorf("%s.mounts: %q for %s: %s; write the path of a file or folder of this machine", at, i.Mounts[target], target, fileProblem(err, ""))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(i.Env)) {
		if name == "" || strings.Contains(name, "=") {
			return fmt.Errorf("%s.env: name %q: write a name without =", at, name)
		}
	}
	if i.Root != "" {
		if info, err := os.Stat(i.Root); err != nil || !info.IsDir() {
			return fmt.Errorf("%s.root %q: %s; write the path of a folder of this machine", at, i.Root, fileProblem(err, "it is not a folder"))
		}
	}
	return nil
}

func validateName(at, name string) error {
	const write = "write an image's name without tag and digest, or a pattern of it such as registry.example.org/web/*"
	_, err := path.Match(name, "")
	switch {
	case name == "":
		return fmt.Errorf("%s.name is missing: %s", at, write)
	case err != nil || name != shape.Repository(name) || strings.HasPrefix(name, "/") || strings.HasSuffix(name, "/"):
		return fmt.Errorf("%s.name %q: %s", at, name, write)
	}
	return nil
}

func isFile(name string) bool { return path.IsAbs(name) && path.Clean(name) == name && name != "/" }

// fileProblem says what is wrong with a file.
func fileProblem(err error, otherwise string) string {
	var wrong *os.PathError
	if errors.As(err, &wrong) {
		return wrong.Err.Error()
	}
	return otherwise
}
