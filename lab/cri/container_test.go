package cri

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"vicinity.dev/vicinity/lab/image"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

// specified is what the runtime has a keeper start for a container.
func specified(t *testing.T, images Images, config *runtimeapi.ContainerConfig) containerSpec {
	t.Helper()
	s := shape.Default()
	n := &node{Node: s.Nodes()[0], shape: s, runtime: &host{Options: Options{State: state.At(t.TempDir()), Images: images}}}
	pod := &sandbox{sandboxRecord: sandboxRecord{Config: &runtimeapi.PodSandboxConfig{}}, folder: t.TempDir()}
	c := pod.newContainer(containerRecord{ID: "one", Config: config})
	if err := c.makeFolders(); err != nil {
		t.Fatal(err)
	}
	spec, err := n.specOf(c)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// What an image has is what a container runs, where its pod says nothing else.
func TestContainerOfAnImageOfOthers(t *testing.T) {
	images := Images{Program: "/bin/true", Others: image.Map{{
		Name: "web", Program: "/bin/echo", MountPath: "/web", EntryPoint: []string{"/web"}, Args: []string{"default"},
		Env: map[string]string{"COLOR": "blue", "SIZE": "1", "HOME": "/web"}, Root: "/image", Mounts: map[string]string{"/tool": "/bin/cat", "/also": "/bin/sh"},
	}}}
	spec := specified(t, images, &runtimeapi.ContainerConfig{
		Image: &runtimeapi.ImageSpec{Image: "example.org/web:1"}, Envs: []*runtimeapi.KeyValue{{Key: "COLOR", Value: []byte("green")}},
	})
	if !slices.Equal(spec.Args, []string{"/web", "default"}) || spec.Root != "/image" {
		t.Errorf("it runs %q over %q", spec.Args, spec.Root)
	}
	for _, want := range []string{"COLOR=green", "SIZE=1", "HOME=/web", "VICINITY_ZONE=zone-a"} {
		if !slices.Contains(spec.Env, want) {
			t.Errorf("%s is not in %q", want, spec.Env)
		}
	}
	want := []mount{
		{Source: "/bin/echo", Target: "/web", ReadOnly: true, OfImage: true},
		{Source: "/bin/sh", Target: "/also", ReadOnly: true, OfImage: true},
		{Source: "/bin/cat", Target: "/tool", ReadOnly: true, OfImage: true},
	}
	if got := spec.Mounts[len(spec.Mounts)-len(want):]; !slices.Equal(got, want) {
		t.Errorf("its mounts are %v, want %v", got, want)
	}
	spec = specified(t, images, &runtimeapi.ContainerConfig{Image: &runtimeapi.ImageSpec{Image: "web"}, Command: []string{"sh"}, Args: []string{"-c", "true"}})
	if !slices.Equal(spec.Args, []string{"sh", "-c", "true"}) {
		t.Errorf("with a command it runs %q", spec.Args)
	}
}

// A volume covers what the image has at its path or below.
func TestVolumesCoverTheImage(t *testing.T) {
	images := Images{Program: "/bin/true", Others: image.Map{{
		Name: "web", Args: []string{"sh"}, Mounts: map[string]string{"/pages": "/etc", "/site/index": "/bin/cat", "/sites": "/bin"},
	}}}
	volumes := []*runtimeapi.Mount{{HostPath: "/opt", ContainerPath: "/pages/"}, {HostPath: "/srv", ContainerPath: "/site"}}
	spec := specified(t, images, &runtimeapi.ContainerConfig{Image: &runtimeapi.ImageSpec{Image: "web"}, Mounts: volumes})
	want := []mount{{Source: "/opt", Target: "/pages/"}, {Source: "/srv", Target: "/site"}, {Source: "/bin", Target: "/sites", ReadOnly: true, OfImage: true}}
	if got := spec.Mounts[len(temporary):]; !slices.Equal(got, want) {
		t.Errorf("its mounts are %v, want %v", got, want)
	}
}

// A hostPath volume of a folder that is not there gets one, as on other nodes.
func TestMissingFoldersOfVolumesAreMade(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(folder, "a", "b")
	if err := makeSources([]*runtimeapi.Mount{{HostPath: missing}, {HostPath: file}}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(missing); err != nil || !info.IsDir() || info.Mode().Perm() != 0o755 {
		t.Errorf("the folder is %v, %v", info, err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "kept" {
		t.Errorf("a file that was there has %q, %v", text, err)
	}
	if err := makeSources([]*runtimeapi.Mount{{HostPath: "/proc/none"}}); err == nil || !strings.Contains(err.Error(), "hostPath volume: mkdir /proc/none") {
		t.Errorf("the error is %v", err)
	}
}

// Mount points inside what an image mounts are not made on the machine.
func TestContainerLeavesTheFoldersOfItsImage(t *testing.T) {
	folder, volume := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "page"), []byte("page\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k := keepContainer(t, containerSpec{
		Args: []string{"sh", "-c", "cat /pages/page; ls /pages; echo mine >/pages/data/file; touch /pages/other 2>&1 | grep -o Read-only"},
		Mounts: []mount{
			{Source: folder, Target: "/pages", ReadOnly: true, OfImage: true},
			{Source: volume, Target: "/pages/data"},
		},
	})
	k.ends(0)
	k.printed("page\ndata\npage\nRead-only\n")
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 1 {
		t.Errorf("the machine's folder has %v, %v", entries, err)
	}
	if text, err := os.ReadFile(filepath.Join(volume, "file")); err != nil || string(text) != "mine\n" {
		t.Errorf("the volume's file is %q, %v", text, err)
	}
}

// A container has a /tmp and a /var/tmp of its own, where its pod mounts nothing else.
func TestContainerHasItsOwnTmp(t *testing.T) {
	images := Images{Program: "/bin/true"}
	config := &runtimeapi.ContainerConfig{Image: &runtimeapi.ImageSpec{Image: "lab/sleep"}}
	script := ""
	for _, folder := range []string{"/tmp", "/var/tmp"} {
		file := filepath.Join(folder, filepath.Base(t.TempDir())+"-of-the-machine")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(file) })
		script += "cd " + folder + "; ls -A .; stat -c %a .; echo own >own; mv own mine; cat mine; "
	}
	k := keepContainer(t, containerSpec{Args: []string{"sh", "-c", script}, Mounts: specified(t, images, config).Mounts})
	k.ends(0)
	k.printed("1777\nown\n1777\nown\n")

	volume := t.TempDir()
	if err := os.WriteFile(filepath.Join(volume, "kept"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	config.Mounts = []*runtimeapi.Mount{{HostPath: volume, ContainerPath: "/tmp"}}
	k = keepContainer(t, containerSpec{Args: []string{"ls", "-A", "/tmp"}, Mounts: specified(t, images, config).Mounts})
	k.ends(0)
	k.printed("kept\n")
}
