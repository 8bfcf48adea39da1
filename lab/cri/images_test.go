package cri

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vicinity.dev/vicinity/lab/image"
)

func TestImages(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"vicinity-dns", "agnhost"} {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	images := Images{Program: "/bin/vicinity", Folder: folder}
	others, err := image.Read(strings.NewReader("images: [{name: agnhost, program: agnhost}, {name: '*', args: [sh]}]"), folder)
	if err != nil {
		t.Fatal(err)
	}
	all := images
	all.Others = others
	for name, want := range map[string][]string{
		"lab/echo":   {"/.image/vicinity", "program", "echo"},
		"lab/echo:1": {"/.image/vicinity", "program", "echo"},
		"registry.example:5000/lab/echo:1@sha256:0": {"/.image/vicinity", "program", "echo"},
		"docker.io/lab/echo":                        {"/.image/vicinity", "program", "echo"},
		"vicinity-dns":                              {"/.image/vicinity-dns"},
	} {
		// The lab's own images are not for others to replace.
		for _, images := range []Images{images, all} {
			if got, err := images.Resolve(name); err != nil || !slices.Equal(got.Command(nil, nil), want) {
				t.Errorf("%s is %v, %v", name, got, err)
			}
		}
	}
	for _, name := range []string{"nginx", "lab/other", "lab/", "vicinity-nothing", "slab/echo"} {
		if got, err := images.Resolve(name); err == nil {
			t.Errorf("%s is %v", name, got)
		}
	}
	if got, err := all.Resolve("registry.k8s.io/agnhost:2"); err != nil || got.Program != filepath.Join(folder, "agnhost") {
		t.Errorf("agnhost is %v, %v", got, err)
	}
	if got, err := all.Resolve("vicinity-nothing"); err == nil {
		t.Errorf("vicinity-nothing is %v", got)
	}
	// A program may go after the lab was brought up.
	if err := os.Remove(filepath.Join(folder, "agnhost")); err != nil {
		t.Fatal(err)
	}
	if got, err := all.Resolve("agnhost"); err == nil || !strings.Contains(err.Error(), folder+"/agnhost") {
		t.Errorf("agnhost without its program is %v, %v", got, err)
	}
}

func TestImagesSaysWhichThereAre(t *testing.T) {
	images := Images{Program: "/bin/vicinity", Folder: "/bin", Others: image.Map{{Name: "agnhost"}, {Name: "web/*"}}}
	_, err := images.Resolve("nginx")
	if err == nil || !strings.Contains(err.Error(), "and those of --images, which are agnhost, web/*") {
		t.Errorf("nginx: %v", err)
	}
}
