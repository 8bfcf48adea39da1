package cri

import (
	"fmt"
	"os"
	"testing"
)

// keeperArgument makes this program a keeper, and becomeArgument the program of a container.
const (
	keeperArgument = "run-keeper"
	becomeArgument = "become"
)

func TestMain(m *testing.M) {
	var err error
	switch {
	case len(os.Args) > 2 && os.Args[1] == keeperArgument:
		err = RunContainer(os.Args[2])
	case len(os.Args) > 3 && os.Args[1] == becomeArgument:
		err = BecomeProgram(os.Args[2], os.Args[3:])
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
