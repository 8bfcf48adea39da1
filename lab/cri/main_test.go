package cri

import (
	"fmt"
	"os"
	"testing"
)

// keeperArgument makes this program a keeper.
const keeperArgument = "run-keeper"

func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != keeperArgument {
		os.Exit(m.Run())
	}
	if err := RunContainer(os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
