package cri

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

// kept is a container with a running keeper, without a pod.
type kept struct {
	t         *testing.T
	folder    string
	container container
	ended     chan error
}

// testHost is a runtime whose processes are this program.
func testHost() *host {
	return &host{Self: []string{os.Args[0]}, Log: slog.Default()}
}

func keepContainer(t *testing.T, spec containerSpec) *kept {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("makes mount namespaces, which needs root")
	}
	k := &kept{t: t, folder: t.TempDir(), ended: make(chan error, 1)}
	spec.Starter = []string{os.Args[0], becomeCommand}
	spec.Dir, spec.Env, spec.Log = "/", os.Environ(), filepath.Join(k.folder, "log")
	if err := writeJSON(filepath.Join(k.folder, specFile), spec); err != nil {
		t.Fatal(err)
	}
	b, cmd, err := testHost().startKeeper(k.folder)
	if err != nil {
		t.Fatal(err)
	}
	k.container.markStarted(b)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		k.ended <- cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = b.Process.killGroup() // most have ended
		<-gone
	})
	if b.Error != "" {
		t.Fatal(b.Error)
	}
	return k
}

// waitOutput waits for a text in the log.
func (k *kept) waitOutput(want string) {
	k.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		var b strings.Builder
		log, err := os.ReadFile(filepath.Join(k.folder, "log"))
		for line := range strings.Lines(string(log)) {
			b.WriteString(strings.SplitN(line, " ", 4)[3]) // after time, stream and tag
		}
		if err == nil && b.String() == want {
			return
		}
		if time.Now().After(deadline) {
			k.t.Fatalf("the container printed %q, want %q", b.String(), want)
		}
	}
}

func (k *kept) waitExit(code int32) {
	k.t.Helper()
	select {
	case err := <-k.ended:
		if err != nil {
			k.t.Error(err)
		}
	case <-time.After(time.Minute):
		k.t.Fatal("the container does not end")
	}
	var e exitReport
	if err := readJSON(filepath.Join(k.folder, endFile), &e); err != nil || e.ExitCode != code {
		k.t.Errorf("ended with %d, %v; want %d", e.ExitCode, err, code)
	}
}

// A container has the files of its image, besides the machine's files and its mounts. Its writes and
// mount points do not get to the machine or into the image.
func TestContainerFiles(t *testing.T) {
	root, beside, volume := t.TempDir(), t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		root + "/srv/www/index.html": "page", root + "/etc/passwd": "image", root + "/tool": "#!/bin/sh\necho tool\n",
		beside + "/hosts": "hosts", beside + "/agnhost": "#!/bin/sh\necho agnhost\n", beside + "/site/page": "site",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("srv/www", root+"/pages"), os.Mkdir(root+"/proc", 0o755)); err != nil {
		t.Fatal(err)
	}
	machine, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	k := keepContainer(t, containerSpec{
		Args: []string{"sh", "-e", "-c", `
			cat /pages/index.html /etc/passwd /etc/hosts /site/page; echo
			/agnhost; /tool; ls /etc/ssl >/dev/null; ls /proc/$$/exe >/dev/null
			mv /srv/www/index.html /srv/www/other; mv /etc/passwd /etc/mine; rm /tool
			cat /srv/www/other /etc/mine; echo; ls /srv/www
			echo mine >/site/data/file; touch /site/other 2>&1 | grep -o Read-only`},
		Root: root,
		Mounts: []mount{
			{Source: beside + "/hosts", Target: "/etc/hosts"},
			{Source: beside + "/agnhost", Target: "/agnhost", ReadOnly: true},
			{Source: beside + "/site", Target: "/site", ReadOnly: true, OfImage: true},
			{Source: volume, Target: "/site/data"},
		},
	})
	k.waitExit(0)
	k.waitOutput("pageimagehostssite\nagnhost\ntool\npageimage\nother\nRead-only\n")
	for path, want := range map[string]string{"/etc/passwd": string(machine), root + "/srv/www/index.html": "page", volume + "/file": "mine\n"} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v; want %q", path, got, err, want)
		}
	}
	if entries, err := os.ReadDir(beside + "/site"); err != nil || len(entries) != 1 {
		t.Errorf("the folder that the image mounts has entries %v, %v; want one", entries, err)
	}
	for _, path := range []string{"/agnhost", "/site"} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the mount point %s is on the machine: %v", path, err)
		}
	}
}

func TestContainerCapabilities(t *testing.T) {
	forbid, err := droppedCapabilities(&runtimeapi.Capability{DropCapabilities: []string{"ALL"}, AddCapabilities: []string{"NET_ADMIN"}})
	if err != nil {
		t.Fatal(err)
	}
	k := keepContainer(t, containerSpec{
		Args:        []string{"grep", "-E", "^Cap(Prm|Eff|Bnd)", "/proc/self/status"},
		programSpec: programSpec{Forbidden: forbid},
	})
	mask := fmt.Sprintf("%016x", 1<<unix.CAP_NET_ADMIN)
	k.waitOutput("CapPrm:\t" + mask + "\nCapEff:\t" + mask + "\nCapBnd:\t" + mask + "\n")
}

// specifiedMounts returns the mounts of a container with volumes.
func specifiedMounts(t *testing.T, volumes ...*runtimeapi.Mount) []mount {
	t.Helper()
	s := shape.Default()
	n := &node{Node: s.Nodes()[0], shape: s, runtime: &host{State: state.At(t.TempDir()), Images: Images{Program: "/bin/true"}}}
	pod := &sandbox{sandboxRecord: sandboxRecord{Config: &runtimeapi.PodSandboxConfig{}}, folder: t.TempDir()}
	c := pod.newContainer(containerRecord{ID: "one", Config: &runtimeapi.ContainerConfig{Image: &runtimeapi.ImageSpec{Image: "lab/sleep"}, Mounts: volumes}})
	if err := c.makeFolders(); err != nil {
		t.Fatal(err)
	}
	spec, err := n.specOf(c)
	if err != nil {
		t.Fatal(err)
	}
	return spec.Mounts
}

// A container has a /tmp and a /var/tmp of its own, unless its pod mounts a volume there.
func TestContainerTmp(t *testing.T) {
	script := ""
	for _, folder := range []string{"/tmp", "/var/tmp"} {
		file, err := os.CreateTemp(folder, "of-the-machine-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = file.Close(), os.Remove(file.Name()) })
		script += "cd " + folder + "; ls -A .; stat -c %a .; echo own >own; mv own mine; cat mine; "
	}
	k := keepContainer(t, containerSpec{Args: []string{"sh", "-c", script}, Mounts: specifiedMounts(t)})
	k.waitExit(0)
	k.waitOutput("1777\nown\n1777\nown\n")

	volume := t.TempDir()
	if err := os.WriteFile(filepath.Join(volume, "kept"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	k = keepContainer(t, containerSpec{
		Args: []string{"ls", "-A", "/tmp"}, Mounts: specifiedMounts(t, &runtimeapi.Mount{HostPath: volume, ContainerPath: "/tmp"}),
	})
	k.waitExit(0)
	k.waitOutput("kept\n")
}

// waitGone waits for the end of a killed process, which takes the kernel a moment.
func waitGone(t *testing.T, what string, p processID) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); p.isAlive(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%s is still alive", what)
		}
	}
}
