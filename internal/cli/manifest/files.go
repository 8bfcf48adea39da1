package manifest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"vicinity.dev/vicinity/internal/kit/command"
)

// ReadFiles calls read with each file, the files of each directory, and standard input for "-".
func ReadFiles(ctx context.Context, stdin io.Reader, names []string, read func(name string, from io.Reader) error) error {
	if len(names) == 0 {
		return command.UsageErrorf("no manifests are given; -f names a file, a directory, or - for standard input")
	}
	for i, name := range names {
		var err error
		if name == "-" {
			if slices.Contains(names[:i], name) {
				return command.UsageErrorf("-f - is given twice; standard input can be read only once")
			}
			err = read("standard input", command.Interruptible(ctx, stdin))
		} else {
			err = readManifests(name, read)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readManifests reads a file, or all manifests of a directory.
func readManifests(name string, read func(name string, from io.Reader) error) error {
	info, err := os.Stat(name)
	if err != nil {
		return fmt.Errorf("reading manifests: %w", err)
	}
	if !info.IsDir() {
		return readManifest(name, read)
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return fmt.Errorf("reading manifests: %w", err)
	}
	found := false
	for _, entry := range entries {
		if entry.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(entry.Name())) {
			continue
		}
		found = true
		if err := readManifest(filepath.Join(name, entry.Name()), read); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("reading manifests: directory %s has no .yaml, .yml or .json file", name)
	}
	return nil
}

func readManifest(name string, read func(name string, from io.Reader) error) (err error) {
	file, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("reading manifests: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return read(name, file)
}
