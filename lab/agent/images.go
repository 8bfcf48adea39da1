package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

// programs are the images of the lab's own.
const programs = "lab/"

// Resolve returns the program of an image and its first arguments. Registry, tag and
// digest mean nothing: there is one of each.
func (i Images) Resolve(image string) ([]string, error) {
	name, _, _ := strings.Cut(image, "@")
	if slash := strings.LastIndexByte(name, '/'); strings.LastIndexByte(name, ':') > slash {
		name = name[:strings.LastIndexByte(name, ':')]
	}
	if at := strings.LastIndex("/"+name, "/"+programs); at >= 0 {
		if program := name[at+len(programs):]; program != "" && !strings.Contains(program, "/") {
			switch program {
			case "echo", "client", "sleep":
				return []string{i.Program, "lab", "program", program}, nil
			}
		}
	}
	base := name[strings.LastIndexByte(name, '/')+1:]
	if base == "vicinity" || strings.HasPrefix(base, "vicinity-") {
		program := filepath.Join(i.Folder, base)
		if err := executable(program); err != nil {
			return nil, fmt.Errorf("image %q stands for the program %s: %w", image, program, err)
		}
		return []string{program}, nil
	}
	return nil, fmt.Errorf("image %q maps to no program; the lab has lab/echo, lab/client, lab/sleep and the programs called vicinity-NAME in %s", image, i.Folder)
}
