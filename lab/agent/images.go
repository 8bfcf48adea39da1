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
	// Program is the vicinity-lab program, which runs the images lab/NAME.
	Program string
	// Folder holds the programs of the images vicinity and vicinity-NAME.
	Folder string
}

// DefaultImages are this program and those in its folder.
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
		return []string{i.Program, "program", program}, nil
	case !own && (name == "vicinity" || strings.HasPrefix(name, "vicinity-")):
		program := filepath.Join(i.Folder, name)
		if err := executable(program); err != nil {
			return nil, fmt.Errorf("image %q stands for the program %s: %w", image, program, err)
		}
		return []string{program}, nil
	}
	return nil, fmt.Errorf("image %q maps to no program; the lab has lab/echo, lab/client, lab/sleep and the programs called vicinity-NAME in %s", image, i.Folder)
}

const imageFolder = "/.image"

// mountProgram makes a program executable for every user of a container: its folder on the
// machine may be closed to all but root. It returns the new command line and the mount.
func mountProgram(program []string) ([]string, mount) {
	m := mount{Source: program[0], Target: filepath.Join(imageFolder, filepath.Base(program[0])), ReadOnly: true}
	return append([]string{m.Target}, program[1:]...), m
}
