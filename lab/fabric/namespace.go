package fabric

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/lab/shape"
)

// InNamespace calls a function on a thread in a named network namespace. Sockets that the
// function opens stay in the namespace. Goroutines that it starts are not in the namespace.
func InNamespace(name string, f func() error) error {
	return process.OnThread(func() error {
		namespace, err := netns.GetFromPath(shape.NamespacePath(name))
		if err != nil {
			return fmt.Errorf("entering network namespace %q: %w; bring the lab up again if it is gone", name, err)
		}
		defer namespace.Close()
		if err := netns.Set(namespace); err != nil {
			return fmt.Errorf("entering network namespace %q: %w", name, withRemedy(err))
		}
		return f()
	})
}

func withHandleIn(name string, f func(*netlink.Handle) error) error {
	return InNamespace(name, func() error { return withHandle(f) })
}

func withHandle(f func(*netlink.Handle) error) error {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("talking to the kernel: %w", err)
	}
	defer handle.Close()
	return f(handle)
}

// sysctls make a namespace forward packets between all its links, and use new addresses at
// once. They are set before links are added, which inherit the defaults.
var sysctls = []struct {
	path, value string
}{
	{"net/ipv4/ip_forward", "1"},
	{"net/ipv4/conf/all/rp_filter", "0"},
	{"net/ipv4/conf/default/rp_filter", "0"},
	{"net/ipv4/conf/all/send_redirects", "0"},
	{"net/ipv4/conf/default/send_redirects", "0"},
	{"net/ipv6/conf/all/disable_ipv6", "0"},
	{"net/ipv6/conf/default/disable_ipv6", "0"},
	{"net/ipv6/conf/lo/disable_ipv6", "0"},
	{"net/ipv6/conf/all/forwarding", "1"},
	{"net/ipv6/conf/default/accept_dad", "0"},
	{"net/ipv6/conf/default/dad_transmits", "0"},
	{"net/ipv6/conf/all/accept_dad", "0"},
	{"net/ipv6/conf/default/accept_ra", "0"},
}

// makeNamespace makes a named network namespace and, unless f is nil, calls f in it.
func makeNamespace(name string, f func(*netlink.Handle) error) error {
	if err := prepareFolder(); err != nil {
		return err
	}
	return process.OnThread(func() error {
		made, err := netns.NewNamed(name)
		if err != nil {
			return fmt.Errorf("making network namespace %q: %w", name, withRemedy(err))
		}
		defer made.Close()
		if err := setSysctls(); err != nil {
			return err
		}
		return withHandle(func(handle *netlink.Handle) error {
			lo, err := handle.LinkByName("lo")
			if err != nil {
				return err
			}
			if err := handle.LinkSetUp(lo); err != nil {
				return err
			}
			if f == nil {
				return nil
			}
			return f(handle)
		})
	})
}

// prepareFolder makes the folder of named namespaces a shared mount, as ip netns does. Removing a
// namespace then also removes it from other mount namespaces.
func prepareFolder() error {
	const folder = shape.NamespaceFolder
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("making the folder of network namespaces: %w", withRemedy(err))
	}
	for try := 0; ; try++ {
		err := unix.Mount("", folder, "", unix.MS_SHARED|unix.MS_REC, "")
		if err == nil {
			return nil
		}
		// The folder is not a mount point yet.
		if try > 0 || !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("sharing the mounts in %s: %w", folder, withRemedy(err))
		}
		if err := unix.Mount(folder, folder, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", folder, withRemedy(err))
		}
	}
}

// setSysctls sets up the namespace of this thread. It does not write correct values again, since a
// value may be read-only.
func setSysctls() error {
	for _, sysctl := range sysctls {
		path := filepath.Join("/proc/sys", sysctl.path)
		old, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the kernel has no IPv6 and will refuse IPv6 addresses
		} else if err != nil {
			return fmt.Errorf("setting up a network namespace: %w", withRemedy(err))
		}
		if string(old) == sysctl.value+"\n" {
			continue
		}
		if err := os.WriteFile(path, []byte(sysctl.value), 0); err != nil {
			return fmt.Errorf("setting %s to %s in a network namespace: %w", sysctl.path, sysctl.value, withRemedy(err))
		}
	}
	return nil
}

// removeNamespace removes a named network namespace, if it exists, even if it was never
// mounted.
func removeNamespace(name string) error {
	path := shape.NamespacePath(name)
	for {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err == nil {
			continue // another mount may be below
		}
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			break // not a mount
		}
		return fmt.Errorf("removing network namespace %q: %w", name, withRemedy(err))
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing network namespace %q: %w", name, withRemedy(err))
	}
	return nil
}

// withRemedy adds the remedy to an error of the kernel.
func withRemedy(err error) error {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w; run as root, in a container with all privileges, or without a network with --control-plane-only", err)
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("%w; run in a container with all privileges", err)
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("%w; the kernel must offer network namespaces, veth and nftables", err)
	}
	return err
}

// Check returns an error with a remedy if this machine cannot make a lab with a network.
func Check() error {
	return process.OnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("trying network namespaces: %w", withRemedy(err))
		}
		err := withHandle(func(handle *netlink.Handle) error {
			return handle.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a"}, PeerName: "b"})
		})
		if err != nil {
			return fmt.Errorf("trying to link network namespaces: %w", withRemedy(err))
		}
		if err := tryRules(); err != nil {
			return fmt.Errorf("trying nftables: %w", withRemedy(err))
		}
		return nil
	})
}
