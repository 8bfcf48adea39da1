package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/command"
)

// version is what the program knows about the way it was built.
type version struct {
	Version  string `json:"version"` // of the module, or "devel"
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"` // of the revision
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func newVersionCommand(s command.Streams) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version and how it was built",
		Args:  command.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			info, _ := debug.ReadBuildInfo()
			return printVersion(s.Out, versionOf(info), output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "`FORMAT` of the output: text or json")
	return cmd
}

// versionOf reads the version from build info, which is nil in a program built
// without modules.
func versionOf(info *debug.BuildInfo) version {
	v := version{
		Version:  "devel",
		Go:       runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if info == nil {
		return v
	}
	v.Go = info.GoVersion
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		v.Version = info.Main.Version
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			v.Revision = setting.Value
		case "vcs.time":
			v.Time = setting.Value
		case "vcs.modified":
			v.Modified = setting.Value == "true"
		}
	}
	if v.Revision != "" && strings.Contains(v.Version, v.shortRevision()) {
		// The go command makes a version up for a build that is between releases.
		v.Version = "devel"
	}
	return v
}

// shortRevision is as much of the revision as people know it by.
func (v version) shortRevision() string {
	const digits = 12
	return v.Revision[:min(digits, len(v.Revision))]
}

func printVersion(out io.Writer, v version, output string) error {
	switch output {
	case "text":
		_, err := fmt.Fprintln(out, v)
		return err
	case "json":
		return encodeJSON(out, v)
	}
	return command.UsageErrorf("--output %q is unknown; it must be text or json", output)
}

// String is the version on one line.
func (v version) String() string {
	var source []string
	if v.Revision != "" {
		source = append(source, "revision "+v.shortRevision())
	}
	if v.Time != "" {
		source = append(source, "committed "+v.Time)
	}
	if v.Modified {
		source = append(source, "modified")
	}
	parts := []string{"vicinity", v.Version}
	if len(source) > 0 {
		parts = append(parts, "("+strings.Join(source, ", ")+")")
	}
	return strings.Join(append(parts, v.Go, v.Platform), " ")
}
