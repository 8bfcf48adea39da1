package accounting

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// DefaultSwitches is the folder of the kernel's network settings, of the network namespace of the process.
const DefaultSwitches = "/proc/sys/net"

// The switches.
const (
	switchBytes = "nf_conntrack_acct"
	switchEnds  = "nf_conntrack_events"
)

// CountBytes makes the kernel count the bytes of new connections. folder is DefaultSwitches, or another mount if that is
// read-only.
func CountBytes(folder string) error {
	err := os.WriteFile(switchFile(folder, switchBytes), []byte("1"), 0)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return errNotLoaded
	case errors.Is(err, unix.EROFS), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("setting the sysctl net.netfilter.%s to 1: %w; set it on the node, or run where /proc/sys can be written, as in a privileged container", switchBytes, err)
	}
	return fmt.Errorf("setting the sysctl net.netfilter.%s to 1: %w", switchBytes, err)
}

var errNotLoaded = errors.New("connection tracking is not loaded, so the kernel lacks its settings")

func switchFile(folder, name string) string { return filepath.Join(folder, "netfilter", name) }

func (c conntrack) switches() (bytes, ends bool, err error) {
	if bytes, err = isOn(c.folder, switchBytes); err != nil {
		return false, false, err
	}
	ends, err = isOn(c.folder, switchEnds)
	return bytes, ends, err
}

func (c conntrack) countBytes() error { return CountBytes(c.folder) }

func isOn(folder, name string) (bool, error) {
	text, err := os.ReadFile(switchFile(folder, name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, errNotLoaded
	case err != nil:
		return false, fmt.Errorf("reading the sysctl net.netfilter.%s: %w", name, err)
	}
	return strings.TrimSpace(string(text)) != "0", nil
}
