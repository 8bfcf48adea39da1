// Package version reports the version of a program and how it was built.
//
// A release gets its version and revision from the linker: its programs are built without version control, so that the same sources
// give the same bytes. Other programs use the build info of the go command.
package version

import (
	"runtime"
	"runtime/debug"
	"strings"
)

// Set by the linker in the programs of a release, with -X.
var (
	released  string // the version, without v
	revision  string
	committed string // the time of the revision
)

// Unknown is the version of a program that is not a release.
const Unknown = "devel"

// Build describes how a program was built.
type Build struct {
	Version  string `json:"version"` // of the release or the module, or Unknown
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"` // of the revision
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Released is the version of the release and of its chart. It is empty in other programs.
func Released() string { return released }

// Read returns how this program was built.
func Read() Build {
	info, _ := debug.ReadBuildInfo()
	b := Of(info)
	if released != "" {
		b.Version, b.Revision, b.Time, b.Modified = released, revision, committed, false
	}
	return b
}

// Of reads build info. It is nil in a program built without modules.
func Of(info *debug.BuildInfo) Build {
	b := Build{
		Version:  Unknown,
		Go:       runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if info == nil {
		return b
	}
	b.Go = info.GoVersion
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		b.Version = info.Main.Version
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.Revision = setting.Value
		case "vcs.time":
			b.Time = setting.Value
		case "vcs.modified":
			b.Modified = setting.Value == "true"
		}
	}
	if b.Revision != "" && strings.Contains(b.Version, b.shortRevision()) {
		// The go command invents a version for a build between releases.
		b.Version = Unknown
	}
	return b
}

func (b Build) shortRevision() string {
	const digits = 12
	return b.Revision[:min(digits, len(b.Revision))]
}

// String formats the build on one line.
func (b Build) String() string {
	var source []string
	if b.Revision != "" {
		source = append(source, "revision "+b.shortRevision())
	}
	if b.Time != "" {
		source = append(source, "committed "+b.Time)
	}
	if b.Modified {
		source = append(source, "modified")
	}
	parts := []string{b.Version}
	if len(source) > 0 {
		parts = append(parts, "("+strings.Join(source, ", ")+")")
	}
	return strings.Join(append(parts, b.Go, b.Platform), " ")
}
