package rig

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The control plane that make test shares has the shape of one that a test starts for itself.
func TestSharedControlPlaneHasTheSameShape(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`bin/vicinity-lab (up .*--control-plane-only.*)`).FindSubmatch(makefile)
	if command == nil {
		t.Fatal("the Makefile brings up no control plane")
	}
	flags := func(command string) []string {
		found := strings.Split(strings.ReplaceAll(command, "=", " "), " --")
		slices.Sort(found)
		return slices.DeleteFunc(found, func(flag string) bool { return strings.HasPrefix(flag, "name ") })
	}
	if got, want := flags(string(command[1])), flags(strings.Join(up, " ")); !slices.Equal(got, want) {
		t.Errorf("the Makefile brings it up with %q, this package with %q", got, want)
	}
}
