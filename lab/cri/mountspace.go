package cri

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

// The kubelets of a lab share a mount namespace in which they mount volumes: the mounts are
// invisible to the machine and end with the lab. The runtime holds the namespace open, and each
// container's mount namespace starts as a copy of it.
//
// In it, the folders of the nodes are at a short path, since the path of a socket has at
// most 107 bytes. That path is the folder of named network namespaces: it exists on a
// machine with labs, and pods must not hold the namespaces of others open anyway.

// KubeletFolder contains the nodes' folders in the mount namespace of the kubelets.
const KubeletFolder = shape.NamespaceFolder

// KubeletOf returns the name of a node's kubelet among the processes of a lab.
func KubeletOf(node string) string { return "kubelet-" + node }

// mountsDescriptor is the runtime's descriptor of the namespace.
const mountsDescriptor = 100

// MountsOf returns the path of the mount namespace that the runtime with a process ID holds.
func MountsOf(pid int) string { return fmt.Sprintf("/proc/%d/fd/%d", pid, mountsDescriptor) }

func ownMounts() string { return MountsOf(os.Getpid()) }

// onMachine translates a path in the kubelets' mount namespace to the machine's path.
func onMachine(d state.Dir, path string) string {
	if inside, ok := strings.CutPrefix(path, KubeletFolder+"/"); ok {
		return filepath.Join(d.Nodes(), inside)
	}
	return path
}

// holdMounts opens the mount namespace of a kubelet that still runs, or makes a new one.
func (r *host) holdMounts(s shape.Shape) error {
	for _, n := range s.Nodes() {
		kubelet, err := process.Find(r.State, KubeletOf(n.Name))
		if err == nil && kubelet.Alive() {
			return holdMountNamespace(fmt.Sprintf("/proc/%d/ns/mnt", kubelet.PID))
		}
	}
	return process.OnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("making a mount namespace: %w", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("making mounts private: %w", err)
		}
		if err := unmountNetworkNamespaces(); err != nil {
			return err
		}
		if err := unix.Mount(r.State.Nodes(), KubeletFolder, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting the nodes' folders: %w", err)
		}
		return holdMountNamespace("/proc/thread-self/ns/mnt")
	})
}

func holdMountNamespace(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening the kubelets' mount namespace: %w", err)
	}
	defer file.Close()
	if err := unix.Dup3(int(file.Fd()), mountsDescriptor, unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("holding the kubelets' mount namespace: %w", err)
	}
	return nil
}

// unmountNetworkNamespaces unmounts network namespaces by name. Otherwise the networks of removed pods would
// stay alive.
func unmountNetworkNamespaces() error {
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
			return fmt.Errorf("unmounting %s: %w", point, err)
		}
	}
	return nil
}
