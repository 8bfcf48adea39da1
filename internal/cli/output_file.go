package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"vicinity.dev/vicinity/internal/command"
)

// outputFile is a file that a flag may name. It appears, or replaces what was there,
// only when all of it is written: a run that fails destroys no earlier result.
type outputFile struct {
	name   string
	file   *os.File // nil if the flag was not given
	buffer *bufio.Writer
	// temporary is whether file has another name until it is kept.
	temporary bool
}

// createOutput opens the file that a flag names. It is called before the work, which
// may be long, to fail early. input is the file that the work reads, nil if it reads
// none.
func createOutput(flag, name string, input os.FileInfo) (*outputFile, error) {
	if name == "" {
		return &outputFile{}, nil
	}
	if name == "-" {
		return nil, command.UsageErrorf("--%s - is not allowed; it must be the name of a file", flag)
	}
	existing, err := os.Stat(name)
	switch {
	case err == nil && existing.IsDir():
		return nil, command.UsageErrorf("--%s %s is a directory; it must be the name of a file", flag, name)
	case err == nil && input != nil && os.SameFile(existing, input):
		return nil, command.UsageErrorf("--%s %s is the file that is read; it would be lost", flag, name)
	}
	if err == nil && !existing.Mode().IsRegular() {
		// A device or a pipe cannot be replaced, only written to.
		file, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		return &outputFile{name: name, file: file, buffer: bufio.NewWriter(file)}, nil
	}
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	}
	mode := os.FileMode(0o644)
	if existing != nil {
		mode = existing.Mode().Perm()
		if file, err := os.OpenFile(name, os.O_WRONLY, 0); err != nil {
			return nil, err // it is there and may not be written
		} else if err := file.Close(); err != nil {
			return nil, err
		}
	}
	file, err := os.OpenFile(fmt.Sprintf("%s.%d.partial", name, os.Getpid()), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		// Users know the file by the name that they gave.
		if failed := (*os.PathError)(nil); errors.As(err, &failed) {
			failed.Path = name
		}
		return nil, err
	}
	return &outputFile{name: name, file: file, buffer: bufio.NewWriter(file), temporary: true}, nil
}

// inputInfo identifies the file that a flag names as input, or standard input where
// the name is "-". It is nil if there is no such file.
func inputInfo(name string, stdin io.Reader) os.FileInfo {
	if name != "-" {
		info, err := os.Stat(name)
		if err != nil {
			return nil
		}
		return info
	}
	if file, ok := stdin.(*os.File); ok {
		if info, err := file.Stat(); err == nil {
			return info
		}
	}
	return nil
}

func (f *outputFile) wanted() bool { return f.name != "" }

func (f *outputFile) Write(b []byte) (int, error) {
	return f.buffer.Write(b)
}

// keep ends the writing and puts the file into place.
func (f *outputFile) keep() error {
	if f.file == nil {
		return nil
	}
	written := f.file.Name()
	err := errors.Join(f.buffer.Flush(), f.file.Close())
	f.file = nil
	switch {
	case !f.temporary:
		return err
	case err != nil:
		return errors.Join(err, os.Remove(written))
	}
	return os.Rename(written, f.name)
}

// discard drops what was written, unless it was kept.
func (f *outputFile) discard() {
	if f.file == nil {
		return
	}
	// An earlier error is reported already.
	_ = f.file.Close()
	if f.temporary {
		_ = os.Remove(f.file.Name())
	}
	f.file = nil
}
