package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"vicinity.dev/vicinity/hack/release/changelog"
	"vicinity.dev/vicinity/hack/release/chart"
	"vicinity.dev/vicinity/hack/release/image"
	"vicinity.dev/vicinity/hack/release/licences"
	"vicinity.dev/vicinity/hack/release/plugin"
	"vicinity.dev/vicinity/hack/release/program"
	"vicinity.dev/vicinity/hack/release/sbom"
	"vicinity.dev/vicinity/hack/release/source"
)

// release is a release in the making.
type release struct {
	settings
	source    source.Source
	platforms []program.Platform
	folder    string
	say       io.Writer
	// digests pin the images, by name.
	digests map[string]string
}

// programsFolder is beside the folder of the release.
const programsFolder = "programs"

// Folders of a release, and the file beside the images.
const (
	imagesFolder  = "images"
	pluginFolder  = "plugin"
	modulesFolder = "sbom"
	digestsFile   = "DIGESTS"
	noticesFile   = "THIRD_PARTY_NOTICES"
)

// writeImages writes only the images.
func (r *release) writeImages(ctx context.Context) error { return r.images(ctx, r.folder) }

// writePackage writes what a lab needs: images, and the chart that names them.
func (r *release) writePackage(ctx context.Context) error {
	if err := r.images(ctx, r.folder); err != nil {
		return err
	}
	_, err := r.chart()
	return err
}

// writeAll writes a complete release.
func (r *release) writeAll(ctx context.Context) error {
	switch {
	case r.version == "":
		return errors.New("VERSION is missing: write a semantic version such as VERSION=0.1.0")
	case r.source.Modified:
		return errors.New("the tree has uncommitted changes, which git status lists: commit them, since a release names its commit")
	}
	text, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	changes, err := changelog.Find(string(text), r.source.Version)
	if err != nil {
		return err
	}
	if changes.Date == "" {
		fmt.Fprintf(r.say, "CHANGELOG.md: section [%s] has no date: write one before you publish\n", r.source.Version)
	}
	notices, err := licences.Notices(r.root)
	if err != nil {
		return err
	}
	if err := r.write(noticesFile, []byte(notices)); err != nil {
		return err
	}
	for _, folder := range []string{imagesFolder, pluginFolder, modulesFolder} {
		if err := os.Mkdir(filepath.Join(r.folder, folder), 0o755); err != nil {
			return err
		}
	}
	if err := r.images(ctx, filepath.Join(r.folder, imagesFolder)); err != nil {
		return err
	}
	packaged, err := r.chart()
	if err != nil {
		return err
	}
	if err := r.plugin(ctx); err != nil {
		return err
	}
	if err := r.write("RELEASE_NOTES.md", []byte(r.notes(changes, filepath.Base(packaged)))); err != nil {
		return err
	}
	return r.sums()
}

func (r *release) write(name string, content []byte) error {
	return os.WriteFile(filepath.Join(r.folder, name), content, 0o644)
}

// compile returns the folder of the compiled programs, which is kept between releases.
func (r *release) compile(ctx context.Context, platform program.Platform, programs ...program.Program) (string, error) {
	folder, err := filepath.Abs(filepath.Join(filepath.Dir(r.out), programsFolder))
	if err != nil {
		return "", err
	}
	return program.Compile(ctx, r.source, programs, platform, folder)
}

// images writes the archives of all images into a folder, and prints them.
func (r *release) images(ctx context.Context, folder string) error {
	folders := map[program.Platform]string{}
	for _, platform := range r.platforms {
		var err error
		if folders[platform], err = r.compile(ctx, platform, program.All...); err != nil {
			return err
		}
	}
	r.digests = map[string]string{}
	table := tabwriter.NewWriter(r.say, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "image\tplatform\tcompressed\tfiles\tdigest")
	var pins strings.Builder
	for _, p := range program.All {
		files := map[program.Platform]string{}
		for _, platform := range r.platforms {
			files[platform] = filepath.Join(folders[platform], platform.File(p.Name))
			if err := r.modules(p, platform, files[platform]); err != nil {
				return err
			}
		}
		set, err := image.New(r.source, p, r.registry, r.platforms, files)
		if err != nil {
			return err
		}
		if _, err := set.Write(folder); err != nil {
			return err
		}
		if err := listImage(table, set); err != nil {
			return err
		}
		digest, err := set.Digest()
		if err != nil {
			return err
		}
		r.digests[p.Name] = digest.String()
		fmt.Fprintf(&pins, "%s@%s\n", set.Repository, digest)
	}
	if err := os.WriteFile(filepath.Join(folder, digestsFile), []byte(pins.String()), 0o644); err != nil {
		return err
	}
	return table.Flush()
}

func listImage(table io.Writer, set image.Set) error {
	name := set.Repository + ":" + set.Version
	for _, one := range set.Images {
		compressed, files, err := one.Sizes()
		if err != nil {
			return err
		}
		digest, err := one.Image.Digest()
		if err != nil {
			return err
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", name, one.Platform, megabytes(compressed), megabytes(files), digest)
	}
	digest, err := set.Digest()
	if err != nil {
		return err
	}
	fmt.Fprintf(table, "%s\tall of them\t\t\t%s\n", name, digest)
	return nil
}

func megabytes(size int64) string { return fmt.Sprintf("%.1f MB", float64(size)/1e6) }

// modules writes the SBOM of a program, if this is a full release.
func (r *release) modules(p program.Program, platform program.Platform, file string) error {
	if _, err := os.Stat(filepath.Join(r.folder, modulesFolder)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	text, err := sbom.Of(r.source, p, platform, file)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s-%s-%s.cdx.json", p.Name, r.source.Version, platform.Hyphened())
	return r.write(filepath.Join(modulesFolder, name), text)
}

func (r *release) chart() (string, error) {
	var images []chart.Image
	for _, name := range chart.Images {
		images = append(images, chart.Image{Name: name, Repository: image.Repository(r.registry, name), Digest: r.digests[name]})
	}
	return chart.Package(r.source, r.folder, images)
}

func (r *release) plugin(ctx context.Context) error {
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return err
	}
	var downloads []plugin.Download
	for _, platform := range program.PluginPlatforms {
		folder, err := r.compile(ctx, platform, program.CommandLine)
		if err != nil {
			return err
		}
		file := filepath.Join(folder, platform.File(program.CommandLine.Name))
		if err := r.modules(program.CommandLine, platform, file); err != nil {
			return err
		}
		name, content, err := plugin.Archive(r.source, platform, file, license)
		if err != nil {
			return fmt.Errorf("packing %s for %s: %w", plugin.Name, platform, err)
		}
		if err := r.write(filepath.Join(pluginFolder, name), content); err != nil {
			return err
		}
		downloads = append(downloads, plugin.Download{Platform: platform, Name: name, Content: content})
	}
	manifest, err := plugin.Krew(r.source, r.address, downloads)
	if err != nil {
		return err
	}
	return r.write(filepath.Join(pluginFolder, "vicinity.yaml"), manifest)
}

func (r *release) notes(changes changelog.Section, packaged string) string {
	var notes strings.Builder
	fmt.Fprintf(&notes, "# Vicinity %s\n\n%s\n## Images\n\nThe chart, %s, names them by these digests, which are the same for all platforms:\n\n", r.source.Version, changes.Text, packaged)
	for _, name := range slices.Sorted(maps.Keys(r.digests)) {
		fmt.Fprintf(&notes, "- `%s:%s@%s`\n", image.Repository(r.registry, name), r.source.Version, r.digests[name])
	}
	notes.WriteString("\n")
	if r.source.Revision != "" {
		fmt.Fprintf(&notes, "Made of commit %s. ", r.source.Revision)
	}
	notes.WriteString(sumsFile + " has the checksums of all files.\n")
	return notes.String()
}

const sumsFile = "SHA256SUMS"

// sums writes the checksums of all files, and prints the checksum of the list.
func (r *release) sums() error {
	var list strings.Builder
	err := fs.WalkDir(os.DirFS(r.folder), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		sum, err := sumOf(filepath.Join(r.folder, name))
		fmt.Fprintf(&list, "%x  %s\n", sum, name)
		return err
	})
	if err != nil {
		return fmt.Errorf("writing the checksums: %w", err)
	}
	fmt.Fprintf(r.say, "\n%s\n%x  %s\n", list.String(), sha256.Sum256([]byte(list.String())), sumsFile)
	return r.write(sumsFile, []byte(list.String()))
}

func sumOf(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return nil, err
	}
	return hash.Sum(nil), nil
}
