package agent

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/lab/shape"
)

// mount puts a file or folder of the machine somewhere in a container.
type mount struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"readOnly,omitempty"`
}

// oldRoot is where the machine's root is while a container's is made.
const oldRoot = "/.machine"

// makeRoot gives the thread, which is in a mount namespace of its own, a root folder
// that looks like the machine's and where the mounts are. The root is an empty file
// system into which the machine's folders are bound one by one, and so is every folder
// that lacks a mount point: nothing is ever created in a folder of the machine.
func makeRoot(scratch string, mounts []mount) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := leaveNamespaces(); err != nil {
		return err
	}
	// A mount inside another comes after it.
	mounts = slices.SortedStableFunc(slices.Values(mounts), func(a, b mount) int {
		return strings.Count(filepath.Clean(a.Target), "/") - strings.Count(filepath.Clean(b.Target), "/")
	})
	sources, err := openSources(mounts)
	if err != nil {
		return err
	}
	defer closeAll(sources)
	if err := os.MkdirAll(scratch, 0o755); err != nil {
		return err
	}
	r := root{own: map[string]bool{"/": true, "/dev": true}}
	if err := r.assemble(scratch); err != nil {
		return err
	}
	if err := unix.PivotRoot(scratch, scratch+oldRoot); err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	for i, m := range mounts {
		if err := r.mount(sources[i], m.Target); err != nil {
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

// leaveNamespaces drops the names of network namespaces. A mount namespace that held
// them would keep the networks of other pods alive after these are gone.
func leaveNamespaces() error {
	file, err := os.Open("/proc/thread-self/mountinfo")
	if err != nil {
		return err
	}
	defer file.Close()
	var points []string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) > 4 && strings.HasPrefix(fields[4]+"/", shape.NamespaceFolder+"/") {
			points = append(points, fields[4])
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	for _, point := range slices.Backward(points) {
		if err := unix.Unmount(point, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("leaving %s: %w", point, err)
		}
	}
	return nil
}

// openSources holds what is to be mounted before any mount can hide it.
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

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// root is a root folder in the making.
type root struct {
	// own are folders in which names may be created.
	own map[string]bool
}

// assemble makes the new root in a folder.
func (r *root) assemble(scratch string) error {
	if err := mountMemory(scratch, 0o755); err != nil {
		return err
	}
	// A copy of all below the folder would otherwise hold the root in the root.
	if err := unix.Mount("", scratch, "", unix.MS_UNBINDABLE, ""); err != nil {
		return err
	}
	machine, err := os.Open("/")
	if err != nil {
		return err
	}
	defer machine.Close()
	if err := mirror(machine, scratch, "dev"); err != nil {
		return err
	}
	if err := os.Mkdir(scratch+oldRoot, 0o700); err != nil {
		return err
	}
	return makeDevices(scratch + "/dev")
}

// makeDevices makes the few devices that a container has.
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
	// The kernel looks for terminals beside ptmx, where a bound file has nothing beside it.
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

// mount mounts a source, for which there may be no mount point.
func (r *root) mount(source *os.File, target string) error {
	info, err := source.Stat()
	if err != nil {
		return err
	}
	target = filepath.Clean(target)
	if err := r.makePoint(target, info.IsDir()); err != nil {
		return err
	}
	if folder, err := filepath.EvalSymlinks(target); err == nil {
		r.own[folder] = true
	}
	return unix.Mount(descriptorPath(source, ""), target, "", unix.MS_BIND|unix.MS_REC, "")
}

// makePoint makes what is missing of a path.
func (r *root) makePoint(target string, folder bool) error {
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
			if err := r.possess(within); err != nil {
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
			r.own[filepath.Join(within, part)] = true
		}
		at = path
	}
	return nil
}

// possess makes a folder one in which names may be created, by covering it with a mirror.
func (r *root) possess(folder string) error {
	if r.own[folder] {
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
	r.own[folder] = true
	return mirror(below, folder)
}

// mirror binds all that is in a folder to the same names in another.
func mirror(from *os.File, to string, but ...string) error {
	entries, err := from.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if slices.Contains(but, entry.Name()) {
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
		// What went away in between is not missed.
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

// descriptorPath names what is in an open folder even where something covers it.
func descriptorPath(folder *os.File, name string) string {
	return filepath.Join(fmt.Sprintf("/proc/self/fd/%d", folder.Fd()), name)
}
