package cri

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

type mount struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// OfImage protects the source: mount points inside it are made in a copy.
	OfImage bool `json:"ofImage,omitempty"`
}

// oldRoot is the place of the machine's root while the container's root is made.
const oldRoot = "/.machine"

// rootImage is the folder of an image's files, if any. The container has them over the machine's
// files, or alone.
type rootImage struct {
	folder string
	alone  bool
}

// makeRoot gives the thread, which is in its own mount namespace, a root that looks like the
// machine's, with the files of an image's folder and the mounts. The new root is an empty file system.
// The machine's folders are bound into it one by one, and a folder that lacks a mount point is
// mirrored the same way: nothing is created in the machine's folders. For an image that is alone, its
// own folders are bound instead, read-only, and of the machine only /dev, /proc and /sys.
func makeRoot(scratch string, image rootImage, mounts []mount) error {
	r := &root{writable: map[string]bool{"/": true, "/dev": true}}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	// A mount comes before the mounts inside it.
	mounts = slices.SortedStableFunc(slices.Values(mounts), func(a, b mount) int {
		return strings.Count(filepath.Clean(a.Target), "/") - strings.Count(filepath.Clean(b.Target), "/")
	})
	sources, err := openSources(mounts)
	if err != nil {
		return err
	}
	defer closeAll(sources)
	files, err := openFolder(image.folder)
	if err != nil {
		return err
	}
	defer closeAll(files)
	if err := os.MkdirAll(scratch, 0o755); err != nil {
		return err
	}
	if err := assemble(scratch, image); err != nil {
		return err
	}
	if image.alone {
		files = nil
	}
	if err := unix.PivotRoot(scratch, scratch+oldRoot); err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	for _, folder := range files {
		if err := r.copyFiles(os.DirFS(descriptorPath(folder, ""))); err != nil {
			return fmt.Errorf("copying %s: %w", folder.Name(), err)
		}
	}
	for i, m := range mounts {
		if err := r.mount(sources[i], m); err != nil {
			return fmt.Errorf("mounting %s: %w", m.Target, err)
		}
	}
	for _, m := range mounts {
		if m.ReadOnly {
			if err := unix.Mount("", m.Target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
				return fmt.Errorf("making %s read-only: %w", m.Target, err)
			}
		}
	}
	if err := unix.Unmount(oldRoot, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leaving the machine's root: %w", err)
	}
	return os.Remove(oldRoot)
}

// openSources opens the sources of mounts, which later mounts may cover.
func openSources(mounts []mount) ([]*os.File, error) {
	var files []*os.File
	for _, m := range mounts {
		fd, err := unix.Open(m.Source, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			closeAll(files)
			return nil, fmt.Errorf("opening %s to mount it: %w", m.Source, err)
		}
		files = append(files, os.NewFile(uintptr(fd), m.Source))
	}
	return files, nil
}

func openFolder(path string) ([]*os.File, error) {
	if path == "" {
		return nil, nil
	}
	return openSources([]mount{{Source: path}})
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

type root struct {
	// writable are the folders in which names may be created.
	writable map[string]bool
}

func assemble(scratch string, image rootImage) error {
	if err := mountMemory(scratch, 0o755); err != nil {
		return err
	}
	// Without this a recursive bind would put the new root inside itself.
	if err := unix.Mount("", scratch, "", unix.MS_UNBINDABLE, ""); err != nil {
		return err
	}
	fill := bindMachine
	if image.alone {
		fill = image.bind
	}
	if err := fill(scratch); err != nil {
		return err
	}
	if err := os.Mkdir(scratch+oldRoot, 0o700); err != nil {
		return err
	}
	return makeDevices(scratch + "/dev")
}

// bindMachine fills a root with the machine's files except devices.
func bindMachine(scratch string) error {
	machine, err := os.Open("/")
	if err != nil {
		return err
	}
	defer machine.Close()
	return mirror(machine, scratch, "dev")
}

// kernelFolders are the kernel's folders, which every container has.
var kernelFolders = []string{"proc", "sys"}

// bind fills a root with the image's files, which containers share and cannot change, and the kernel's
// folders.
func (i rootImage) bind(scratch string) error {
	folder, err := os.Open(i.folder)
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := mirror(folder, scratch, append([]string{"dev"}, kernelFolders...)...); err != nil {
		return err
	}
	entries, err := os.ReadDir(scratch)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Type()&fs.ModeSymlink != 0 {
			continue
		}
		if err := unix.Mount("", filepath.Join(scratch, entry.Name()), "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("making %s read-only: %w", entry.Name(), err)
		}
	}
	for _, name := range kernelFolders {
		if err := bindFolder("/"+name, filepath.Join(scratch, name)); err != nil {
			return fmt.Errorf("binding /%s: %w", name, err)
		}
	}
	return nil
}

func makeDevices(dev string) error {
	if err := os.Mkdir(dev, 0o755); err != nil {
		return err
	}
	if err := mountMemory(dev, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		if err := bindFile("/dev/"+name, filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	if err := bindFolder("/dev/pts", filepath.Join(dev, "pts")); err != nil {
		return err
	}
	// The kernel looks for terminals in the folder of ptmx, so ptmx must be a link into pts.
	for name, target := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(target, filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	shm := filepath.Join(dev, "shm")
	if err := os.Mkdir(shm, 0o1777); err != nil {
		return err
	}
	return mountMemory(shm, 0o1777)
}

func (r *root) mount(source *os.File, m mount) error {
	info, err := source.Stat()
	if err != nil {
		return err
	}
	target := filepath.Clean(m.Target)
	if err := r.makeMountPoint(target, info.IsDir()); err != nil {
		return err
	}
	if folder, err := filepath.EvalSymlinks(target); err == nil {
		r.writable[folder] = !m.OfImage
	}
	return unix.Mount(descriptorPath(source, ""), target, "", unix.MS_BIND|unix.MS_REC, "")
}

func (r *root) makeMountPoint(target string, folder bool) error {
	at := "/"
	for part := range strings.SplitSeq(strings.Trim(target, "/"), "/") {
		path := filepath.Join(at, part)
		_, err := os.Stat(path)
		switch {
		case err == nil:
		case !errors.Is(err, fs.ErrNotExist):
			return err
		default:
			within, err := filepath.EvalSymlinks(at)
			if err != nil {
				return err
			}
			if err := r.makeWritable(within); err != nil {
				return err
			}
			if path == target && !folder {
				err = os.WriteFile(path, nil, 0o644)
			} else {
				err = os.Mkdir(path, 0o755)
			}
			if err != nil {
				return err
			}
			r.writable[filepath.Join(within, part)] = true
		}
		at = path
	}
	return nil
}

// copyFiles copies files into the root, in place of the machine's. It does not bind them: a
// container could not rename or remove a mount point.
func (r *root) copyFiles(from fs.FS) error {
	return fs.WalkDir(from, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		target := "/" + name
		if entry.IsDir() {
			return r.copyFolder(target, entry)
		}
		if err := r.removeExisting(target); err != nil {
			return err
		}
		if entry.Type()&fs.ModeSymlink != 0 {
			link, err := fs.ReadLink(from, name)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		}
		return copyFile(from, name, target)
	})
}

// copyFolder makes a folder that the machine lacks. Other folders stay the machine's until a file is
// put into them: a root file system has an empty proc.
func (r *root) copyFolder(target string, entry fs.DirEntry) error {
	if _, err := os.Stat(target); err == nil {
		return nil
	}
	if err := r.makeMountPoint(target, true); err != nil {
		return err
	}
	info, err := entry.Info()
	if err != nil {
		return err
	}
	return os.Chmod(target, info.Mode().Perm())
}

// removeExisting removes the old entry that a file replaces. In a mirrored folder, that is a mount.
func (r *root) removeExisting(target string) error {
	within, err := filepath.EvalSymlinks(filepath.Dir(target))
	if err != nil {
		return err
	}
	if err := r.makeWritable(within); err != nil {
		return err
	}
	if err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func copyFile(from fs.FS, name, target string) error {
	source, err := from.Open(name)
	if err != nil {
		return err
	}
	defer source.Close()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is of type %s: an image has files, folders and links", name, info.Mode().Type())
	}
	made, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(made, source)
	return errors.Join(err, made.Chmod(info.Mode().Perm()), made.Close())
}

// makeWritable covers a folder with a mirror of itself in which names can be created.
func (r *root) makeWritable(folder string) error {
	if r.writable[folder] {
		return nil
	}
	below, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer below.Close()
	info, err := below.Stat()
	if err != nil {
		return err
	}
	if err := mountMemory(folder, info.Mode().Perm()); err != nil {
		return err
	}
	r.writable[folder] = true
	return mirror(below, folder)
}

// mirror binds the entries of a folder into another under the same names, except excluded ones.
func mirror(from *os.File, to string, excluded ...string) error {
	entries, err := from.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if slices.Contains(excluded, entry.Name()) {
			continue
		}
		source, target := descriptorPath(from, entry.Name()), filepath.Join(to, entry.Name())
		switch {
		case entry.IsDir():
			err = bindFolder(source, target)
		case entry.Type()&fs.ModeSymlink != 0:
			var link string
			if link, err = os.Readlink(source); err == nil {
				err = os.Symlink(link, target)
			}
		default:
			err = bindFile(source, target)
		}
		// An entry may have been removed in the meantime.
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("mirroring %s: %w", target, err)
		}
	}
	return nil
}

func bindFolder(source, target string) error {
	if err := os.Mkdir(target, 0o755); err != nil {
		return err
	}
	return unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, "")
}

func bindFile(source, target string) error {
	if err := os.WriteFile(target, nil, 0o644); err != nil {
		return err
	}
	return unix.Mount(source, target, "", unix.MS_BIND, "")
}

func mountMemory(folder string, mode fs.FileMode) error {
	if err := unix.Mount("vicinity", folder, "tmpfs", unix.MS_NOSUID, fmt.Sprintf("mode=%o", mode)); err != nil {
		return fmt.Errorf("mounting a file system in memory: %w", err)
	}
	return nil
}

// descriptorPath returns a path of an entry of an open folder. It works even if a mount covers
// the folder.
func descriptorPath(folder *os.File, name string) string {
	return filepath.Join(fmt.Sprintf("/proc/self/fd/%d", folder.Fd()), name)
}
