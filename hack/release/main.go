// Command release makes the parts of a release: images without a container engine, the packaged chart
// that names them by digest, archives of the kubectl plugin, and their descriptions and checksums. The
// Makefile's targets build, images, package and release run it, so that each program is linked once.
//
// The same commit, built by the same version of Go, gives the same bytes.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/hack/release/image"
	"vicinity.dev/vicinity/hack/release/licences"
	"vicinity.dev/vicinity/hack/release/plugin"
	"vicinity.dev/vicinity/hack/release/program"
	"vicinity.dev/vicinity/hack/release/source"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "release: "+err.Error())
		os.Exit(1)
	}
}

// settings come from the Makefile.
type settings struct {
	root, out, version, platforms string
	registry, address             string
}

func newCommand() *cobra.Command {
	var s settings
	command := &cobra.Command{Use: "release", SilenceUsage: true, SilenceErrors: true}
	flags := command.PersistentFlags()
	flags.StringVar(&s.root, "root", ".", "`FOLDER` of the repository")
	flags.StringVar(&s.out, "out", "", "`FOLDER` to write, whose content is replaced")
	flags.StringVar(&s.version, "version", "", "`VERSION`, made up for development if empty")
	flags.StringVar(&s.platforms, "platforms", "linux/amd64,linux/arm64", "`PLATFORMS` of the images")
	flags.StringVar(&s.registry, "registry", "", "registry and folder of the images, none if empty")
	flags.StringVar(&s.address, "address", "", "`URL` of the folder from which krew fetches archives")
	command.AddCommand(
		&cobra.Command{Use: "programs", Short: "Build the programs of images for this machine", Args: cobra.NoArgs, RunE: s.programs},
		&cobra.Command{Use: "images", Short: "Make images", Args: cobra.NoArgs, RunE: s.run((*release).writeImages)},
		&cobra.Command{Use: "package", Short: "Make images and the chart that names them", Args: cobra.NoArgs, RunE: s.run((*release).writePackage)},
		&cobra.Command{Use: "all", Short: "Make all of a release", Args: cobra.NoArgs, RunE: s.run((*release).writeAll)},
		&cobra.Command{Use: "notices", Short: "Print the licences and notices of all that is linked", Args: cobra.NoArgs, RunE: s.notices},
	)
	return command
}

// run writes into a new folder, which replaces the old one when it is complete.
func (s *settings) run(write func(*release, context.Context) error) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, _ []string) (err error) {
		ctx := command.Context()
		platforms, err := program.ParsePlatforms(s.platforms)
		if err != nil {
			return err
		}
		if s.out == "" {
			return errors.New("--out is empty: write the folder that gets the files")
		}
		s.out = filepath.Clean(s.out)
		if err := errors.Join(checkReplaceable(s.out), image.CheckRegistry(s.registry), plugin.CheckAddress(s.address)); err != nil {
			return err
		}
		from, err := source.Read(ctx, s.root, s.version)
		if err != nil {
			return err
		}
		r := &release{settings: *s, source: from, platforms: platforms, folder: s.out + ".new", say: command.OutOrStdout()}
		if err := os.RemoveAll(r.folder); err != nil {
			return err
		}
		if err := os.MkdirAll(r.folder, 0o755); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(r.folder)) }()
		if err := write(r, ctx); err != nil {
			return err
		}
		return replace(s.out, r.folder)
	}
}

// programs builds the programs for this machine in the folder that images read, and gives the output
// folder links to the same files.
func (s *settings) programs(command *cobra.Command, _ []string) error {
	from, err := source.Read(command.Context(), s.root, s.version)
	if err != nil {
		return err
	}
	if s.out == "" {
		return errors.New("--out is empty: write the folder that gets the programs")
	}
	folder, err := filepath.Abs(filepath.Join(s.out, programsFolder))
	if err != nil {
		return err
	}
	platform := program.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}
	if folder, err = program.Compile(command.Context(), from, program.All, platform, folder); err != nil {
		return err
	}
	for _, p := range program.All {
		name := platform.File(p.Name)
		err = errors.Join(err, share(filepath.Join(folder, name), filepath.Join(s.out, name)))
	}
	return err
}

// notices prints THIRD_PARTY_NOTICES of a release.
func (s *settings) notices(command *cobra.Command, _ []string) error {
	text, err := licences.Notices(s.root)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(command.OutOrStdout(), text)
	return err
}

// share links two names to one file. A process that runs the old file of the second name goes on.
func share(file, as string) error {
	from, err := os.Stat(file)
	if err != nil {
		return err
	}
	// Renaming a file to another name of itself would leave both.
	if to, err := os.Stat(as); err == nil && os.SameFile(from, to) {
		return nil
	}
	if err := os.Remove(as + ".new"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Link(file, as+".new"); err != nil {
		return err
	}
	return os.Rename(as+".new", as)
}

// checkReplaceable returns an error if a folder has a file that no release wrote, since its content will be
// removed.
func checkReplaceable(folder string) error {
	entries, err := os.ReadDir(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && len(entries) == 0:
		return nil
	case err != nil:
		return err
	}
	for _, name := range []string{digestsFile, filepath.Join(imagesFolder, digestsFile)} {
		if _, err := os.Stat(filepath.Join(folder, name)); err == nil {
			return nil
		}
	}
	return fmt.Errorf("--out %s: it has files but no %s of a release, and its content would be removed: write another folder", folder, digestsFile)
}

// replace puts a folder in the place of another, and removes that one. If it is interrupted, the
// folder is complete or missing.
func replace(folder, by string) error {
	before := folder + ".old"
	if err := os.RemoveAll(before); err != nil {
		return err
	}
	if err := os.Rename(folder, before); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(os.Rename(by, folder), os.RemoveAll(before))
}
