package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/kit/command"
)

// labProgram has the lab's commands, which most users do not need.
const (
	labSuffix  = "-lab"
	labProgram = "vicinity" + labSuffix
)

// newLabCommand runs labProgram like a plugin of kubectl. become replaces this process, and returns
// only after a failure.
func newLabCommand(become func(program string, args, environment []string) error) *cobra.Command {
	return &cobra.Command{
		Use:   "lab",
		Short: "Run a real multi-zone Kubernetes on this machine",
		Long: `Lab runs the program vicinity-lab with all arguments. It looks for it beside this program, then
in the PATH. "lab --help" lists its commands.`,
		DisableFlagParsing: true,
		Args:               cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			program, err := findLab()
			if err != nil {
				return err
			}
			// The commands that it suggests begin with the name of this program.
			if err := become(program, append([]string{os.Args[0] + labSuffix}, args...), os.Environ()); err != nil {
				return fmt.Errorf("running %s: %w", program, err)
			}
			return nil
		},
	}
}

func findLab() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	beside := filepath.Join(filepath.Dir(self), labProgram)
	if _, err := os.Stat(beside); err == nil {
		return beside, nil
	}
	program, err := exec.LookPath(labProgram)
	if errors.Is(err, exec.ErrNotFound) {
		return "", &command.ExitError{Code: command.ExitFailure, Err: fmt.Errorf("labs need the program %s, which is neither beside this one (%s) nor in the PATH; "+
			"build it in the repository by \"make build\"", labProgram, filepath.Dir(self))}
	}
	return program, err
}

func replace(program string, args, environment []string) error {
	return syscall.Exec(program, args, environment)
}
