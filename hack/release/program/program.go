// Package program compiles the programs that are released, so that the same sources and the
// same version of Go make the same bytes in any folder of any machine.
package program

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"vicinity.dev/vicinity/hack/release/source"
)

// Program is one of the programs.
type Program struct {
	Name        string
	Title       string
	Description string
	// User is whom a container runs it as, unless its pod says otherwise.
	User string
}

// nonroot is the user that the chart runs the controller and the DNS server as.
const nonroot = "65532:65532"

// All are the programs that have images.
var All = []Program{
	{"vicinity-controller", "Vicinity controller", "Routes the traffic of Services by topology, keeps budgets by failure domain and leads rollouts", nonroot},
	{"vicinity-proxy", "Vicinity proxy", "Serves Services on a node by topology", "0:0"}, // Kubernetes gives capabilities to nobody else.
	{"vicinity-dns", "Vicinity DNS", "CoreDNS that answers for headless Services with what is near the client", nonroot},
	CommandLine,
}

// CommandLine is also what the archives of the kubectl plugin have.
var CommandLine = Program{"vicinity", "Vicinity command line", "Explains and plans where the traffic of Services goes", nonroot}

// Platform is what a program runs on.
type Platform struct{ OS, Architecture string }

// String is the platform as os/architecture.
func (p Platform) String() string { return p.OS + "/" + p.Architecture }

// Hyphened is the platform in names of files.
func (p Platform) Hyphened() string { return p.OS + "-" + p.Architecture }

// File is the name of the compiled program.
func (p Platform) File(program string) string {
	if p.OS == "windows" {
		return program + ".exe"
	}
	return program
}

// ImagePlatforms are those that images can be for.
var ImagePlatforms = []Platform{{"linux", "amd64"}, {"linux", "arm64"}}

// PluginPlatforms are those that the command line is released for.
var PluginPlatforms = []Platform{{"darwin", "amd64"}, {"darwin", "arm64"}, {"linux", "amd64"}, {"linux", "arm64"}, {"windows", "amd64"}}

// ParsePlatforms reads a list such as linux/amd64,linux/arm64.
func ParsePlatforms(text string) ([]Platform, error) {
	var found []Platform
	given := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		given[strings.TrimSpace(part)] = true
	}
	var known []string
	for _, platform := range ImagePlatforms {
		known = append(known, platform.String())
		if given[platform.String()] {
			found = append(found, platform)
			delete(given, platform.String())
		}
	}
	for unknown := range given {
		return nil, fmt.Errorf("PLATFORMS %q: %q is none that images are made for; write one or more of %s, separated by commas", text, unknown, strings.Join(known, ", "))
	}
	return found, nil
}

// versions is the package whose variables say what a program is built from.
const versions = "vicinity.dev/vicinity/internal/kit/version."

// Compile compiles programs into a folder of their platform, and returns that folder. A program
// that is there and up to date is not linked again.
func Compile(ctx context.Context, s source.Source, programs []Program, platform Platform, folder string) (string, error) {
	b := build{folder: s.Root, out: filepath.Join(folder, platform.Hyphened()), linkerFlags: linkerFlags(s), platform: platform}
	for _, p := range programs {
		b.packages = append(b.packages, "./cmd/"+p.Name)
	}
	if err := b.run(ctx); err != nil {
		return "", fmt.Errorf("building programs for %s: %w", platform, err)
	}
	return b.out, nil
}

func linkerFlags(s source.Source) string {
	flags := "-s -w -X " + versions + "released=" + s.Version + " -X " + versions + "committed=" + s.Time.Format(time.RFC3339)
	if s.Revision != "" {
		flags += " -X " + versions + "revision=" + s.Revision
	}
	return flags
}

// build is one call of the go command.
type build struct {
	folder      string // of the sources
	packages    []string
	out         string // the folder that gets the programs
	linkerFlags string
	platform    Platform
}

func (b build) run(ctx context.Context) error {
	asked := b.goCommand(ctx, "env", "GOEXPERIMENT")
	asked.Stdout = nil
	experiments, err := asked.Output()
	if err != nil {
		return fmt.Errorf("asking the go command for GOEXPERIMENT: %w", err)
	}
	if text := strings.TrimSpace(string(experiments)); text != "" {
		return fmt.Errorf("the go command has GOEXPERIMENT=%s, which makes other programs: take it out by go env -u GOEXPERIMENT", text)
	}
	// It names each package that it compiles, which shows how far it is.
	args := []string{"build", "-v", "-ldflags", b.linkerFlags, "-o", b.out + string(filepath.Separator)}
	return b.goCommand(ctx, append(args, b.packages...)...).Run()
}

// goCommand is a call of the go command that has nothing of the machine's own settings that
// gets into programs. A variable that is empty would be what go env -w wrote.
func (b build) goCommand(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, goProgram(), args...)
	command.Dir = b.folder
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+b.platform.OS, "GOARCH="+b.platform.Architecture,
		"GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=-trimpath -buildvcs=false", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off")
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	return command
}

// goProgram is the go command that make was told to use.
func goProgram() string {
	if name := os.Getenv("GO"); name != "" {
		return name
	}
	return "go"
}
