package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"vicinity.dev/vicinity/lab/shape"
)

// Images maps the names of container images to programs of this machine.
type Images struct {
	// Program is the vicinity program itself: it runs the images lab/NAME.
	Program string
	// Folder is where images called vicinity or vicinity-NAME are found as programs.
	Folder string
}

// DefaultImages are those of the program that runs.
func DefaultImages() (Images, error) {
	program, err := os.Executable()
	if err != nil {
		return Images{}, fmt.Errorf("finding this program: %w", err)
	}
	return Images{Program: program, Folder: filepath.Dir(program)}, nil
}

// Resolve returns the program of an image and its first arguments.
func (i Images) Resolve(image string) ([]string, error) {
	name := shape.Image(image)
	switch program, own := strings.CutPrefix(name, "lab/"); {
	case own && (program == "echo" || program == "client" || program == "sleep"):
		return []string{i.Program, "lab", "program", program}, nil
	case !own && (name == "vicinity" || strings.HasPrefix(name, "vicinity-")):
		program := filepath.Join(i.Folder, name)
		if err := executable(program); err != nil {
			return nil, fmt.Errorf("image %q stands for the program %s: %w", image, program, err)
		}
		return []string{program}, nil
	}
	return nil, fmt.Errorf("image %q maps to no program; the lab has lab/echo, lab/client, lab/sleep and the programs called vicinity-NAME in %s", image, i.Folder)
}

// imageFolder is where a container finds the program of its image.
const imageFolder = "/.image"

// enterable gives a program a path at which every user of a container can run it: where
// the machine has it, only root may be let in. It returns the command line and the mount
// that makes it work.
func enterable(program []string) ([]string, mount) {
	m := mount{Source: program[0], Target: filepath.Join(imageFolder, filepath.Base(program[0])), ReadOnly: true}
	return append([]string{m.Target}, program[1:]...), m
}
