package program

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func smallBuild(t *testing.T) build {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":  "module example.org/small\n\ngo 1.26\n",
		"main.go": "package main\n\nvar word string\n\nfunc main() { print(word) }\n",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return build{folder, []string{"."}, filepath.Join(folder, "out"), "-s -w -X main.word=linked", Platform{"linux", runtime.GOARCH}}
}

// setGoEnv makes the go command read a file of go env -w.
func setGoEnv(t *testing.T, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOENV", file)
}

// A program is the same in any folder, and with any settings of the machine.
func TestSameSourcesMakeTheSameProgram(t *testing.T) {
	var made [][]byte
	for _, machine := range []string{"", "GOFLAGS=-tags=other\nGOAMD64=v3\nGOARM64=v8.1\n"} {
		setGoEnv(t, machine)
		b := smallBuild(t)
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(filepath.Join(b.out, "small"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(content, []byte("linked")) || bytes.Contains(content, []byte(b.folder)) {
			t.Error("the program lacks the linker's values, or has the path of its sources")
		}
		made = append(made, content)
	}
	if !bytes.Equal(made[0], made[1]) {
		t.Error("the same sources in two folders make different programs")
	}
}

// Code for the Linux kernel does not compile for other systems.
func TestPluginNeedsNoLinux(t *testing.T) {
	const linux = "vicinity.dev/vicinity/internal/proxy/netlink\n"
	for _, platform := range PluginPlatforms {
		command := exec.CommandContext(t.Context(), goProgram(), "list", "-deps", "./cmd/vicinity")
		command.Dir = "../../.."
		command.Env = append(os.Environ(), "GOOS="+platform.OS, "GOARCH="+platform.Architecture, "GOWORK=off")
		packages, err := command.Output()
		if err != nil {
			t.Fatal(err)
		}
		if has := strings.Contains(string(packages), linux); has != (platform.OS == "linux") {
			t.Errorf("%s: the program contains %s: %t", platform, strings.TrimSpace(linux), has)
		}
	}
}
