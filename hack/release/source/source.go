// Package source reads the source of a release: the repository's revision, its time, and the version.
package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
	"sigs.k8s.io/yaml"
)

// Source is the repository of a release.
type Source struct {
	// Root is the folder of the repository.
	Root string
	// Version is the version of the release, without v.
	Version string
	// Revision is the commit, or empty without a history.
	Revision string
	// Time is the time of all files of the release: SOURCE_DATE_EPOCH, or else the commit's. Without
	// both it is in 1970, which only a development build may have.
	Time time.Time
	// Development means that the version is made up, for this machine only.
	Development bool
	// Modified means that there are uncommitted changes.
	Modified bool
}

// epochVariable fixes the time of a release, as reproducible-builds.org specifies.
const epochVariable = "SOURCE_DATE_EPOCH"

// Read reads the repository in a folder. Without a version it makes one up that precedes the one in
// Chart.yaml, which is the next release.
func Read(ctx context.Context, root, version string) (Source, error) {
	if version != "" {
		if err := CheckVersion(version); err != nil {
			return Source{}, err
		}
	}
	s := Source{Root: root, Version: version, Development: version == ""}
	commits := "0"
	revision, noCommit := head(ctx, root)
	if noCommit != nil && version != "" && isRepository(root) {
		// Otherwise the release might differ from the commit.
		return Source{}, fmt.Errorf("reading the commit of %s: %w", root, noCommit)
	}
	if noCommit == nil {
		s.Revision = revision
		status, err := git(ctx, root, "status", "--porcelain", "--untracked-files=normal")
		if err != nil {
			return Source{}, err
		}
		s.Modified = status != ""
		if commits, err = git(ctx, root, "rev-list", "--count", "HEAD"); err != nil {
			return Source{}, err
		}
	}
	var err error
	if s.Time, err = s.readTime(ctx); err != nil {
		return Source{}, err
	}
	if version != "" {
		return s, nil
	}
	s.Version, err = s.developmentVersion(commits)
	return s, err
}

// head returns the commit of a repository. A folder inside another repository has none.
func head(ctx context.Context, root string) (string, error) {
	prefix, err := git(ctx, root, "rev-parse", "--show-prefix")
	if err != nil {
		return "", err
	}
	if prefix != "" {
		return "", fmt.Errorf("it is the folder %s of another repository", prefix)
	}
	return git(ctx, root, "rev-parse", "--verify", "HEAD")
}

func isRepository(root string) bool {
	_, err := os.Stat(filepath.Join(root, ".git"))
	return err == nil
}

// CheckVersion returns an error about a version.
func CheckVersion(version string) error {
	const write = "write a semantic version such as 0.2.0 or 0.2.0-rc.1"
	parsed, err := semver.StrictNewVersion(version)
	switch {
	case strings.HasPrefix(version, "v"):
		return fmt.Errorf("VERSION %q begins with v: %s", version, write)
	case err != nil:
		return fmt.Errorf("VERSION %q: %s", version, write)
	case parsed.Metadata() != "":
		return fmt.Errorf("VERSION %q has build metadata, and the tag of an image cannot have a +: %s", version, write)
	}
	return nil
}

func (s Source) readTime(ctx context.Context) (time.Time, error) {
	text, from := os.Getenv(epochVariable), epochVariable
	if text == "" {
		switch {
		case s.Revision == "" && s.Version == "":
			return time.Unix(0, 0).UTC(), nil
		case s.Revision == "":
			return time.Time{}, fmt.Errorf("%s is not a git repository with a commit, so the release has no time: set %s to seconds since 1970", s.Root, epochVariable)
		}
		var err error
		if text, err = git(ctx, s.Root, "show", "--no-patch", "--no-show-signature", "--format=%ct", "HEAD"); err != nil {
			return time.Time{}, err
		}
		from = "the time of the commit"
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < 0 {
		return time.Time{}, fmt.Errorf("%s is %q: it must be seconds since 1970", from, text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// developmentVersion returns the version of a development build: 0.2.0-dev.1234.g0123456789ab.
func (s Source) developmentVersion(commits string) (string, error) {
	name := filepath.Join(s.Root, "charts", "vicinity", "Chart.yaml")
	text, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("reading the chart's version: %w", err)
	}
	var metadata struct {
		Version string `json:"version"`
	}
	if err := yaml.Unmarshal(text, &metadata); err != nil {
		return "", fmt.Errorf("reading the chart's version in %s: %w", name, err)
	}
	version := metadata.Version + "-dev." + commits
	if s.Revision != "" {
		const digits = 12
		version += ".g" + s.Revision[:min(digits, len(s.Revision))]
	}
	if s.Modified {
		version += ".modified"
	}
	if _, err := semver.StrictNewVersion(version); err != nil {
		return "", fmt.Errorf("the version %q in %s: write a semantic version such as 0.2.0", metadata.Version, name)
	}
	return version, nil
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(string(exit.Stderr)))
		}
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}
