// Package state is the folder in which a lab keeps all that it writes: what it looks
// like, its keys, its logs, the records of its processes, and etcd's data.
//
// A lab is a folder below a root, by its name. Nothing of a lab is elsewhere on disk,
// so that removing the folder removes the lab, and what the folder says is enough for
// another process to take the lab over: a command that ends leaves nothing in memory
// that the next one would miss. The package knows paths, and writes so that a reader
// never sees half a file; what is in the files is for those who make them.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/lab/shape"
)

// ErrNotFound says that there is no lab of a name.
var ErrNotFound = errors.New("there is no such lab")

// Lab is what a lab says about itself, in lab.json.
type Lab struct {
	// Version is that of the program that made the lab.
	Version string `json:"version"`
	// Kubernetes is the program that runs the lab's components.
	Kubernetes string      `json:"kubernetes,omitempty"`
	Created    time.Time   `json:"created"`
	Shape      shape.Shape `json:"shape"`
	// Port is where the API is reached on 127.0.0.1 of the host.
	Port int `json:"port,omitempty"`
	// Up is set once all of the lab was started. A lab that is not up was
	// interrupted in the middle, and is to be taken down before it is used.
	Up bool `json:"up,omitempty"`
	// NextIndex is the lowest index that no node ever had.
	NextIndex int `json:"nextIndex,omitempty"`
}

// Dir is the state folder of a lab.
type Dir struct {
	path string
}

// The names in a state folder.
const (
	labFile        = "lab.json"
	lockFile       = "lock"
	kubeconfigFile = "kubeconfig"
	pkiFolder      = "pki"
	confFolder     = "conf"
	logsFolder     = "logs"
	runFolder      = "run"
	etcdFolder     = "etcd"
	podsFolder     = "pods"
)

// folders are those that Create makes.
var folders = []string{pkiFolder, confFolder, logsFolder, runFolder, podsFolder}

// DefaultRoot is where labs are kept: $VICINITY_LAB_DIR, or else vicinity/lab in the
// folder that the system has for the state of programs.
func DefaultRoot() (string, error) {
	if root := os.Getenv("VICINITY_LAB_DIR"); root != "" {
		return filepath.Abs(root)
	}
	// A relative path in the variable is to be ignored, says its specification.
	if base := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "vicinity", "lab"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("finding a folder for the lab's state: %w; set VICINITY_LAB_DIR to one", err)
	}
	return filepath.Join(home, ".local", "state", "vicinity", "lab"), nil
}

// At is the state folder with a path. It may or may not be there.
func At(path string) Dir { return Dir{path: filepath.Clean(path)} }

// Create makes the state folder of the lab with a name, or what it lacks.
func Create(root, name string) (Dir, error) {
	d, err := named(root, name)
	if err != nil {
		return Dir{}, err
	}
	return d, d.create()
}

func (d Dir) create() error {
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return fmt.Errorf("making the state folder of lab %q: %w", d.Name(), err)
	}
	// The lock comes first: it marks the folder as a lab's.
	lock, err := os.OpenFile(d.join(lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("making the state folder of lab %q: %w", d.Name(), err)
	}
	if err := lock.Close(); err != nil {
		return fmt.Errorf("making the state folder of lab %q: %w", d.Name(), err)
	}
	for _, folder := range folders {
		if err := os.MkdirAll(d.join(folder), 0o700); err != nil {
			return fmt.Errorf("making the state folder of lab %q: %w", d.Name(), err)
		}
	}
	return nil
}

// Open finds the state folder of the lab with a name, also of one that was made or
// removed by half. Without one the error is ErrNotFound.
func Open(root, name string) (Dir, error) {
	d, err := named(root, name)
	if err != nil {
		return Dir{}, err
	}
	if _, err := os.Stat(d.path); errors.Is(err, fs.ErrNotExist) {
		return Dir{}, fmt.Errorf("lab %q: %w in %s", name, ErrNotFound, root)
	} else if err != nil {
		return Dir{}, fmt.Errorf("opening lab %q: %w", name, err)
	}
	return d, nil
}

// List finds all labs below a root, by name.
func List(root string) ([]Dir, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("listing labs: %w", err)
	}
	var labs []Dir
	for _, entry := range entries {
		if d := At(filepath.Join(root, entry.Name())); entry.IsDir() && d.isLab() {
			labs = append(labs, d)
		}
	}
	return labs, nil
}

func named(root, name string) (Dir, error) {
	if err := shape.ValidateName(name); err != nil {
		return Dir{}, err
	}
	abs, err := filepath.Abs(root)
	if err != nil {
		return Dir{}, fmt.Errorf("finding the folder of lab %q: %w", name, err)
	}
	return At(filepath.Join(abs, name)), nil
}

// isLab reports whether the folder is one that Create made, whole or in part.
func (d Dir) isLab() bool {
	for _, file := range []string{lockFile, labFile} {
		if info, err := os.Lstat(d.join(file)); err == nil && info.Mode().IsRegular() {
			return true
		}
	}
	return false
}

// Path is the folder itself.
func (d Dir) Path() string { return d.path }

// Name is the lab's.
func (d Dir) Name() string { return filepath.Base(d.path) }

// PKI is the path of a file with a key or a certificate, or of their folder when the
// name is empty.
func (d Dir) PKI(file string) string { return d.join(pkiFolder, file) }

// Kubeconfig is the administrator's, for use on the host.
func (d Dir) Kubeconfig() string { return d.join(kubeconfigFile) }

// Conf is the path of a file of configuration, or of their folder when the name is
// empty.
func (d Dir) Conf(file string) string { return d.join(confFolder, file) }

// ComponentKubeconfig is the kubeconfig with which a component reaches the API from
// inside the lab.
func (d Dir) ComponentKubeconfig(component string) string {
	return d.Conf(component + ".kubeconfig")
}

// Log is where the output of a process goes.
func (d Dir) Log(process string) string { return d.join(logsFolder, process+".log") }

// Run is the folder of the records of processes.
func (d Dir) Run() string { return d.join(runFolder) }

// Record is the record of a process.
func (d Dir) Record(process string) string { return d.join(runFolder, process+".json") }

// Etcd is the folder of etcd's data.
func (d Dir) Etcd() string { return d.join(etcdFolder) }

// Pods is the folder of the folders of pods.
func (d Dir) Pods() string { return d.join(podsFolder) }

// Pod is the folder of the volumes, logs and notes of the pod with a UID.
func (d Dir) Pod(uid string) string { return d.join(podsFolder, uid) }

func (d Dir) join(parts ...string) string {
	return filepath.Join(append([]string{d.path}, parts...)...)
}

// Save writes what the lab says about itself.
func (d Dir) Save(lab Lab) error {
	data, err := json.MarshalIndent(lab, "", "  ")
	if err != nil {
		return fmt.Errorf("saving lab %q: %w", d.Name(), err)
	}
	if err := WriteFile(d.join(labFile), append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("saving lab %q: %w", d.Name(), err)
	}
	return nil
}

// Load reads what Save wrote. Where nothing was saved the error is fs.ErrNotExist.
func (d Dir) Load() (Lab, error) {
	data, err := os.ReadFile(d.join(labFile))
	if err != nil {
		return Lab{}, fmt.Errorf("loading lab %q: %w", d.Name(), err)
	}
	var lab Lab
	if err := json.Unmarshal(data, &lab); err != nil {
		return Lab{}, fmt.Errorf("loading lab %q: reading %s: %w", d.Name(), d.join(labFile), err)
	}
	return lab, nil
}

// Remove removes the folder with all in it. A folder that is not a lab's is left
// alone, with an error. What marks the folder as a lab's goes last, so that a removal
// that was interrupted can be done again.
func (d Dir) Remove() error {
	entries, err := os.ReadDir(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("removing lab %q: %w", d.Name(), err)
	}
	if len(entries) > 0 && !d.isLab() {
		return fmt.Errorf("removing lab %q: %s holds no %s, so it is not the folder of a lab; remove it by hand if it is",
			d.Name(), d.path, labFile)
	}
	last := []string{labFile, lockFile}
	for _, entry := range entries {
		if slices.Contains(last, entry.Name()) {
			continue
		}
		if err := os.RemoveAll(d.join(entry.Name())); err != nil {
			return fmt.Errorf("removing lab %q: %w", d.Name(), err)
		}
	}
	for _, name := range last {
		if err := os.Remove(d.join(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing lab %q: %w", d.Name(), err)
		}
	}
	// Someone who waited for the lock may have begun the next lab of this name.
	err = os.Remove(d.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
		return fmt.Errorf("removing lab %q: %w", d.Name(), err)
	}
	return nil
}
