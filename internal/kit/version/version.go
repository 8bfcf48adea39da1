// Package version says which version a program is and how it was built.
//
// A release has its version and revision from the linker, since its programs are built
// without a look at version control, so that the same sources make the same bytes. Any
// other program has what the go command wrote into it.
package version

import (
	"runtime"
	"runtime/debug"
	"strings"
)

// What the linker writes into the programs of a release, by -X.
var (
	released  string // the version, without v
	revision  string
	committed string // the time of the revision
)

// Unknown is the version of a program that is no release.
const Unknown = "devel"

// Build is what a program knows about the way it was built.
type Build struct {
	Version  string `json:"version"` // of the release or the module, or Unknown
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"` // of the revision
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Released is the version that this program was released as, and that of the chart packaged with it; empty in a
// program that is no release.
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

// Of reads build info, which is nil in a program built without modules.
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
		// The go command makes a version up for a build that is between releases.
		b.Version = Unknown
	}
	return b
}

// shortRevision is as much of the revision as people know it by.
func (b Build) shortRevision() string {
	const digits = 12
	return b.Revision[:min(digits, len(b.Revision))]
}

// String is all of it on one line.
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
