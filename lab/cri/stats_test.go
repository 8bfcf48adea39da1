package cri

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const mebibyte = 1 << 20

// What a container writes counts: to its root, to a folder that mirrors the machine's, and to
// /tmp and /var/tmp. The files of its image and of volumes do not.
func TestStorageOfAContainer(t *testing.T) {
	folder, image, volume := t.TempDir(), t.TempDir(), t.TempDir()
	for _, path := range []string{filepath.Join(folder, "tmp"), filepath.Join(folder, "var-tmp"), filepath.Join(image, "etc")} {
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(image, "etc", "large"), make([]byte, 8*mebibyte), 0o644); err != nil {
		t.Fatal(err)
	}
	k := keepContainer(t, containerSpec{
		Args: []string{"sh", "-e", "-c", `
			for folder in / /etc /tmp /var/tmp /data; do head -c 1048576 /dev/urandom >$folder/file; done
			ln /tmp/file /tmp/link
			echo written
			exec sleep 3600`},
		Root: image,
		Mounts: []mount{
			{Source: filepath.Join(folder, "tmp"), Target: "/tmp"},
			{Source: filepath.Join(folder, "var-tmp"), Target: "/var/tmp"},
			{Source: volume, Target: "/data"},
		},
	})
	k.printed("written\n")

	n := &node{containers: map[string]*container{}, sandboxes: map[string]*sandbox{}}
	one, other := &sandbox{}, &sandbox{}
	one.ID, other.ID = "one", "other"
	runs, waits := &k.container, other.newContainer(containerRecord{ID: "waits", Config: &runtimeapi.ContainerConfig{}})
	runs.ID, runs.folder, runs.sandbox = "runs", folder, one
	runs.Config = &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Labels: map[string]string{"app": "a"}}
	n.containers["runs"], n.containers["waits"] = runs, waits

	for _, filter := range []*runtimeapi.ContainerStatsFilter{nil, {Id: "runs"}, {PodSandboxId: "one"}, {LabelSelector: map[string]string{"app": "a"}}} {
		stats := listStats(t, n, filter)
		if len(stats) != 1 || stats[0].Attributes.Id != "runs" || stats[0].Attributes.Metadata.Name != "c" {
			t.Fatalf("filter %v finds %v, want the container that runs", filter, stats)
		}
		checkWritten(t, stats[0])
	}
	for _, filter := range []*runtimeapi.ContainerStatsFilter{{Id: "waits"}, {PodSandboxId: "other"}, {LabelSelector: map[string]string{"app": "b"}}} {
		if stats := listStats(t, n, filter); len(stats) != 0 {
			t.Errorf("filter %v finds %v, want nothing", filter, stats)
		}
	}
	answer, err := n.ContainerStats(t.Context(), &runtimeapi.ContainerStatsRequest{ContainerId: "runs"})
	if err != nil {
		t.Fatal(err)
	}
	checkWritten(t, answer.Stats)

	if err := runs.process.signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	k.ends(137)
	if stats := listStats(t, n, nil); len(stats) != 0 {
		t.Errorf("after the end there is %v", stats)
	}
	if answer, err := n.ContainerStats(t.Context(), &runtimeapi.ContainerStatsRequest{ContainerId: "runs"}); err == nil {
		t.Errorf("after the end there is %v", answer)
	}
}

func listStats(t *testing.T, n *node, filter *runtimeapi.ContainerStatsFilter) []*runtimeapi.ContainerStats {
	t.Helper()
	answer, err := n.ListContainerStats(t.Context(), &runtimeapi.ListContainerStatsRequest{Filter: filter})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Stats
}

// checkWritten allows for what a disk's file system takes beside a file's bytes.
func checkWritten(t *testing.T, stats *runtimeapi.ContainerStats) {
	t.Helper()
	if written := stats.WritableLayer.UsedBytes.Value; written < 4*mebibyte || written >= 5*mebibyte {
		t.Errorf("%d bytes were written, want 4 MiB", written)
	}
}

// An image's files can go; what is written is then not less than nothing.
func TestStorageOfAContainerWithoutItsImage(t *testing.T) {
	folder, image := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(image, "large"), make([]byte, mebibyte), 0o644); err != nil {
		t.Fatal(err)
	}
	k := keepContainer(t, containerSpec{Args: []string{"sh", "-e", "-c", "rm /large; echo removed; exec sleep 3600"}, Root: image})
	k.printed("removed\n")
	k.container.folder = folder
	if written, err := k.container.writtenBytes(); err != nil || written != 0 {
		t.Errorf("%d bytes were written, %v; want none", written, err)
	}
}
