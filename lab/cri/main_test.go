package cri

import (
	"fmt"
	"os"
	"testing"
)

// TestMain also runs the processes of the package.
func TestMain(m *testing.M) {
	var err error
	switch {
	case len(os.Args) == 3 && os.Args[1] == keepCommand:
		err = RunContainer(os.Args[2])
	case len(os.Args) == 2 && os.Args[1] == becomeCommand:
		err = BecomeProgram()
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
