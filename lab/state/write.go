package state

import (
	"errors"
	"os"
	"path/filepath"
)

// WriteFile writes a file whole or not at all: a reader, and a writer that is killed,
// leave the old content or the new. The file is synced, since what it says may be all
// that finds a process again.
func WriteFile(path string, data []byte, mode os.FileMode) error {
	folder := filepath.Dir(path)
	file, err := os.CreateTemp(folder, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	err = errors.Join(fill(file, data, mode), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

func fill(file *os.File, data []byte, mode os.FileMode) error {
	if _, err := file.Write(data); err != nil {
		return err
	}
	if err := file.Chmod(mode); err != nil {
		return err
	}
	return file.Sync()
}
