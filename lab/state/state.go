// Package state is the folder of a lab's files: its description, keys, logs, records of processes,
// and etcd's data.
//
// The folder has the lab's name and is below a root. The lab has no other files, so removing the
// folder removes them all, and any process can take over the lab from its folder. The package
// knows the paths, and writes files so that readers never see a part of one. Except for lab.json
// and the lock it does not interpret them.
package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/lab/image"
	"vicinity.dev/vicinity/lab/shape"
)

// ErrNotFound means that no lab has a name.
var ErrNotFound = errors.New("there is no such lab")

// Lab is the content of lab.json.
type Lab struct {
	// Kubernetes is the program that runs the lab's components.
	Kubernetes string      `json:"kubernetes,omitempty"`
	Created    time.Time   `json:"created"`
	Shape      shape.Shape `json:"shape"`
	// Images are additional images for containers.
	Images image.Map `json:"images,omitempty"`
	// Port is the port of the API on the host's 127.0.0.1.
	Port int `json:"port,omitempty"`
	// Up means that the lab has started completely. A lab that is not up must be removed first.
	Up bool `json:"up,omitempty"`
	// NextIndex is the lowest index that no node has ever had.
	NextIndex int `json:"nextIndex,omitempty"`
	// Impaired has the zones with an impaired uplink.
	Impaired map[string]shape.Impairment `json:"impaired,omitempty"`
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
	nodesFolder    = "nodes"
	volumesFolder  = "volumes"
	imagesFolder   = "images"
)

var folders = []string{pkiFolder, confFolder, logsFolder, runFolder, podsFolder, nodesFolder}

// DefaultRoot returns $VICINITY_LAB_DIR, or vicinity/lab in the XDG folder for the state of
// programs.
func DefaultRoot() (string, error) {
	if root := os.Getenv("VICINITY_LAB_DIR"); root != "" {
		return filepath.Abs(root)
	}
	// The XDG specification says to ignore a relative path.
	if base := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "vicinity", "lab"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("finding a folder for the lab's state: %w; set VICINITY_LAB_DIR to one", err)
	}
	return filepath.Join(home, ".local", "state", "vicinity", "lab"), nil
}

// At returns the state folder with a path. It need not exist.
func At(path string) Dir { return Dir{path: filepath.Clean(path)} }

// Create makes the state folder of a lab and its subfolders, unless they exist.
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
	// The lock file comes first, since it marks the folder as a lab's.
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

// Open finds the state folder of a lab, even an incomplete one. If it does not exist, the error is
// ErrNotFound.
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

// isLab reports whether Create made the folder, at least in part.
func (d Dir) isLab() bool {
	for _, file := range []string{lockFile, labFile} {
		if info, err := os.Lstat(d.join(file)); err == nil && info.Mode().IsRegular() {
			return true
		}
	}
	return false
}

// Path returns the path of the folder itself. The methods below return paths in it.
func (d Dir) Path() string { return d.path }

// Name returns the lab's name.
func (d Dir) Name() string { return filepath.Base(d.path) }

// PKI is the path of a key or certificate, or of their folder if the name is empty.
func (d Dir) PKI(file string) string { return d.join(pkiFolder, file) }

// Kubeconfig is the administrator's kubeconfig, for use on the host.
func (d Dir) Kubeconfig() string { return d.join(kubeconfigFile) }

// Conf is the path of a configuration file, or of their folder if the name is empty.
func (d Dir) Conf(file string) string { return d.join(confFolder, file) }

// ComponentKubeconfig is the kubeconfig of a component inside the lab.
func (d Dir) ComponentKubeconfig(component string) string {
	return d.Conf(component + ".kubeconfig")
}

// Log is the log of a process.
func (d Dir) Log(process string) string { return d.join(logsFolder, process+".log") }

// Run is the folder of the records of processes.
func (d Dir) Run() string { return d.join(runFolder) }

// Record is the record of a process.
func (d Dir) Record(process string) string { return d.join(runFolder, process+".json") }

// Etcd is the folder of etcd's data.
func (d Dir) Etcd() string { return d.join(etcdFolder) }

// Pods is the folder of the folders of pod sandboxes.
func (d Dir) Pods() string { return d.join(podsFolder) }

// Pod is the folder of the records of a pod sandbox and its containers.
func (d Dir) Pod(id string) string { return d.join(podsFolder, id) }

// Nodes is the folder of the nodes' folders.
func (d Dir) Nodes() string { return d.join(nodesFolder) }

// Images is the folder of the images that were loaded into the lab.
func (d Dir) Images() string { return d.join(imagesFolder) }

// Volumes is the folder of the volumes of claims.
func (d Dir) Volumes() string { return d.join(volumesFolder) }

// Node is the folder of a node: the state, volumes and logs of its kubelet.
func (d Dir) Node(name string) string { return d.join(nodesFolder, name) }

func (d Dir) join(parts ...string) string {
	return filepath.Join(append([]string{d.path}, parts...)...)
}

// Save writes lab.json.
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

// Load reads lab.json. If it does not exist the error is fs.ErrNotExist.
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

const followPeriod = 100 * time.Millisecond

// Follow calls a function with the content of lab.json, at once and after each change, until the
// context ends.
func (d Dir) Follow(ctx context.Context, log *slog.Logger, do func(Lab)) {
	ticker := time.NewTicker(followPeriod)
	defer ticker.Stop()
	var read time.Time
	for {
		if info, err := os.Stat(d.join(labFile)); err == nil && !info.ModTime().Equal(read) {
			if lab, err := d.Load(); err != nil {
				log.Error("the lab's shape cannot be read", "error", err)
			} else {
				read = info.ModTime()
				do(lab)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Remove removes the folder if it is a lab's. The file that marks it as a lab's goes last, so that an
// interrupted removal can be repeated.
func (d Dir) Remove() error {
	entries, err := os.ReadDir(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("removing lab %q: %w", d.Name(), err)
	}
	if len(entries) > 0 && !d.isLab() {
		return fmt.Errorf("removing lab %q: %s has no %s, so it is not the folder of a lab; if it is one, remove it by hand",
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
	// A waiting process may already be making the next lab of this name.
	err = os.Remove(d.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
		return fmt.Errorf("removing lab %q: %w", d.Name(), err)
	}
	return nil
}
