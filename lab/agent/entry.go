package agent

import "path/filepath"

// imageFolder is where a container finds the program of its image.
const imageFolder = "/.image"

// enterable gives a program a path at which every user of a container can run it: where
// the machine has it, only root may be let in. It returns the command line and the mount
// that makes it work.
func enterable(program []string) ([]string, mount) {
	m := mount{Source: program[0], Target: filepath.Join(imageFolder, filepath.Base(program[0])), ReadOnly: true}
	return append([]string{m.Target}, program[1:]...), m
}
