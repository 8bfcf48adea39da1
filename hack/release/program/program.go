// Package program compiles the released programs. The same sources and the same version of Go make the
// same bytes in any folder of any machine.
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

// Program is a released program.
type Program struct {
	Name        string
	Title       string
	Description string
	// User is the user of the container, unless its pod names another one.
	User string
	// BindsLowPorts lets that user listen on ports below 1024.
	BindsLowPorts bool
}

// nonroot is the chart's user of the controller and the DNS server.
const nonroot = "65532:65532"

// All are the programs that have images.
var All = []Program{
	{
		Name: "vicinity-controller", Title: "Vicinity controller", User: nonroot,
		Description: "Routes the traffic of Services by topology, keeps budgets by failure domain and leads rollouts",
	},
	{Name: "vicinity-proxy", Title: "Vicinity proxy", Description: "Serves Services on a node by topology", User: "0:0"}, // Kubernetes gives capabilities only to root.
	{
		Name: "vicinity-dns", Title: "Vicinity DNS", User: nonroot, BindsLowPorts: true,
		Description: "CoreDNS that answers for headless Services with endpoints near the client",
	},
	CommandLine,
}

// CommandLine is also in the archives of the kubectl plugin.
var CommandLine = Program{Name: "vicinity", Title: "Vicinity command line", Description: "Explains and plans where the traffic of Services goes", User: nonroot}

// Platform is an operating system and an architecture.
type Platform struct{ OS, Architecture string }

// String returns os/architecture.
func (p Platform) String() string { return p.OS + "/" + p.Architecture }

// Hyphened is the platform in file names.
func (p Platform) Hyphened() string { return p.OS + "-" + p.Architecture }

// File returns the name of the compiled program.
func (p Platform) File(program string) string {
	if p.OS == "windows" {
		return program + ".exe"
	}
	return program
}

// ImagePlatforms are the platforms that images can have.
var ImagePlatforms = []Platform{{"linux", "amd64"}, {"linux", "arm64"}}

// PluginPlatforms are the platforms of the command line's release.
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
		return nil, fmt.Errorf("PLATFORMS %q: images cannot be made for %q; write one or more of %s, separated by commas", text, unknown, strings.Join(known, ", "))
	}
	return found, nil
}

// versions is the package with the variables for the version.
const versions = "vicinity.dev/vicinity/internal/kit/version."

// Compile compiles programs into a folder of their platform, and returns the folder. It does not link
// a program again that is up to date.
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

// build describes one call of go build.
type build struct {
	folder      string // of the sources
	packages    []string
	out         string // folder of the programs
	linkerFlags string
	platform    Platform
}

func (b build) run(ctx context.Context) error {
	env := b.goCommand(ctx, "env", "GOEXPERIMENT")
	env.Stdout = nil
	experiments, err := env.Output()
	if err != nil {
		return fmt.Errorf("reading GOEXPERIMENT from the go command: %w", err)
	}
	if text := strings.TrimSpace(string(experiments)); text != "" {
		return fmt.Errorf("the go command has GOEXPERIMENT=%s, which makes other programs: run go env -u GOEXPERIMENT", text)
	}
	// -v names each compiled package, which shows the progress.
	args := []string{"build", "-v", "-ldflags", b.linkerFlags, "-o", b.out + string(filepath.Separator)}
	return b.goCommand(ctx, append(args, b.packages...)...).Run()
}

// goCommand calls the go command without settings of the machine that affect programs. An empty
// variable would not override go env -w.
func (b build) goCommand(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, goProgram(), args...)
	command.Dir = b.folder
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+b.platform.OS, "GOARCH="+b.platform.Architecture,
		"GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=-trimpath -buildvcs=false", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off")
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	return command
}

// goProgram is the go command of make.
func goProgram() string {
	if name := os.Getenv("GO"); name != "" {
		return name
	}
	return "go"
}
