// Package built finds the programs that make has built, for tests that run them.
package built

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Program returns the path of the first of some programs. It fails if one of them is not in the folder
// bin of the repository that contains the working directory.
func Program(names ...string) (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "charts", "vicinity")); err == nil {
			break
		}
		if folder == filepath.Dir(folder) {
			return "", errors.New("finding the folder bin: the working directory is not in the repository")
		}
		folder = filepath.Dir(folder)
	}
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(folder, "bin", name)); err != nil {
			return "", fmt.Errorf("the test needs the program %s: %w; run make build kubernetes", name, err)
		}
	}
	return filepath.Join(folder, "bin", names[0]), nil
}
