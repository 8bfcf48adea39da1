package state

import (
	"errors"
	"os"
	"path/filepath"
)

// WriteFile writes and syncs a file atomically. It syncs since a process may be found only by its
// record.
func WriteFile(path string, data []byte, mode os.FileMode) error {
	return replace(path, data, mode, (*os.File).Sync)
}

// ReplaceFile is WriteFile without sync, for files that need not survive a crash of the machine.
func ReplaceFile(path string, data []byte, mode os.FileMode) error {
	return replace(path, data, mode, func(*os.File) error { return nil })
}

func replace(path string, data []byte, mode os.FileMode, sync func(*os.File) error) error {
	folder := filepath.Dir(path)
	file, err := os.CreateTemp(folder, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	err = errors.Join(fill(file, data, mode), sync(file), file.Close())
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
	return file.Chmod(mode)
}
