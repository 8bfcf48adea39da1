package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// files shows a process files at paths of its choice. All of it happens in the mount
// namespace of the thread.
//
// A path that is not there cannot be mounted on, and must not be made on the disk of
// the host. So the nearest folder that is there is replaced, for this process, by one
// in memory that shows all that was in the folder; in it the path can be made.
type files struct {
	// scratch is an empty folder, on which the new root is built if it is needed.
	scratch string
	// made are the folders in memory and those made in them.
	made map[string]bool
	// targets are what was mounted.
	targets []string
}

func (f *files) mount(m Mount) error {
	source, err := os.Stat(m.Source)
	if err != nil {
		return err
	}
	target, err := f.make(m.Target, source.IsDir())
	if err != nil {
		return err
	}
	if err := unix.Mount(m.Source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	f.targets = append(f.targets, target)
	if m.ReadOnly {
		// The flag is ignored when the mount is made.
		return unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	return nil
}

// make makes a path where it is missing, and returns it without symbolic links.
func (f *files) make(path string, isDir bool) (string, error) {
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("the path is relative; write one that begins with a slash")
	}
	parent, missing, err := nearest(filepath.Clean(path))
	if err != nil || len(missing) == 0 {
		return parent, err
	}
	if !f.made[parent] && !f.mounted(parent) {
		if err := f.mirror(parent); err != nil {
			return "", fmt.Errorf("making %s appear in %s: %w", missing[0], parent, err)
		}
	}
	for i, name := range missing {
		parent = filepath.Join(parent, name)
		if i == len(missing)-1 && !isDir {
			return parent, create(parent)
		}
		if err := os.Mkdir(parent, 0o755); err != nil {
			return "", err
		}
		f.made[parent] = true
	}
	return parent, nil
}

// nearest splits a path in what is there, without symbolic links, and the names that
// are missing below it.
func nearest(path string) (string, []string, error) {
	var missing []string
	for {
		found, err := filepath.EvalSymlinks(path)
		if err == nil {
			return found, missing, nil
		}
		if !errors.Is(err, fs.ErrNotExist) || path == "/" {
			return "", nil, err
		}
		missing = append([]string{filepath.Base(path)}, missing...)
		path = filepath.Dir(path)
	}
}

// mounted reports whether a folder is in one of the mounts.
func (f *files) mounted(folder string) bool {
	for _, target := range f.targets {
		if folder == target || strings.HasPrefix(folder, target+"/") {
			return true
		}
	}
	return false
}

// mirror replaces a folder by one in memory that shows the same.
func (f *files) mirror(folder string) error {
	old, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer old.Close()
	entries, err := old.ReadDir(-1)
	if err != nil {
		return err
	}
	// The root cannot be mounted on: what is looked up would begin below the mount.
	place := folder
	if folder == "/" {
		place = f.scratch
	}
	if err := unix.Mount("tmpfs", place, "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	for _, entry := range entries {
		// The folder itself is hidden by now, its descriptor still leads there.
		from := fmt.Sprintf("/proc/thread-self/fd/%d/%s", old.Fd(), entry.Name())
		if err := show(from, filepath.Join(place, entry.Name()), entry); err != nil {
			return fmt.Errorf("showing %s: %w", entry.Name(), err)
		}
	}
	f.made[folder] = true
	if folder == "/" {
		return changeRoot(place)
	}
	return nil
}

// show makes an entry of a folder appear at another path.
func show(from, to string, entry fs.DirEntry) error {
	if entry.Type()&fs.ModeSymlink != 0 {
		link, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(link, to)
	}
	var err error
	if entry.IsDir() {
		err = os.Mkdir(to, 0o755)
	} else {
		err = create(to)
	}
	if err != nil {
		return err
	}
	return unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, "")
}

// create makes an empty file.
func create(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}

// changeRoot makes a mount the root of this mount namespace, and lets go of the old
// root, which lies on the same path for a moment.
func changeRoot(root string) error {
	if err := unix.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	return unix.Chdir("/")
}
