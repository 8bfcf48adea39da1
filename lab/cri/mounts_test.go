package cri

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/lab/process"
)

// An image that is alone has its own files, which it cannot change, its mounts, and what the
// kernel says.
func TestRootOfAnImageAlone(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	folder, scratch, volume := t.TempDir(), filepath.Join(t.TempDir(), "root"), t.TempDir()
	for _, name := range []string{filepath.Join(folder, "etc", "passwd"), filepath.Join(folder, "program")} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte("own"), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	var found []string
	var passwd []byte
	var written, above error
	err := process.OnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		mounts := []mount{{Source: volume, Target: "/etc/config/deep"}, {Source: volume, Target: "/tmp"}}
		if _, err := makeRoot(scratch, rootImage{folder, true}, mounts); err != nil {
			return err
		}
		entries, err := os.ReadDir("/")
		for _, entry := range entries {
			found = append(found, entry.Name())
		}
		passwd, _ = os.ReadFile("/etc/passwd")
		written, above = os.WriteFile("/program", nil, 0o755), os.WriteFile("/etc/passwd", nil, 0o755)
		_, config := os.Stat("/etc/config/deep")
		return errors.Join(err, config)
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"dev", "etc", "proc", "program", "sys", "tmp"}; !slices.Equal(found, want) {
		t.Errorf("the root has %q, want %q", found, want)
	}
	if string(passwd) != "own" {
		t.Errorf("/etc/passwd is %q, want that of the image", passwd)
	}
	if !errors.Is(written, unix.EROFS) || !errors.Is(above, unix.EROFS) {
		t.Errorf("writing the image's files gives %v and %v, want %v", written, above, unix.EROFS)
	}
	if entries, err := os.ReadDir(filepath.Join(folder, "etc")); err != nil || len(entries) != 1 {
		t.Errorf("the image's folder has %v now, %v", entries, err)
	}
}
